package node

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/node/raftlog"
	"github.com/carillon-scheduler/carillon/node/standing"
)

// A node has a replica of the control group, and of those other groups that the table of groups says. The leader of the
// control group writes the table; every node reads it in its own replica of that group, and has what it says.

// hostAgain is when a replica that could not be begun is tried again.
const hostAgain = time.Second

// hosting are the groups that a node has a replica of besides the control group.
type hosting struct {
	wake chan struct{} // the table of groups may have changed

	mu      sync.Mutex
	by      map[uint32]*group
	running bool // Run has begun
	closed  bool // no more are taken
}

func newHosting() *hosting { return &hosting{wake: make(chan struct{}, 1), by: map[uint32]*group{}} }

// add takes a group in. It says false if the node stops.
func (h *hosting) add(g *group) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.by[g.of.Group] = g
	if h.running {
		g.run()
	}
	return true
}

// take takes a group out, to be closed; nil: it is not open. stops: the node stops, and closes it.
func (h *hosting) take(number uint32) (g *group, stops bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g = h.by[number]; !h.closed {
		delete(h.by, number)
	}
	return g, h.closed
}

// start runs those that there are, and each that is added from now on.
func (h *hosting) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = true
	for _, g := range h.by {
		g.run()
	}
}

// close takes no more in, and returns those that there are.
func (h *hosting) close() []*group {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return h.listLocked()
}

func (h *hosting) listLocked() []*group {
	return slices.SortedFunc(maps.Values(h.by), func(a, b *group) int { return cmp.Compare(a.of.Group, b.of.Group) })
}

// hostedGroup is a group that this node has a replica of; nil: it has none.
func (n *Node) hostedGroup(number uint32) *group {
	if number == 0 {
		return n.group
	}
	n.hosted.mu.Lock()
	defer n.hosted.mu.Unlock()
	return n.hosted.by[number]
}

// filesOf are the files of a group that this node has a replica of; nil: it has none.
func (n *Node) filesOf(number uint32) *datadir.Files {
	if g := n.hostedGroup(number); g != nil {
		return g.files
	}
	return nil
}

// partIn is a group that this node takes part in; nil: it has no replica, or one that does not hear of the leader
// because it was not taken in yet, has been taken out, or is from before a recovery. Then the way to the leader is that
// of a node without one.
func (n *Node) partIn(number uint32) *group {
	g := n.hostedGroup(number)
	if g == nil || number == 0 || g.tracker.Leader().Known() || g.members.TakesPart() {
		return g
	}
	return nil
}

// groups are all that this node has a replica of, the control group first.
func (n *Node) groups() []*group {
	n.hosted.mu.Lock()
	defer n.hosted.mu.Unlock()
	return append([]*group{n.group}, n.hosted.listLocked()...)
}

// eachOf does something with the control group and with others, side by side.
func (n *Node) eachOf(others []*group, do func(*group)) {
	var all sync.WaitGroup
	for _, g := range append([]*group{n.group}, others...) {
		all.Go(func() { do(g) })
	}
	all.Wait()
}

// prepare gives a group what it needs before raft runs.
func (n *Node) prepare(g *group) {
	g.tracker = forward.NewTracker(forward.TrackerOptions{
		Self: n.cfg.NodeID, Lag: 2*n.cfg.Raft.CommitTimeout + raftlog.DelayOf(g.of.Group),
		Interval: n.cfg.Machine.Pace.Of(time.Second),
		Why:      func(ctx context.Context) string { return g.members.WhyNoLeader(ctx) },
		Removed:  func() error { return g.members.Outside() },
	})
	at := standing.Options{Dir: n.dir, Group: g.of.Group, Store: g.store, Logger: g.log, Fail: n.fail}
	if g.control != nil {
		at.Node = g.control.standing
	}
	g.standing = standing.New(at)
	if g.damage != nil {
		g.standStill(g.damage)
	}
	g.members, g.keys = membership.New(n.membership(g)), n.keys
	g.snaps.Accept, g.snaps.Room = g.receives, n.disk.CopyRoom
}

// startGroup connects a group to its replicas on other nodes, and runs raft.
func (n *Node) startGroup(g *group) error {
	if err := n.connect(g); err != nil {
		return err
	}
	if err := g.start(n.cfg.Machine.TransportOf(g.trans)); err != nil {
		return err
	}
	g.tracker.Watch(g.raft)
	return nil
}

// openHosted opens the replicas that the data directory has.
func (n *Node) openHosted() error {
	for _, r := range n.dir.Replicas {
		if err := n.host(r); err != nil {
			return err
		}
	}
	return nil
}

