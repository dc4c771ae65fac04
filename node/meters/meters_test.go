package meters_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/carillon-scheduler/carillon/api/wire"
	_ "github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/fsm/ends"
	"github.com/carillon-scheduler/carillon/internal/traceid"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/meters"
	"github.com/carillon-scheduler/carillon/store"
)

func newMeters() *meters.Meters { return meters.New(slog.New(slog.DiscardHandler), "v0") }

func scrape(m *meters.Meters) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func wantSeries(t *testing.T, m *meters.Meters, want ...string) {
	t.Helper()
	text := scrape(m)
	for _, w := range want {
		if !strings.Contains(text, "\ncarillon_"+w+"\n") {
			t.Errorf("not in the metrics: carillon_%s", w)
		}
	}
}

// withClass is a store in which class 1 is of http jobs.
func withClass(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{NoSync: true, MmapSize: 1 << 24})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	b, err := st.Begin()
	if err != nil {
		t.Fatal(err)
	}
	c := job.Class{Namespace: job.DefaultNamespace, Type: job.TypeHTTP}
	if n, err := b.Class(c.String()); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	return st
}

// What happens in a group is counted in its series, and in those of no other.
func TestEventsOfGroups(t *testing.T) {
	m := newMeters()
	st := withClass(t)
	done := &fsm.Complete{Started: []int64{1000}, Ended: []int64{3000}}
	ended := &fsm.Reply{Ends: ends.Tally{
		All: []ends.End{{Class: 1, Status: job.RunSucceeded, Count: 5},
			{Class: 1, Status: job.RunSucceeded, Attempt: true, Count: 6}},
		NotRun: []ends.NotRun{{Reason: job.ReasonOutage, Count: 7}}}}
	for number, times := range []int{0, 2, 3} {
		g := m.Group(uint32(number))
		g.Attach(meters.GroupState{Store: st})
		g.Detach() // the rest of its state is not there
		g.Leading(4)
		h := g.Hooks(nil)
		for range times {
			h.Lag(job.RunKey{}, time.Second)
			h.Claims("claimed", 2)
			h.Expired()
			g.Applied([]*raft.Log{{Term: 4}}, []any{ended}, time.Second)
			g.Observe(done, &fsm.Reply{Items: []fsm.Outcome{{Code: fsm.CodeOK, Class: 1}}}, time.Second)
			g.Notified("sent")
		}
	}
	wantSeries(t, m,
		`schedule_lag_seconds_count{group="0"} 0`, `schedule_lag_seconds_count{group="1"} 2`,
		`schedule_lag_seconds_sum{group="2"} 3`,
		`claims_total{group="1",outcome="claimed"} 4`, `claims_total{group="2",outcome="claimed"} 6`,
		`runs_total{group="1",status="succeeded",type="http"} 10`,
		`runs_total{group="2",status="succeeded",type="http"} 15`,
		`attempts_total{group="1",status="succeeded",type="http"} 12`,
		`not_run_total{group="1",reason="outage"} 14`, `not_run_total{group="2",reason="outage"} 21`,
		`apply_seconds_count{group="1"} 2`, `apply_seconds_count{group="2"} 3`,
		`commit_seconds_count{group="1"} 2`, `commit_seconds_count{group="2"} 3`,
		`run_duration_seconds_sum{group="1",type="http"} 4`, `run_duration_seconds_sum{group="2",type="http"} 6`,
		`notifications_total{group="1",outcome="sent"} 2`, `notifications_total{group="2",outcome="sent"} 3`,
		`sessions_expired_total{group="1"} 2`, `leader_changes_total{group="0"} 1`)
}

// An entry is counted by the node that led in its term, once: also after that term, and not by others.
func TestWhoCounts(t *testing.T) {
	m := newMeters()
	g := m.Group(0)
	g.Attach(meters.GroupState{Store: withClass(t)})
	g.Detach()
	reply := &fsm.Reply{Ends: ends.Tally{All: []ends.End{{Class: 1, Status: job.RunDead, Count: 1}}}}
	apply := func(term uint64, reply any) { g.Applied([]*raft.Log{{Term: term}}, []any{reply}, 0) }
	apply(1, reply) // a leader before it
	g.Leading(2)
	g.Leading(2) // a takeover that was tried again
	apply(2, reply)
	apply(3, reply)      // another leader
	apply(2, raft.Log{}) // one that was replayed
	apply(2, reply)      // committed by the leader of term 3
	for term := range uint64(40) {
		g.Leading(10 + term)
	}
	apply(49, reply)
	wantSeries(t, m, `runs_total{group="0",status="dead",type="http"} 3`, `leader_changes_total{group="0"} 41`)
}

// Every series that an alert looks at is there before anything happened: an increase from nothing is none.
func TestSeriesFromTheStart(t *testing.T) {
	m := newMeters()
	m.Group(3)
	var want []string
	for _, kind := range job.Types() {
		for _, s := range []string{"succeeded", "dead", "canceled", "expired", "lost"} {
			want = append(want, `runs_total{group="3",status="`+s+`",type="`+kind+`"} 0`)
		}
		for _, s := range []string{"succeeded", "failed", "canceled", "lost"} {
			want = append(want, `attempts_total{group="3",status="`+s+`",type="`+kind+`"} 0`)
		}
		want = append(want, `run_duration_seconds_count{group="3",type="`+kind+`"} 0`)
	}
	for _, r := range []string{"overlap", "outage", "deadline", "queue_full", "paused", "past"} {
		want = append(want, `not_run_total{group="3",reason="`+r+`"} 0`)
	}
	want = append(want, `notifications_total{group="3",outcome="failed"} 0`, `sessions_expired_total{group="3"} 0`,
		`leader_changes_total{group="3"} 0`, `claims_total{group="3",outcome="unknown"} 0`)
	wantSeries(t, m, want...)
}

