package service

import (
	"context"
	"strings"
	"sync"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// Workers is the worker protocol as this node serves it to others: by its current leadership, or not at all.
type Workers struct{ b *Service }

// Workers serves the worker protocol.
func (b *Service) Workers() Workers { return Workers{b} }

func (s Workers) Register(ctx context.Context, r job.Register) (job.Session, error) {
	return serve(ctx, s, r, func(x *scheduler.Scheduler, ctx context.Context, r job.Register) (job.Session, error) {
		if id := api.IdentityOf(ctx); id != nil && id.Token != "" {
			if err := s.b.registering.enter(x, id.Token, &r); err != nil {
				return job.Session{}, err
			}
		}
		return x.Register(ctx, r)
	})
}

const (
	// maxTokenSessions is how many workers one token may have at a time, and maxTokenProcesses how many processes of
	// workers may register with it under one leadership: a sixteenth of the numbers that there are for them.
	maxTokenSessions  = 1024
	maxTokenProcesses = 1 << 15
)

// registering bounds what the workers of one token use up of what all have to share.
type registering struct {
	mu        sync.Mutex
	with      *scheduler.Scheduler // of the leadership that it counts for
	processes map[string]int       // that registered, by token
}

// sessionsOf counts the sessions of a token's workers, but for one.
func sessionsOf(x *scheduler.Scheduler, token, except string) (n int) {
	for _, w := range x.Workers() {
		if w.Worker != except && strings.HasSuffix(w.Worker, "@"+token) {
			n++
		}
	}
	return n
}

func (g *registering) enter(x *scheduler.Scheduler, token string, r *job.Register) error {
	asks := r.Registration != 0 && r.Incarnation == 0 // for a number: there is no session yet
	if !asks && sessionsOf(x, token, r.Worker) >= maxTokenSessions {
		return job.Errorf(job.CodeUnavailable, "make another token for the others",
			"the token has %d workers, which is the most that one may have", maxTokenSessions)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.with != x {
		g.with, g.processes = x, map[string]int{}
	}
	if r.Incarnation != 0 {
		return nil
	}
	if g.processes[token] >= maxTokenProcesses {
		return job.Errorf(job.CodeUnavailable,
			"find out which worker starts over and over, then transfer the leadership",
			"%d processes of workers registered with the token since this leader leads", maxTokenProcesses)
	}
	g.processes[token]++
	return nil
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
