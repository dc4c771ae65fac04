package membership

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

// Row is a member's row in this node's own state. Its maps are not to be changed.
func (m *Members) Row(id string) (store.Node, bool) {
	if m.o.Of != nil {
		return m.o.Of.Control.Row(id)
	}
	row, ok, err := m.kept.Row(id, func() (row store.Node, ok bool, err error) {
		err = m.o.Store.View(func(v *store.View) (err error) {
			row, ok, err = v.Node(id)
			return err
		})
		return row, ok, err
	})
	if err != nil && !errors.Is(err, store.ErrClosed) {
		m.log("row of a member not readable", "node", id, "error", err)
	}
	return row, ok
}

// Rows are all rows of living members, by id. Their maps are not to be changed.
func (m *Members) Rows() (map[string]store.Node, error) {
	if m.o.Of != nil {
		return m.groupRows()
	}
	return m.kept.All(func() (map[string]store.Node, error) {
		out := map[string]store.Node{}
		err := m.o.Store.View(func(v *store.View) error {
			return v.EachNode(func(r store.Node) {
				if !r.Removed {
					out[r.ID] = r
				}
			})
		})
		return out, err
	})
}

// Ref is what this node's worker says about its node.
func (m *Members) Ref() *job.NodeRef {
	c := m.Cluster()
	return &job.NodeRef{Cluster: c.ID, Epoch: c.Epoch, Recovery: c.Recovery, Instance: m.o.Instance,
		Address: m.address()}
}

// Alone says that the cluster has no other node.
func (m *Members) Alone() bool { return len(m.Configured()) == 1 }

// Others are the addresses of the other members.
func (m *Members) Others() (addrs []string) {
	for _, s := range m.Servers() {
		if replica.Node(s.ID) != m.id() {
			addrs = append(addrs, string(s.Address))
		}
	}
	return addrs
}

// Standing says whether the worker of a node may have a session with this leader, by the rules by which raft talks to
// that node: one that raft refuses would execute runs of a cluster that it is no part of. A leader has all rows, so
// that, unlike in a handshake, one that is missing is no excuse.
func (m *Members) Standing(worker string, n job.NodeRef) (leaving bool, err error) {
	if m.o.Of != nil {
		return m.o.Of.Control.Standing(worker, n)
	}
	if m.o.Trusting {
		return false, nil
	}
	its := lineage.Cluster{ID: n.Cluster, Epoch: n.Epoch, Recovery: n.Recovery}
	if why, remedy := lineage.Differ(m.id(), m.Cluster(), worker, its); why != "" {
		return false, notMember(remedy, "%s", why)
	}
	r, known := m.Row(worker)
	switch {
	case !known:
		return false, notMember("start it with --join", "node %s is not a member of the cluster", worker)
	case r.Instance != n.Instance:
		return false, notMember("run `carillon cluster remove "+worker+
			"`, empty its data directory and start it with --join",
			"node %s has another data directory than when it joined", worker)
	case r.Removed:
		return true, nil
	case r.Address != n.Address && m.Override(worker) != n.Address && worker != m.id():
		return false, notMember("if it moved, wait until the leader has learned that; if its data directory was "+
			"copied, stop the copy", "node %s is known at %s, but its worker calls from %s",
			worker, r.Address, n.Address)
	}
	return false, nil
}

func notMember(remedy, format string, args ...any) error {
	return job.Errorf(job.CodeForbidden, remedy, format, args...)
}

// common is the feature level that every server supports; 0 if one of them has not said yet.
func common(rows map[string]store.Node, servers []raft.Server) int {
	level := 0
	for i, s := range servers {
		r := rows[replica.Node(s.ID)] // without a row: 0
		if i == 0 || r.Level < level {
			level = r.Level
		}
	}
	return level
}

// raise commits the feature level that every member supports before anything else of a term is done: a new cluster has
// it from its first moment. What changes later is seen by settle.
func (m *Members) raise(prop forward.Proposer, term uint64) error {
	rows, err := m.Rows()
	if err != nil {
		return err
	}
	level := common(rows, m.Configured())
	if level <= m.o.Store.Info().Level {
		return nil
	}
	if _, err := prop.Propose(&fsm.SetLevel{Head: m.headBeforeStamp(term), Level: level}).Wait(); err != nil {
		return fmt.Errorf("raise the feature level: %w", err)
	}
	return nil
}

// old are the members that do not support a feature level, each with what it has. Who has not said yet, as in a
// cluster's first moments, may.
func (m *Members) old(level int) []string {
	rows, err := m.Rows()
	if err != nil {
		return nil
	}
	var out []string
	for _, s := range m.Configured() {
		id := replica.Node(s.ID)
		if r, ok := rows[id]; ok && r.Level < level {
			out = append(out, fmt.Sprintf("%s (version %s, level %d)", id, r.Version, r.Level))
		}
	}
	slices.Sort(out)
	return out
}

// Allows refuses to propose what a member might not understand.
func (m *Members) Allows(level int) error {
	committed := m.o.Store.Info().Level
	if level <= committed {
		return nil
	}
	old := m.old(level)
	if len(old) == 0 { // a new cluster, or the last one was replaced just now
		return job.Errorf(job.CodeNotReady, "try again in a moment",
			"this needs feature level %d, and the cluster stays at level %d until every member has reported that it "+
				"supports more", level, committed)
	}
	return job.Errorf(job.CodeState,
		"start them with the carillon that this node runs, or remove those that are gone for good (carillon cluster "+
			"remove); the level then rises automatically",
		"this needs feature level %d, and the cluster stays at level %d while "+
			"these members run an older version: %s", level,
		committed, strings.Join(old, ", "))
}
