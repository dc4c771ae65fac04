package node

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/transport"
)

// writtenDown is what node.json says of epochs that the cluster reached without the node.
func (m *member) writtenDown() []datadir.Stopped {
	m.t.Helper()
	data, err := os.ReadFile(m.dir.File(datadir.NodeFile))
	if err != nil {
		m.t.Fatal(err)
	}
	var id datadir.Identity
	if err := json.Unmarshal(data, &id); err != nil {
		m.t.Fatal(err)
	}
	return id.Stopped
}

// reopen starts a stopped node on the port it had.
func (m *member) reopen() {
	m.t.Helper()
	m.link = &link{}
	m.open(m.t)
}

// outlived waits until a node says that the cluster went on without it.
func (m *member) outlived(by string) {
	m.t.Helper()
	m.eventually(m.id()+" says that it takes no part", func() bool {
		return job.CodeOf(m.members.Stopped()) == job.CodeStopped && !m.leads()
	})
	if at := m.writtenDown(); len(at) != 1 || at[0].Group != 0 || at[0].Node != by || at[0].Epoch <= at[0].Own || at[0].At == 0 {
		m.t.Errorf("%s has written down %+v", m.id(), at)
	}
}

// The node that was left begins again without the others. They come back as they were, and are a majority of the cluster
// that they know: they elect no leader, execute nothing, say why, and remember it.
func TestOutlivedMajority(t *testing.T) {
	realTime(t)
	t.Parallel()
	for name, mode := range modes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testOutlivedMajority(t, mode)
		})
	}
}

func testOutlivedMajority(t *testing.T, mode func(*Config)) {
	c := startJoined(t, 3, mode)
	tg := newTarget(t)
	c.leader().create(tg.spec("kept", "@every 1s"))
	c.fires("kept")
	m, old := c.members[0], c.members[1:]
	for _, x := range old {
		x.crash()
		x.stop()
	}
	m.stop()
	r, err := datadir.Recover(m.cfg.DataDir, map[string]string{"n1": m.cfg.Listen}, quiet)
	if err != nil || r.Epoch != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	m.reopen()
	m.eventually("it goes on alone", m.leads)

	var led atomic.Int64
	for _, x := range old {
		x.cfg.Machine.Leading = func(uint32, uint64) { led.Add(1) }
		x.reopen()
	}
	for _, x := range old {
		x.outlived("n1")
		if x.group.raft.State().String() == "Leader" {
			t.Errorf("raft of %s leads", x.id())
		}
		a := x.call("POST", "/api/v1/jobs", unclaimedJob("lost"))
		if p := a.problem(); a.status != http.StatusServiceUnavailable || p.Code != job.CodeStopped ||
			!strings.Contains(p.Remedy, "empty its data directory") {
			t.Errorf("%s: %d %s", x.id(), a.status, a.body)
		}
		if a := x.call("GET", "/readyz", nil); a.status != http.StatusServiceUnavailable ||
			a.problem().Code != job.CodeStopped {
			t.Errorf("%s is ready: %d %s", x.id(), a.status, a.body)
		}
		s := ok[wire.Status](x.testNode, "GET", "/api/v1/status", nil)
		if s.Ready || s.Leader != "" || len(s.Troubles) != 1 || s.Troubles[0].Code != wire.TroubleStopped ||
			!strings.Contains(s.Troubles[0].Text, "epoch 0, and node ") || s.Troubles[0].Remedy == "" {
			t.Errorf("%s: %+v", x.id(), s)
		}
	}
	c.members = c.members[:1]
	c.fires("kept")
	c.members = append(c.members, old...)
	m.stop()

	// Without the one that told them they do not go on either, now or after another start.
	for _, x := range old {
		x.stop()
		x.reopen()
		x.outlived("n1")
	}
	a, b := old[0], old[1]
	if err := b.members.Check(a.members.Hello()); job.CodeOf(err) != job.CodeStopped {
		t.Errorf("%v", err)
	}
	if n := led.Load(); n > 0 {
		t.Errorf("%d leaderships were taken up", n)
	}
	for key, n := range tg.seen() {
		if n > 1 {
			t.Errorf("%s was called %d times", key, n)
		}
	}

	// The operator decides that another side is to go on: it is above the one that went on before.
	a.stop()
	if r, err := datadir.Recover(a.cfg.DataDir, map[string]string{"n2": a.cfg.Listen}, quiet); err != nil || r.Epoch != 2 {
		t.Fatalf("%+v %v", r, err)
	}
	a.cfg.Machine.Leading = nil
	a.reopen()
	a.eventually("it leads", a.leads)
	if at := a.writtenDown(); at != nil {
		t.Errorf("%+v", at)
	}
	// With an empty directory the other one is taken in again.
	b.stop()
	b.cfg.DataDir, b.cfg.Bootstrap, b.cfg.Join, b.cfg.Machine.Leading = t.TempDir(), false, a.joinAddr(), nil
	b.reopen()
	c.members = []*member{a, b}
	c.awaitVoters(2)
	c.sameState()
	c.members = append(c.members, m)
}

