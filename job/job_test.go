package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestIDsRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		id := ID(rapid.Uint64Range(1, math.MaxUint64).Draw(rt, "id"))
		if got, err := ParseID(id.String()); err != nil || got != id {
			rt.Fatalf("%s: %d %v", id, got, err)
		}
		k := RunKey{Job: id, At: rapid.Int64().Draw(rt, "at"), Origin: Origin(rapid.IntRange(1, 3).Draw(rt, "o"))}
		if got, err := ParseRunKey(k.String()); err != nil || got != k {
			rt.Fatalf("%s: %+v %v", k, got, err)
		}
	})
	for _, bad := range []string{"", "j_", "j_0", "1", "j_-1", "j_+1", "j_A", "j_01", "j_w!", "j_1 ", "J_1", "j_zzzzzzzzzzzzzz", "j__1"} {
		if id, err := ParseID(bad); err == nil {
			t.Errorf("%q is %d", bad, id)
		}
	}
	for _, bad := range []string{"", "r_", "r_1", "r_1.2", "r_1.2.x", "r_1.2.s.3", "r_01.2.s", "r_1.02.s", "r_1.+2.s", "r_0.2.s", "r_1.2.schedule", "r_1.Z.s", "j_1.2.s"} {
		if k, err := ParseRunKey(bad); err == nil {
			t.Errorf("%q is %+v", bad, k)
		}
	}
	if ID(7<<56|5).Group() != 7 {
		t.Error("the top bits are the group")
	}
	var j struct{ ID ID }
	if err := json.Unmarshal([]byte(`{"ID":"j_1a"}`), &j); err != nil || j.ID != 42 {
		t.Errorf("%v %v", j, err)
	}
	if err := json.Unmarshal([]byte(`{"ID":"x"}`), &j); err == nil || j.ID != 42 {
		t.Errorf("%v %v", j, err)
	}
}