// The names and texts are as Prometheus' own linter wants them, and histograms have native buckets for those who ask.
func TestMetricsAreLinted(t *testing.T) {
	m := newMeters()
	m.Group(0).Hooks(nil).Lag(job.RunKey{}, time.Second)
	problems, err := promlint.New(strings.NewReader(scrape(m))).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", err, problems)
	}
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	if text := strings.ReplaceAll(w.Body.String(), "  ", " "); !strings.Contains(text, "positive_span") ||
		!strings.Contains(text, "upper_bound: 0.035") {
		t.Errorf("no native buckets, or no classic ones:\n%.2000s", w.Body.String())
	}
	r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	w = httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	if !strings.HasSuffix(w.Body.String(), "# EOF\n") {
		t.Errorf("no OpenMetrics: %s", w.Header())
	}
}

// Requests are measured by the route that they are for, of which there are only so many; those that wait for something
// and those of other nodes are left out.
func TestRequestsAreMeasured(t *testing.T) {
	m := newMeters()
	h := m.Timed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("refuse") {
			w.WriteHeader(http.StatusConflict)
			w.WriteHeader(http.StatusOK) // too late
		}
	}))
	ask := func(method, target string, headers ...string) {
		r := httptest.NewRequest(method, target, nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, name := range []string{"a", "b", "c%2Fd"} {
		ask("GET", "/api/v1/jobs/"+name)
		ask("POST", "/api/v1/jobs/"+name+":pause?refuse")
	}
	ask("HEAD", "/api/v1/jobs/a")
	ask("GET", "/metrics")
	ask("GET", "/api/v1/jobs/a:nonsense")
	ask("GET", "/nothing/here")
	ask("BREW", "/api/v1/jobs/a")
	ask("POST", "/api/v1/workers:poll")
	ask("GET", "/api/v1/events")
	ask("GET", "/internal/names")
	ask("GET", "/api/v1/jobs/a", wire.ForwardedHeader, "n2")
	wantSeries(t, m,
		`http_request_duration_seconds_count{code="200",method="GET",route="/api/v1/jobs/{ref}"} 4`,
		`http_request_duration_seconds_count{code="409",method="POST",route="/api/v1/jobs/{ref}:pause"} 3`,
		`http_request_duration_seconds_count{code="200",method="GET",route="/metrics"} 1`,
		`http_request_duration_seconds_count{code="200",method="other",route="other"} 3`)
	if n := strings.Count(scrape(m), "http_request_duration_seconds_count"); n != 4 {
		t.Errorf("%d series:\n%s", n, scrape(m))
	}
}

// Of jobs beyond the first 1,000 it is said how many there are, and what the list refuses is refused.
func TestMetricsOfManyJobs(t *testing.T) {
	const all = 2345
	list := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/api/v1/jobs" || q.Get("prefix") != "j" || q.Get("namespace") != "team" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"code":"forbidden"}`)
			return
		}
		from, _ := strconv.Atoi(q.Get("cursor"))
		page := wire.JobPage{Jobs: []job.Job{}}
		for i := from; i < min(all, from+300); i++ { // short pages
			j := job.Job{ID: job.ID(i + 1), Spec: job.Spec{Name: fmt.Sprint("j", i), Namespace: "team"}}
			switch i {
			case 0:
				j.Name = ""
				j.LastSuccessAt, j.LastRunStatus = 5_500, job.RunDead
			case 1:
				j.NextRunAt = 7_000
			case 300:
				j.Name = "j299" // twice
			}
			page.Jobs = append(page.Jobs, j)
		}
		if from+300 < all {
			page.NextCursor = strconv.Itoa(from + 300)
		}
		json.NewEncoder(w).Encode(page)
	})
	ask := func(query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		meters.Jobs(list).ServeHTTP(w, httptest.NewRequest("GET", "/metrics/jobs?"+query, nil))
		return w
	}
	text := ask("prefix=j&namespace=team").Body.String()
	for _, want := range []string{`job_last_success_timestamp_seconds{job_name="j_1",namespace="team"} 5.5`,
		`job_failing{job_name="j_1",namespace="team"} 1`, `job_failing{job_name="j1",namespace="team"} 0`,
		`job_next_run_timestamp_seconds{job_name="j1",namespace="team"} 7`, `jobs_omitted 1344`} {
		if !strings.Contains(text, "\ncarillon_"+want+"\n") {
			t.Errorf("not in the metrics: carillon_%s", want)
		}
	}
	if n := strings.Count(text, "\ncarillon_job_failing{"); n != 1000 {
		t.Errorf("%d jobs", n)
	}
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", err, problems)
	}
	if w := ask("prefix=j&namespace=other"); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "forbidden") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// With tracing on, a histogram leads to runs: the trace of one is with the bucket that it was counted in.
func TestExemplars(t *testing.T) {
	st := withClass(t)
	for name, traces := range map[string]*traceid.Sampler{"on": traceid.NewSampler(1), "none": traceid.NewSampler(0),
		"off": nil} {
		m := newMeters()
		g := m.Group(0)
		g.Attach(meters.GroupState{Store: st})
		g.Detach()
		run := job.RunKey{Job: 1, At: 2, Origin: job.OriginSchedule}
		g.Hooks(traces).Lag(run, 30*time.Millisecond)
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, r)
		want := `carillon_schedule_lag_seconds_bucket{group="0",le="0.035"} 1`
		trace := `# {trace_id="` + traceid.Of(st.Info().ClusterID, run).String() + `"} 0.03`
		if text := w.Body.String(); !strings.Contains(text, want) || strings.Contains(text, want+" "+trace) != (name == "on") {
			t.Errorf("%s: %v", name, strings.Contains(text, want))
		}
	}
}
