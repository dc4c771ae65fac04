package membership

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/placement"
	"github.com/carillon-scheduler/carillon/store"
)

// moveTries is how often a move is written anew because another change of the row came first.
const moveTries = 5

// MoveGroup implements api.Cluster. It writes where a group is to be, and says how far that is; who asks again is told
// how far it is by then. Another one while it goes on takes its place: all replicas that the row still has are whole.
func (m *Members) MoveGroup(ctx context.Context, rq wire.MoveGroupRequest) (wire.GroupMove, error) {
	var none wire.GroupMove
	e, err := m.o.Tracker.Leading()
	if err != nil {
		return none, err
	}
	to := slices.Compact(slices.Sorted(slices.Values(rq.To)))
	switch {
	case rq.Group == 0:
		return none, job.Invalid("group", "name another group; `carillon status` lists them",
			"group 0 has a replica on every node and cannot be moved")
	case len(to) != len(rq.To):
		return none, job.Invalid("to", "name each node once", "a node is named twice")
	case len(to) == 0 || len(to) > placement.MaxReplicas:
		return none, job.Invalid("to", "name one to three nodes", "a group has one to %d replicas, not %d",
			placement.MaxReplicas, len(to))
	}
	if err := m.lock(ctx); err != nil {
		return none, err
	}
	defer m.unlock()
	m.probeAll(ctx, e)
	recorded := false
	for range moveTries {
		row, known, err := m.GroupRow(rq.Group)
		switch {
		case err != nil:
			return none, err
		case !known:
			return none, job.Errorf(job.CodeNotFound, "`carillon status` lists them", "the cluster has no group %d",
				rq.Group)
		case row.State != store.GroupActive:
			return none, job.Errorf(job.CodeState, "try again when the group takes jobs",
				"group %d is being created", rq.Group)
		case slices.Equal(staying(&row), to) && row.Size == len(to):
			return m.moved(ctx, &row), nil
		}
		next, err := m.moveTo(row, to)
		if err != nil {
			return none, err
		}
		if !recorded {
			if err := m.recordFirst(ctx, e, "cluster.move-group", strconv.Itoa(int(rq.Group))); err != nil {
				return none, err
			}
			recorded = true
		}
		o, err := m.propose(ctx, e, &fsm.PutGroup{Head: m.head(e), Row: next, Version: row.Version})
		switch {
		case err != nil:
			return none, err
		case o.Code == fsm.CodeOK:
			m.o.Logger.Info("moving a group, as requested", "group", rq.Group, "to", to)
			return m.moved(ctx, &next), nil
		case o.Code != fsm.CodeConflict:
			return none, job.Errorf(job.CodeState, "", "%s (%d)", o.Text, o.Code)
		}
	}
	return none, job.Errorf(job.CodeUnavailable, "try again", "the row of group %d changed meanwhile", rq.Group)
}

// staying are the nodes whose replicas of a group stay, by id.
func staying(row *store.GroupRow) (nodes []string) {
	for _, r := range row.Replicas {
		if !r.Leaving {
			nodes = append(nodes, r.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// moveTo is the row of a group that is to be on other nodes. A replica that was to leave and is in the row has all that
// it had, and may stay: its node gives it up only when the row no longer has it.
func (m *Members) moveTo(row store.GroupRow, to []string) (store.GroupRow, error) {
	nodes, err := m.Rows()
	if err != nil {
		return row, err
	}
	row.Replicas = slices.Clone(row.Replicas)
	for _, id := range to {
		if err := m.takes(id, nodes); err != nil {
			return row, err
		}
		i := slices.IndexFunc(row.Replicas, func(r store.GroupReplica) bool { return r.Node == id })
		switch {
		case i >= 0 && row.Replicas[i].Instance != "" && row.Replicas[i].Instance != nodes[id].Instance:
			return row, job.Errorf(job.CodeState, "try again in a moment",
				"node %s had a replica of group %d in another data directory, and that replica is still being "+
					"removed", id, row.Number)
		case i < 0:
			row.Last++
			row.Replicas = append(row.Replicas, store.GroupReplica{Node: id, Number: row.Last,
				Instance: nodes[id].Instance})
		}
	}
	for i := range row.Replicas {
		row.Replicas[i].Leaving = !slices.Contains(to, row.Replicas[i].Node)
	}
	row.Size = len(to)
	return row, nil
}

// takes refuses a node that cannot be given a replica.
func (m *Members) takes(id string, nodes map[string]store.Node) error {
	n, known := nodes[id]
	s, in := FindServer(m.Configured(), id)
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[id]
	low := id == m.id() && m.o.Disk().Low || p != nil && p.seen.Disk.Low
	switch {
	case !known || !in:
		return job.Invalid("to", "`carillon cluster members` lists them", "the cluster has no node %q", id)
	case n.Leaving:
		return job.Errorf(job.CodeState, "name another node", "node %s is being removed", id)
	case s.Suffrage != raft.Voter:
		return job.Errorf(job.CodeState, "promote it first, or wait until it has caught up", "node %s has no vote", id)
	case id != m.id() && (p == nil || p.problem != ""):
		return job.Errorf(job.CodeState, "bring it back first, or name another node", "node %s does not answer", id)
	case low:
		return job.Errorf(job.CodeState, "make room there, or name another node",
			"the disk of node %s is almost full", id)
	}
	return nil
}

// moved is how far a group is from where it is to be.
func (m *Members) moved(ctx context.Context, row *store.GroupRow) wire.GroupMove {
	out := wire.GroupMove{Group: row.Number, To: staying(row)}
	voters := m.votersOf(ctx, row)
	for _, r := range row.Replicas {
		switch votes := slices.Contains(voters, r.Node); {
		case r.Leaving:
			out.Leaving = append(out.Leaving, r.Node)
		case votes:
			out.Voting = append(out.Voting, r.Node)
		default:
			out.Adding = append(out.Adding, r.Node)
		}
	}
	if len(voters) == 0 {
		out.Problem = "the group has no leader"
	}
	out.Done = len(out.Leaving) == 0 && len(out.Adding) == 0
	return out
}

// votersOf are the nodes whose replicas of a group vote, as its leader says; none: no node says that it leads it.
func (m *Members) votersOf(ctx context.Context, row *store.GroupRow) (voters []string) {
	var mu sync.Mutex
	var all sync.WaitGroup
	term := uint64(0)
	for _, r := range row.Replicas {
		addr := string(m.where(r.Node))
		if addr == "" {
			continue
		}
		all.Go(func() {
			s, err := m.probeBy(ctx, m.http.Transport, addr+PeerPath+groupQuery(row.Number), 0, nil)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && s.State == StateName(raft.Leader) && s.Term >= term {
				voters, term = s.Voters, s.Term
			}
		})
	}
	all.Wait()
	return voters
}
