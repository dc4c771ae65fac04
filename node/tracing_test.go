package node

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/otlp"
	"github.com/carillon-scheduler/carillon/internal/otlp/otlptest"
	"github.com/carillon-scheduler/carillon/internal/traceid"
	"github.com/carillon-scheduler/carillon/job"
)

// tracesTo has a node export all runs to a receiver, without much waiting.
func tracesTo(r *otlptest.Receiver) func(*Config) {
	return func(cfg *Config) {
		cfg.Traces = &otlp.Config{URL: r.URL, Ratio: 1, Delay: 10 * time.Millisecond, Retry: 10 * time.Millisecond,
			Timeout: 5 * time.Second, GiveUp: 10 * time.Minute,
			Headers:  http.Header{"Authorization": {"Bearer receiver-token"}},
			Resource: []otlp.Attr{otlp.String("service.name", "carillon")}}
	}
}

// traced is a target that fails as often as it is told to, and keeps what it was told.
type traced struct {
	*httptest.Server
	fails atomic.Int64
	mu    sync.Mutex
	hits  []http.Header
}

func newTraced(t *testing.T, fails int64) *traced {
	tg := &traced{}
	tg.fails.Store(fails)
	tg.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tg.mu.Lock()
		tg.hits = append(tg.hits, r.Header.Clone())
		tg.mu.Unlock()
		if tg.fails.Add(-1) >= 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintln(w, "answer-marker")
	}))
	t.Cleanup(tg.Close)
	return tg
}

func (tg *traced) seen() []http.Header {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	return append([]http.Header(nil), tg.hits...)
}

func (tg *traced) spec(name string, retries int) map[string]any {
	return map[string]any{"name": name, "type": "http", "schedule": "@manual",
		"retry": map[string]any{"max_retries": retries, "base": "2s", "backoff": "linear", "jitter": 0},
		"payload": map[string]any{"url": tg.URL + "/?q=query-marker", "method": "POST", "body": "payload-marker",
			"headers": map[string]string{"X-Key": "header-marker"}}}
}

// byID are the spans of a run, each once: a leader makes again what the one before may not have sent, and that has to
// be the same.
func byID(t *testing.T, spans []otlptest.Span, run string) map[string]otlptest.Span {
	t.Helper()
	out := map[string]otlptest.Span{}
	for _, s := range spans {
		if s.Attrs["carillon.run"] != run {
			continue
		}
		if known, ok := out[s.ID]; ok {
			a, b := known, s
			a.Of, b.Of = nil, nil
			if a.String() != b.String() {
				t.Errorf("two spans with one id:\n%s\n%s", a, b)
			}
			continue
		}
		out[s.ID] = s
	}
	return out
}

// wantTrace compares the spans of a run that has ended with what the API says, and with what the target was told.
func wantTrace(t *testing.T, d wire.RunDetail, spans map[string]otlptest.Span, hits []http.Header) {
	t.Helper()
	key, err := job.ParseRunKey(d.RunID)
	if err != nil {
		t.Fatal(err)
	}
	trace := traceid.Of("test-cluster", key)
	if len(spans) != 1+2*len(d.Attempts) {
		t.Errorf("%d spans of %d attempts: %v", len(spans), len(d.Attempts), spans)
	}
	for _, s := range spans {
		if s.Trace != trace.String() {
			t.Errorf("span of trace %s, want %s", s.Trace, trace)
		}
	}
	last := d.Attempts[0]
	for _, a := range d.Attempts {
		if a.Attempt > last.Attempt {
			last = a
		}
		wait, attempt := spans[trace.Wait(a.Fence).String()], spans[trace.Attempt(a.Fence).String()]
		if wait.Name != "wait" || wait.Parent != trace.Run().String() || !wait.End.Equal(a.ClaimedAt.Time()) ||
			wait.Start.After(wait.End) || !wait.Start.Equal(a.ReadyAt.Time()) {
			t.Errorf("wait of attempt %d: %s\nof %+v", a.Attempt, wait, a)
		}
		if attempt.Name != "attempt" || attempt.Parent != trace.Run().String() || attempt.Kind != 3 ||
			!attempt.Start.Equal(a.StartedAt.Time()) || !attempt.End.Equal(a.FinishedAt.Time()) ||
			attempt.Failed != (a.Status == job.RunFailed) || !strings.HasPrefix(a.Error, attempt.Error) ||
			attempt.Failed && attempt.Error != "status 500 Internal Server Error" ||
			attempt.Attrs["carillon.worker"] != a.Worker || attempt.Attrs["carillon.attempt"] != int64(a.Attempt) ||
			attempt.Attrs["carillon.fence"] != int64(a.Fence) || attempt.Attrs["carillon.status"] != a.Status.String() ||
			attempt.Attrs["carillon.job"] != d.JobID.String() || attempt.Attrs["carillon.job_name"] != d.JobName ||
			attempt.Attrs["carillon.namespace"] != "default" || attempt.Attrs["carillon.type"] != "http" {
			t.Errorf("attempt %d: %s\nof %+v", a.Attempt, attempt, a)
		}
	}
	root := spans[trace.Run().String()]
	if root.Name != "run" || root.Parent != "" || !root.Start.Equal(d.ScheduledAt.Time()) ||
		!root.End.Equal(last.FinishedAt.Time()) || root.Attrs["carillon.status"] != d.Status.String() ||
		root.Failed != (d.Status == job.RunDead) || root.Attrs["carillon.attempts"] != int64(last.Attempt) {
		t.Errorf("root: %s\nof %+v", root, d)
	}
	for _, h := range hits {
		var fence uint64
		fmt.Sscan(h.Get("Carillon-Fence"), &fence)
		if want := trace.Parent(fence, true); h.Get("Carillon-Run") == d.RunID && h.Get("traceparent") != want {
			t.Errorf("the target was told %q, want %q", h.Get("traceparent"), want)
		}
	}
}

