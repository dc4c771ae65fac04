package job

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func good(mut func(*Spec)) *Spec {
	s := &Spec{Type: TypeHTTP, Schedule: "@every 90s", Payload: json.RawMessage(`{"url":"https://example.com/hook"}`)}
	if mut != nil {
		mut(s)
	}
	s.Normalize()
	return s
}

func payload(t Type, p string) func(*Spec) {
	return func(s *Spec) { s.Type, s.Payload = t, json.RawMessage(p) }
}

func TestNormalizeSaysEverything(t *testing.T) {
	s := good(func(s *Spec) { s.Name, s.Schedule = "  x ", " @every 90s\n" })
	three, jitter := DefaultRetries, DefaultJitter
	want := &Spec{Name: "x", Namespace: DefaultNamespace, Type: TypeHTTP, Schedule: "@every 90s", Timezone: "UTC", Payload: s.Payload, Overlap: OverlapSkip, Delivery: DeliverAtLeastOnce,
		Priority: "normal", DSTGap: "run_after", Timeout: DefaultTimeout, Retention: DefaultRetention,
		Retry:  Retry{MaxRetries: &three, Backoff: BackoffExponential, Base: DefaultBase, Cap: DefaultCap, Jitter: &jitter},
		Missed: Missed{Policy: MissedRunOnce, Window: WindowAuto, Max: DefaultMissedMax, Grace: DefaultGrace}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("\n got %+v\nwant %+v", s, want)
	}
	again := *s
	again.Normalize()
	if !reflect.DeepEqual(&again, s) {
		t.Error("it is not idempotent")
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	once := good(func(s *Spec) { s.Delivery = DeliverAtMostOnce })
	if once.Retry.Limit() != 0 || once.Validate() != nil {
		t.Errorf("at_most_once: %d retries, %v", once.Retry.Limit(), once.Validate())
	}
	long := good(func(s *Spec) { s.Retry.Base = Duration(3600e9) })
	if long.Retry.Cap != long.Retry.Base {
		t.Errorf("the default cap is below the base: %s", long.Retry.Cap)
	}
	if (Retry{}).Limit() != 0 {
		t.Error("no limit is none")
	}
}

func TestGoodSpecs(t *testing.T) {
	for name, mut := range map[string]func(*Spec){
		"http":  payload(TypeHTTP, `{"url":"http://h:1/p?q","method":"PUT","headers":{"X-A":"1"},"body":{"a":1},"expect_status":["2xx",404],"retry_client_errors":true}`),
		"shell": payload(TypeShell, `{"command":"true","env":{"A_1":"b"},"dir":"/tmp","user":"www-data","limits":{"memory":"512MiB","processes":10,"cpu":"30s","open_files":64,"file_size":1048576}}`), "argv": payload(TypeShell, `{"argv":["/bin/echo",""]}`),
		"queue": payload(TypeQueue, `{"queue":"q.1","data":[1,2]}`),
		"nats":  payload(TypeMessage, `{"broker":"nats://h","subject":"s","headers":{"a":"b"},"data":null}`), "jetstream": payload(TypeMessage, `{"broker":"nats+tls://h1,h2:1","subject":"a.b-c.$x","jetstream":true}`), "kafka": payload(TypeMessage, `{"broker":"kafka://h","topic":"t","key":"k"}`),
		"unicode name": func(s *Spec) { s.Name = "täglich-報告" },
		"everything": func(s *Spec) {
			s.Overlap, s.Concurrency, s.MaxRuns, s.StartAt, s.EndAt = OverlapAllow, 10, 5, 1000, 2000
			s.Tags, s.Workers, s.Calendars = map[string]string{"a": ""}, map[string]string{"zone": "b=c"}, []string{"h"}
			s.IdempotencyKey, s.Missed.Window, s.DSTOverlap = "{job_id}-{scheduled_at}-{origin}-{scheduled_at_unix_ms}", "2h", "both"
		},
	} {
		if err := good(mut).Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every field has a value that is refused, and the error names the field.
func TestBadSpecs(t *testing.T) {
	n, f := func(n int) *int { return &n }, func(f float64) *float64 { return &f }
	many := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[strings.Repeat("k", i+1)] = ""
		}
		return m
	}
	for _, c := range []struct {
		field string
		mut   func(*Spec)
	}{
		{"name", func(s *Spec) { s.Name = strings.Repeat("x", MaxName+1) }}, {"name", func(s *Spec) { s.Name = "j_1" }}, {"name", func(s *Spec) { s.Name = "r_x" }},
		{"name", func(s *Spec) { s.Name = "a b" }}, {"name", func(s *Spec) { s.Name = "a/b" }}, {"name", func(s *Spec) { s.Name = "a\x7f" }}, {"name", func(s *Spec) { s.Name = "a\u202eb" }},
		{"name", func(s *Spec) { s.Name = "a\u00a0b" }}, {"name", func(s *Spec) { s.Name = "a\xff" }}, {"name", func(s *Spec) { s.Name = "a:b" }},
		{"type", func(s *Spec) { s.Type = "ftp" }}, {"type", func(s *Spec) { s.Type = "" }}, {"schedule", func(s *Spec) { s.Schedule = "" }},
		{"overlap", func(s *Spec) { s.Overlap = "never" }}, {"delivery", func(s *Spec) { s.Delivery = "exactly_once" }}, {"priority", func(s *Spec) { s.Priority = "urgent" }},
		{"missed.policy", func(s *Spec) { s.Missed.Policy = "x" }}, {"missed.window", func(s *Spec) { s.Missed.Window = "soon" }}, {"missed.window", func(s *Spec) { s.Missed.Window = "-1h" }},
		{"missed.window", func(s *Spec) { s.Missed.Window = strings.Repeat("0", maxWindow) + "1h" }},
		{"missed.window", func(s *Spec) { s.Missed.Window = "100000000h" }}, {"missed.window", func(s *Spec) { s.Missed.Window = "900000h" }}, {"missed.max", func(s *Spec) { s.Missed.Max = -1 }}, {"missed.max", func(s *Spec) { s.Missed.Max = 10001 }},
		{"missed.grace", func(s *Spec) { s.Missed.Grace = -1 }}, {"retry.backoff", func(s *Spec) { s.Retry.Backoff = "x" }}, {"retry.base", func(s *Spec) { s.Retry.Base = -1 }},
		{"retry.cap", func(s *Spec) { s.Retry.Base, s.Retry.Cap = 2e9, 1e9 }}, {"retry.cap", func(s *Spec) { s.Retry.Cap = 1 << 62 }},
		{"retry.max_retries", func(s *Spec) { s.Retry.MaxRetries = n(-1) }}, {"retry.max_retries", func(s *Spec) { s.Retry.MaxRetries = n(1001) }},
		{"retry.max_retries", func(s *Spec) { s.Delivery, s.Retry.MaxRetries = DeliverAtMostOnce, n(1) }},
		{"retry.jitter", func(s *Spec) { s.Retry.Jitter = f(1.1) }}, {"retry.jitter", func(s *Spec) { s.Retry.Jitter = f(-0.1) }},
		{"timeout", func(s *Spec) { s.Timeout = -1 }}, {"deadline", func(s *Spec) { s.Deadline = -1 }}, {"jitter", func(s *Spec) { s.Jitter = -1 }}, {"retention", func(s *Spec) { s.Retention = 1 << 62 }},
		{"dst_gap", func(s *Spec) { s.DSTGap = "x" }}, {"dst_overlap", func(s *Spec) { s.DSTOverlap = "x" }},
		{"concurrency", func(s *Spec) { s.Concurrency = -1 }}, {"concurrency", func(s *Spec) { s.Overlap, s.Concurrency = OverlapAllow, 10001 }}, {"concurrency", func(s *Spec) { s.Concurrency = 2 }},
		{"max_runs", func(s *Spec) { s.MaxRuns = -1 }}, {"end_at", func(s *Spec) { s.StartAt, s.EndAt = 2, 1 }},
		{"tags", func(s *Spec) { s.Tags = many(MaxTags + 1) }}, {"tags", func(s *Spec) { s.Tags = map[string]string{"": "x"} }}, {"tags", func(s *Spec) { s.Tags = map[string]string{"a=b": "x"} }},
		{"tags", func(s *Spec) { s.Tags = map[string]string{"a": strings.Repeat("x", MaxTagBytes)} }}, {"workers", func(s *Spec) { s.Workers = map[string]string{"a": "b,c"} }},
		{"workers", func(s *Spec) { s.Workers = map[string]string{"a": "\x00"} }},
		{"calendars", func(s *Spec) { s.Calendars = make([]string, 17) }}, {"calendars", func(s *Spec) { s.Calendars = []string{""} }},
		{"payload", func(s *Spec) { s.Payload = nil }}, {"payload", func(s *Spec) { s.Payload = make([]byte, MaxPayload+1) }}, {"payload", payload(TypeHTTP, `[]`)},
		{"payload.url", payload(TypeHTTP, `{}`)}, {"payload.url", payload(TypeHTTP, `{"url":"ftp://x/"}`)}, {"payload.url", payload(TypeHTTP, `{"url":"/path"}`)}, {"payload.url", payload(TypeHTTP, `{"url":7}`)},
		{"payload.method", payload(TypeHTTP, `{"url":"http://x","method":"get"}`)}, {"payload.headers", payload(TypeHTTP, `{"url":"http://x","headers":{"carillon-fence":"1"}}`)},
		{"payload.headers", payload(TypeHTTP, `{"url":"http://x","headers":{"idempotency-key":"1"}}`)}, {"payload.headers", payload(TypeHTTP, `{"url":"http://x","headers":{"a b":"1"}}`)},
		{"payload.headers", payload(TypeHTTP, `{"url":"http://x","headers":{"a":"1\r\nb: 2"}}`)}, {"payload.expect_status", payload(TypeHTTP, `{"url":"http://x","expect_status":"9xx"}`)},
		{"payload.nope", payload(TypeHTTP, `{"url":"http://x","nope":1}`)},
		{"payload.command", payload(TypeShell, `{}`)}, {"payload.command", payload(TypeShell, `{"command":"a","argv":["b"]}`)}, {"payload.command", payload(TypeShell, `{"command":"a\u0000"}`)},
		{"payload.argv", payload(TypeShell, `{"argv":[""]}`)}, {"payload.argv", payload(TypeShell, `{"argv":["a","\u0000"]}`)}, {"payload.dir", payload(TypeShell, `{"command":"a","dir":"x"}`)},
		{"payload.env", payload(TypeShell, `{"command":"a","env":{"1":"x"}}`)}, {"payload.env", payload(TypeShell, `{"command":"a","env":{"CARILLON_X":"x"}}`)},
		{"payload.env", payload(TypeShell, `{"command":"a","env":{"A":"\u0000"}}`)},
		{"payload.user", payload(TypeShell, `{"command":"a","user":"a b"}`)}, {"payload.limits.memory", payload(TypeShell, `{"command":"a","limits":{"memory":"1KiB"}}`)},
		{"payload.limits.processes", payload(TypeShell, `{"command":"a","limits":{"processes":-1}}`)}, {"payload.limits.cpu", payload(TypeShell, `{"command":"a","limits":{"cpu":"1ms"}}`)},
		{"payload.limits.open_files", payload(TypeShell, `{"command":"a","limits":{"open_files":3}}`)}, {"payload.limits.nope", payload(TypeShell, `{"command":"a","limits":{"nope":3}}`)},
		{"payload.queue", payload(TypeQueue, `{}`)}, {"payload.queue", payload(TypeQueue, `{"queue":"a b"}`)},
		{"payload.broker", payload(TypeMessage, `{"subject":"s"}`)}, {"payload.broker", payload(TypeMessage, `{"broker":"a b","subject":"s"}`)}, {"payload.broker", payload(TypeMessage, `{"broker":"amqp://h","subject":"s"}`)},
		{"payload.broker", payload(TypeMessage, `{"broker":"nats://u:p@h","subject":"s"}`)}, {"payload.broker", payload(TypeMessage, `{"broker":"nats://h?creds=/etc/x","subject":"s"}`)},
		{"payload.broker", payload(TypeMessage, `{"broker":"nats://h:99999","subject":"s"}`)}, {"payload.topic", payload(TypeMessage, `{"broker":"nats://h","topic":"t"}`)},
		{"payload.subject", payload(TypeMessage, `{"broker":"kafka://h","subject":"s"}`)}, {"payload.topic", payload(TypeMessage, `{"broker":"b","topic":"a/b"}`)},
		{"payload.topic", payload(TypeMessage, `{"broker":"b","topic":".."}`)}, {"payload.subject", payload(TypeMessage, `{"broker":"b","subject":"a..b"}`)},
		{"payload.subject", payload(TypeMessage, `{"broker":"b","subject":"a.*"}`)}, {"payload.subject", payload(TypeMessage, `{"broker":"b","subject":"a b"}`)},
		{"payload.jetstream", payload(TypeMessage, `{"broker":"b","topic":"t","jetstream":true}`)}, {"payload.key", payload(TypeMessage, `{"broker":"b","subject":"s","key":"k"}`)},
		{"payload.headers", payload(TypeMessage, `{"broker":"b","subject":"s","headers":{"nats-msg-id":"1"}}`)}, {"payload.headers", payload(TypeMessage, `{"broker":"b","subject":"s","headers":{"carillon-x":"1"}}`)},
		{"payload.headers", payload(TypeMessage, `{"broker":"b","subject":"s","headers":{"a":"1\r\nb: 2"}}`)},
		{"payload.subject", payload(TypeMessage, `{"broker":"b"}`)}, {"payload.subject", payload(TypeMessage, `{"broker":"b","subject":"s","topic":"t"}`)},
		{"idempotency_key", func(s *Spec) { s.IdempotencyKey = "fixed" }}, {"idempotency_key", func(s *Spec) { s.IdempotencyKey = "{scheduled_at}" + strings.Repeat("x", 300) }},
		{"idempotency_key", func(s *Spec) { s.IdempotencyKey = "{run_id" }}, {"idempotency_key", func(s *Spec) { s.IdempotencyKey = "run_id}" }}, {"idempotency_key", func(s *Spec) { s.IdempotencyKey = "{runid}" }},
		{"idempotency_key", func(s *Spec) { s.IdempotencyKey = "{run_id}\n" }}, {"idempotency_key", func(s *Spec) { s.IdempotencyKey = "{job_name}:{scheduled_at}" }},
		{"idempotency_key", func(s *Spec) {
			s.Name, s.IdempotencyKey = strings.Repeat("n", 200), "{job_name}{job_name}{job_name}{run_id}"
		}},
	} {
		s := good(c.mut)
		err, _ := s.Validate().(*Error)
		if err == nil || err.Field != c.field || err.Message == "" || err.Code != CodeInvalid && err.Code != CodeUnknownField {
			t.Errorf("%s: %+v", c.field, err)
		}
	}
}

// A spec that was not normalized is refused or taken, but never ends the process.
func TestValidateWithoutNormalize(t *testing.T) {
	if err := (&Spec{}).Validate(); err == nil {
		t.Error("an empty spec")
	}
}

func TestOneOffAndManual(t *testing.T) {
	for expr, want := range map[string]bool{
		"2027-03-01T09:00:00Z": true, "2027-03-01T09:00:00.5+02:00": true, "2027-03-01t09:00:00z": true, "* * * * *": false, "@manual": false, "@every 1h": false, "2027-03-01": false,
	} {
		if got := (&Spec{Schedule: expr}).OneOff(); got != want {
			t.Errorf("%s: %v", expr, got)
		}
	}
	s := good(func(s *Spec) { s.Schedule = " @Manual" })
	if s.Normalize(); !s.Manual() {
		t.Errorf("%q", s.Schedule)
	}
	// Before these a zone would make them schedules that recur.
	for _, expr := range []string{"2027-03-01T09:00:00Z", " 2027-03-01t09:00:00.5+02:00", "@manual", "@Manual"} {
		for _, zone := range []string{"TZ=", "CRON_TZ="} {
			s := good(func(s *Spec) { s.Schedule, s.Timezone = zone+"Europe/Berlin "+expr, "" })
			if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "schedule: ") {
				t.Errorf("%s: %v", s.Schedule, err)
			}
		}
	}
	if err := good(func(s *Spec) { s.Schedule, s.Timezone = "TZ=Europe/Berlin 0 9 * * *", "" }).Validate(); err != nil {
		t.Error(err)
	}
	if !(&Spec{Schedule: "@manual"}).Manual() || (&Spec{Schedule: "@every 1h"}).Manual() {
		t.Error("@manual")
	}
}

