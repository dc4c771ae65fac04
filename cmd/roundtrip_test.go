package cmd

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/notify"
)

// grammars are the fields of a job whose texts have a form of their own, by their names in a job file. All others are
// filled in by their types and tags, so that a new one is covered without being named.
func grammars(t *rapid.T, name string) map[string]any {
	of := func(label string, options ...string) string { return rapid.SampledFrom(options).Draw(t, label) }
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"yes", "null", "~", "1e3", "0x1f", "- a", "a: b", "# x", "2026-01-01",
		"one\ntwo\n", "tab\there", " lead", "end ", "a\n\n b\n", "<&>", "'", `"`, "日報\U0001f680", "\u2028", "a\r\nb", "---", "%", "!x"}))
	quoted := func(label string) string {
		b, err := json.Marshal(text.Draw(t, label))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	type payload struct{ kind, payload string }
	p := rapid.SampledFrom([]payload{
		{"queue", fmt.Sprintf(`{"queue":"q","data":{"b":%s,"a":[1,-0.25,1e3,true,null,%s,{}],"c":{%s:[]}}}`, quoted("data"), quoted("item"), quoted("key"))},
		{"shell", fmt.Sprintf(`{"command":%s,"env":{"A":%s}}`, quotedCommand(t), quotedCommand(t))},
		{"http", fmt.Sprintf(`{"url":"https://example.com/a?b=c&d=%%20","method":"PUT","headers":{"X-A":"b: c"},"body":%s,"expect_status":["200","3xx"]}`, quoted("body"))},
	}).Draw(t, "payload")
	return map[string]any{
		"name": name, "namespace": of("namespace", "default", "team-a"), "type": p.kind, "payload": json.RawMessage(p.payload),
		"schedule": of("schedule", "0 1 * * *", "*/7 9-17 * * MON-FRI", "@every 90s", "@manual", "H 3 * * *", "2027-03-01T09:00:00Z",
			"DTSTART:20270301T090000\nRRULE:FREQ=DAILY;COUNT=3"),
		"timezone": of("timezone", "UTC", "Europe/Berlin", "America/New_York"), "missed.window": of("window", "auto", "2h", "90m0s"),
		"idempotency_key": of("template", "{job_id}:{scheduled_at_unix}", "x-{run_id}"), "calendars": []string{"cal"},
		"notify.webhook": of("webhook", "https://example.com/a?b=c&d", "https://example.com/#x"), "notify.email": []string{"a+b@example.com"},
	}
}