// One run with two retries over the death of a leader is one trace, also if that died before it sent anything.
func TestTraceOverLeaderCrash(t *testing.T) {
	realTime(t)
	t.Parallel()
	for _, sent := range []bool{true, false} {
		t.Run(fmt.Sprint("sent=", sent), func(t *testing.T) {
			t.Parallel()
			var away atomic.Bool
			r := otlptest.New(t, func(w http.ResponseWriter) bool {
				if away.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
					return false
				}
				return true
			})
			c := startCluster(t, 3, tracesTo(r))
			c.awaitWorkers(3)
			tg := newTraced(t, 2)
			old := c.leader()
			away.Store(!sent)
			old.create(tg.spec("traced", 3))
			run := ok[job.Run](old.testNode, "POST", "/api/v1/jobs/traced:run", nil).RunID
			old.eventually("the first attempt failed", func() bool { return old.count("traced", job.RunFailed) > 0 })
			if sent {
				old.eventually("its spans arrive", func() bool { return len(byID(t, r.Spans(), run)) >= 2 })
			}
			old.crash()
			via := c.others(old)[0]
			via.eventually("another leads", func() bool { return c.leader() != old })
			away.Store(false)
			var d wire.RunDetail
			via.eventually("the run succeeds", func() bool {
				a, err := via.try("GET", "/api/v1/runs/"+run, nil)
				if err != nil || a.status != 200 {
					return false
				}
				d = ok[wire.RunDetail](via.testNode, "GET", "/api/v1/runs/"+run, nil)
				return d.Status == job.RunSucceeded
			})
			if len(d.Attempts) < 3 {
				t.Fatalf("%d attempts", len(d.Attempts))
			}
			via.eventually("all spans arrive", func() bool { return len(byID(t, r.Spans(), run)) >= 1+2*len(d.Attempts) })
			spans := r.Spans()
			wantTrace(t, d, byID(t, spans, run), tg.seen())
			by := map[any]bool{}
			for _, s := range spans {
				by[s.Of["service.instance.id"]] = true
			}
			if sent && (!by[old.id()] || len(by) < 2) || by[old.id()] && !sent {
				t.Errorf("spans come from %v, and %s has died", by, old.id())
			}
			for _, marker := range []string{"payload-marker", "query-marker", "header-marker", "answer-marker", "receiver-token"} {
				if bytes.Contains(r.Raw(), []byte(marker)) {
					t.Errorf("a span has %q in it", marker)
				}
			}
		})
	}
}