// Jobs of one class are interchangeable to the matcher; the text takes apart again.
func TestClass(t *testing.T) {
	for _, c := range []struct {
		mut  func(*Spec)
		want Class
		text string
	}{
		{nil, Class{Type: TypeHTTP}, "http\x00"},
		{payload(TypeQueue, `{"queue":"q1","data":1}`), Class{Type: TypeQueue, Queue: "q1"}, "queue\x00q1"},
		{payload(TypeQueue, `{"queue":"q1","from_the_future":1}`), Class{Type: TypeQueue, Queue: "q1"}, // an older binary must say the same
			"queue\x00q1"},
		{func(s *Spec) { s.Workers = map[string]string{"b": "x=y", "a": ""} },
			Class{Type: TypeHTTP, Selector: map[string]string{"b": "x=y", "a": ""}}, "http\x00\x00a=\x00b=x=y"},
		{func(s *Spec) { s.Namespace = "team-a" }, Class{Namespace: "team-a", Type: TypeHTTP}, "team-a/http\x00"},
		{func(s *Spec) {
			payload(TypeQueue, `{"queue":"q1"}`)(s)
			s.Namespace, s.Workers = "0", map[string]string{"a": "b/c"}
		}, Class{Namespace: "0", Type: TypeQueue, Queue: "q1", Selector: map[string]string{"a": "b/c"}},
			"0/queue\x00q1\x00a=b/c"},
	} {
		text := good(c.mut).Class()
		c.want.Namespace = cmp.Or(c.want.Namespace, DefaultNamespace)
		if got := ParseClass(text); !reflect.DeepEqual(got, c.want) || text != c.text {
			t.Errorf("%q: %+v, want %+v of %q", text, got, c.want, c.text)
		}
		if good(c.mut).Class() != text {
			t.Error("map order shows")
		}
	}
	if c := ParseClass(""); !reflect.DeepEqual(c, Class{Namespace: DefaultNamespace}) {
		t.Errorf("nothing is %+v", c)
	}
}

