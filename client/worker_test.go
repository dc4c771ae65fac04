package client_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	carillon "github.com/carillon-scheduler/carillon/node"
)

// startNode runs a node of its own in this process and returns its address. Its leases are short.
func startNode(dir string, change ...func(*carillon.Config)) (addr string, stop func(), err error) {
	cfg := carillon.Config{NodeID: "n1", Listen: "127.0.0.1:0", DataDir: dir, Bootstrap: true, Version: "test",
		TTL: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Raft:  carillon.RaftConfig{Heartbeat: 50 * time.Millisecond, SnapshotInterval: time.Hour},
		Store: carillon.StoreConfig{MmapSize: 16 << 20, NoSync: true}}
	for _, f := range change {
		f(&cfg)
	}
	n, err := carillon.Open(cfg)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = n.Run(ctx) }()
	for n.Ready() != nil {
		time.Sleep(5 * time.Millisecond)
	}
	return n.Addr(), func() { cancel(); <-done }, nil
}

type nodeTest struct {
	*testing.T
	addr string
	c    *client.Client
}

func withNode(t *testing.T, change ...func(*carillon.Config)) *nodeTest {
	t.Helper()
	t.Parallel() // most of it is waiting
	addr, stop, err := startNode(t.TempDir(), change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return &nodeTest{t, addr, client.New(addr)}
}

// lasting is for tests in which no lease should end, however long this process is held up. A worker
// hears of a cancel within a fifth of one.
func lasting(ttl time.Duration) func(*carillon.Config) {
	return func(cfg *carillon.Config) { cfg.TTL = ttl }
}

// run makes a job of the queue q and a run of it.
func (t *nodeTest) run(name string, edit func(*job.Spec)) job.Run {
	t.Helper()
	spec := job.Spec{Name: name, Type: job.TypeQueue, Schedule: job.ScheduleManual, Payload: []byte(`{"queue":"q","data":"` + name + `"}`)}
	if edit != nil {
		edit(&spec)
	}
	if _, err := t.c.CreateJob(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	r, err := t.c.RunJob(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (t *nodeTest) await(id string, status job.RunStatus) client.RunDetail {
	t.Helper()
	var d client.RunDetail
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var err error
		if d, err = t.c.GetRun(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if d.Status == status {
			return d
		}
	}
	t.Fatalf("never %s: %+v", status, d.Run)
	return d
}

// work starts a worker; the returned function stops it and waits.
func (t *nodeTest) work(w client.Worker) (stop func()) {
	t.Helper()
	if len(w.Addrs) == 0 {
		w.Addrs = []string{t.addr}
	}
	w.Queue = "q"
	if testing.Verbose() {
		w.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func once() *int { n := 0; return &n }

func TestWorkerResults(tt *testing.T) {
	t := withNode(tt, lasting(2*time.Minute))
	runs := map[string]job.Run{}
	for _, name := range []string{"fine", "output", "permanent", "panics", "exits", "later", "silent", "slow"} {
		runs[name] = t.run(name, func(s *job.Spec) {
			if name != "later" {
				s.Retry.MaxRetries = once()
			}
			if name == "slow" {
				s.Timeout = job.Duration(time.Second)
			}
		})
	}
	t.work(client.Worker{Concurrency: 4, Name: "go-worker", Handler: func(ctx context.Context, r *client.Run) error {
		switch r.JobName {
		case "output":
			r.Output = strings.Repeat("x", 5000) + "the end"
		case "permanent":
			return client.Permanent(errors.New("no such address"))
		case "panics":
			panic("oh")
		case "exits":
			r.Output = "before"
			runtime.Goexit() // as t.FailNow does
		case "later":
			if r.Attempt == 1 {
				return client.RetryAfter(errors.New("busy"), 1500*time.Millisecond)
			}
		case "silent":
			return errors.New("")
		case "slow":
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), client.ErrTimeout) {
				t.Errorf("it ended because of %v", context.Cause(ctx))
			}
			return ctx.Err()
		}
		return nil
	}})
	if d := t.await(runs["fine"].RunID, job.RunSucceeded); d.Worker != "go-worker" {
		t.Errorf("%+v", d.Run)
	}
	if d := t.await(runs["output"].RunID, job.RunSucceeded); len(d.Output) != job.MaxOutputBytes || !strings.HasSuffix(d.Output, "the end") {
		t.Errorf("%d bytes of output", len(d.Output))
	}
	for name, want := range map[string]struct {
		reason job.Reason
		text   string
	}{
		"permanent": {job.ReasonPermanent, "no such address"},
		"panics":    {job.ReasonExhausted, "panic: oh"},
		"exits":     {job.ReasonExhausted, "ended its goroutine"},
		"silent":    {job.ReasonExhausted, "without saying why"},
		"slow":      {job.ReasonTimeout, "timed out after 1s"},
	} {
		if d := t.await(runs[name].RunID, job.RunDead); d.Reason != want.reason || !strings.Contains(d.Error, want.text) {
			t.Errorf("%s: %s %q", name, d.Reason, d.Error)
		}
	}
	d := t.await(runs["later"].RunID, job.RunSucceeded)
	if len(d.Attempts) != 2 || d.Attempts[0].StartedAt.Time().Sub(d.Attempts[1].FinishedAt.Time()) < 1400*time.Millisecond {
		t.Errorf("%+v", d.Attempts)
	}
}

// A cancel, and the replacement by a newer run, reach the handler.
func TestWorkerCancelAndReplace(tt *testing.T) {
	t := withNode(tt, lasting(20*time.Second))
	var causes sync.Map
	t.work(client.Worker{Concurrency: 2, Handler: func(ctx context.Context, r *client.Run) error {
		if r.Attempt > 1 || r.Output != "" {
			t.Errorf("%+v", r)
		}
		if _, again := causes.LoadOrStore(r.JobName, error(nil)); again {
			return nil // the replacement
		}
		<-ctx.Done()
		causes.Store(r.JobName, context.Cause(ctx))
		return ctx.Err()
	}})
	a := t.run("a", nil)
	b := t.run("b", func(s *job.Spec) { s.Overlap = job.OverlapReplace })
	t.await(a.RunID, job.RunRunning)
	t.await(b.RunID, job.RunRunning)
	if _, err := t.c.CancelRun(t.Context(), a.RunID); err != nil {
		t.Fatal(err)
	}
	next, err := t.c.RunJob(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if d := t.await(a.RunID, job.RunCanceled); d.Reason != job.ReasonCanceled {
		t.Errorf("%+v", d.Run)
	}
	if d := t.await(b.RunID, job.RunCanceled); d.Reason != job.ReasonReplaced {
		t.Errorf("%+v", d.Run)
	}
	t.await(next.RunID, job.RunSucceeded)
	for _, name := range []string{"a", "b"} {
		if cause, _ := causes.Load(name); cause != client.ErrCanceled {
			t.Errorf("%s ended because of %v", name, cause)
		}
	}
}

// decode reads a message of the worker protocol, and leaves it where it was.
func decode(r *http.Request, m any) error {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return cmp.Or(err, wire.UnmarshalMsgpack(body, m))
}

// proxy is a node that asks the real one, if ask says so, and answers if answer does.
func (t *nodeTest) proxy(ask func(*http.Request) bool, answer func(verb string, body []byte) bool) (addr string) {
	to := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: t.addr}) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ModifyResponse: func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if _, verb, _ := strings.Cut(r.Request.URL.Path, ":"); err == nil && answer != nil && !answer(verb, body) {
				err = errors.New("lost")
			}
			return err
		}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ask != nil && !ask(r) {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		to.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return strings.TrimPrefix(s.URL, "http://")
}

// The first answer with a run is lost, and its worker stops while no node answers. It learns of the run as soon as one
// does, and gives it back: it is not lost, though it may be delivered only once.
func TestWorkerCollectsWhatItWasGiven(tt *testing.T) {
	t := withNode(tt, lasting(2*time.Minute))
	given := make(chan struct{})
	var refused atomic.Int32
	addr := t.proxy(func(r *http.Request) bool { return !wait.Closed(given) || refused.Add(1) > 3 },
		func(verb string, body []byte) bool {
			var r job.PollReply
			if verb != "poll" || wire.UnmarshalMsgpack(body, &r) != nil || len(r.Runs) == 0 || wait.Closed(given) {
				return true
			}
			close(given)
			return false
		})
	stop := t.work(client.Worker{Name: "stopped", Addrs: []string{addr},
		Handler: func(context.Context, *client.Run) error {
			t.Error("it was started")
			return nil
		}})
	r := t.run("a", func(s *job.Spec) { s.Delivery, s.Retry = job.DeliverAtMostOnce, job.Retry{} })
	<-given
	stop()
	t.work(client.Worker{Name: "other", Handler: func(context.Context, *client.Run) error { return nil }})
	if d := t.await(r.RunID, job.RunSucceeded); d.Worker != "other" || len(d.Attempts) != 1 {
		t.Errorf("%+v", d)
	}
}

// A worker that is cut off stops its handlers before the leader gives their runs away, and its late result does not
// count.
func TestWorkerLosesItsLease(tt *testing.T) {
	t := withNode(tt)
	var closed atomic.Bool
	addr := t.proxy(func(*http.Request) bool { return !closed.Load() }, nil)
	var order, highest atomic.Uint64
	lost, runs := make(chan uint64, 1), make(chan struct{})
	stop := t.work(client.Worker{Name: "cut-off", Addrs: []string{addr},
		Handler: func(ctx context.Context, r *client.Run) error {
			closed.Store(true)
			close(runs)
			<-ctx.Done()
			lost <- order.Add(1)
			if err := context.Cause(ctx); err != client.ErrLeaseLost { //nolint:errorlint // it is not wrapped
				t.Errorf("it ended because of %v", err)
			}
			return nil // it says that it succeeded
		}})
	r := t.run("a", func(s *job.Spec) { s.Retry.Base = job.Duration(10 * time.Millisecond) })
	<-runs
	var begun atomic.Uint64
	t.work(client.Worker{Name: "other", Handler: func(_ context.Context, r *client.Run) error {
		begun.Store(order.Add(1))
		highest.Store(r.Fence)
		return nil
	}})
	d := t.await(r.RunID, job.RunSucceeded)
	if first := <-lost; first > begun.Load() {
		t.Error("the other one began before the first one had stopped")
	}
	closed.Store(false)
	stop() // it has handed in what it had
	if d = t.await(r.RunID, job.RunSucceeded); d.Worker != "other" || d.Fence != highest.Load() ||
		len(d.Attempts) != 2 || d.Attempts[1].Reason != job.ReasonWorkerLost {
		t.Errorf("%+v", d)
	}
}

func TestWorkerAsDescribed(t *testing.T) {
	nothing := func(context.Context, *client.Run) error { return nil }
	for field, w := range map[string]client.Worker{
		"Queue":       {Queue: "a b", Handler: nothing},
		"Handler":     {Queue: "q"},
		"Concurrency": {Queue: "q", Handler: nothing, Concurrency: -1},
		"addr":        {Queue: "q", Handler: nothing, Addrs: []string{"ftp://x"}},
	} {
		var e *job.Error
		if err := w.Run(t.Context()); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if client.Permanent(nil) != nil || client.RetryAfter(nil, 1) != nil {
		t.Error("no error became one")
	}
	if err := errors.New("x"); !errors.Is(client.Permanent(client.RetryAfter(err, 1)), err) {
		t.Error("the error is lost")
	}
}

func ExampleWorker() {
	dir, err := os.MkdirTemp("", "carillon-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	addr, stopNode, err := startNode(dir) // yours runs elsewhere
	if err != nil {
		panic(err)
	}
	defer stopNode()
	c := client.New(addr)
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := c.CreateJob(ctx, job.Spec{Name: "welcome", Type: job.TypeQueue, Schedule: job.ScheduleManual,
		Payload: []byte(`{"queue":"mail","data":{"to":"ada@example.com"}}`)}); err != nil {
		panic(err)
	}
	if _, err := c.RunJob(ctx, "welcome"); err != nil {
		panic(err)
	}

	w := client.Worker{
		Addrs: []string{addr},
		Queue: "mail",
		Handler: func(ctx context.Context, run *client.Run) error {
			fmt.Printf("attempt %d of %s: %s\n", run.Attempt, run.JobName, run.Data)
			cancel() // or at SIGTERM, see signal.NotifyContext
			return nil
		},
	}
	if err := w.Run(ctx); err != nil {
		panic(err)
	}
	// Output: attempt 1 of welcome: {"to":"ada@example.com"}
}
