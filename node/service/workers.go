package service

import (
	"context"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// Workers is the worker protocol as this node serves it to others: by its current leadership, or not at all.
type Workers struct{ b *Service }

// Workers serves the worker protocol.
func (b *Service) Workers() Workers { return Workers{b} }

func (s Workers) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	return serve(ctx, s, p, true, (*scheduler.Scheduler).Poll)
}

func (s Workers) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	return serve(ctx, s, h, false, (*scheduler.Scheduler).Heartbeat)
}

func (s Workers) Report(ctx context.Context, r job.Report) (job.ReportReply, error) {
	return serve(ctx, s, r, true, (*scheduler.Scheduler).Report)
}

func (s Workers) Output(ctx context.Context, o job.Output) (job.OutputReply, error) {
	return serve(ctx, s, o, false, (*scheduler.Scheduler).Output)
}

// serve has the leader answer; waits: not before it has taken over.
func serve[Q, A any](ctx context.Context, s Workers, q Q, waits bool,
	do func(*scheduler.Scheduler, context.Context, Q) (A, error)) (a A, err error) {
	e, err := s.b.o.Tracker.Leading()
	if err != nil {
		return a, err
	}
	if !waits {
		return do(e.Scheduler, ctx, q)
	}
	err = s.b.whenServing(ctx, e, func() (err error) {
		a, err = do(e.Scheduler, ctx, q)
		return err
	})
	return a, err
}
