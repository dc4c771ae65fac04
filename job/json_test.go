package job_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/job"
)

func sameJob(t interface{ Fatalf(string, ...any) }, j *job.Job) bool {
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(j); err != nil {
		t.Fatalf("%v", err)
	}
	got, ok := j.AppendJSON(nil)
	if ok && string(got)+"\n" != want.String() {
		t.Fatalf("%s and not %s", got, want.String())
	}
	return ok
}

// A job is shown the same whether it was written without reflection or by encoding/json.
func TestJobsAreShownAsJSON(t *testing.T) {
	n, f := 3, 0.2
	usual := job.Job{ID: 1 << 40, Status: job.StatusScheduled,
		Spec: job.Spec{Name: "a", Type: job.TypeHTTP, Schedule: "0 9 * * MON-FRI",
			Payload: []byte(`{"url":"http://x?a=b&c=<d>","body":"a \" b \\"}`)},
		NextRunAt: 1_800_000_000_123, Version: 1, CreatedAt: 1_700_000_000_000, UpdatedAt: 1_700_000_000_000}
	if !sameJob(t, &usual) {
		t.Error("a usual job needs encoding/json")
	}
	usual.Normalize()
	if !sameJob(t, &usual) {
		t.Error("a normalized job needs encoding/json")
	}
	usual.Retry = job.Retry{MaxRetries: &n, Jitter: &f}
	usual.Payload = []byte(`{ "url": "http://x" }`)
	if sameJob(t, &usual) {
		t.Error("space in a payload is not noticed")
	}
	rapid.Check(t, func(t *rapid.T) {
		var j job.Job
		draw(t, reflect.ValueOf(&j).Elem())
		j.Payload = []byte(rapid.SampledFrom([]string{`{}`, `"a b"`, `[1, 2]`, `"\" "`, `{"a":"\u2028<>&"}`,
			"\"\u2028\""}).Draw(t, "payload"))
		sameJob(t, &j)
	})
}

// Every field of a job is read without reflection, whatever is added to them.
func TestEveryFieldIsReadWithoutReflection(t *testing.T) {
	var full job.Spec
	set(t, reflect.ValueOf(&full).Elem())
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := job.PlainSpec(text); !ok || !reflect.DeepEqual(got, full) {
		t.Errorf("%t\n%+v of\n%+v", ok, got, full)
	}
	v := reflect.ValueOf(full)
	for i := range v.NumField() { // each alone
		var one job.Spec
		reflect.ValueOf(&one).Elem().Field(i).Set(v.Field(i))
		if one.Payload == nil {
			one.Payload = full.Payload
		}
		text, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := job.PlainSpec(text); !ok || !reflect.DeepEqual(got, one) {
			t.Errorf("%t %s is read as %+v", ok, text, got)
		}
	}
}

// set gives every field a plain value.
func set(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			set(t, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(t, v.Elem())
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(7_000)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(`{"a":[1]}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		set(t, v.Index(0))
		set(t, v.Index(1))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"k": "v", "l": ""}))
	default:
		t.Fatalf("a %s cannot be set", v.Kind())
	}
}

// draw fills some of the fields there are.
func draw(t *rapid.T, v reflect.Value) {
	if rapid.IntRange(0, 2).Draw(t, "leave empty") == 0 {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			draw(t, v.Field(i))
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "pointer") || v.Type().Elem().Kind() != reflect.Struct {
			v.Set(reflect.New(v.Type().Elem()))
			draw(t, v.Elem())
		}
	case reflect.String:
		v.SetString(rapid.SampledFrom([]string{"a", "run_once", "a \"quote\"", "<&>", "ü", "\x7f", "\xff", "tab\t"}).Draw(t,
			"string"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(-1<<50, 1<<50).Draw(t, "int"))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint"))
	case reflect.Float64:
		v.SetFloat(rapid.SampledFrom([]float64{0, 1, 0.2, 1e-7, 1e22, 0.333333333333, -1}).Draw(t, "float"))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.ValueOf([]string{"x"}).Convert(v.Type()))
		}
	case reflect.Map:
		if rapid.Bool().Draw(t, "map") {
			v.Set(reflect.ValueOf(map[string]string{"k": "v"}))
		}
	}
}

func BenchmarkShowJob(b *testing.B) {
	j := job.Job{ID: 1 << 40, Status: job.StatusScheduled,
		Spec: job.Spec{Name: "a", Type: job.TypeHTTP, Schedule: "0 9 * * MON-FRI",
			Payload: []byte(`{"url":"http://127.0.0.1:9/yearly"}`)},
		NextRunAt: 1_800_000_000_123, Version: 1, CreatedAt: 1_700_000_000_000, UpdatedAt: 1_700_000_000_000}
	j.Normalize()
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := j.AppendJSON(nil); !ok {
			b.Fatal("it needs encoding/json")
		}
	}
}
