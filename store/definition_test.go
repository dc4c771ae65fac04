package store

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
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
		v.SetString(rapid.SampledFrom([]string{"http", "skip", "UTC", "Europe/Paris", rapid.String().Draw(t, "text"),
			string(make([]byte, 300)), string(make([]byte, 70_000))}).Draw(t, "string"))
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

// differing is what of a struct is not as usual, by the names that it is stored under.
func differing(v, usual reflect.Value) map[string]any {
	out := map[string]any{}
	for i := range v.NumField() {
		key, f, u := v.Type().Field(i).Tag.Get("codec"), v.Field(i), usual.Field(i)
		inside := f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct
		switch {
		case inside && !f.IsNil():
			out[key] = differing(f.Elem(), reflect.Zero(f.Type().Elem()))
		case f.Kind() == reflect.Struct:
			if m := differing(f, u); len(m) > 0 {
				out[key] = m
			}
		case (f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.String || f.Kind() == reflect.Map) &&
			f.Len() == 0:
		case !reflect.DeepEqual(f.Interface(), u.Interface()):
			out[key] = f.Interface()
		}
	}
	return out
}

// The stored form is, byte by byte, what the library makes of the fields that are not as usual, and it is read back as
// it was, by DecodeDefinition and by the library. All fields there are take part, by reflection.
func TestDefinitionsAgreeWithTheLibrary(t *testing.T) {
	var like job.Spec
	setDefaults(&like)
	check := func(t interface{ Fatalf(string, ...any) }, d *Definition) {
		m := map[string]any{"c": d.CreatedAt, "s": differing(reflect.ValueOf(d.Spec), reflect.ValueOf(like)), "v": d.Version}
		if d.UpdatedAt != d.CreatedAt {
			m["u"] = d.UpdatedAt
		}
		if d.Follows != 0 {
			m["f"] = d.Follows
		}
		var want []byte
		if err := codec.NewEncoderBytes(&want, handle).Encode(m); err != nil {
			t.Fatalf("%v", err)
		}
		data := d.Append(nil)
		if !bytes.Equal(data, want) {
			t.Fatalf("%+v is stored as\n%x and not\n%x", d, data, want)
		}
		got, err := DecodeDefinition(data)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if again := got.Append(nil); !bytes.Equal(again, data) {
			t.Fatalf("stored again it is\n%x and not\n%x", again, data)
		}
		theirs := Definition{UpdatedAt: d.CreatedAt}
		setDefaults(&theirs.Spec)
		if err := codec.NewDecoderBytes(data, handle).Decode(&theirs); err != nil || !reflect.DeepEqual(got, theirs) {
			t.Fatalf("read\n%+v\nand by the library\n%+v, %v", got, theirs, err)
		}
	}
	check(t, &Definition{})
	zero, none := 0, 0.0
	check(t, &Definition{Spec: job.Spec{Payload: []byte{}, Retry: job.Retry{MaxRetries: &zero, Jitter: &none},
		Notify: &job.Notify{}, Tags: map[string]string{}, Calendars: []string{}}})
	for _, n := range []int64{1, -1, 127, 128, 255, 256, -32, -33, -128, -129, 1<<15 - 1, 1 << 15, -1 << 15, -1<<15 - 1,
		1<<31 - 1, 1 << 31, -1 << 31, -1<<31 - 1, math.MaxInt64, math.MinInt64} {
		check(t, &Definition{CreatedAt: n, Version: uint64(n), Spec: job.Spec{Concurrency: int(n), Timeout: job.Duration(n)}})
	}
	rapid.Check(t, func(t *rapid.T) {
		d := drawDefinition(t)
		v, u := reflect.ValueOf(&d.Spec).Elem(), reflect.ValueOf(like)
		for i := range v.NumField() { // much of it is as usual
			if !u.Field(i).IsZero() && rapid.Bool().Draw(t, v.Type().Field(i).Name) {
				v.Field(i).Set(u.Field(i))
			}
		}
		if rapid.Bool().Draw(t, "never edited") {
			d.UpdatedAt = d.CreatedAt
		}
		check(t, &d)
		data := d.Append(nil)
		if got, err := DecodeDefinition(data); err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("read\n%+v\nof\n%+v, %v", got, d, err)
		}
		if cut := rapid.IntRange(0, len(data)-1).Draw(t, "cut"); true { // what is cut short is never believed
			if _, err := DecodeDefinition(data[:cut]); err == nil {
				t.Fatalf("believed the first %d of %d bytes", cut, len(data))
			}
		}
	})
}

