package membership

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/placement"
	"github.com/carillon-scheduler/carillon/store"
)

// This file is how the leader of a group of jobs has its replicas be those that the table of groups says.
//
// The table is in the control group, and a leader sees it as its own node's replica of that has it, which may be old.
// So it copies the group's row into the group's own log first, where an older one never takes the place of a newer one,
// and changes raft's configuration by that copy alone.

// tableRow is the group's row in the table of groups, as this node knows it, as the copy of one.
func (m *Members) tableRow() (store.GroupRow, bool, error) {
	row, ok, err := m.o.Of.Control.GroupRow(m.o.Of.Group)
	if row.ID != m.o.Of.GroupID {
		return store.GroupRow{}, false, err
	}
	row.Epoch = m.o.Of.Control.o.Store.Info().Epoch
	return row, ok, err
}

// knownRow is the newest row of the group that this node knows: of the table, or the copy in the group's log.
func (m *Members) knownRow() (store.GroupRow, bool, error) {
	row, ok, err := m.tableRow()
	if own := m.o.Store.Info().Row; err == nil && own.Number != 0 && (!ok || own.Newer(&row)) {
		return own, true, nil
	}
	return row, ok, err
}

// obeyed is the row that the configuration is changed by, copied from the table if that has a newer one. Number 0: none
// is known.
func (m *Members) obeyed(ctx context.Context, e *forward.Epoch) (row store.GroupRow, err error) {
	row, ok, err := m.tableRow()
	own := m.o.Store.Info().Row
	if err != nil || !ok || !row.Newer(&own) {
		return own, err
	}
	o, err := m.propose(ctx, e, &fsm.PutGroup{Head: m.head(e), Row: row, Version: row.Version})
	if err == nil && o.Code != fsm.CodeOK && o.Code != fsm.CodeConflict {
		err = fmt.Errorf("row of the group not copied: %s (%d)", o.Text, o.Code)
	}
	return m.o.Store.Info().Row, err
}

// settleGroup makes one step towards the replicas that the group is to have, and says whether the next one may follow
// at once. One change at a time: a replica is added without a vote, votes once it has caught up, and those that leave
// go when all that stay vote.
func (m *Members) settleGroup(ctx context.Context, e *forward.Epoch) (more bool, err error) {
	row, err := m.obeyed(ctx, e)
	if err != nil || row.Number == 0 {
		return false, err
	}
	nodes, err := m.o.Of.Control.Rows()
	if err != nil {
		return false, err
	}
	servers := m.Configured()
	all, voters := true, 0 // those that are to stay vote
	for _, r := range row.Replicas {
		if r.Leaving {
			continue
		}
		n, known := nodes[r.Node]
		id := replica.ID(r.Node, r.Number)
		s, in := FindServer(servers, r.Node)
		votes := in && s.ID == id && s.Suffrage == raft.Voter
		if votes {
			voters++
		}
		switch {
		case !known || r.Instance != "" && r.Instance != n.Instance:
			// It joined since this node last heard of the control group, or it is gone, and the table will say by what
			// it is replaced. No other one goes for its sake before.
			all = all && votes
		case !in:
			m.forget(r.Node)
			return true, m.add(ctx, id, n.Address)
		case s.ID != id: // an earlier replica of the node, which goes first
			all = false
		case r.Node == m.id() && string(s.Address) != n.Address:
			return true, m.reconfigure(ctx, func(rf *raft.Raft) raft.Future {
				return rf.AddVoter(s.ID, raft.ServerAddress(n.Address), 0, m.o.ApplyTimeout)
			})
		case s.Suffrage != raft.Voter && !n.Standby && m.keepsUp(r.Node):
			m.o.Logger.Info("replica caught up; it votes from now on", "node", r.Node, "replica", r.Number)
			return true, m.reconfigure(ctx, func(rf *raft.Raft) raft.Future {
				return rf.AddVoter(s.ID, s.Address, 0, m.o.ApplyTimeout)
			})
		case s.Suffrage == raft.Voter && n.Standby && r.Node != m.id() && m.quorumWithout(servers, r.Node) == nil:
			return true, m.demote(ctx, s)
		case s.Suffrage != raft.Voter && !n.Standby:
			all = false
		}
	}
	if more, err := m.dropLeaving(ctx, e, &row, servers, all && voters > 0); more || err != nil {
		return more, err
	}
	return false, m.raiseLevel(ctx, e, servers)
}

// forget drops what is known of a node: it is about to have another replica than the one that was asked.
func (m *Members) forget(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.peers, node)
}

