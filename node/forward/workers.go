package forward

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// Member is what the local worker's way to the leader asks of this node's membership.
type Member interface {
	Ref() *job.NodeRef // what the worker says about its node
	Removed() bool     // the cluster no longer has this node
	Alone() bool       // the cluster has no other node
	Others() []string  // addresses of the other members
	// Stopped is why the node has no part in the cluster any more; own is closed when that comes about.
	Stopped() error
	Halted() (own, node <-chan struct{})
}

// WorkerOptions describe the local worker's way to the leader.
type WorkerOptions struct {
	Group uint32 // whose leader it is
	// Tracker follows that group; it returns nil while this node has no replica of it.
	Tracker  func() *Tracker
	Member   Member
	Stopping func() bool
	Pause    time.Duration // how long a poll waits before it tries again; default PollPause
	// Dial connects to other nodes; nil: by TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// WorkerRoute is the leader as the local worker sees it: a function call while this node leads, HTTP while another
// does. When the leader changes, calls to the old one end with CodeNotLeader; a poll goes on to the new one.
type WorkerRoute struct {
	o      WorkerOptions
	absent *Tracker // one that knows no leader

	mu    sync.Mutex
	addrs []string
	far   *client.Leader // at one of addrs
}

// PollPause is how long a poll waits before it tries again. The worker's own pauses grow, and would let a new leader
// wait.
const PollPause = 25 * time.Millisecond

// NewWorkerRoute makes a route.
func NewWorkerRoute(o WorkerOptions) *WorkerRoute {
	o.Pause = cmp.Or(o.Pause, PollPause)
	r := &WorkerRoute{o: o, absent: NewTracker(TrackerOptions{})}
	r.absent.since = time.Time{} // and is not waited for
	return r
}

// remote is the way to the leader at an address, or through any of several nodes.
func (r *WorkerRoute) remote(addrs ...string) *client.Leader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.addrs, addrs) {
		if r.far != nil {
			r.far.Close()
		}
		r.addrs, r.far = addrs, client.NewLeader(addrs, client.WithDial(r.o.Dial), client.WithGroup(r.o.Group))
	}
	return r.far
}

func (r *WorkerRoute) tracker() *Tracker {
	if t := r.o.Tracker(); t != nil {
		return t
	}
	return r.absent
}

// around are the other members, for a worker whose own node hears nothing of a leader. That may be because raft is cut
// off and HTTP is not: the others have a leader then, they say who, and this node's slots need not stand idle. Raft
// gets a moment to name one first. A node that stops goes on with this if it has no other way.
func (r *WorkerRoute) around(l Leader) []string {
	if l.ID != "" || time.Since(l.Since) < newsWait || r.o.Stopping() && !r.out() && r.o.Tracker() != nil {
		return nil
	}
	return r.o.Member.Others()
}

// out says that this node was removed from the cluster. It gets no more work then, but what its worker has in hand is
// finished, and the leader hears of it: otherwise a run that did its work would be done again elsewhere, or be recorded
// as lost. Raft no longer says who leads.
func (r *WorkerRoute) out() bool { return r.tracker().Epoch() == nil && r.o.Member.Removed() }

// Close gives up connections.
func (r *WorkerRoute) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.far != nil {
		r.far.Close()
	}
}

// halted refuses all calls of a node that has no part in the cluster any more. The worker gives up what it has in hand,
// as at the end of its lease.
func (r *WorkerRoute) halted() error {
	if err := r.o.Member.Stopped(); err != nil {
		return job.Errorf(job.CodeStale, "", "%v", err)
	}
	return nil
}

// Poll waits for a leader, as long as it may: an election or a takeover is over in a moment, and until then this node's
// slots stand idle. It goes with what the node is: one that was removed takes no more.
func (r *WorkerRoute) Poll(ctx context.Context, q job.Poll) (job.PollReply, error) {
	for {
		q.Node = r.o.Member.Ref()
		if r.out() {
			q.Free = 0
		}
		here := func(s *scheduler.Scheduler, ctx context.Context, q job.Poll) (job.PollReply, error) {
			q.Sole = r.o.Member.Alone() // as this leadership has it
			return s.Poll(ctx, q)
		}
		a, err := route(ctx, r, q, here, (*client.Leader).Poll)
		switch job.CodeOf(err) {
		case job.CodeNotReady:
			if q.Leave { // there is more on its way, which the worker has to know
				return a, err
			}
		case job.CodeNotLeader, job.CodeNoLeader, job.CodeUnavailable, job.CodeOutcomeUnknown:
		default:
			return a, err
		}
		l := r.tracker().Leader()
		wait := r.o.Pause
		if len(r.around(l)) > 0 {
			wait *= 10 // each try asks all members, and this may go on for as long as a majority is away
		}
		t := time.NewTimer(wait + rand.N(wait))
		select {
		case <-t.C:
		case <-l.Changed:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return job.PollReply{}, err
		}
	}
}

func (r *WorkerRoute) Heartbeat(ctx context.Context, q job.Heartbeat) (job.HeartbeatReply, error) {
	return route(ctx, r, q, (*scheduler.Scheduler).Heartbeat, (*client.Leader).Heartbeat)
}

func (r *WorkerRoute) Report(ctx context.Context, q job.Report) (job.ReportReply, error) {
	return route(ctx, r, q, (*scheduler.Scheduler).Report, (*client.Leader).Report)
}

func (r *WorkerRoute) Output(ctx context.Context, q job.Output) (job.OutputReply, error) {
	return route(ctx, r, q, (*scheduler.Scheduler).Output, (*client.Leader).Output)
}

// route makes a call where the leader is.
func route[Q, A any](ctx context.Context, r *WorkerRoute, q Q,
	near func(*scheduler.Scheduler, context.Context, Q) (A, error),
	far func(*client.Leader, context.Context, Q) (A, error)) (A, error) {
	var none A
	if err := r.halted(); err != nil {
		return none, err
	}
	t := r.tracker()
	l := t.Leader()
	if l.Epoch != nil {
		return near(l.Epoch.Scheduler, ctx, q)
	}
	addrs := []string{l.Addr}
	if !l.Elsewhere() {
		if addrs = r.around(l); len(addrs) == 0 {
			return none, ErrNoLeader()
		}
	}
	halted, _ := r.o.Member.Halted()
	call, cancel := t.Replaced(ctx, l, halted) // as soon as raft names another one, that is who counts
	defer cancel()
	a, err := far(r.remote(addrs...), call, q)
	switch code := job.CodeOf(err); {
	case err == nil || ctx.Err() != nil:
	case r.halted() != nil:
		return none, r.halted()
	case errors.Is(context.Cause(call), errReplaced):
		return none, errReplaced
	case l.Elsewhere() && (code == job.CodeUnavailable || code == job.CodeOutcomeUnknown):
		// If it died, the others notice in a moment, and the worker should be there when its successor is. Its own
		// pauses grow.
		if t.replaced(ctx, l) {
			return none, errReplaced
		}
	}
	return a, err
}

// newsWait is about how long raft takes to notice that its leader is gone.
const newsWait = time.Second

// replaced waits a little for news that l no longer leads.
func (t *Tracker) replaced(ctx context.Context, l Leader) bool {
	_, yes := t.Wait(ctx, time.Now().Add(newsWait), func(now Leader) bool {
		return now.Epoch != nil || now.ID != l.ID || now.Addr != l.Addr
	})
	return yes
}
