package fsm

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm/snapshots"
	"github.com/carillon-scheduler/carillon/job"
)

// member is a server whose log survives a restart of its process.
type member struct {
	*world
	id    raft.ServerID
	logs  *raft.InmemStore
	trans *raft.InmemTransport
	snaps *snapshots.Store
	raft  *raft.Raft
}

func newMember(t *testing.T, id raft.ServerID) *member {
	m := &member{world: newWorld(t), id: id, logs: raft.NewInmemStore()}
	m.snaps = newSnapshots(t, m.world)
	_, m.trans = raft.NewInmemTransport(raft.ServerAddress(id))
	return m
}

func (m *member) start(t *testing.T, bootstrap bool) {
	t.Helper()
	c := raft.DefaultConfig()
	c.LocalID, c.TrailingLogs, c.SnapshotInterval, c.SnapshotThreshold = m.id, 2, time.Hour, 1<<20
	c.NoSnapshotRestoreOnStart, c.NoLegacyTelemetry, c.Logger = true, true, hclog.NewNullLogger()
	if bootstrap {
		conf := raft.Configuration{Servers: []raft.Server{{ID: m.id, Address: raft.ServerAddress(m.id)}}}
		if err := raft.BootstrapCluster(c, m.logs, m.logs, m.snaps, m.trans, conf); err != nil {
			t.Fatal(err)
		}
	}
	r, err := raft.NewRaft(c, m.f, m.logs, m.logs, m.snaps, m.trans)
	if err != nil {
		t.Fatal(err)
	}
	m.raft = r
	t.Cleanup(func() { r.Shutdown().Error() })
}

// await lets the time of the bubble pass until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 10_000 {
		if so() {
			return
		}
		time.Sleep(10 * time.Millisecond) // virtual
	}
	t.Fatalf("never: %s", what)
}

// propose sends a command through the log.
func (m *member) propose(t *testing.T, cmd Command) *Reply {
	t.Helper()
	m.term = m.raft.CurrentTerm()
	data, err := Encode(m.stamp(cmd))
	if err != nil {
		t.Fatal(err)
	}
	f := m.raft.Apply(data, time.Second)
	if err := f.Error(); err != nil {
		t.Fatal(err)
	}
	r, ok := f.Response().(*Reply)
	if !ok {
		t.Fatalf("%T was answered with %v", cmd, f.Response())
	}
	return r
}

func same(t *testing.T, all ...*member) {
	t.Helper()
	index, _ := all[0].f.Applied()
	want := fullDigest(t, all[0].world)
	for _, m := range all[1:] {
		await(t, "caught up", func() bool { i, _ := m.f.Applied(); return i >= index })
		if fullDigest(t, m.world) != want {
			t.Fatalf("%s has another state than %s", m.id, all[0].id)
		}
		m.check()
	}
}

// The real raft: snapshots that are metadata, followers that are installed from them, a restart that replays, and a restore by a user.
func TestThroughRaft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newMember(t, "a"), newMember(t, "b"), newMember(t, "c")
		for _, x := range []*member{a, b, c} {
			for _, y := range []*member{a, b, c} {
				x.trans.Connect(y.trans.LocalAddr(), y.trans)
			}
		}
		a.start(t, true)
		await(t, "a leads", func() bool { return a.raft.State() == raft.Leader })
		g := newGen(a.world, 99)
		work := func(n int) {
			for range n {
				a.propose(t, g.next())
			}
		}
		work(100)
		if err := a.raft.Barrier(0).Error(); err != nil { // an entry that no state machine is shown
			t.Fatal(err)
		}
		if err := a.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		if first, _ := a.logs.FirstIndex(); first < 50 {
			t.Fatalf("the log still begins at %d: a new member would not need the snapshot", first)
		}

		b.start(t, false)
		c.start(t, false)
		for _, m := range []*member{b, c} {
			if err := a.raft.AddVoter(m.id, raft.ServerAddress(m.id), 0, 0).Error(); err != nil {
				t.Fatal(err)
			}
		}
		work(50)
		same(t, a, b, c)

		// A restart replays what its log holds into a state that has it.
		if err := b.raft.Shutdown().Error(); err != nil {
			t.Fatal(err)
		}
		work(20)
		b.st.Close()
		b.open()
		b.snaps = newSnapshots(t, b.world)
		if rc, err := b.snaps.Pending(); rc != nil || err != nil {
			t.Fatalf("%v %v", rc, err)
		}
		b.start(t, false)
		same(t, a, b, c)

		// A state from elsewhere, with a much higher index.
		other := newWorld(t)
		other.index = 5000
		id := other.create(T(77), func(s *job.Spec) { s.Name = "from-elsewhere" })
		h, size, rc, err := Stream(other.st, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := a.raft.Restore(&raft.SnapshotMeta{Version: 1, Index: h.Index, Size: size}, rc, 0); err != nil {
			t.Fatal(err)
		}
		rc.Close()
		if o := a.propose(t, &Pause{Job: uint64(id)}).Items[0]; o.Code != CodeOK {
			t.Fatalf("%+v", o)
		}
		if s, _ := a.state(id); !s.Paused {
			t.Fatal("the entry after the restore was taken for an old one")
		}
		work(20)
		same(t, a, b, c)
		if n := len(a.fatal) + len(b.fatal) + len(c.fatal); n != 0 {
			t.Fatalf("%d fatal errors", n)
		}
	})
}