// dropLeaving takes one replica out of the configuration that is to leave, and tells the control group of one that is
// out. all says that those that stay vote.
func (m *Members) dropLeaving(ctx context.Context, e *forward.Epoch, row *store.GroupRow, servers []raft.Server,
	all bool) (more bool, err error) {
	for _, s := range servers {
		id := replica.Node(s.ID)
		i := slices.IndexFunc(row.Replicas, func(r store.GroupReplica) bool {
			return replica.ID(r.Node, r.Number) == s.ID
		})
		if i >= 0 && !row.Replicas[i].Leaving || i < 0 && replica.Number(s.ID) > row.Last {
			continue
		}
		if s.Suffrage == raft.Voter && (!all || m.quorumWithout(servers, id) != nil) {
			continue
		}
		if id == m.id() {
			return false, m.handOff(ctx, e, row)
		}
		m.o.Logger.Info("taking a replica out of its group", "node", id, "replica", replica.Number(s.ID))
		return true, m.reconfigure(ctx, func(rf *raft.Raft) raft.Future {
			return rf.RemoveServer(s.ID, 0, m.o.ApplyTimeout)
		})
	}
	for _, r := range row.Replicas {
		out := !slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == replica.ID(r.Node, r.Number) })
		if r.Leaving && out {
			return false, m.confirmGone(ctx, row, r) // the next row will not have it
		}
	}
	return false, nil
}

// handOff hands the leadership of a group to a replica that stays: this node's is to leave.
func (m *Members) handOff(ctx context.Context, e *forward.Epoch, row *store.GroupRow) error {
	m.mu.Lock()
	wait := time.Now().Before(m.handover.notUntil)
	m.mu.Unlock()
	to := m.successor()
	if to == "" { // none whose clock is known; any that stays will do
		to = placement.Leader(row)
	}
	if wait || to == "" || to == m.id() {
		return nil
	}
	m.o.Logger.Info("handing over the leadership of the group; this replica leaves it", "to", to)
	m.StampBeforeTransfer(ctx, e)
	err := m.transfer(ctx, to, handoverTries)
	if err != nil {
		m.mu.Lock()
		m.handover.notUntil = time.Now().Add(handoverPause)
		m.mu.Unlock()
	}
	return err
}

// leaving are the nodes that are not to be given the leadership: their replicas go, or they do.
func (m *Members) leaving() map[string]bool {
	out := map[string]bool{}
	if m.o.Of == nil {
		rows, _ := m.Rows() //nolint:errcheck // those of which nothing is known are not leaving
		for id, r := range rows {
			out[id] = r.Leaving
		}
		return out
	}
	row, _, _ := m.knownRow() //nolint:errcheck // as above
	for _, r := range row.Replicas {
		out[r.Node] = r.Leaving
	}
	return out
}

// gone is what the leader of a group says of a replica that is out of its configuration.
type gone struct {
	Group   uint32 `json:"group"`
	GroupID string `json:"group_id"`
	Node    string `json:"node"`
	Replica uint64 `json:"replica"`
	Epoch   uint64 `json:"epoch"`   // of the row that was obeyed
	Version uint64 `json:"version"` // as well
}

// confirmGone tells the control group's leader that a replica is out of its group: the change was committed. It may be
// repeated. The row that was obeyed is named, because a later one may have brought the replica back.
func (m *Members) confirmGone(ctx context.Context, row *store.GroupRow, r store.GroupReplica) error {
	// What raft calls the latest configuration may not be committed yet. An entry after it is, only if it is.
	if m.Barrier(ctx) != nil {
		return forward.ErrNoLeader()
	}
	control := m.o.Of.Control
	what := gone{Group: row.Number, GroupID: row.ID, Node: r.Node, Replica: r.Number, Epoch: row.Epoch,
		Version: row.Version}
	if control.o.Tracker.Epoch() != nil {
		return control.replicaGone(ctx, what)
	}
	addr := control.o.Tracker.Addr()
	if addr == "" {
		return nil // it is told when there is one
	}
	return control.post(ctx, addr, ReplicaGonePath, what)
}

// replicaGone takes a replica out of the table that its group has taken out of its configuration.
func (m *Members) replicaGone(ctx context.Context, g gone) error {
	e, err := m.o.Tracker.Leading()
	if err != nil {
		return err
	}
	row, known, err := m.GroupRow(g.Group)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(row.Replicas, func(r store.GroupReplica) bool {
		return r.Node == g.Node && r.Number == g.Replica && r.Leaving
	})
	if !known || row.ID != g.GroupID || row.Version != g.Version || m.o.Store.Info().Epoch != g.Epoch || i < 0 {
		return nil // it was done, or the table says something else by now, which the group will hear of
	}
	row.Replicas = slices.Delete(slices.Clone(row.Replicas), i, i+1)
	o, err := m.propose(ctx, e, &fsm.PutGroup{Head: m.head(e), Row: row, Version: row.Version})
	if err == nil && o.Code != fsm.CodeOK && o.Code != fsm.CodeConflict {
		err = job.Errorf(job.CodeState, "", "%s (%d)", o.Text, o.Code)
	}
	if err == nil {
		m.o.Logger.Info("replica left its group", "group", g.Group, "node", g.Node, "replica", g.Replica)
	}
	return err
}
