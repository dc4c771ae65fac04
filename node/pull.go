package node

import (
	"context"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// pulls is what pull workers say, answered by this node's current leadership. A node that does not lead forwards it before it gets
// here.
type pulls struct{ n *Node }

func (p pulls) PullPoll(ctx context.Context, q job.PullPoll) (job.PullReply, error) {
	return pulled(ctx, p, q, (*scheduler.Scheduler).PullPoll)
}

func (p pulls) PullHeartbeat(ctx context.Context, b job.PullBeat) (job.PullAnswers, error) {
	return pulled(ctx, p, b, (*scheduler.Scheduler).PullHeartbeat)
}

func (p pulls) PullReport(ctx context.Context, r job.PullReport) (job.PullAnswers, error) {
	return pulled(ctx, p, r, (*scheduler.Scheduler).PullReport)
}

func pulled[Q, A any](ctx context.Context, p pulls, q Q, do func(*scheduler.Scheduler, context.Context, Q) (A, error)) (a A, err error) {
	e, err := p.n.tracker.Leading()
	if err != nil {
		return a, err
	}
	err = p.n.backend.whenServing(ctx, e, func() (err error) {
		a, err = do(e.Scheduler, ctx, q)
		return err
	})
	return a, err
}