// Names on the wire lead back to what they name, and no two name the same.
func TestNamesRoundTrip(t *testing.T) {
	seen := map[string]bool{}
	once := func(kind, name string) {
		if seen[kind+name] {
			t.Errorf("%s %q is used twice", kind, name)
		}
		seen[kind+name] = true
	}
	for o := range originNames {
		once("origin", o.String()[:1])
		b, err := json.Marshal(o)
		var back Origin
		if err != nil || json.Unmarshal(b, &back) != nil || back != o {
			t.Errorf("%s", b)
		}
	}
	for s := range runStatusNames {
		once("status", s.String())
		b, err := json.Marshal(s)
		var back RunStatus
		if err != nil || json.Unmarshal(b, &back) != nil || back != s {
			t.Errorf("%s", b)
		}
		if s.Open() != (s < 16) {
			t.Errorf("%s is open: %v", s, s.Open())
		}
	}
	for r := range reasonNames {
		once("reason", r.String())
		b, err := json.Marshal(r)
		var back Reason
		if err != nil || json.Unmarshal(b, &back) != nil || back != r {
			t.Errorf("%s", b)
		}
	}
	if RunNone.Open() || Origin(9).String() != "origin(9)" {
		t.Error("what is not there")
	}
	var o Origin
	var s RunStatus
	var r Reason
	for _, v := range []any{&o, &s, &r} {
		if json.Unmarshal([]byte(`"nonsense"`), v) == nil {
			t.Errorf("%T took nonsense", v)
		}
	}
	if s, err := ParseRunStatus(""); err != nil || s != RunNone {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	e := Invalid("retry.base", "use 1s", "%d is wrong", 7)
	if e.Error() != "retry.base: 7 is wrong (use 1s)" || Errorf(CodeStale, "", "old").Error() != "old" {
		t.Error(e)
	}
	wrapped := fmt.Errorf("outer: %w", e)
	if !errors.Is(wrapped, &Error{Code: CodeInvalid}) || !errors.Is(wrapped, &Error{Code: CodeInvalid, Field: "retry.base"}) ||
		errors.Is(wrapped, &Error{Code: CodeInvalid, Field: "name"}) || errors.Is(wrapped, &Error{Code: CodeStale}) {
		t.Error("errors compare by code, and by field if one is asked for")
	}
	if CodeOf(wrapped) != CodeInvalid || CodeOf(errors.New("x")) != CodeInternal || CodeOf(nil) != CodeInternal {
		t.Error("codes")
	}
	b, err := json.Marshal(e)
	var back Error
	if err != nil || json.Unmarshal(b, &back) != nil || back != *e {
		t.Errorf("%s", b)
	}
}

func TestIdempotencyKey(t *testing.T) {
	at := time.Date(2027, 3, 1, 9, 0, 0, 0, time.UTC).UnixMilli()
	k := RunKey{Job: 42, At: at, Origin: OriginSchedule}
	manual := RunKey{Job: 42, At: at + 7, Origin: OriginManual}
	between := RunKey{Job: 42, At: at + 40, Origin: OriginSchedule}
	for _, c := range []struct {
		template string
		k        RunKey
		want     string
	}{
		{"", k, "j_1a:1803891600"},
		{"", manual, "j_1a:1803891600:manual:1803891600007"},
		{"", between, "j_1a:1803891600.040"},
		{"{scheduled_at_unix}/{scheduled_at}", between, "1803891600.040/2027-03-01T09:00:00.040Z"},
		{"{scheduled_at_unix}/{scheduled_at}", manual,
			"1803891600/2027-03-01T09:00:00Z:manual:1803891600007"}, // the milliseconds are at the end
		{"{job_name}/{scheduled_at}", k, "nightly/2027-03-01T09:00:00Z"},
		{"{origin}.{scheduled_at_unix_ms}", manual, "manual.1803891600007:manual:1803891600007"},
		{"{run_id}", manual, manual.String()},
		{"x-{run_id}-{job_id}", k, "x-" + k.String() + "-j_1a"},
	} {
		if got := IdempotencyKey(c.template, "nightly", c.k); got != c.want {
			t.Errorf("%q: %q, want %q", c.template, got, c.want)
		}
	}
	// What stands in a name is not a placeholder.
	if got := IdempotencyKey("{job_name}-{run_id}", "{job_id}", k); got != "{job_id}-"+k.String() {
		t.Error(got)
	}
	// No two runs of a job have the same key, also if they fall into one second: an edit from a cron expression to
	// @every puts occurrences between the seconds.
	for _, template := range []string{"", "{scheduled_at}", "{scheduled_at_unix}"} {
		seen := map[string]RunKey{}
		for _, o := range []Origin{OriginSchedule, OriginManual, OriginBackfill} {
			for _, ms := range []int64{0, 1, 100, 843, 999, 1000, 1001, 2000} {
				k := RunKey{Job: 1, At: at + ms, Origin: o}
				key := IdempotencyKey(template, "", k)
				if other, twice := seen[key]; twice {
					t.Errorf("%q: %v and %v have the key %s", template, k, other, key)
				}
				seen[key] = k
			}
		}
	}
}

// The way without a template gives what the template does.
func TestDefaultKeyIsItsTemplates(t *testing.T) {
	for _, at := range []int64{0, 1, 999, 1000, 1_800_000_000_123, -1, -1500, math.MinInt64, math.MaxInt64} {
		for _, o := range []Origin{OriginSchedule, OriginManual, OriginBackfill} {
			for _, id := range []ID{1, 12345, math.MaxUint64} {
				k := RunKey{Job: id, At: at, Origin: o}
				if got, want := IdempotencyKey("", "n", k), IdempotencyKey(DefaultKeyTemplate, "n", k); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
		}
	}
}

func BenchmarkIdempotencyKey(b *testing.B) {
	k := RunKey{Job: 12345, At: 1_800_000_000_123, Origin: OriginSchedule}
	for name, template := range map[string]string{"default": "", "template": DefaultKeyTemplate} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				IdempotencyKey(template, "nightly", k)
			}
		})
	}
}