// host opens a replica and has it take part in its group.
func (n *Node) host(r datadir.Replica) error {
	g, err := openGroup(&n.cfg, n.dir, r, n.meters)
	if err != nil {
		return err
	}
	g.control, g.vault = n.group, n.group.vault
	n.prepare(g)
	if err = n.startGroup(g); err == nil {
		n.serve(g)
		if n.hosted.add(g) {
			return nil
		}
	}
	_ = g.end(true)    //nolint:errcheck // it has done nothing yet
	_ = g.closeFiles() //nolint:errcheck // as above
	return err
}

// followGroups has the replicas that the table of groups says this node has, until ctx ends.
func (n *Node) followGroups(ctx context.Context) {
	for {
		var again <-chan time.Time
		if err := n.hostPlaced(); err != nil {
			n.cfg.Logger.Error("replica of a group not started or not given up; trying again", "error", err)
			again = time.After(n.cfg.Machine.Pace.Of(hostAgain))
		}
		select {
		case <-ctx.Done():
			return
		case <-n.hosted.wake:
		case <-again:
		}
	}
}

// hostPlaced begins the replicas that this node is to have and has not, and gives up those that are over.
func (n *Node) hostPlaced() error {
	add, over, err := n.members.Placed(n.dir.Replicas)
	for _, r := range over {
		if err == nil {
			err = n.giveUp(r)
		}
	}
	for _, r := range add {
		if n.hostedGroup(r.Group) != nil || err != nil {
			continue
		}
		if !slices.Contains(n.dir.Replicas, r) { // it may have been cut off after that
			err = n.dir.AddReplica(r, nil)
		}
		if err == nil {
			err = n.host(r)
		}
	}
	return err
}

// giveUp closes a replica that is over and deletes its files. One that is cut off is gone on with by the next start.
func (n *Node) giveUp(r datadir.Replica) error {
	g, stops := n.hosted.take(r.Group)
	if stops {
		return nil
	}
	if g != nil {
		g.log.Info("giving up the replica of a group that continues without it", "replica", r.Number)
		g.putDown(false, false)
		g.unfollow()
		if err := errors.Join(g.end(n.killed.Load()), g.closeFiles()); err != nil {
			g.log.Warn("replica not closed cleanly", "error", err)
		}
	}
	wait.Wake(n.hosted.wake) // there may be another one for this node
	return n.dir.RemoveReplica(r.Group, n.cfg.Machine.ReplicaStep)
}

// run follows raft and leads when this node is elected, until putDown and unfollow.
func (g *group) run() {
	var lead, follow context.Context
	lead, g.endLead = context.WithCancel(context.Background())
	follow, g.endFollow = context.WithCancel(context.Background())
	g.following.Go(func() { g.tracker.Run(follow) })
	g.following.Go(func() { g.service.Follow(follow) })
	g.following.Go(func() { g.members.Succeed(follow) })
	g.following.Go(func() { g.scrub.Run(follow) })
	g.following.Go(func() { g.members.TakePart(follow, func() { wait.Wake(g.lead.wake) }) })
	g.leading.Go(func() { g.lead.run(lead) })
	g.leading.Go(func() { g.compactor().Run(lead) })
}

// putDown ends a leadership of this node, with a last stamp if that is wanted, and hands it on.
func (g *group) putDown(stamp, handOn bool) {
	if e := g.tracker.Epoch(); e != nil && stamp {
		g.members.StampBeforeTransfer(context.Background(), e)
	}
	g.tracker.Yield()
	g.endLead()
	g.leading.Wait() // nothing is proposed any more
	if handOn {
		g.yield()
	}
	g.tracker.Leave()
}

// unfollow is the end of run.
func (g *group) unfollow() {
	g.endFollow()
	g.following.Wait()
}

// end ends raft and the connections of a group. It works on one that was opened in part.
func (g *group) end(killed bool) error {
	if g.members != nil {
		g.members.Close()
	}
	if g.forward != nil {
		g.forward.Close()
	}
	switch {
	case g.raft != nil:
		g.trans.StopWaiting()
		return g.shutdown(killed) // closes the transport
	case g.trans != nil:
		return g.trans.Close()
	}
	return nil
}

// groupIsLed says that a group has a leader, as far as this node can see.
func (n *Node) groupIsLed(number uint32) bool {
	if g := n.hostedGroup(number); g != nil {
		return g.tracker.Leader().Known()
	}
	id, _ := n.members.LeaderOf(context.Background(), number)
	return id != ""
}

// servePeer answers the probe of another node about a group.
func (n *Node) servePeer(w http.ResponseWriter, r *http.Request) {
	number, err := membership.GroupOf(r)
	g := n.hostedGroup(number)
	if err != nil || g == nil {
		api.WriteError(w, job.Errorf(job.CodeNotFound, "", "node %s has no replica of that group", n.cfg.NodeID))
		return
	}
	g.members.ServePeer(w, r)
}