// What is left out is a part of the stored form: these bytes mean this, and they are what an ordinary job has. If a
// default is to change, what is stored already must keep its meaning.
func TestStoredFormIsFixed(t *testing.T) {
	n, f := 3, 0.2
	d := Definition{Version: 1, CreatedAt: 1_800_000_000_000, UpdatedAt: 1_800_000_000_000,
		Spec: job.Spec{Name: "a", Namespace: "default", Type: job.TypeHTTP, Schedule: "@daily", Payload: []byte("{}"), Timezone: "UTC",
			Overlap: "skip", Delivery: "at_least_once", Priority: "normal", DSTGap: "run_after", Timeout: 300e9,
			Retention: 86400e9, Missed: job.Missed{Policy: "run_once", Window: "auto", Max: 10, Grace: 60e9},
			Retry: job.Retry{MaxRetries: &n, Backoff: "exponential", Base: 1e9, Cap: 300e9, Jitter: &f}}}
	const stored = "\x83\xa1c\xd3\x00\x00\x01\xa3\x18\\P\x00" +
		"\xa1s\x84\xa1n\xa1a\xa1p\xc4\x02{}\xa1s\xa6@daily\xa1t\xa4http\xa1v\x01"
	if got := d.Append(nil); string(got) != stored {
		t.Errorf("%q", got)
	}
	got, err := DecodeDefinition([]byte(stored))
	if err != nil || !reflect.DeepEqual(got, d) {
		t.Errorf("read %+v, %v", got, err)
	}
	spec := job.Spec{Name: "a", Type: job.TypeHTTP, Schedule: "@daily", Payload: []byte("{}")}
	if spec.Normalize(); !reflect.DeepEqual(spec, d.Spec) {
		t.Errorf("a job that says nothing has %+v: Normalize and the default tags of job.Spec differ", spec)
	}
	*got.Spec.Retry.MaxRetries, *got.Spec.Retry.Jitter = 9, 9
	if again, _ := DecodeDefinition([]byte(stored)); *again.Spec.Retry.MaxRetries != 3 || *again.Spec.Retry.Jitter != 0.2 {
		t.Error("definitions share what they point to")
	}
}

// A field that a newer binary added is stepped over, whatever its value is.
func TestUnknownFieldsAreSteppedOver(t *testing.T) {
	for _, v := range []any{nil, true, 1, -1, 300, -300, uint64(1) << 40, 0.5, float32(0.5), "x",
		string(make([]byte, 300)), []byte("x"),
		[]any{1, []any{"y"}}, map[string]any{"a": map[string]any{"b": nil}}} {
		m := map[string]any{"c": 1, "s": map[string]any{"n": "x", "new": v, "r": map[string]any{"new": v, "n": 5}}, "new": v,
			"v": 2}
		var data []byte
		if err := codec.NewEncoderBytes(&data, handle).Encode(m); err != nil {
			t.Fatal(err)
		}
		got, err := DecodeDefinition(data)
		if err != nil || got.Spec.Name != "x" || got.Spec.Retry.Limit() != 5 || got.Spec.Overlap != "skip" ||
			got.Version != 2 || got.UpdatedAt != 1 {
			t.Errorf("%v: %+v, %v", v, got, err)
		}
	}
}

// benchDefinition is an ordinary job.
func benchDefinition() Definition {
	d := Definition{Version: 1, CreatedAt: 1_800_000_000_000, UpdatedAt: 1_800_000_000_000,
		Spec: job.Spec{Name: "9e3779b97f4a7c15-idle-0", Type: job.TypeHTTP,
			Schedule: "0 0 3 * * *", Payload: []byte(`{"url":"http://127.0.0.1:9/reports/daily","method":"POST"}`)}}
	d.Spec.Normalize()
	return d
}

func BenchmarkDecodeDefinition(b *testing.B) {
	d := benchDefinition()
	data := d.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeDefinition(data); err != nil {
			b.Fatal(err)
		}
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