func TestLanes(t *testing.T) {
	for i, n := range laneNames {
		if l, ok := LaneOf(n); !ok || l != Lane(i) || l.String() != n {
			t.Errorf("%s: %d", n, l)
		}
	}
	if _, ok := LaneOf("x"); ok || Lane(9).String() != "lane?" {
		t.Error("there are four")
	}
}

// FuzzSpecJSON: any bytes are a spec or an error; a spec that is accepted is shown and read again as the same.
func FuzzSpecJSON(f *testing.F) {
	for _, mut := range []func(*Spec){nil, payload(TypeShell, `{"command":"x"}`), payload(TypeQueue, `{"queue":"q"}`), payload(TypeMessage, `{"broker":"b","topic":"t"}`)} {
		b, err := json.Marshal(good(mut))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"name":"x","type":"http","schedule":"* * * * *","payload":{"url":"http://x","expect_status":["2xx",200,"200-204"]},"retry":{"jitter":0.5},"missed":{"window":"1h"},"start_at":"2027-01-01T00:00:00+01:00"}`))
	f.Add([]byte(`{"payload":null,"tags":{"a":"b"},"idempotency_key":"{run_id}"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s Spec
		if err := DecodeStrict(data, &s); err != nil {
			if CodeOf(err) == CodeInternal || !reflect.DeepEqual(s, Spec{}) {
				t.Fatalf("%v left %+v", err, s)
			}
			return
		}
		s.Normalize()
		_, _ = s.Class(), s.OneOff()
		if err := s.Validate(); err != nil {
			if CodeOf(err) == CodeInternal {
				t.Fatal(err)
			}
			return
		}
		shown, err := json.Marshal(&s)
		if err != nil {
			t.Fatal(err)
		}
		var back Spec
		if err := DecodeStrict(shown, &back); err != nil {
			t.Fatalf("%s was shown and cannot be read: %v", shown, err)
		}
		back.Normalize()
		again, err := json.Marshal(&back)
		if err != nil || string(again) != string(shown) {
			t.Fatalf("%s, then %s (%v)", shown, again, err)
		}
		if err := back.Validate(); err != nil {
			t.Fatalf("%s was accepted once: %v", shown, err)
		}
	})
}
