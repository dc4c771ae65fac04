package node

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// An entry that cannot be applied stops every node that gets to it: a bug, or damage that raft did not see. Nothing else can be done with it
// than to pass over it, on every node, or their states differ from there on. So it is an order that is given by hand to each data
// directory, names the entry as that directory has it, is kept there with its time, is said at every start, and shows in status; and the
// leader looks whether all members were told the same.

// stuck adds the way out to the error of an entry that cannot be applied.
func stuck(d *dataDir, fatal func(error)) func(error) {
	return func(err error) {
		var entry *fsm.EntryError
		if !errors.As(err, &entry) {
			fatal(err)
			return
		}
		var unknown *fsm.UnknownCommandError
		way := "start this node with a newer carillon if there is one: it may know better"
		if errors.As(err, &unknown) {
			way = "a newer carillon wrote it: start this node with that one"
		}
		fatal(fmt.Errorf("%w; %s. If nothing else helps, stop all nodes, and pass over the entry on every one of them, or their states will differ: carillon cluster recover --data-dir %s --skip %d",
			err, way, d.path, entry.Index))
	}
}

// skips are the entries to pass over. It is said at every start, for ever: a state that lacks an entry is not what the log says.
func (d *dataDir) skips(log *slog.Logger, st *store.Store) map[uint64]uint64 {
	out := map[uint64]uint64{}
	applied := st.Counters().Index
	for _, s := range d.Skips {
		out[s.Index] = s.Term
		log.Error("THIS NODE PASSES OVER AN ENTRY OF THE LOG, as it was told to; every node of the cluster must", "index", s.Index, "term", s.Term,
			"told_at", s.At.String(), "done", applied >= s.Index)
	}
	return out
}

// Skipped says what Skip did.
type Skipped struct {
	NodeID string
	client.SkippedEntry
	What string // the entry as far as it can be read
}

// Skip has a node that is not running pass over an entry of its log from its next start on.
func Skip(dir string, index uint64, log *slog.Logger) (r Skipped, err error) {
	cfg := Config{DataDir: dir, Logger: log}
	cfg.defaults()
	d, lock, err := openStopped(dir, cfg.Store.LockTimeout, (*dataDir).recoverable)
	if err != nil {
		return r, err
	}
	defer lock.Close()
	r.NodeID = d.NodeID
	g, err := openGroup(&cfg, d, newMeters(nil))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.closeFiles()) }()
	if slices.ContainsFunc(d.Skips, func(s client.SkippedEntry) bool { return s.Index == index }) {
		return r, fmt.Errorf("node %s passes over entry %d already; start it", d.NodeID, index)
	}
	applied, _ := g.fsm.Applied()
	if index <= applied {
		return r, fmt.Errorf("entry %d is in the state of node %s already, which is at entry %d: it cannot be passed over any more; if other nodes pass over it, empty this data directory and let the node join again", index, d.NodeID, applied)
	}
	var l raft.Log
	switch err := g.logs.GetLog(index, &l); {
	case errors.Is(err, raft.ErrLogNotFound):
		return r, fmt.Errorf("the log of node %s has no entry %d yet: start it with the others; if it stops at that entry, repeat this", d.NodeID, index)
	case err != nil:
		return r, fmt.Errorf("entry %d: %w", index, err)
	case l.Type != raft.LogCommand:
		return r, fmt.Errorf("entry %d is not a command (%s) and changes no state: there is nothing to pass over", index, l.Type)
	}
	if cmd, err := fsm.Decode(l.Data); err == nil {
		r.What = fmt.Sprintf("%T", cmd)
	} else {
		r.What = err.Error()
	}
	r.SkippedEntry = client.SkippedEntry{Index: index, Term: l.Term, At: job.At(time.Now())}
	d.Skips = append(d.Skips, r.SkippedEntry)
	if err := d.write(d.identity); err != nil {
		return r, err
	}
	log.Error("AN ENTRY OF THE LOG WILL BE PASSED OVER; do the same on every other node before it is started", "node", d.NodeID, "index", index, "term", l.Term, "entry", r.What)
	return r, nil
}

// differs says how a member is not like this node in what must be the same everywhere: the entries that both have got to and only one
// passed over. One that joined after the other was told got the state as a whole, without the entry.
func (m *members) differs(o *sighting, its, own store.Node) string {
	got := min(m.g.store.Counters().Index, o.Applied)
	lacks := func(told, other []client.SkippedEntry, joined int64) (uint64, bool) {
		for _, s := range told {
			if s.Index <= got && joined <= int64(s.At) && !slices.ContainsFunc(other, func(x client.SkippedEntry) bool { return x.Index == s.Index }) {
				return s.Index, true
			}
		}
		return 0, false
	}
	if i, yes := lacks(m.n.dir.Skips, o.Skips, its.JoinedAt); yes {
		return fmt.Sprintf("it was not told to pass over entry %d as this node was, and its state differs: empty its data directory and let it join again", i)
	}
	if i, yes := lacks(o.Skips, m.n.dir.Skips, own.JoinedAt); yes {
		return fmt.Sprintf("it passed over entry %d and this node did not, so their states differ: empty the data directory of one and let it join again", i)
	}
	return ""
}
