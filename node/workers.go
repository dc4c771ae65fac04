package node

import (
	"context"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// served is the worker protocol as this node serves it to others: by its current leadership, or not at all.
type served struct{ n *Node }

func (s served) Register(ctx context.Context, r job.Register) (job.Session, error) {
	return serve(ctx, s, r, (*scheduler.Scheduler).Register)
}

func (s served) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	return serve(ctx, s, p, (*scheduler.Scheduler).Poll)
}

func (s served) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	return serve(ctx, s, h, (*scheduler.Scheduler).Heartbeat)
}

func (s served) Report(ctx context.Context, r job.Report) (job.ReportReply, error) {
	return serve(ctx, s, r, (*scheduler.Scheduler).Report)
}

func (s served) Output(ctx context.Context, o job.Output) (job.OutputReply, error) {
	return serve(ctx, s, o, (*scheduler.Scheduler).Output)
}

func serve[Q, A any](ctx context.Context, s served, q Q, do func(*scheduler.Scheduler, context.Context, Q) (A, error)) (A, error) {
	e, err := s.n.tracker.Leading()
	if err != nil {
		var none A
		return none, err
	}
	return do(e.Scheduler, ctx, q)
}
