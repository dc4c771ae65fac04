package store

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/job"
)

// drawDefinition fills every field there is, by reflection, so that one that is added later is drawn too.
func drawDefinition(t *rapid.T) Definition {
	var d Definition
	fill(t, reflect.ValueOf(&d).Elem())
	return d
}

func fill(t *rapid.T, v reflect.Value) {
	if rapid.IntRange(0, 3).Draw(t, "leave empty") == 0 {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		fill(t, p.Elem())
		v.Set(p)
	case reflect.String:
		v.SetString(rapid.SampledFrom([]string{"http", "skip", "UTC", "Europe/Paris", rapid.String().Draw(t, "text"), string(make([]byte, 300)), string(make([]byte, 70_000))}).Draw(t, "string"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "int"))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint"))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Byte().Draw(t, "byte")))
	case reflect.Float64:
		v.SetFloat(rapid.Float64().Draw(t, "float"))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(make([]byte, rapid.SampledFrom([]int{1, 200, 300, 70_000}).Draw(t, "length")))
			return
		}
		n := rapid.IntRange(1, 20).Draw(t, "length")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rapid.IntRange(1, 20).Draw(t, "length") {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, k)
			fill(t, e)
			v.SetMapIndex(k, e)
		}
	default:
		t.Fatalf("cannot fill a %s", v.Kind())
	}
}

// What is written is read back, by the reader without reflection and by the library.
func TestDefinitionAgreesWithTheLibrary(t *testing.T) {
	same := func(t interface{ Fatalf(string, ...any) }, d Definition) {
		data := d.Append(nil)
		if got, err := decodeDefinition(data); err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("the library reads\n%+v (%v) and not\n%+v", got, err, d)
		}
		if got, ok := readDefinition(data); ok && !reflect.DeepEqual(got, d) {
			t.Fatalf("read\n%+v\nand not\n%+v", got, d)
		}
	}
	same(t, Definition{})
	zero, none := 0, 0.0
	same(t, Definition{Spec: job.Spec{Payload: []byte{}, Retry: job.Retry{MaxRetries: &zero, Jitter: &none}, Notify: &job.Notify{}}})
	for _, n := range []int64{1, -1, 127, 128, 255, 256, -32, -33, -128, -129, 1<<15 - 1, 1 << 15, -1 << 15, -1<<15 - 1, 1<<31 - 1, 1 << 31, -1 << 31, -1<<31 - 1, math.MaxInt64, math.MinInt64} {
		same(t, Definition{CreatedAt: n, Version: uint64(n), Spec: job.Spec{Concurrency: int(n), Timeout: job.Duration(n)}})
	}
	like := reflect.ValueOf(usualSpec())
	rapid.Check(t, func(t *rapid.T) {
		d := drawDefinition(t)
		v := reflect.ValueOf(&d.Spec).Elem()
		for i := range v.NumField() { // much of it is as usual
			if !like.Field(i).IsZero() && rapid.Bool().Draw(t, v.Type().Field(i).Name) {
				v.Field(i).Set(like.Field(i))
			}
		}
		if rapid.Bool().Draw(t, "never edited") {
			d.UpdatedAt = d.CreatedAt
		}
		same(t, d)
	})
}

