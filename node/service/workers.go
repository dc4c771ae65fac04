package service

import (
	"context"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/ratelimit"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// Workers is the worker protocol as this node serves it to others: by its current leadership, or not at all.
type Workers struct{ b *Service }

// Workers serves the worker protocol.
func (b *Service) Workers() Workers { return Workers{b} }

const (
	// openRate is how many sessions a second the workers of one token may open when they have used up openBurst: for
	// each the leader asks the other voters. All workers that a token may have come back at once, and more than once:
	// the last leader was lost, and the one before.
	openRate  = 64
	openBurst = 4 * scheduler.MaxTokenSessions
	// maxOpening is how many tokens are remembered for that.
	maxOpening = 1 << 14
)

func newOpening() *ratelimit.Limiter[string] {
	return ratelimit.New[string](openRate, openBurst, maxOpening)
}

// Poll bounds how often the workers of a token open sessions.
func (s Workers) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	id := api.IdentityOf(ctx)
	if id != nil && id.Token != "" && p.Session == "" && p.Secret != "" && s.b.opening.Take(id.Token) > 0 {
		s.b.o.Refused(api.RefusedRegistrations, id.Name)
		return job.PollReply{}, job.Errorf(job.CodeTooManyRequests,
			"find out which worker keeps opening sessions, or revoke the token",
			"workers of the token %s open more than %d sessions a second", id.Name, openRate)
	}
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
