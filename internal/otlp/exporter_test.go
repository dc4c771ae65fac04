package otlp_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/otlp"
	"github.com/carillon-scheduler/carillon/internal/otlp/otlptest"
	"github.com/carillon-scheduler/carillon/internal/traceid"
	"github.com/carillon-scheduler/carillon/job"
)

func spanOf(n int) otlp.Span {
	t := traceid.Of("c", job.RunKey{Job: job.ID(n + 1), At: 1, Origin: job.OriginManual})
	return otlp.Span{Trace: t, ID: t.Run(), Name: "run", Kind: otlp.Internal, Start: 1000, End: 2500}
}

// quick are bounds that a test need not wait for.
func quick(url string) otlp.Config {
	return otlp.Config{URL: url, Timeout: 2 * time.Second, Delay: time.Millisecond, Retry: time.Millisecond, GiveUp: time.Minute}
}

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(b))
	return len(b), nil
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.text...)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestExport(t *testing.T) {
	for _, plain := range []bool{false, true} {
		r := otlptest.New(t, nil)
		cfg := quick(r.URL)
		cfg.Plain, cfg.Headers = plain, http.Header{"Authorization": {"Bearer x"}}
		cfg.Resource = []otlp.Attr{otlp.String("service.name", "carillon")}
		e := otlp.New(cfg, slog.New(slog.DiscardHandler), otlp.String("service.instance.id", "n1"))
		s := spanOf(1)
		s.Parent, s.ID, s.Kind, s.Failed, s.Error = s.ID, s.Trace.Attempt(7), otlp.Client, true, "no way"
		s.Attrs = []otlp.Attr{otlp.String("carillon.job", "j_1"), otlp.Int("carillon.attempt", 2), otlp.Int("less", -1)}
		e.Add(s)
		e.Close(false)
		got := r.Spans()
		if len(got) != 1 {
			t.Fatalf("%d spans", len(got))
		}
		want := otlptest.Span{Trace: s.Trace.String(), ID: s.ID.String(), Parent: s.Parent.String(), Name: "run", Kind: 3,
			Start: time.UnixMilli(1000), End: time.UnixMilli(2500), Failed: true, Error: "no way",
			Attrs: map[string]any{"carillon.job": "j_1", "carillon.attempt": int64(2), "less": int64(-1)},
			Of:    map[string]any{"service.name": "carillon", "service.instance.id": "n1"}}
		if got[0].String() != want.String() {
			t.Errorf("got  %s\nwant %s", got[0], want)
		}
		h := r.Headers()[0]
		if h.Get("Authorization") != "Bearer x" || h.Get("Content-Type") != "application/x-protobuf" ||
			(h.Get("Content-Encoding") == "gzip") == plain {
			t.Errorf("headers %v", h)
		}
		if e.Exported() != 1 {
			t.Errorf("%d exported", e.Exported())
		}
	}
}

func TestExportInBatches(t *testing.T) {
	r := otlptest.New(t, nil)
	cfg := quick(r.URL)
	cfg.Batch = 10
	e := otlp.New(cfg, slog.New(slog.DiscardHandler))
	for n := range 95 {
		e.Add(spanOf(n))
	}
	e.Close(false)
	if n := len(r.Spans()); n != 95 || e.Exported() != 95 || len(r.Headers()) < 10 {
		t.Errorf("%d spans in %d requests, %d counted", n, len(r.Headers()), e.Exported())
	}
}

// What may be taken later is sent again, once it is asked for.
func TestExportRetries(t *testing.T) {
	var calls atomic.Int64
	r := otlptest.New(t, func(w http.ResponseWriter) bool {
		switch calls.Add(1) {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			return true
		}
		return false
	})
	var log lines
	e := otlp.New(quick(r.URL), log.logger())
	e.Add(spanOf(1))
	eventually(t, "the span is taken", func() bool { return e.Exported() == 1 })
	e.Close(false)
	at := r.Times()
	if len(at) != 3 || len(r.Spans()) != 1 {
		t.Fatalf("%d requests, %d spans", len(at), len(r.Spans()))
	}
	if wait := at[2].Sub(at[1]); wait < time.Second {
		t.Errorf("sent again %s after the receiver asked for a second", wait)
	}
	text := log.all()
	if len(text) != 2 || !strings.Contains(text[0], "event=spans_not_exported") || !strings.Contains(text[1], "event=spans_exported") {
		t.Errorf("logged %q", text)
	}
}

