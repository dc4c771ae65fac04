package node

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/job"
)

// place is who leads as this node sees it. Its address is that of raft and of HTTP: a node has one port.
type place struct {
	id, addr string
	moved    <-chan struct{} // closed when this is no longer the newest
	since    time.Time
}

// compass points to the leader. It is level-triggered: raft's observer says "look", and what counts is what raft says then.
type compass struct {
	g    *group
	self string
	look chan raft.Observation
	obs  *raft.Observer

	mu       sync.Mutex
	id, addr string
	moved    chan struct{}
	since    time.Time // when it last moved
}

func newCompass(g *group, self string) *compass {
	c := &compass{g: g, self: self, look: make(chan raft.Observation, 1), moved: make(chan struct{}), since: time.Now()}
	// It does not block: a word that finds the channel full is about a change that the one in it will show as well.
	c.obs = raft.NewObserver(c.look, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	g.raft.RegisterObserver(c.obs)
	c.read()
	return c
}

// compassTick is how often it looks without being told.
const compassTick = time.Second

func (c *compass) run(ctx context.Context) {
	defer c.g.raft.DeregisterObserver(c.obs)
	tick := time.NewTicker(c.g.cfg.Machine.paced(compassTick))
	defer tick.Stop()
	for {
		c.read()
		select {
		case <-ctx.Done():
			return
		case <-c.look:
		case <-tick.C:
		}
	}
}

func (c *compass) read() {
	addr, id := c.g.raft.LeaderWithID()
	c.mu.Lock()
	defer c.mu.Unlock()
	if string(id) == c.id && string(addr) == c.addr {
		return
	}
	c.id, c.addr, c.since = string(id), string(addr), time.Now()
	close(c.moved)
	c.moved = make(chan struct{})
}

func (c *compass) leader() place {
	c.mu.Lock()
	defer c.mu.Unlock()
	return place{id: c.id, addr: c.addr, moved: c.moved, since: c.since}
}

// elsewhere is the leader if it is known and another node.
func (c *compass) elsewhere() (place, bool) {
	p := c.leader()
	return p, p.addr != "" && p.id != c.self
}

// replaced ends a context when somebody else than p is known to lead. A leader that hangs does not answer and does not close its
// connections; that others elected a new one is how this is noticed. A leader that is merely not known for a moment is
// waited for.
func (c *compass) replaced(ctx context.Context, p place) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		now := p
		for {
			select {
			case <-ctx.Done():
				return
			case <-now.moved:
			}
			if now = c.leader(); now.id != "" && (now.id != p.id || now.addr != p.addr) {
				cancel(errReplaced)
				return
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

var errReplaced = job.Errorf(job.CodeNotLeader, "talk to the new leader", "another node leads by now")

func errNotLeader(p place) error {
	return job.Errorf(job.CodeNotLeader, "talk to "+p.addr, "this node does not lead; %s does", p.id)
}

// await is this node's current leadership. If it has none, it is waited for a little, because an election takes less than a second;
// unless another node turns out to lead.
func (n *Node) await(ctx context.Context, limit time.Duration) (*epoch, error) {
	timer := time.NewTimer(limit*3/4 + rand.N(limit/4+1)) // spread, so that those who waited do not come back together
	defer timer.Stop()
	for {
		e, changed := n.group.lead.watch()
		if e != nil {
			return e, nil
		}
		p, other := n.compass.elsewhere()
		if other {
			return nil, errNotLeader(p)
		}
		select {
		case <-changed:
		case <-p.moved:
		case <-timer.C:
			return nil, n.noLeader(ctx)
		case <-n.leaving:
			return nil, errStopping()
		case <-ctx.Done():
			return nil, errNoLeader()
		}
	}
}

func errStopping() error {
	return job.Errorf(job.CodeNotReady, "use another node, or wait until this one is back", "this node is stopping; nothing was changed")
}

// leadsHere says whether this node leads, or is about to: then a request is answered here. One that has put down its leadership to stop
// is still raft's leader for a moment.
func (n *Node) leadsHere() bool {
	return n.group.lead.current() != nil || n.group.raft.State() == raft.Leader && !n.yielded.Load()
}

// leaderAddr is where the leader's port is, empty if nobody else leads.
func (n *Node) leaderAddr() string {
	p, other := n.compass.elsewhere()
	if !other {
		return ""
	}
	return p.addr
}

const (
	// yieldTimeout bounds how long a node that stops tries to hand over its leadership.
	yieldTimeout = 5 * time.Second
	// newsTimeout is how long it then waits to hear who leads, so that it can forward what it still holds.
	newsTimeout = time.Second
)

// yield hands the leadership to another voter before this node stops, so that nobody has to notice its absence first. Its epoch has
// ended. The voter is one whose clock and disk are known to be fit, if there is one; otherwise raft picks the one with the most of the log.
func (n *Node) yield() {
	r := n.group.raft
	if r.State() != raft.Leader || n.alone() {
		return
	}
	began := time.Now()
	done := make(chan error, 1)
	if !n.group.flight.enter() {
		return
	}
	go func() {
		defer n.group.flight.leave()
		var err error
		for tries := 0; tries < 3 && r.State() == raft.Leader && time.Since(began) < yieldTimeout/2; tries++ {
			if s, ok := findServer(n.servers(), n.members.successor()); ok && tries == 0 {
				err = r.LeadershipTransferToServer(s.ID, s.Address).Error()
			} else {
				err = r.LeadershipTransfer().Error()
			}
			if err == nil {
				break
			}
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			n.cfg.Logger.Warn("the leadership could not be handed over; the others elect a leader when they miss this one", "error", err)
			return
		}
	case <-time.After(yieldTimeout):
		n.cfg.Logger.Warn("the leadership could not be handed over in time")
		return
	}
	for wait := time.After(newsTimeout); ; {
		p, other := n.compass.elsewhere()
		if other {
			n.cfg.Logger.Info("handed over the leadership", "to", p.id, "took", time.Since(began))
			return
		}
		select {
		case <-p.moved:
		case <-wait:
			return
		}
	}
}

// alone says whether there is no other voter.
func (n *Node) alone() bool {
	for _, s := range n.servers() {
		if s.Suffrage == raft.Voter && string(s.ID) != n.cfg.NodeID {
			return false
		}
	}
	return true
}
