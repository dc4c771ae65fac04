package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/fsm/chain"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// again starts a member that was stopped, and waits for nothing.
func (m *member) again(t *testing.T) {
	t.Helper()
	m.link = &link{}
	m.open(t)
}

// troubleOf is the trouble of a code that a node shows about another, or itself.
func (m *member) troubleOf(code, node string) (wire.Trouble, bool) {
	for _, tr := range m.status("").Troubles {
		if tr.Code == code && tr.Node == node {
			return tr, true
		}
	}
	return wire.Trouble{}, false
}

// logHashAt asks a node for the hash over its log.
func (m *member) logHashAt(index uint64) wire.LogHash {
	m.t.Helper()
	return ok[wire.LogHash](m.testNode, "GET", fmt.Sprintf("/api/v1/node/log-hash?index=%d", index), nil)
}

// A job is on two of three nodes, which is a majority. The directory of one of them is put back as it was before that;
// with the third it is a majority that never had the job, and goes on. The one that has it stops when it hears of
// theirs, and stays so; without the rule there are two states, and nobody says so.
func TestWhyAReplicaThatDiffersStops(t *testing.T) {
	realTime(t)
	both(t, func(t *testing.T, rules bool, change func(*Config)) {
		c := startJoined(t, 3, change)
		keeper := c.leader()
		old, away := c.others(keeper)[0], c.others(keeper)[1]
		old.stop()
		copied := filepath.Join(t.TempDir(), "copy")
		copyDir(t, old.cfg.DataDir, copied)
		old.restart()
		away.crash()
		away.stop()
		c.leader().create(unclaimedJob("x"))
		keeper.eventually("it has the job", func() bool { return keeper.has("x") })
		for _, m := range []*member{keeper, old} {
			m.crash()
			m.stop()
		}
		if err := os.RemoveAll(old.cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		copyDir(t, copied, old.cfg.DataDir)
		away.again(t)
		old.again(t)
		lead := (&cluster{t: t, members: []*member{old, away}}).leader()
		lead.create(unclaimedJob("y"))
		keeper.again(t)
		if !rules {
			keeper.eventually("it follows", func() bool { return keeper.service.Ready() == nil })
			lead.create(unclaimedJob("z"))
			keeper.eventually("it gets what is new", func() bool { return keeper.has("z") })
			if !keeper.has("x") || lead.has("x") {
				t.Error("the states do not differ")
			}
			return
		}
		keeper.eventually("it stops", func() bool { return keeper.group.standing.Why() != nil })
		for range 2 {
			s := keeper.group.standing.Why()
			if s == nil || s.Reason != datadir.StoppedDiffers || s.Index == 0 || s.Node != lead.id() {
				t.Fatalf("stopped: %+v", s)
			}
			err := keeper.service.Ready()
			if job.CodeOf(err) != job.CodeStopped || !strings.Contains(err.Error(), "differs from that of the leader") {
				t.Errorf("ready: %v", err)
			}
			if tr, ok := keeper.troubleOf(wire.TroubleStopped, keeper.id()); !ok ||
				!strings.Contains(tr.Remedy, "stop node "+keeper.id()+", run `carillon node rebuild ") {
				t.Errorf("it does not say so: %+v", keeper.status("").Troubles)
			}
			lead.eventually("the leader says so", func() bool {
				tr, ok := lead.troubleOf(wire.TroubleStopped, keeper.id())
				return ok && strings.Contains(tr.Remedy, "stop node "+keeper.id()+", run `carillon node rebuild ")
			})
			if keeper.leads() || !keeper.has("x") || keeper.has("y") {
				t.Error("its state is not what it was")
			}
			lead.create(unclaimedJob("")) // they go on without it
			keeper.stop()
			keeper.again(t)
		}
	})
}

// What raft cannot see, the leader's stamps show: a follower whose state came about by other entries stops at one, which
// the leader commits when it hears the follower's hash. A recovery of it says that its side is the right one.
func TestReplicaWithAnotherHashStops(t *testing.T) {
	realTime(t)
	t.Parallel()
	// So slow that no leader stamps because it is time to.
	c := startJoined(t, 3, func(c *Config) { c.Executors, c.Machine.Pace = nil, 100_000 })
	lead := c.leader()
	odd := c.others(lead)[0]
	lead.create(unclaimedJob("a"))
	odd.eventually("it has the job", func() bool { return odd.has("a") })
	odd.stop()
	checked, err := datadir.Check(odd.cfg.DataDir)
	if err != nil || len(checked.Ends) != 1 {
		t.Fatalf("%+v, %v", checked, err)
	}
	if h := lead.logHashAt(checked.Index); h.Hash != chain.Text(checked.Chain) || checked.Chain == 0 ||
		h.ClusterID != checked.Ends[0].Cluster.ID {
		t.Errorf("%+v, and the directory has %+v", h, checked.Ends)
	}
	if h := lead.logHashAt(1 << 40); h.Hash != "" || h.Applied == 0 {
		t.Errorf("%+v", h)
	}
	st, err := store.Open(filepath.Join(odd.cfg.DataDir, datadir.StateFile), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := st.Begin()
	if err == nil {
		b.C.Chain ^= 1
		err = errors.Join(b.Commit(), st.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	odd.again(t)
	odd.eventually("it stops", func() bool { return odd.group.standing.Why() != nil })
	if a := odd.call("GET", "/readyz", nil); a.status != 503 || a.problem().Code != job.CodeStopped {
		t.Errorf("readyz: %d %s", a.status, a.body)
	}
	if s := odd.group.standing.Why(); s.Reason != datadir.StoppedDiffers || !strings.Contains(s.Text, "hash over all entries") {
		t.Errorf("%+v", s)
	}
	for _, m := range c.others(odd) {
		if m.group.standing.Why() != nil {
			t.Errorf("%s stopped too: %+v", m.id(), m.group.standing.Why())
		}
	}
	odd.stop()
	checked, err = datadir.Check(odd.cfg.DataDir)
	if err != nil || len(checked.Problems) != 1 || !strings.Contains(checked.Problems[0], "node rebuild") {
		t.Errorf("its files fit each other, and check says %+v, %v", checked.Problems, err)
	}
	alone := map[string]string{odd.id(): odd.cfg.Listen}
	if _, err := datadir.Recover(odd.cfg.DataDir, alone, quiet); err != nil {
		t.Fatal(err)
	}
	if d, err := datadir.Open(odd.cfg.DataDir, odd.id(), "test"); err != nil || d.Stopped != nil {
		t.Errorf("%+v, %v", d, err)
	}
}

// A snapshot takes the place of a state only if it is as far, and of the same history as far as that is known.
func TestSnapshotsOfAnotherHistory(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		started        bool // the node was started after its state came to be
		change         func(g *group, h *fsm.Header)
		refused, stops bool
	}{
		"further on":               {change: func(_ *group, h *fsm.Header) { h.Index, h.Chain = h.Index+10, 1 }},
		"the same":                 {change: func(*group, *fsm.Header) {}},
		"another one":              {change: func(_ *group, h *fsm.Header) { h.Chain++ }, refused: true, stops: true},
		"another one, and older":   {change: func(_ *group, h *fsm.Header) { h.Index-- }, refused: true, stops: true},
		"one that comes late":      {change: older, refused: true},
		"older than what is known": {true, func(_ *group, h *fsm.Header) { h.Index = 1 }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			n := start(t, dir)
			n.create(unclaimedJob("a"))
			if tc.started {
				n.stop()
				n = start(t, dir)
			}
			n.create(unclaimedJob("b"))
			c := n.group.store.Counters()
			h := fsm.Header{Index: c.Index, Term: c.Term, Chain: c.Chain}
			tc.change(n.group, &h)
			if d, err := n.group.files.GoesOn(h); (err != nil) != tc.refused || (d != nil) != tc.stops {
				t.Errorf("%v, %+v", err, d)
			}
		})
	}
}

// older makes a header that of the state before its last entry.
func older(g *group, h *fsm.Header) {
	h.Index--
	h.Chain, _ = g.fsm.Recent.At(h.Index)
}