// quotedCommand is a text that a shell could be given.
func quotedCommand(t *rapid.T) string {
	b, err := json.Marshal(rapid.StringMatching(`[a-z#&|'" \t\n$é:-]{0,40}[a-z]`).Draw(t, "command"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fill gives every field of a struct a value that is not its zero.
func fill(t *rapid.T, v reflect.Value, prefix string, known map[string]any) {
	word := rapid.StringMatching(`[a-z][a-z0-9 _.:#'"é日-]{0,12}[a-z]`)
	number := func(tag reflect.StructTag, key string, usual int) int {
		if n, err := strconv.Atoi(tag.Get(key)); err == nil {
			return n
		}
		return usual
	}
	for i := range v.NumField() {
		field, to := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		path := prefix + name
		if value, ok := known[path]; ok {
			to.Set(reflect.ValueOf(value).Convert(to.Type()))
			continue
		}
		if to.Kind() == reflect.Pointer {
			to.Set(reflect.New(to.Type().Elem()))
			to = to.Elem()
		}
		options := strings.Split(field.Tag.Get("enum"), ",")
		switch to.Interface().(type) {
		case job.Duration:
			to.SetInt(int64(time.Duration(rapid.IntRange(1, 100_000).Draw(t, path)) * time.Second))
			continue
		case job.Instant:
			moment := time.Date(2027, 1, 1, 0, 0, rapid.IntRange(1, 1_000_000).Draw(t, path), 0, time.UTC)
			to.Set(reflect.ValueOf(job.At(moment)))
			continue
		}
		switch to.Kind() {
		case reflect.Struct:
			fill(t, to, path+".", known)
		case reflect.String:
			if options[0] != "" {
				to.SetString(rapid.SampledFrom(options).Draw(t, path))
			} else {
				to.SetString(word.Draw(t, path))
			}
		case reflect.Int:
			to.SetInt(int64(rapid.IntRange(max(1, number(field.Tag, "min", 1)), number(field.Tag, "max", 1000)).Draw(t, path)))
		case reflect.Float64:
			to.SetFloat(float64(rapid.IntRange(1, 100).Draw(t, path)) / 100)
		case reflect.Bool:
			to.SetBool(true)
		case reflect.Slice:
			if options[0] == "" {
				options = rapid.SliceOfNDistinct(word, 1, 3, rapid.ID).Draw(t, path)
			}
			to.Set(reflect.ValueOf(options))
		case reflect.Map:
			to.Set(reflect.ValueOf(rapid.MapOfN(rapid.StringMatching(`[a-z]{1,8}`), word, 1, 3).Draw(t, path)))
		default:
			t.Fatalf("%s is of a kind that this does not know: %s", path, to.Type())
		}
	}
}

// agree makes fields fit each other that were drawn one by one.
func agree(s *job.Spec) {
	if s.Concurrency > 1 {
		s.Overlap = job.OverlapAllow
	}
	if s.Delivery == job.DeliverAtMostOnce {
		*s.Retry.MaxRetries = 0
	}
	s.Retry.Cap = max(s.Retry.Cap, s.Retry.Base)
	s.EndAt += s.StartAt
	if strings.HasPrefix(s.Schedule, "2027") || strings.HasPrefix(s.Schedule, "DTSTART") {
		s.Calendars = nil // they have none
	}
}

func (s *shell) lastIndex() string {
	s.t.Helper()
	st, err := s.node().Backend.Status(s.t.Context(), api.Read{})
	if err != nil {
		s.t.Fatal(err)
	}
	return st.Raft["last_log_index"]
}

// Whatever is in a job: what -o yaml prints of it is a file that apply takes for the same, and the log has not one entry
// more.
func TestAppliedAgainIsUnchanged(t *testing.T) {
	s := newShell(t)
	s.node = sync.OnceValue(func() *apitest.Node {
		return apitest.Start(t, func(c *node.Config) {
			c.Notify.SMTP = notify.SMTP{Addr: "mail.example.com:25", From: "carillon@example.com", Namespaces: []string{"*"}}
		})
	})
	for _, space := range []string{"default", "team-a"} {
		if _, stderr, code := s.run("name: cal\ndates: [12-25]\n", "calendars", "set", "-", "-n", space); code != 0 {
			t.Fatal(stderr)
		}
	}
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		var spec job.Spec
		fill(rt, reflect.ValueOf(&spec).Elem(), "", grammars(rt, fmt.Sprintf("job-%d", n)))
		for i, v := 0, reflect.ValueOf(spec); i < v.NumField(); i++ {
			if v.Field(i).IsZero() {
				rt.Fatalf("%s has no value", v.Type().Field(i).Name)
			}
		}
		agree(&spec)
		text, err := json.Marshal(spec)
		if err != nil {
			rt.Fatal(err)
		}
		if out, stderr, code := s.run(string(text), "apply", "-f", "-"); code != 0 || !strings.HasSuffix(out, "\n1 created, 0 changed, 0 unchanged, 0 failed\n") {
			rt.Fatalf("%s\n%s%s", text, out, stderr)
		}
		before := s.lastIndex()
		file, stderr, code := s.run("", "jobs", "get", spec.Name, "-n", spec.Namespace, "-o", "yaml")
		if code != 0 {
			rt.Fatal(stderr)
		}
		if out, stderr, code := s.run(file, "apply", "-f", "-"); code != 0 || out != "0 created, 0 changed, 1 unchanged, 0 failed\n" {
			rt.Fatalf("%s\n%s%s", file, out, stderr)
		}
		if after := s.lastIndex(); after != before {
			rt.Fatalf("the log went from %s to %s", before, after)
		}
	})
	files, stderr, code := s.run("", "jobs", "-A", "--all", "-o", "yaml")
	if code != 0 {
		t.Fatal(stderr)
	}
	before := s.lastIndex()
	if out, stderr, code := s.run(files, "apply", "-f", "-"); code != 0 || out != fmt.Sprintf("0 created, 0 changed, %d unchanged, 0 failed\n", n) {
		t.Errorf("%s%s", out, stderr)
	}
	if after := s.lastIndex(); after != before {
		t.Errorf("the log went from %s to %s", before, after)
	}
}
