package executor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// giver is a leader that gives out some runs at once.
type giver struct {
	runs    []job.Assignment
	polled  job.Poll
	results chan job.Result
}

func (l *giver) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	r := job.PollReply{Session: "s", Lease: job.Duration(30 * time.Second)}
	if l.polled = p; p.Free > 0 {
		if len(l.runs) == 0 {
			wait.For(ctx, time.Duration(p.Wait))
		}
		r.Runs, l.runs = l.runs, nil
	}
	return r, nil
}

func (l *giver) Report(_ context.Context, r job.Report) (reply job.ReportReply, _ error) {
	for _, res := range r.Results {
		reply.Results = append(reply.Results, job.Answer{Ref: res.Ref, Status: job.StatusOK})
		l.results <- res
	}
	return reply, nil
}

func (l *giver) Heartbeat(context.Context, job.Heartbeat) (job.HeartbeatReply, error) {
	return job.HeartbeatReply{}, nil
}

func (l *giver) Output(context.Context, job.Output) (job.OutputReply, error) {
	return job.OutputReply{}, nil
}

type runnerFunc func(context.Context, job.Assignment) job.Result

func (f runnerFunc) Run(ctx context.Context, a job.Assignment) job.Result { return f(ctx, a) }

// A worker takes the types that it has runners for, and shows no secret in what they leave, however they end.
func TestNewWorker(t *testing.T) {
	const secret = "correct-horse-battery"
	l := &giver{results: make(chan job.Result, 9)}
	o := worker.Options{Name: "w", Slots: 3, Groups: worker.OneGroup(l)}
	if _, err := NewWorker(o, nil); err == nil {
		t.Error("a worker without runners")
	}
	runners := map[job.Type]Runner{
		job.TypeShell: runnerFunc(func(_ context.Context, a job.Assignment) job.Result { panic("no " + a.Secrets[0]) }),
		job.TypeHTTP: runnerFunc(func(_ context.Context, a job.Assignment) job.Result {
			return job.Result{Outcome: job.OutcomeFailed, Error: "not " + a.Secrets[0], Output: a.Secrets[0] + "!"}
		}),
	}
	for i, typ := range []job.Type{job.TypeShell, job.TypeHTTP, job.TypeQueue} {
		l.runs = append(l.runs, job.Assignment{Fence: uint64(i + 1), Run: job.RunKey{Job: 1}, Type: typ,
			Secrets: []string{secret}})
	}
	w, err := NewWorker(o, runners)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	for range 3 {
		r := <-l.results
		want := []string{"", "panic: no ", "not ", `this worker cannot run jobs of type "queue"`}[r.Fence]
		if r.Outcome != job.OutcomeFailed || !strings.HasPrefix(r.Error, want) || strings.Contains(r.Error+r.Output, secret) {
			t.Errorf("fence %d: %+v", r.Fence, r)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !slices.Equal(l.polled.Types, []job.Type{job.TypeHTTP, job.TypeShell}) {
		t.Errorf("types %q", l.polled.Types)
	}
}