// What the stored form leaves out is a part of the format: these bytes mean this for ever, and they are what an ordinary job has.
func TestStoredFormIsFixed(t *testing.T) {
	n, f := 3, 0.2
	d := Definition{Version: 1, CreatedAt: 1_800_000_000_000, UpdatedAt: 1_800_000_000_000, Spec: job.Spec{Name: "a", Type: job.TypeHTTP, Schedule: "@daily", Payload: []byte("{}"),
		Timezone: "UTC", Overlap: "skip", Delivery: "at_least_once", Priority: "normal", DSTGap: "run_after", Timeout: 300e9, Retention: 86400e9,
		Missed: job.Missed{Policy: "run_once", Window: "auto", Max: 10, Grace: 60e9}, Retry: job.Retry{MaxRetries: &n, Backoff: "exponential", Base: 1e9, Cap: 300e9, Jitter: &f}}}
	const bytes = "\x83\xa1c\xd3\x00\x00\x01\xa3\x18\\P\x00\xa1s\x84\xa1n\xa1a\xa1p\xc4\x02{}\xa1s\xa6@daily\xa1t\xa4http\xa1v\x01"
	if got := d.Append(nil); string(got) != bytes {
		t.Errorf("%q", got)
	}
	if got, ok := readDefinition([]byte(bytes)); !ok || !reflect.DeepEqual(got, d) {
		t.Errorf("read %t %+v", ok, got)
	}
	for cut := range len(bytes) {
		if _, ok := readDefinition([]byte(bytes[:cut])); ok {
			t.Fatalf("believed the first %d of %d bytes", cut, len(bytes))
		}
	}
	spec := job.Spec{Name: "a", Type: job.TypeHTTP, Schedule: "@daily", Payload: []byte("{}")}
	if spec.Normalize(); !reflect.DeepEqual(spec, d.Spec) {
		t.Errorf("a job that says nothing has %+v: definitions are longer than they need to be", spec)
	}
	got, _ := readDefinition([]byte(bytes))
	if *got.Spec.Retry.MaxRetries, *got.Spec.Retry.Jitter = 9, 9; *usual.Retry.MaxRetries != 3 || *usual.Retry.Jitter != 0.2 {
		t.Error("definitions share what they point to")
	}
	// Half a definition, without a rule for retries.
	d.Spec.Retry.Jitter = nil
	if got, err := DecodeDefinition(d.Append(nil)); err != nil || !reflect.DeepEqual(got, d) {
		t.Errorf("%+v %v", got, err)
	}
}

// An ordinary definition, with every field that jobs usually have, must not need the library.
func TestReadDefinitionKnowsAllFields(t *testing.T) {
	n, f := 3, 0.5
	d := Definition{Version: 7, CreatedAt: 1_800_000_000_000, UpdatedAt: 1_800_000_000_001, Spec: job.Spec{Name: "n", Type: job.TypeHTTP,
		Schedule: "0 3 * * *", Timezone: "Europe/Berlin", Payload: []byte(`{"url":"http://x"}`), Retry: job.Retry{MaxRetries: &n, Backoff: "linear", Base: 1, Cap: 1 << 40, Jitter: &f},
		Timeout: 1, Deadline: 2, Missed: job.Missed{Policy: "skip", Window: "auto", Max: 3, Grace: 4}, Overlap: "skip", Delivery: "at_most_once", Priority: "low",
		Concurrency: 5, Jitter: 6, StartAt: 7, EndAt: 8, MaxRuns: 9, Calendars: []string{"a", "b"}, Tags: map[string]string{"k": "v"}, Workers: map[string]string{"w": "x"},
		IdempotencyKey: "k", Retention: 10, DSTGap: "skip", DSTOverlap: "both",
		Notify: &job.Notify{On: []string{"failure", "recovery"}, Webhook: "ops", Email: []string{"a@example.com", "b@example.com"}}}}
	if v := reflect.ValueOf(d.Spec); true {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Fatalf("%s is not part of this test", v.Type().Field(i).Name)
			}
		}
	}
	data := d.Append(nil)
	got, ok := readDefinition(data)
	if !ok || !reflect.DeepEqual(got, d) {
		t.Fatalf("read %t\n%+v\nof\n%+v", ok, got, d)
	}
	for cut := range data { // what is cut short is never believed
		if _, ok := readDefinition(data[:cut]); ok {
			t.Fatalf("believed the first %d of %d bytes", cut, len(data))
		}
	}
}

// benchDefinition is an ordinary job.
func benchDefinition() Definition {
	d := Definition{Version: 1, CreatedAt: 1_800_000_000_000, UpdatedAt: 1_800_000_000_000, Spec: job.Spec{Name: "9e3779b97f4a7c15-idle-0", Type: job.TypeHTTP,
		Schedule: "0 0 3 * * *", Payload: []byte(`{"url":"http://127.0.0.1:9/reports/daily","method":"POST"}`)}}
	d.Spec.Normalize()
	return d
}

func BenchmarkDecodeDefinition(b *testing.B) {
	d := benchDefinition()
	data := d.Append(nil)
	for name, decode := range map[string]func() error{
		"own":     func() error { _, err := DecodeDefinition(data); return err },
		"library": func() error { _, err := decodeDefinition(data); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodeDefinition(b *testing.B) {
	d := benchDefinition()
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf = d.Append(buf[:0])
	}
	b.ReportMetric(float64(len(buf)), "bytes")
}
