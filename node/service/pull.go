package service

import (
	"context"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// pulls is what pull workers say, answered by this node's current leadership. A node that does not lead forwards it
// before it gets here.
type pulls struct{ b *Service }

// Pull serves pull workers.
func (b *Service) Pull() interface {
	PullPoll(context.Context, job.PullPoll) (job.PullReply, error)
	PullHeartbeat(context.Context, job.PullBeat) (job.PullAnswers, error)
	PullReport(context.Context, job.PullReport) (job.PullAnswers, error)
} {
	return pulls{b}
}

func (p pulls) PullPoll(ctx context.Context, q job.PullPoll) (job.PullReply, error) {
	return pulled(ctx, p, q, (*scheduler.Scheduler).PullPoll)
}

func (p pulls) PullHeartbeat(ctx context.Context, b job.PullBeat) (job.PullAnswers, error) {
	return pulled(ctx, p, b, (*scheduler.Scheduler).PullHeartbeat)
}

func (p pulls) PullReport(ctx context.Context, r job.PullReport) (job.PullAnswers, error) {
	return pulled(ctx, p, r, (*scheduler.Scheduler).PullReport)
}

func pulled[Q, A any](ctx context.Context, p pulls, q Q,
	do func(*scheduler.Scheduler, context.Context, Q) (A, error)) (a A, err error) {
	e, err := p.b.o.Tracker.Leading()
	if err != nil {
		return a, err
	}
	err = p.b.whenServing(ctx, e, func() (err error) {
		a, err = do(e.Scheduler, ctx, q)
		return err
	})
	return a, err
}