func TestStatusSet(t *testing.T) {
	for _, c := range []struct {
		text    string
		in, out []int
		shown   string
	}{
		{`[]`, []int{200, 299}, []int{199, 300, 404}, `[]`},
		{`null`, []int{200}, []int{404}, `[]`},
		{`200`, []int{200}, []int{201}, `[200]`},
		{`"2xx"`, []int{200, 299}, []int{300}, `["2xx"]`},
		{`" 4XX "`, []int{404}, []int{200}, `["4xx"]`},
		{`["200-204", 404, "5xx"]`, []int{200, 204, 404, 599}, []int{205, 403}, `["200-204",404,"5xx"]`},
		{`"100-599"`, []int{100, 599}, nil, `["100-599"]`},
		{`2e2`, []int{200}, nil, `[200]`},
	} {
		var s StatusSet
		if err := json.Unmarshal([]byte(c.text), &s); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		for _, n := range c.in {
			if !s.Contains(n) {
				t.Errorf("%s does not contain %d", c.text, n)
			}
		}
		for _, n := range c.out {
			if s.Contains(n) {
				t.Errorf("%s contains %d", c.text, n)
			}
		}
		b, err := json.Marshal(s)
		if err != nil || string(b) != c.shown {
			t.Errorf("%s is shown as %s", c.text, b)
		}
		var back StatusSet
		if err := json.Unmarshal(b, &back); err != nil || len(back) != len(s) {
			t.Errorf("%s: %v", b, err)
		}
	}
	for _, bad := range []string{`99`, `600`, `200.5`, `"6xx"`, `"0xx"`, `"xx"`, `"2x"`, `"200-100"`, `"200-"`, `"-200"`, `true`, `{}`, `[[200]]`, `["200",null]`, `"abc"`, `""`} {
		s := StatusSet{{1, 2}}
		if err := json.Unmarshal([]byte(bad), &s); err == nil || len(s) != 1 {
			t.Errorf("%s is %v", bad, s)
		}
	}
}

func TestInstants(t *testing.T) {
	for text, want := range map[string]Instant{
		`"2027-03-01T09:00:00Z"`: 1803891600000, `"2027-03-01T10:00:00.123+01:00"`: 1803891600123, `null`: 0, `""`: 0,
	} {
		var i Instant
		if err := json.Unmarshal([]byte(text), &i); err != nil || i != want {
			t.Errorf("%s: %d %v", text, i, err)
		}
		b, err := json.Marshal(i)
		var back Instant
		if err != nil || json.Unmarshal(b, &back) != nil || back != i {
			t.Errorf("%s is shown as %s", text, b)
		}
	}
	for _, bad := range []string{`5`, `"yesterday"`, `"2027-03-01"`, `true`} {
		i := Instant(7)
		if err := json.Unmarshal([]byte(bad), &i); err == nil || i != 7 {
			t.Errorf("%s is %d", bad, i)
		}
	}
	if Instant(0).String() != "" || !Instant(0).Time().IsZero() || At(time.Time{}) != 0 || At(time.UnixMilli(5)) != 5 || Instant(1803891600120).String() != "2027-03-01T09:00:00.12Z" {
		t.Error("conversions")
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]Duration{`"90s"`: 90e9, `"1h30m"`: 5400e9, `null`: 0, `"0s"`: 0, `"-1s"`: -1e9} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err != nil || d != want {
			t.Errorf("%s: %d %v", text, d, err)
		}
		b, err := json.Marshal(d)
		var back Duration
		if err != nil || json.Unmarshal(b, &back) != nil || back != d {
			t.Errorf("%s is shown as %s", text, b)
		}
	}
	for _, bad := range []string{`90`, `"90"`, `"soon"`, `{}`} {
		d := Duration(7)
		if err := json.Unmarshal([]byte(bad), &d); err == nil || d != 7 {
			t.Errorf("%s is %d", bad, d)
		}
	}
}