// Which runs are sampled follows from the run: what the target is told and what is exported agree, over leaders.
func TestTraceSampling(t *testing.T) {
	realTime(t)
	t.Parallel()
	r := otlptest.New(t, nil)
	c := startCluster(t, 3, tracesTo(r), func(cfg *Config) { cfg.Traces.Ratio = 0.5 })
	c.awaitWorkers(3)
	tg := newTraced(t, 0)
	m := c.leader()
	const each = 15
	trigger := func(m *member) {
		for i := range each {
			name := fmt.Sprint(m.id(), "-", i)
			m.create(tg.spec(name, 0))
			m.call("POST", "/api/v1/jobs/"+name+":run", nil)
		}
	}
	trigger(m)
	m.eventually("all ran", func() bool { return len(tg.seen()) >= each })
	// The end of the leadership is of no consequence to the runs: they have been reported.
	m.eventually("all are recorded", func() bool {
		return len(ok[wire.RunPage](m.testNode, "GET", "/api/v1/runs?status=succeeded&limit=100", nil).Runs) == each
	})
	m.crash()
	via := c.others(m)[0]
	via.eventually("another leads", func() bool { return c.leader() != m })
	trigger(c.leader())
	via.eventually("all ran", func() bool { return len(tg.seen()) >= 2*each })
	sampler := traceid.NewSampler(0.5)
	want := map[string]bool{}
	for _, h := range tg.seen() {
		key, err := job.ParseRunKey(h.Get("Carillon-Run"))
		if err != nil {
			t.Fatal(err)
		}
		sampled := sampler.Sampled(traceid.Of("test-cluster", key))
		if got := strings.HasSuffix(h.Get("traceparent"), "-01"); got != sampled {
			t.Errorf("%s was told %q, and is sampled: %t", key, h.Get("traceparent"), sampled)
		}
		if sampled {
			want[key.String()] = true
		}
	}
	roots := func() map[string]bool {
		out := map[string]bool{}
		for _, s := range r.Spans() {
			if s.Name == "run" {
				out[s.Attrs["carillon.run"].(string)] = true
			}
		}
		return out
	}
	via.eventually("all that are sampled arrive", func() bool {
		got := roots()
		for run := range want {
			if !got[run] {
				return false
			}
		}
		return true
	})
	for run := range roots() {
		if !want[run] {
			t.Errorf("%s is exported, and not sampled", run)
		}
	}
}

// A receiver that hangs, is in trouble or gone takes nothing from the runs. What is lost is counted.
func TestTraceReceiverInTrouble(t *testing.T) {
	realTime(t)
	t.Parallel()
	for name, answer := range map[string]func(t *testing.T, w http.ResponseWriter){
		"hangs":      func(t *testing.T, _ http.ResponseWriter) { <-t.Context().Done() },
		"in trouble": func(_ *testing.T, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"gone":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := otlptest.New(t, func(w http.ResponseWriter) bool { answer(t, w); return false })
			if answer == nil {
				r.Close()
			}
			tg := newTraced(t, 0)
			n := start(t, t.TempDir(), tracesTo(r), func(cfg *Config) {
				cfg.Traces.Queue, cfg.Traces.Batch, cfg.Traces.Timeout = 4, 2, 100*time.Millisecond
				cfg.Traces.GiveUp = 200 * time.Millisecond
			})
			if text := metricsOf(n); !strings.Contains(text, "\ncarillon_spans_exported_total 0\n") ||
				!strings.Contains(text, "\ncarillon_spans_dropped_total{reason=\"queue_full\"} 0\n") {
				t.Errorf("metrics at the start:\n%s", text)
			}
			const runs = 20
			for i := range runs {
				name := fmt.Sprint("j", i)
				n.create(tg.spec(name, 0))
				n.call("POST", "/api/v1/jobs/"+name+":run", nil)
			}
			n.eventually("all succeed", func() bool {
				return len(ok[wire.RunPage](n, "GET", "/api/v1/runs?status=succeeded&limit=100", nil).Runs) == runs
			})
			n.eventually("drops are counted", func() bool {
				text := metricsOf(n)
				return !strings.Contains(text, "\ncarillon_spans_dropped_total{reason=\"queue_full\"} 0\n") &&
					!strings.Contains(text, "\ncarillon_spans_dropped_total{reason=\"unavailable\"} 0\n")
			})
			if !strings.Contains(metricsOf(n), "\ncarillon_spans_exported_total 0\n") {
				t.Error("something was exported")
			}
			n.stop()
		})
	}
}

func metricsOf(n *testNode) string { return string(n.call("GET", "/metrics", nil).body) }