// A majority that runs hears of it as well, from the node that it misses: it leads no more, and its worker ends what it
// has in hand.
func TestOutlivedWhileRunning(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	m := c.others(c.leader())[0]
	rest := c.others(m)
	m.stop()
	done := make(chan struct{})
	tg := newTarget(t)
	tg.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			close(done)
		case <-t.Context().Done():
		}
	})
	j := c.leader().create(tg.spec("long", "@manual"))
	c.leader().call("POST", "/api/v1/jobs/"+j.ID.String()+":run", nil)
	c.leader().eventually("an attempt is under way", func() bool {
		return slices.ContainsFunc(rest, func(x *member) bool { return x.worker.busy() > 0 })
	})
	if _, err := datadir.Recover(m.cfg.DataDir, map[string]string{m.id(): m.cfg.Listen}, quiet); err != nil {
		t.Fatal(err)
	}
	m.reopen()
	m.eventually("it goes on alone", m.leads)
	for _, x := range rest {
		x.eventually(x.id()+" hears of it", func() bool { return x.members.Stopped() != nil && !x.leads() })
		x.eventually(x.id()+" does nothing", func() bool { return x.worker.busy() == 0 })
	}
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the attempt goes on")
	}
}

// The word of a stranger stops no node; that of a member does, whichever way it comes.
func TestWhoCanSupersede(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	m, peer, gone := c.members[0], c.members[1], c.members[2]
	was := gone.members.Hello()
	c.mustOp("remove", gone.id())
	m.eventually("it knows that", func() bool {
		r, _ := m.members.Row(gone.id())
		return r.Removed
	})
	good := peer.members.Hello()
	for name, change := range map[string]func(*transport.Hello){
		"a node that it does not know":        func(h *transport.Hello) { h.NodeID = "n9" },
		"another directory of a member":       func(h *transport.Hello) { h.InstanceID = "x" },
		"a later one":                         func(h *transport.Hello) { h.InstanceID, h.Index = "x", 1<<40 },
		"one that was removed":                func(h *transport.Hello) { *h = was },
		"another cluster":                     func(h *transport.Hello) { h.ClusterID = "other" },
		"another group":                       func(h *transport.Hello) { h.Group, h.GroupID = 3, "g" },
		"this node's id, not its own":         func(h *transport.Hello) { h.NodeID, h.InstanceID = m.id(), "x" },
		"a group that was begun another time": func(h *transport.Hello) { h.GroupID = "g" },
	} {
		h := good
		change(&h)
		h.Epoch = 7
		if err := m.members.Check(h); err == nil {
			t.Errorf("%s is let in", name)
		}
		m.members.OnRefused(&transport.RefusedError{Peer: h, ByPeer: true, Reason: "no", At: "127.0.0.1:1"})
		if err := m.members.Stopped(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if at := m.writtenDown(); at != nil {
		t.Errorf("%+v", at)
	}
	h := good
	h.Epoch = 7
	peer.members.OnRefused(&transport.RefusedError{Peer: transport.Hello{ClusterID: h.ClusterID, NodeID: m.id(),
		Replica: replica.First, InstanceID: "joined anew", Epoch: 7}, ByPeer: true, Reason: "no", At: m.cfg.Listen})
	if err := peer.members.Stopped(); err == nil {
		t.Error("who answers in the place of a member is not believed")
	}
	if err := m.members.Check(h); err == nil {
		t.Error("a node of a later epoch is let in")
	}
	m.outlived(peer.id())
}

// One that stands still holds a start up for a second at most; one that is gone not at all.
func TestStartAsksTheMembers(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	c.stopAll()
	var wait [3]atomic.Bool
	for i, m := range c.members {
		m.cfg.Machine.Leading = func(uint32, uint64) {
			select {
			case <-m.group.standing.Asked():
			default:
				wait[i].Store(true)
			}
		}
	}
	for _, m := range c.members {
		m.reopen()
	}
	c.awaitVoters(3)
	for i := range wait {
		if wait[i].Load() {
			t.Errorf("n%d led before it had asked", i+1)
		}
	}
	c.leader()
}

// A cluster that was recovered grows like any other: its new groups are of its epoch.
func TestRecoveredClusterGrows(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 1)
	m := c.members[0]
	m.stop()
	if r, err := datadir.Recover(m.cfg.DataDir, map[string]string{"n1": m.cfg.Listen}, quiet); err != nil || r.Epoch != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	m.reopen()
	m.eventually("it leads", m.leads)
	other := c.newMember("n2", m.joinAddr())
	other.open(t)
	c.members = append(c.members, other)
	c.awaitVoters(2)
	c.grow(m.testNode, 2)
	c.awaitGroups(2)
	for _, x := range c.members {
		for number := uint32(1); number <= 2; number++ {
			x.eventually(x.id()+" has a replica that votes", func() bool {
				g := x.hostedGroup(number)
				return g != nil && len(votersOf(g)) == 2 && g.store.Info().Epoch == 1
			})
		}
		if err := x.members.Stopped(); err != nil {
			t.Error(err)
		}
	}
}

// Two nodes that were recovered, each without the other, cannot reach each other when they start. When they can, both
// stop: neither is above the other.
func TestRivalsMeetLater(t *testing.T) {
	realTime(t)
	t.Parallel()
	for name, mode := range modes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testRivalsMeetLater(t, mode)
		})
	}
}