func TestDecodeStrict(t *testing.T) {
	for _, c := range []struct {
		text, field string
		code        Code
		says        string
	}{
		{`{"name":"x","shedule":"y"}`, "shedule", CodeUnknownField, `did you mean "schedule"?`},
		{`{"retry":{"bas":"1s"}}`, "retry.bas", CodeUnknownField, `did you mean "retry.base"?`},
		{`{"qqqqqqqq":1}`, "qqqqqqqq", CodeUnknownField, "there is no such field"},
		{`{"name":5}`, "name", CodeInvalid, "want a string, not a number"},
		{`{"max_runs":"5"}`, "max_runs", CodeInvalid, "want a whole number"},
		{`{"max_runs":1.5}`, "max_runs", CodeInvalid, "want a whole number"},
		{`{"tags":[]}`, "tags", CodeInvalid, "want an object"},
		{`{"calendars":{}}`, "calendars", CodeInvalid, "want a list"},
		{`{"retry":{"jitter":"x"}}`, "retry.jitter", CodeInvalid, "want a number"},
		{`{"timeout":90}`, "timeout", CodeInvalid, "want a duration string"},
		{`{"retry":{"base":"soon"}}`, "retry.base", CodeInvalid, "is not a duration"},
		{`{"start_at":"yesterday"}`, "start_at", CodeInvalid, "is not an RFC 3339 time"},
		{`{"name":"x"} {}`, "", CodeMalformed, "not JSON"},
		{`{"name":`, "", CodeMalformed, "not JSON"},
		{``, "", CodeMalformed, "not JSON"},
		{`[1]`, "", CodeInvalid, "want an object"},
		{`{"Name":"x"}`, "Name", CodeUnknownField, `did you mean "name"?`},
		{`{"retry":{"BASE":"1s"}}`, "retry.BASE", CodeUnknownField, `did you mean "retry.base"?`},
		{`{"name":"x","type":"http","name":"y"}`, "name", CodeMalformed, "given twice"},
		{`{"name":"x","n\u0061me":"y"}`, "name", CodeMalformed, "given twice"},
		{`{"missed":{"max":1,"grace":"1s","max":2}}`, "missed.max", CodeMalformed, "given twice"},
		{`{"notify":1}`, "notify", CodeInvalid, "want an object, not a number"},
		{`{"notify":{"webhok":"x"}}`, "notify.webhok", CodeUnknownField, `did you mean "notify.webhook"?`},
		{`{"notify":{"email":"a@b"}}`, "notify.email", CodeInvalid, "want a list"},
		{`{"zzzzzz":1}`, "zzzzzz", CodeUnknownField, "there is no such field"},
		{`{"tags":{"a":"b","N":5}}`, "tags.N", CodeInvalid, "want a string, not a number"},
		{`{"tags":"a"}`, "tags", CodeInvalid, "want an object, not a string"},
		{`{"calendars":[1]}`, "calendars", CodeInvalid, "want a string, not a number"},
		{`{"":1}`, "", CodeUnknownField, "there is no such field"},
	} {
		s := Spec{Name: "before", Tags: map[string]string{"a": "b"}}
		err := DecodeStrict([]byte(c.text), &s)
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || e.Field != c.field || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %+v", c.text, e)
		}
		if !reflect.DeepEqual(s, Spec{Name: "before", Tags: map[string]string{"a": "b"}}) {
			t.Errorf("%s: it was refused and changed %+v", c.text, s)
		}
	}
	s := Spec{Name: "before", Overlap: "skip"}
	if err := DecodeStrict([]byte(` {"name":"after"} `), &s); err != nil || s.Name != "after" || s.Overlap != "skip" {
		t.Errorf("%+v %v", s, err)
	}
	if err := DecodeStrict([]byte(`{"zzzzzz":1}`), &s); strings.Contains(err.Error(), "did you mean") {
		t.Error(err)
	}
	// Inside what is free-form, names are the owner's: only a payload's own type knows more.
	for _, free := range []string{`{"tags":{"a":"1","A":"2","a":"3"}}`, `{"payload":{"x":[{"x":1,"x":2},"]}\"",-1.5e3 ,true]},"name" : "y"}`, `{"retry":null}`, ` {"calendars":[]}`} {
		if err := DecodeStrict([]byte(free), &Spec{}); err != nil {
			t.Errorf("%s: %v", free, err)
		}
	}
	var m map[string]json.RawMessage
	if err := DecodeStrict([]byte(`{"a":1}`), &m); err != nil || len(m) != 1 {
		t.Errorf("%v %v", m, err)
	}
}

