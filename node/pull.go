package node

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// pulls is what pull workers say, answered by this node's current leadership. A node that does not lead forwards it before it gets
// here; an election is waited for.
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

// takeoverPause is how long a call waits before it asks a leader again that is taking over.
const takeoverPause = 25 * time.Millisecond

func pulled[Q, A any](ctx context.Context, p pulls, q Q, do func(*scheduler.Scheduler, context.Context, Q) (A, error)) (A, error) {
	var none A
	for began := time.Now(); ; {
		e, err := p.n.await(ctx, leaderWait)
		if err != nil {
			return none, err
		}
		a, err := do(e.sched, ctx, q)
		if job.CodeOf(err) != job.CodeNotReady || time.Since(began) > leaderWait || isClosed(p.n.leaving) {
			return a, err
		}
		// Nothing was done. A script is spared the moment that a takeover lasts.
		select {
		case <-time.After(takeoverPause):
		case <-ctx.Done():
			return none, err
		}
	}
}