func TestExportRefused(t *testing.T) {
	r := otlptest.New(t, func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusUnauthorized); return false })
	e := otlp.New(quick(r.URL), slog.New(slog.DiscardHandler))
	e.Add(spanOf(1), spanOf(2))
	eventually(t, "they are dropped", func() bool { return e.Dropped(otlp.Refused) == 2 })
	e.Close(false)
	if len(r.Headers()) != 1 || e.Exported() != 0 {
		t.Errorf("%d requests, %d exported", len(r.Headers()), e.Exported())
	}
}

// A receiver may take a part of a batch.
func TestExportPartly(t *testing.T) {
	r := otlptest.New(t, func(w http.ResponseWriter) bool {
		w.Write([]byte{0x0a, 0x06, 0x08, 0x01, 0x12, 0x02, 'n', 'o'}) // partial_success {rejected_spans: 1, error_message: "no"}
		return false
	})
	e := otlp.New(quick(r.URL), slog.New(slog.DiscardHandler))
	e.Add(spanOf(1), spanOf(2), spanOf(3))
	e.Close(false)
	if e.Exported() != 2 || e.Dropped(otlp.Refused) != 1 {
		t.Errorf("%d exported, %d refused", e.Exported(), e.Dropped(otlp.Refused))
	}
}

// A receiver that is gone, in trouble or hangs never blocks who adds spans: what does not fit is dropped and counted.
func TestExportNeverBlocks(t *testing.T) {
	for name, answer := range map[string]func(ctx context.Context, w http.ResponseWriter){
		"in trouble": func(_ context.Context, w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"hangs":      func(ctx context.Context, _ http.ResponseWriter) { <-ctx.Done() },
		"gone":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := otlptest.New(t, func(w http.ResponseWriter) bool { answer(t.Context(), w); return false })
			if answer == nil {
				r.Close()
			}
			cfg := quick(r.URL)
			cfg.Queue, cfg.Batch, cfg.GiveUp, cfg.Timeout = 8, 4, 20*time.Millisecond, 50*time.Millisecond
			var log lines
			e := otlp.New(cfg, log.logger())
			const n = 1000
			for i := range n {
				e.Add(spanOf(i))
			}
			if e.Dropped(otlp.QueueFull) == 0 {
				t.Error("a queue of 8 took 1000 spans")
			}
			eventually(t, "a batch is given up", func() bool { return e.Dropped(otlp.Unavailable) > 0 })
			e.Close(true)
			sum := e.Exported()
			for _, r := range otlp.Reasons() {
				sum += e.Dropped(r)
			}
			if sum != n || e.Exported() != 0 {
				t.Errorf("%d of %d spans are accounted for, %d exported", sum, n, e.Exported())
			}
			e.Add(spanOf(1))
			if e.Dropped(otlp.Stopped) == 0 {
				t.Error("a span that came after the end is not counted")
			}
			if text := log.all(); len(text) != 1 {
				t.Errorf("logged %q", text)
			}
			if text := strings.Join(log.all(), ""); strings.Contains(text, "http://") {
				t.Errorf("the log shows the address: %s", text)
			}
		})
	}
}

// A stop does not wait for a receiver that hangs for long.
func TestCloseEnds(t *testing.T) {
	r := otlptest.New(t, func(http.ResponseWriter) bool { <-t.Context().Done(); return false })
	cfg := quick(r.URL)
	cfg.Timeout = time.Hour
	e := otlp.New(cfg, slog.New(slog.DiscardHandler))
	e.Add(spanOf(1), spanOf(2))
	eventually(t, "a request is under way", func() bool { return len(r.Headers()) == 1 })
	e.Add(spanOf(3))
	e.Close(false)
	if e.Dropped(otlp.Stopped) != 3 {
		t.Errorf("%d spans dropped by the stop", e.Dropped(otlp.Stopped))
	}
}
