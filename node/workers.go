package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// served is the worker protocol as this node serves it to others: by its current leadership, or not at all.
type served struct{ n *Node }

// scheduler is that of the current leadership.
func (s served) scheduler() (*scheduler.Scheduler, error) {
	if e := s.n.group.lead.current(); e != nil {
		return e.sched, nil
	}
	if p, other := s.n.compass.elsewhere(); other {
		return nil, errNotLeader(p)
	}
	return nil, errNoLeader()
}

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
	sched, err := s.scheduler()
	if err != nil {
		var none A
		return none, err
	}
	return do(sched, ctx, q)
}

// workerRoute is the leader as the local worker sees it: a function call while this node leads, HTTP while another does. When the
// leader changes, calls to the old one end with CodeNotLeader, and the worker registers with the new one.
type workerRoute struct {
	n *Node

	mu    sync.Mutex
	addrs []string
	far   *client.Leader // at one of addrs
}

// remote is the way to the leader at an address, or through any of several nodes.
func (r *workerRoute) remote(addrs ...string) *client.Leader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.addrs, addrs) {
		if r.far != nil {
			r.far.Close()
		}
		r.addrs, r.far = addrs, client.NewLeader(addrs, r.n.cfg.Machine.leaderOptions()...)
	}
	return r.far
}

// around are the other members, for a worker whose own node hears nothing of a leader. That may be because raft is cut off and HTTP is not:
// the others have a leader then, they say who, and this node's slots need not stand idle. Raft gets a moment to name one first.
func (r *workerRoute) around(p place) (addrs []string) {
	if p.id != "" || time.Since(p.since) < newsWait || r.n.stopping.Load() && !r.out() {
		return nil
	}
	for _, s := range r.n.servers() {
		if string(s.ID) != r.n.cfg.NodeID {
			addrs = append(addrs, string(s.Address))
		}
	}
	return addrs
}

// out says that this node was removed from the cluster. It gets no more work then, but what its worker has in hand is finished, and the
// leader hears of it: otherwise a run that did its work would be done again elsewhere, or be recorded as lost. Raft no longer says who leads.
func (r *workerRoute) out() bool { return r.n.group.lead.current() == nil && r.n.members.isRemoved() }

func (r *workerRoute) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.far != nil {
		r.far.Close()
	}
}

// registerPause is how long a registration waits before it tries again. The worker's own pauses grow, and would let a new
// leader wait.
const registerPause = 25 * time.Millisecond

// Register waits for somebody to lead, as long as it may: an election or a takeover is over in a moment, and until then this node's
// slots stand idle.
func (r *workerRoute) Register(ctx context.Context, q job.Register) (job.Session, error) {
	for {
		var s job.Session
		err := errNoLeader()
		q.Node = r.n.members.ref()
		if out := r.out(); !out || len(q.Held) > 0 {
			q := q
			if out {
				q.Slots, q.Prefetch = len(q.Held), 0
			}
			s, err = route(ctx, r, q, func(s *scheduler.Scheduler, ctx context.Context, q job.Register) (job.Session, error) {
				q.Sole = len(r.n.members.configured()) == 1
				return s.Register(ctx, q)
			}, (*client.Leader).Register)
		}
		switch job.CodeOf(err) {
		case job.CodeNotLeader, job.CodeNoLeader, job.CodeNotReady, job.CodeUnavailable, job.CodeOutcomeUnknown:
		default:
			return s, err
		}
		p := r.n.compass.leader()
		_, changed := r.n.group.lead.watch()
		wait := r.n.cfg.Machine.paced(registerPause)
		if len(r.around(p)) > 0 {
			wait *= 10 // each try asks all members, and this may go on for as long as a majority is away
		}
		t := time.NewTimer(wait + rand.N(wait))
		select {
		case <-t.C:
		case <-p.moved:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return job.Session{}, err
		}
	}
}

func (r *workerRoute) Poll(ctx context.Context, q job.Poll) (job.PollReply, error) {
	if r.out() {
		q.Free = 0
	}
	return route(ctx, r, q, (*scheduler.Scheduler).Poll, (*client.Leader).Poll)
}

func (r *workerRoute) Heartbeat(ctx context.Context, q job.Heartbeat) (job.HeartbeatReply, error) {
	if r.out() {
		if len(q.Held) == 0 {
			return job.HeartbeatReply{}, errNoLeader() // it has handed in everything: its session may end
		}
		q.Free = 0
	}
	return route(ctx, r, q, (*scheduler.Scheduler).Heartbeat, (*client.Leader).Heartbeat)
}

func (r *workerRoute) Report(ctx context.Context, q job.Report) (job.ReportReply, error) {
	return route(ctx, r, q, (*scheduler.Scheduler).Report, (*client.Leader).Report)
}

// Output makes the route an executor.OutputTaker.
func (r *workerRoute) Output(ctx context.Context, q job.Output) (job.OutputReply, error) {
	return route(ctx, r, q, (*scheduler.Scheduler).Output, (*client.Leader).Output)
}

// route makes a call where the leader is.
func route[Q, A any](ctx context.Context, r *workerRoute, q Q, near func(*scheduler.Scheduler, context.Context, Q) (A, error),
	far func(*client.Leader, context.Context, Q) (A, error)) (A, error) {
	var none A
	if e := r.n.group.lead.current(); e != nil {
		return near(e.sched, ctx, q)
	}
	p, other := r.n.compass.elsewhere()
	if !other {
		addrs := r.around(p)
		if len(addrs) == 0 {
			return none, errNoLeader()
		}
		call, cancel := r.n.compass.replaced(ctx, p) // as soon as raft names somebody, that is who counts
		defer cancel()
		a, err := far(r.remote(addrs...), call, q)
		if err != nil && errors.Is(context.Cause(call), errReplaced) {
			return none, errReplaced
		}
		return a, err
	}
	call, cancel := r.n.compass.replaced(ctx, p)
	defer cancel()
	a, err := far(r.remote(p.addr), call, q)
	switch code := job.CodeOf(err); {
	case err == nil || ctx.Err() != nil:
	case errors.Is(context.Cause(call), errReplaced):
		return none, errReplaced
	case code == job.CodeUnavailable || code == job.CodeOutcomeUnknown:
		// If it died, the others notice in a moment, and the worker should be there when its successor is. Its own pauses grow.
		if r.moved(ctx, p) {
			return none, errReplaced
		}
	}
	return a, err
}

// newsWait is about how long raft takes to notice that its leader is gone.
const newsWait = time.Second

// moved waits a little for news that p no longer leads.
func (r *workerRoute) moved(ctx context.Context, p place) bool {
	t := time.NewTimer(newsWait)
	defer t.Stop()
	select {
	case <-p.moved:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
