package worker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// benchLeader has work for everybody, up to n runs.
type benchLeader struct {
	mu            sync.Mutex
	n, sent, done int
	all           chan struct{}
}

func (l *benchLeader) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	r := job.PollReply{Session: "s", Lease: job.Duration(30 * time.Second)}
	l.mu.Lock()
	for len(r.Runs) < p.Free && l.sent < l.n {
		l.sent++
		r.Runs = append(r.Runs, work(uint64(l.sent))...)
	}
	l.mu.Unlock()
	if len(r.Runs) == 0 && p.Wait > 0 {
		wait.For(ctx, time.Duration(p.Wait))
	}
	return r, nil
}

func (l *benchLeader) Heartbeat(context.Context, job.Heartbeat) (job.HeartbeatReply, error) {
	return job.HeartbeatReply{}, nil
}

func (l *benchLeader) Output(context.Context, job.Output) (job.OutputReply, error) {
	return job.OutputReply{}, nil
}

func (l *benchLeader) Report(_ context.Context, r job.Report) (reply job.ReportReply, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, res := range r.Results {
		reply.Results = append(reply.Results, job.Answer{Ref: res.Ref, Status: job.StatusOK})
	}
	if l.done += len(r.Results); l.done == l.n {
		close(l.all)
	}
	return reply, nil
}

// BenchmarkLoop is what the loop itself costs a run: a leader that answers at once, attempts that do nothing.
func BenchmarkLoop(b *testing.B) {
	l := &benchLeader{n: b.N, all: make(chan struct{})}
	w, err := New(Options{Name: "w", Slots: 256, Groups: OneGroup(l), Do: returns(success)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	b.ReportAllocs()
	b.ResetTimer()
	go func() { ended <- w.Run(ctx) }()
	<-l.all
	b.StopTimer()
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
