package apitest_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/job"
)

func applied(t testing.TB, body string) (out []wire.ApplyResult) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(body), "\n") {
		var r wire.ApplyResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, r)
	}
	return out
}

// apply applies lines and gives the answers as words.
func apply(t *testing.T, b api.Backend, query string, lines ...string) []wire.ApplyResult {
	t.Helper()
	return applied(t, serve(t, b, "POST", "/api/v1/jobs:apply"+query, nil, strings.Join(lines, "\n")).Body.String())
}

func said(results []wire.ApplyResult) string {
	var out []string
	for _, r := range results {
		text := fmt.Sprintf("%d %s %s", r.Line, r.Name, r.Status)
		for _, c := range r.Changes {
			text += fmt.Sprintf(" %s:%s>%s", c.Field, c.Before, c.After)
		}
		if r.Error != nil {
			text += " " + string(r.Error.Code) + " " + r.Error.Field
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func lastIndex(t testing.TB, n *apitest.Node) uint64 {
	t.Helper()
	s, err := n.Backend.Status(t.Context(), api.Read{})
	if err != nil {
		t.Fatal(err)
	}
	i, err := strconv.ParseUint(s.Raft["last_log_index"], 10, 64)
	if err != nil {
		t.Fatal(s.Raft, err)
	}
	return i
}

func queueJob(name, more string) string {
	return fmt.Sprintf(`{"name":%q,"type":"queue","schedule":"0 1 * * *","payload":{"queue":"q","data":{"a":1,"b":[1,2]}}%s}`, name, more)
}

func TestApply(t *testing.T) {
	n := apitest.Start(t)
	if got, want := said(apply(t, n.Backend, "", queueJob("a", ""), "", queueJob("b", ""), `{"name":"c"`, queueJob("", ""), queueJob("a", ""))),
		"1 a created; 3 b created; 4  error malformed ; 5  error invalid name; 6 a error invalid name"; got != want {
		t.Fatalf("%s\nand not %s", got, want)
	}
	a, err := n.Backend.GetJob(t.Context(), "a", api.Read{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Backend.PauseJob(t.Context(), "a", api.Request{Key: "p"}); err != nil {
		t.Fatal(err)
	}
	before := lastIndex(t, n)
	// The same in other words: defaults said, members in another order, numbers written otherwise.
	same := `{"payload":{"data":{"b":[1.0,2e0],"a":1},"queue":"q"},"schedule":"0 1 * * *","type":"queue","name":"a","timeout":"300s","overlap":"skip"}`
	if got := said(apply(t, n.Backend, "", same, queueJob("b", ""))); got != "1 a unchanged; 2 b unchanged" {
		t.Fatal(got)
	}
	// A dry run changes nothing either.
	changed := strings.Replace(queueJob("a", `,"tags":{"team":"x"}`), "0 1", "0 2", 1)
	want := `1 a changed schedule:"0 1 * * *">"0 2 * * *" tags:>{"team":"x"}; 2 new created`
	if got := said(apply(t, n.Backend, "?dry_run=true", changed, queueJob("new", ""))); got != want {
		t.Fatalf("%s\nand not %s", got, want)
	}
	if after := lastIndex(t, n); after != before {
		t.Errorf("nothing changed, and the log went from %d to %d", before, after)
	}
	if got := said(apply(t, n.Backend, "", changed, queueJob("new", ""))); got != want {
		t.Fatalf("%s\nand not %s", got, want)
	}
	j, err := n.Backend.GetJob(t.Context(), "a", api.Read{})
	if err != nil || j.ID != a.ID || j.Status != job.StatusPaused || j.Schedule != "0 2 * * *" || j.CreatedAt != a.CreatedAt {
		t.Errorf("%+v, %v", j, err)
	}
}

func TestApplySets(t *testing.T) {
	n := apitest.Start(t)
	for _, step := range []struct{ query, line, want string }{
		{"?set=one", queueJob("a", ""), "1 a created"},
		{"?set=one", queueJob("a", ""), "1 a unchanged"},
		{"", queueJob("a", ""), "1 a unchanged"}, // it stays in its set
		{"?set=two", queueJob("a", ""), "1 a error invalid tags"},
		{"", queueJob("a", `,"tags":{"carillon-set":"two"}`), "1 a error invalid tags"},
		{"?set=one", queueJob("b", `,"tags":{"carillon-set":"two"}`), "1 b error invalid tags"},
		{"?set=two&take_over=true&dry_run=true", queueJob("a", ""), `1 a changed tags:{"carillon-set":"one"}>{"carillon-set":"two"}`},
		{"?set=two&take_over=true", queueJob("a", ""), `1 a changed tags:{"carillon-set":"one"}>{"carillon-set":"two"}`},
		{"", queueJob("b", ""), "1 b created"},
		{"?set=two", queueJob("b", ""), `1 b changed tags:>{"carillon-set":"two"}`},
	} {
		if got := said(apply(t, n.Backend, step.query, step.line)); got != step.want {
			t.Errorf("%s %s: %s and not %s", step.query, step.line, got, step.want)
		}
	}
}

// A dry run takes calendars as there that will be.
func TestApplyAssumesCalendars(t *testing.T) {
	n := apitest.Start(t)
	line := queueJob("a", `,"calendars":["soon","other"]`)
	for query, want := range map[string]string{
		"?dry_run=true":                         "1 a error invalid calendars",
		"?dry_run=true&calendars=soon":          "1 a error invalid calendars",
		"?dry_run=true&calendars=soon,other":    "1 a created",
		"?dry_run=true&calendars=other,soon,x1": "1 a created",
	} {
		if got := said(apply(t, n.Backend, query, line)); got != want {
			t.Errorf("%s: %s and not %s", query, got, want)
		}
	}
}

// between is a context that calls a function whenever it is asked whose request it is: after a comparison, and before
// the change that follows from it.
type between struct {
	context.Context
	do func()
}

func (b between) Value(key any) any {
	if fmt.Sprintf("%T", key) == "api.identityKey" {
		b.do()
	}
	return b.Context.Value(key)
}

// An edit that comes between the comparison and the change is not lost: the line is compared again. If that goes on, the
// line says so.
func TestApplyMeetsOtherEdits(t *testing.T) {
	n := apitest.Start(t)
	apply(t, n.Backend, "", queueJob("a", ""))
	edits, done := 0, 0
	ctx := between{t.Context(), func() {
		if edits--; edits < 0 {
			return
		}
		done++
		j, err := n.Backend.GetJob(t.Context(), "a", api.Read{})
		if err == nil {
			j.Concurrency, j.Overlap = done+1, job.OverlapAllow
			_, err = n.Backend.UpdateJob(t.Context(), "a", j.Spec, 0, api.Request{Key: fmt.Sprint("edit", done)})
		}
		if err != nil {
			t.Error(err)
		}
	}}
	try := func(more string) string {
		spec, err := job.DecodeSpec([]byte(queueJob("a", more)))
		if err != nil {
			t.Fatal(err)
		}
		spec.Namespace = "default"
		res, err := n.Backend.ApplyJobs(ctx, []wire.BulkLine{{Line: 1, Spec: spec}}, wire.ApplyOptions{}, api.Request{})
		if err != nil {
			t.Fatal(err)
		}
		return said(res)
	}
	edits = 1
	if got, want := try(`,"timeout":"1m"`), `1 a changed concurrency:2> overlap:"allow">"skip" timeout:"5m0s">"1m0s"`; got != want || done != 1 {
		t.Errorf("%s and not %s", got, want)
	}
	edits = 1000
	if got := try(`,"timeout":"2m"`); got != "1 a error version_conflict " || done > 20 {
		t.Errorf("%s after %d other edits", got, done)
	}
}

// Who may only look may ask what would change, and nothing else. An operator without the right to write shell jobs may
// leave one as it is.
func TestApplyRoles(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	shell := `{"name":"sh","type":"shell","schedule":"@manual","payload":{"command":"true"}}`
	edited := strings.Replace(shell, "true", "false", 1)
	ask := func(token, query string, lines ...string) string {
		t.Helper()
		res := send(t, t.Context(), n, "POST", "/api/v1/jobs:apply"+query, token, strings.NewReader(strings.Join(lines, "\n")))
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != 200 {
			return strconv.Itoa(res.StatusCode)
		}
		return said(applied(t, string(body)))
	}
	viewer := n.Token(t, wire.TokenRequest{Role: job.RoleViewer})
	operator := n.Token(t, wire.TokenRequest{Role: job.RoleOperator})
	trusted := n.Token(t, wire.TokenRequest{Role: job.RoleOperator, Shell: true})
	team := n.Token(t, wire.TokenRequest{Role: job.RoleOperator, Namespace: "team-a"})
	for i, step := range []struct{ token, query, line, want string }{
		{viewer, "", queueJob("a", ""), "403"},
		{viewer, "?dry_run=false", queueJob("a", ""), "403"},
		{viewer, "?dry_run=true&dry_run=false", queueJob("a", ""), "403"},
		{viewer, "?dry_run=1", queueJob("a", ""), "403"}, // one way to say it is enough
		{viewer, "?dry_run=true;x", queueJob("a", ""), "403"},
		{viewer, "?dry_run=true", queueJob("a", ""), "1 a created"},
		{viewer, "?dry_run=true", shell, "1 sh created"},
		{operator, "?dry_run=true", shell, "1 sh error forbidden type"},
		{operator, "", shell, "1 sh error forbidden type"},
		{trusted, "", shell, "1 sh created"},
		{operator, "", shell, "1 sh unchanged"},
		{operator, "", edited, "1 sh error forbidden type"},
		{operator, "", strings.Replace(queueJob("sh", ""), "0 1", "0 2", 1), "1 sh error forbidden type"},
		{viewer, "?dry_run=true", edited, `1 sh changed payload:{"command":"true"}>{"command":"false"}`},
		{trusted, "", edited, `1 sh changed payload:{"command":"true"}>{"command":"false"}`},
		{operator, "", queueJob("a", ""), "1 a created"},
		{team, "", queueJob("a", ""), "1 a created"}, // in its own namespace
		{team, "", queueJob("a", `,"namespace":"default"`), "1  error forbidden "},
		{team, "?namespace=default", queueJob("a", ""), "403"},
	} {
		if got := ask(step.token, step.query, step.line); got != step.want {
			t.Errorf("%d: %s and not %s", i, got, step.want)
		}
	}
}

// randomSpec has a value in every field that there is, by reflection: one of a kind that it does not know fails the
// test.
func randomSpec(t *rapid.T, name string) job.Spec {
	var s job.Spec
	v := reflect.ValueOf(&s).Elem()
	words := rapid.StringMatching(`[a-z][a-z0-9 _.:#'"é-]{0,12}[a-z]`)
	span := func(label string) job.Duration {
		return job.Duration(time.Duration(rapid.IntRange(1, 100_000).Draw(t, label)) * time.Second)
	}
	pairs := rapid.MapOfN(rapid.StringMatching(`[a-z]{1,8}`), words, 1, 3)
	of := func(options ...string) string { return rapid.SampledFrom(options).Draw(t, "option") }
	maxRetries, jitter := rapid.IntRange(0, 1000).Draw(t, "retries"), float64(rapid.IntRange(0, 100).Draw(t, "jitter"))/100
	base := span("base")
	zone := of("UTC", "Europe/Berlin", "America/New_York")
	values := map[string]any{
		"Name": name, "Namespace": of("default", "team-a"), "Type": job.TypeQueue,
		"Schedule": of("0 1 * * *", "*/7 9-17 * * MON-FRI", "@every 90s", "@manual", "H 3 * * *", "DTSTART:20270301T090000\nRRULE:FREQ=DAILY",
			"2027-03-01T09:00:00Z"),
		"Timezone": zone,
		"Payload":  json.RawMessage(fmt.Sprintf(`{"queue":"q","data":%s}`, randomJSON(t, 3))),
		"Retry":    job.Retry{MaxRetries: &maxRetries, Backoff: of("immediate", "linear", "exponential"), Base: base, Cap: base + span("cap"), Jitter: &jitter},
		"Timeout":  span("timeout"), "Deadline": span("deadline"),
		"Missed":  job.Missed{Policy: of("skip", "run_once", "run_all"), Window: of("auto", "2h", "90m0s"), Max: rapid.IntRange(1, 100).Draw(t, "max"), Grace: span("grace")},
		"Overlap": "allow", "Delivery": "at_least_once", "Priority": of("critical", "high", "normal", "low"),
		"Concurrency": rapid.IntRange(1, 100).Draw(t, "concurrency"), "Jitter": span("jitter"),
		"StartAt": job.At(time.Date(2026, 12, 1, 0, 0, rapid.IntRange(0, 10_000).Draw(t, "start"), 0, time.UTC)),
		"EndAt":   job.At(time.Date(2030, 12, 1, 0, 0, rapid.IntRange(0, 10_000).Draw(t, "end"), 0, time.UTC)),
		"MaxRuns": rapid.IntRange(1, 100).Draw(t, "runs"), "Calendars": []string{"cal"}, "Tags": pairs.Draw(t, "tags"),
		"Workers": pairs.Draw(t, "workers"), "IdempotencyKey": of("{job_id}:{scheduled_at_unix}", "x-{run_id}"), "Retention": span("retention"),
		"Notify": &job.Notify{Webhook: "https://example.com/a?b=c&d", On: []string{"failure", "recovery"}},
		"DSTGap": of("run_after", "skip"), "DSTOverlap": of("first", "both"),
	}
	for i := range v.NumField() {
		field := v.Type().Field(i).Name
		value, ok := values[field]
		if !ok || reflect.ValueOf(value).IsZero() {
			t.Fatalf("give the field %s a value here", field)
		}
		if rapid.IntRange(0, 3).Draw(t, field) > 0 || field == "Name" || field == "Type" || field == "Schedule" || field == "Payload" {
			v.Field(i).Set(reflect.ValueOf(value))
		}
	}
	if s.Concurrency > 1 {
		s.Overlap = "allow"
	}
	if strings.HasPrefix(s.Schedule, "2027") || strings.HasPrefix(s.Schedule, "DTSTART") {
		s.Calendars = nil
	}
	return s
}

func randomJSON(t *rapid.T, depth int) string {
	switch kind := rapid.IntRange(0, 5+min(depth, 2)).Draw(t, "kind"); kind {
	case 0:
		return "null"
	case 1:
		return fmt.Sprint(rapid.Bool().Draw(t, "bool"))
	case 2:
		return fmt.Sprint(rapid.Int64().Draw(t, "int"))
	case 3:
		return rapid.SampledFrom([]string{"1.5", "-0.25", "1e3", "1.0", "0", "-0", "0.1", "2E-7", "0.30000000000000004"}).Draw(t, "float")
	case 4, 5:
		text := rapid.OneOf(rapid.SampledFrom([]string{"", "yes", "null", "1", "0x1f", "~", "- a", "a: b", "#", "2026-01-01", "1_000", "one\ntwo\n", "tab\there", " lead", "end ", "a\n\n b\n", "<&>"}),
			rapid.String()).Draw(t, "text")
		b, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	case 6:
		var list []string
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			list = append(list, randomJSON(t, depth-1))
		}
		return "[" + strings.Join(list, ",") + "]"
	default:
		var list []string
		for i := range rapid.IntRange(0, 3).Draw(t, "n") {
			list = append(list, fmt.Sprintf(`"k%d %s":%s`, 9-i, rapid.StringMatching(`[a-z]{0,3}`).Draw(t, "key"), randomJSON(t, depth-1)))
		}
		return "{" + strings.Join(list, ",") + "}"
	}
}

// What a job file says is what is shown, and what is shown is what an apply takes for the same: as YAML and as JSON,
// for every field. Nothing of it is in the log.
func TestAppliedIsUnchanged(t *testing.T) {
	n := apitest.Start(t)
	for _, space := range []string{"default", "team-a"} {
		if w := serve(t, n.Backend, "PUT", "/api/v1/calendars/cal?namespace="+space, nil, `{"name":"cal","dates":["12-25"]}`); w.Code != 200 {
			t.Fatal(w.Body)
		}
	}
	names := 0
	rapid.Check(t, func(rt *rapid.T) {
		names++
		spec := randomSpec(rt, fmt.Sprintf("job-%d", names))
		line, err := json.Marshal(spec)
		if err != nil {
			rt.Fatal(err)
		}
		if got := said(apply(t, n.Backend, "", string(line))); got != "1 "+spec.Name+" created" {
			rt.Fatalf("%s: %s", line, got)
		}
		before := lastIndex(t, n)
		j, err := n.Backend.GetJob(t.Context(), spec.Name, api.Read{Space: api.Space{Namespace: cmp.Or(spec.Namespace, "default")}})
		if err != nil {
			rt.Fatal(err)
		}
		shown, err := json.Marshal(j.Spec)
		if err != nil {
			rt.Fatal(err)
		}
		yaml, err := jobfile.ToYAML(shown)
		if err != nil {
			rt.Fatal(err)
		}
		docs, err := jobfile.Read(bytes.NewReader(yaml), "job.yaml")
		if err != nil {
			rt.Fatalf("%s: %v", yaml, err)
		}
		for _, again := range []string{string(line), string(shown), string(docs[0].JSON)} {
			if got := said(apply(t, n.Backend, "", again)); got != "1 "+spec.Name+" unchanged" {
				rt.Fatalf("%s\n%s: %s", yaml, again, got)
			}
		}
		if after := lastIndex(t, n); after != before {
			rt.Fatalf("the log went from %d to %d", before, after)
		}
	})
}
