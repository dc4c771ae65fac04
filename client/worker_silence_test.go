package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// stopping is nodes of one cluster with one run. Those before the first healthy one accept and say nothing, as stopped
// processes do.
type stopping struct {
	healthy     atomic.Int32
	given, done atomic.Bool
	busy        atomic.Int32 // reports that are answered with that it is to come later
}

func (n *stopping) RoundTrip(r *http.Request) (*http.Response, error) {
	if int32(r.URL.Hostname()[1]-'0') < n.healthy.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	var p job.Poll
	if strings.HasSuffix(r.URL.Path, ":poll") {
		if err := decode(r, &p); err != nil {
			return nil, err
		}
	}
	ref := job.Ref{Fence: 1}
	answers := []job.Answer{{Ref: ref, Status: job.StatusOK}}
	var reply any
	switch _, verb, _ := strings.Cut(r.URL.Path, ":"); {
	case verb == "heartbeat":
		reply = &job.HeartbeatReply{Runs: answers}
	case verb == "report" && n.busy.Add(-1) >= 0:
		w := httptest.NewRecorder()
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprintf(w, `{"code":%q}`, job.CodeTooManyRequests)
		return w.Result(), nil
	case verb == "report":
		n.done.Store(true)
		reply = &job.ReportReply{Results: answers}
	case p.Free > 0 && n.given.CompareAndSwap(false, true):
		reply = &job.PollReply{Session: "s", Lease: job.Duration(30 * time.Second), Runs: []job.Assignment{
			{Run: job.RunKey{Job: 1, At: 1, Origin: job.OriginManual}, Fence: 1, Type: job.TypeQueue,
				Payload: []byte(`{"queue":"q"}`), Timeout: job.Duration(10 * time.Minute)}}}
	default:
		select {
		case <-time.After(time.Duration(p.Wait)):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		reply = &job.PollReply{Session: "s", Lease: job.Duration(30 * time.Second)}
	}
	body, err := wire.MarshalMsgpack(reply)
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", client.MediaMsgpack)
	w.Write(body)
	return w.Result(), err
}

// work has a worker do the run, and says how long that took until it was reported.
func (n *stopping) work(t *testing.T, handler func(context.Context, *client.Run) error) time.Duration {
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	w := client.Worker{Addrs: []string{"n1", "n2", "n3"}, Queue: "q", HTTPClient: &http.Client{Transport: n},
		Clock: bubble(began), Handler: handler}
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	for !n.done.Load() {
		time.Sleep(time.Second) // of the bubble
	}
	took := time.Since(began)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return took
}

// Two of three nodes are stopped while a run is in hand. The worker finds the third before its lease is over, and the
// run is not disturbed.
func TestWorkerPassesOverStoppedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &stopping{}
		n.work(t, func(ctx context.Context, _ *client.Run) error {
			n.healthy.Store(3)
			select {
			case <-ctx.Done():
				t.Errorf("the run was stopped: %v", context.Cause(ctx))
			case <-time.After(5 * time.Minute):
			}
			return nil
		})
	})
}

// A node that has had too much says for how long to stay away.
func TestWorkerStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &stopping{}
		n.busy.Store(1)
		if took := n.work(t, func(context.Context, *client.Run) error { return nil }); took < 30*time.Second {
			t.Errorf("reported after %s", took)
		}
	})
}

// bubble is the clock of a bubble that began then.
type bubble time.Time

func (bubble) Now() time.Time           { return time.Now() }
func (b bubble) Elapsed() time.Duration { return time.Since(time.Time(b)) }
