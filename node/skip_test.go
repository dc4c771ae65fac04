package node

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/node/datadir"
)

// fatals are the errors with which nodes wanted to end their process.
type fatals struct {
	mu   sync.Mutex
	errs []string
}

func (f *fatals) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err.Error())
}

func (f *fatals) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.errs)
}

// An entry that no node can read is committed. Every node stops at it and says how to get out of it; told to pass over
// it, all come back with the same state.
func TestAnEntryThatCannotBeApplied(t *testing.T) {
	realTime(t)
	t.Parallel()
	var ends fatals
	c := startJoined(t, 3, func(cfg *Config) { cfg.Fatal, cfg.Executors = ends.add, nil })
	lead := c.leader()
	lead.create(unclaimedJob("before"))
	c.sameState()
	index := c.commit([]byte{200, 1, 0x80}, func() bool { return len(ends.all()) > 0 })
	lead.eventually("all have stopped", func() bool { return len(ends.all()) >= 3 })
	for _, text := range ends.all() {
		for _, want := range []string{"entry", "cannot be applied", "unknown command", "newer carillon",
			"every one of them", "carillon cluster recover --data-dir", "--skip"} {
			if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
				t.Errorf("%q is not in %q", want, text)
			}
		}
	}
	c.stopAll()

	// Starting again does not help.
	n := len(ends.all())
	for _, m := range c.members {
		m.link = &link{}
		m.open(t)
	}
	lead.eventually("they stop again", func() bool { return len(ends.all()) >= n+2 }) // a majority commits it again
	c.stopAll()

	for _, m := range c.members {
		dir := m.cfg.DataDir
		for name, wrong := range map[string]uint64{"in the state already": 2, "has no entry": index + 1000,
			"is not a command": 1} {
			was := contents(t, dir)
			if _, err := datadir.Skip(dir, wrong, quiet); err == nil {
				t.Errorf("%s: entry %d can be passed over", name, wrong)
			}
			now := contents(t, dir)
			for path := range was {
				if strings.HasSuffix(path, datadir.NodeFile) && was[path] != now[path] {
					t.Errorf("%s changed %s", name, path)
				}
			}
		}
		var log bytes.Buffer
		r, err := datadir.Skip(dir, index, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || r.NodeID != m.id() || r.Index != index || r.Term == 0 || r.At == 0 ||
			!strings.Contains(r.What, "unknown command") || !strings.Contains(log.String(), "every other node") {
			t.Fatalf("%+v %v %s", r, err, log.String())
		}
		if _, err := datadir.Skip(dir, index, quiet); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("%v", err)
		}
	}
	var log syncBuffer
	for _, m := range c.members {
		m.cfg.Fatal = func(err error) { t.Errorf("fatal: %v", err) }
		m.cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
		m.link = &link{}
		m.open(t)
	}
	c.awaitVoters(3)
	c.leader().get("before")
	c.leader().create(unclaimedJob("after"))
	c.sameState()
	if n := strings.Count(log.String(), "node skips a log entry"); n != 3 {
		t.Errorf("said %d times: %s", n, log.String())
	}
	for _, m := range c.members {
		if s := m.status("?stale=true"); len(s.Skipped) != 1 || s.Skipped[0].Index != index || s.Skipped[0].At == 0 {
			t.Errorf("%+v", s.Skipped)
		}
	}

	// One that joins now is told nothing, and nothing is wrong with it; if the log still has the entry, it stops as the
	// others did. One that was told otherwise shows.
	odd := c.others(c.leader())[0]
	odd.stop()
	d, err := datadir.Open(odd.cfg.DataDir, odd.id(), "test")
	if err != nil {
		t.Fatal(err)
	}
	d.Skips = nil
	if err := d.Save(); err != nil {
		t.Fatal(err)
	}
	odd.restart()
	odd.eventually("the leader says so", func() bool {
		for _, m := range c.leader().status("").Members {
			if m.ID == odd.id() {
				return strings.Contains(m.Problem, "skip entry")
			}
		}
		return false
	})
}

// commit puts an entry into the log and says where it is; ended says that a node met it. A busy machine may elect
// another leader before it is committed: it is put there again once that one leads without having met it.
func (c *cluster) commit(entry []byte, ended func() bool) (index uint64) {
	c.t.Helper()
	for index == 0 {
		lead := c.leader()
		term := lead.group.raft.CurrentTerm()
		f := lead.group.raft.Apply(entry, time.Minute)
		switch err := f.Error(); {
		case errors.Is(err, raft.ErrNotLeader):
		case errors.Is(err, raft.ErrLeadershipLost):
			lead.eventually("the entry is met, or another leads", func() bool {
				if ended() {
					index = f.Index()
				}
				return index != 0 || slices.ContainsFunc(c.members, func(m *member) bool {
					return m.leads() && m.group.raft.CurrentTerm() > term
				})
			})
		default: // committed: the state machine is broken now
			index = f.Index()
		}
	}
	return index
}

// syncBuffer is a buffer for several writers.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