func testRivalsMeetLater(t *testing.T, mode func(*Config)) {
	c := startJoined(t, 3, mode)
	for _, m := range c.members {
		m.crash()
		m.stop()
	}
	rivals := c.members[:2]
	var reachable atomic.Bool
	for _, m := range rivals {
		r, err := datadir.Recover(m.cfg.DataDir, map[string]string{m.id(): m.cfg.Listen}, quiet)
		if err != nil || r.Epoch != 1 {
			t.Fatalf("%+v %v", r, err)
		}
		ln, err := net.Listen("tcp", m.cfg.Listen)
		if err != nil {
			t.Fatal(err)
		}
		m.link = &link{ln: deafListener{ln, &reachable}}
		m.open(t)
	}
	for _, m := range rivals {
		m.eventually("it goes on alone", m.leads)
	}
	reachable.Store(true)
	for _, m := range rivals {
		m.eventually(m.id()+" takes no part", func() bool {
			return job.CodeOf(m.members.Stopped()) == job.CodeStopped && !m.leads()
		})
		if at := m.writtenDown(); len(at) != 1 || at[0].Reason != datadir.StoppedRival || at[0].Epoch != 1 {
			t.Errorf("%s has written down %+v", m.id(), at)
		}
	}
}

// deafListener hangs up on everybody until it is reachable.
type deafListener struct {
	net.Listener
	reachable *atomic.Bool
}

func (l deafListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.reachable.Load() {
			return c, err
		}
		c.Close()
	}
}