func TestPayloadFields(t *testing.T) {
	for _, c := range []struct {
		payload, field string
		code           Code
		says           string
	}{
		{`{"ulr":"http://x"}`, "payload.ulr", CodeUnknownField, `did you mean "payload.url"?`},
		{`{"URL":"http://x"}`, "payload.URL", CodeUnknownField, `did you mean "payload.url"?`},
		{`{"url":"http://x","url":"http://y"}`, "payload.url", CodeMalformed, "given twice"},
		{`{"url":"http://x","headers":{"N":5}}`, "payload.headers.N", CodeInvalid, "want a string, not a number"},
		{`{"url":""}`, "payload.url", CodeInvalid, "the URL is missing"},
		{`{"url":5}`, "payload.url", CodeInvalid, "want a string, not a number"},
		{`{"url":"http://x","expect_status":"9xx"}`, "payload.expect_status", CodeInvalid, ""},
		{`[]`, "payload", CodeInvalid, "want an object, not a list"},
	} {
		s := Spec{Type: TypeHTTP, Schedule: "@daily", Payload: json.RawMessage(c.payload)}
		s.Normalize()
		err := s.Validate()
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || e.Field != c.field || !strings.Contains(e.Message, c.says) || strings.Contains(e.Message, "JSON") {
			t.Errorf("%s: %+v", c.payload, e)
		}
	}
}

// FuzzDecodeStrict: what is accepted, package json accepts without unknown fields, and gives the same for.
func FuzzDecodeStrict(f *testing.F) {
	f.Add([]byte(`{"name":"x","retry":{"base":"1s"},"tags":{"a":"b"},"calendars":["a"],"payload":{"a":[1,"}"]},"version":3}`))
	f.Add([]byte(`{"name":"x","n\u0061me":"y" , "Type":"http","missed":null}`))
	f.Add([]byte(`{"name":"\ud800"}`))
	f.Add([]byte("{\"name\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want Job
		err := DecodeStrict(data, &got)
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		plain := dec.Decode(&want)
		if err == nil && (plain != nil || !reflect.DeepEqual(got, want)) {
			t.Fatalf("%s: %+v, and %+v %v", data, got, want, plain)
		}
		if err != nil && plain == nil && CodeOf(err) != CodeMalformed && CodeOf(err) != CodeUnknownField {
			t.Fatalf("%s: refused: %v", data, err)
		}
		if err == nil != (json.Valid(data) && whole(data) && CheckFields(data, got) == nil && plain == nil) {
			t.Fatalf("%s: %v", data, err)
		}
	})
}

func TestSuggestions(t *testing.T) {
	known := []string{"schedule", "timezone", "retry.base"}
	for word, want := range map[string]string{"Schedul": "schedule", "tz": "", "timezon": "timezone", "bse": "retry.base", "": "", "x": ""} {
		got := Suggest(word, known)
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q", word, got)
		}
	}
}
