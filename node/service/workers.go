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

func (s Workers) Register(ctx context.Context, r job.Register) (job.Session, error) {
	return serve(ctx, s, r, (*scheduler.Scheduler).Register)
}

func (s Workers) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	return serve(ctx, s, p, (*scheduler.Scheduler).Poll)
}

func (s Workers) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	return serve(ctx, s, h, (*scheduler.Scheduler).Heartbeat)
}

func (s Workers) Report(ctx context.Context, r job.Report) (job.ReportReply, error) {
	return serve(ctx, s, r, (*scheduler.Scheduler).Report)
}

func (s Workers) Output(ctx context.Context, o job.Output) (job.OutputReply, error) {
	return serve(ctx, s, o, (*scheduler.Scheduler).Output)
}

func serve[Q, A any](ctx context.Context, s Workers, q Q,
	do func(*scheduler.Scheduler, context.Context, Q) (A, error)) (A, error) {
	e, err := s.b.o.Tracker.Leading()
	if err != nil {
		var none A
		return none, err
	}
	return do(e.Scheduler, ctx, q)
}
