package service

import (
	"context"
	"sync"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/ratelimit"
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
			if err := s.b.registering.enter(x, id, &r); err != nil {
				s.b.o.Refused(api.RefusedRegistrations, id.Name)
				return job.Session{}, err
			}
		}
		return x.Register(ctx, r)
	})
}

const (
	// maxTokenProcesses is how many processes of workers may register with one token under one leadership: a sixteenth
	// of the numbers that there are for them.
	maxTokenProcesses = 1 << 15
	// registerRate is how many registrations a second are taken of one token when it has used up registerBurst: for
	// each the leader asks the other voters. All workers that a token may have come back twice at once: the last leader
	// was lost, and the one before, and each registers twice with a leader that is new to it.
	registerRate  = 64
	registerBurst = 4 * scheduler.MaxTokenSessions
	// maxRegistering is how many tokens are remembered for that.
	maxRegistering = 1 << 14
)

// registering bounds what the workers of one token use up of what all have to share.
type registering struct {
	rate *ratelimit.Limiter[string] // by token

	mu        sync.Mutex
	with      *scheduler.Scheduler // of the leadership that it counts for
	processes map[string]int       // that registered, by token
}

func newRegistering() *registering {
	return &registering{rate: ratelimit.New[string](registerRate, registerBurst, maxRegistering)}
}

func (g *registering) enter(x *scheduler.Scheduler, id *api.Identity, r *job.Register) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.with != x {
		g.with, g.processes = x, map[string]int{}
	}
	if r.Incarnation == 0 && g.processes[id.Token] >= maxTokenProcesses {
		return job.Errorf(job.CodeUnavailable,
			"find out which worker keeps restarting, then transfer the leadership",
			"%d worker processes have registered with the token since this leader took over", maxTokenProcesses)
	}
	if g.rate.Take(id.Token) > 0 {
		return job.Errorf(job.CodeTooManyRequests, "find out which worker keeps registering, or revoke the token",
			"workers of the token %s register more than %d times a second", id.Name, registerRate)
	}
	if r.Incarnation == 0 {
		g.processes[id.Token]++
	}
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
