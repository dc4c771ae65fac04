package executor

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
	mu      sync.Mutex
	n, sent int
	acked   int
	done    chan struct{}
}

func (l *benchLeader) Register(context.Context, job.Register) (job.Session, error) {
	return job.Session{SessionRef: job.SessionRef{Incarnation: 1, Term: 1}, TTL: job.Duration(30 * time.Second)}, nil
}

func (l *benchLeader) Poll(ctx context.Context, p job.Poll) (r job.PollReply, err error) {
	l.mu.Lock()
	for len(r.Assignments) < p.Free && l.sent < l.n {
		l.sent++
		r.Assignments = append(r.Assignments, job.Assignment{Number: uint64(l.sent), Term: 1, Fence: uint64(l.sent), Type: job.TypeQueue,
			Timeout: job.Duration(time.Minute)})
	}
	l.mu.Unlock()
	if len(r.Assignments) == 0 && p.Wait > 0 {
		wait.For(ctx, time.Duration(p.Wait))
	}
	return r, nil
}

func (l *benchLeader) Heartbeat(context.Context, job.Heartbeat) (job.HeartbeatReply, error) {
	return job.HeartbeatReply{}, nil
}

func (l *benchLeader) Report(_ context.Context, r job.Report) (reply job.ReportReply, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, res := range r.Results {
		reply.Acks = append(reply.Acks, job.Ack{Fence: res.Fence})
	}
	if l.acked += len(reply.Acks); l.acked == l.n {
		close(l.done)
	}
	return reply, nil
}

// BenchmarkLoop is what the loop itself costs a run: a leader that answers at once, attempts that do nothing.
func BenchmarkLoop(b *testing.B) {
	l := &benchLeader{n: b.N, done: make(chan struct{})}
	w, err := New(Options{Name: "w", Slots: 256, Prefetch: 1024, Groups: OneGroup(l), Runners: map[job.Type]Runner{
		job.TypeQueue: runnerFunc(func(context.Context, job.Assignment) job.Result { return success })}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	b.ReportAllocs()
	b.ResetTimer()
	go func() { ended <- w.Run(ctx) }()
	<-l.done
	b.StopTimer()
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
