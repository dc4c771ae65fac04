package membership

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// ReplicaOf is a node's replica of a group other than the control group. Which nodes have one, and under which number,
// is in the table of groups, which the control group has; who those nodes are, in its rows.
type ReplicaOf struct {
	Group   uint32
	GroupID string
	Number  uint64   // of this node's replica
	Control *Members // the same node's part in the control group
}

// group is the number of the group that this is about.
func (m *Members) group() uint32 {
	if m.o.Of == nil {
		return 0
	}
	return m.o.Of.Group
}

func (m *Members) groupID() string {
	if m.o.Of == nil {
		return ""
	}
	return m.o.Of.GroupID
}

// number is that of this node's replica.
func (m *Members) number() uint64 {
	if m.o.Of == nil {
		return replica.First
	}
	return m.o.Of.Number
}

// groupRows are the rows of the nodes that have a replica of the group.
func (m *Members) groupRows() (map[string]store.Node, error) {
	g, _, err := m.knownRow()
	if err != nil {
		return nil, err
	}
	all, err := m.o.Of.Control.Rows()
	if err != nil {
		return nil, err
	}
	out := map[string]store.Node{}
	for _, r := range g.Replicas {
		if n, ok := all[r.Node]; ok && (r.Instance == "" || r.Instance == n.Instance) {
			out[r.Node] = n
		}
	}
	return out, nil
}

// TakesPart says that this node's replica is one of its group, and is to stay that, as far as this node knows. One that
// the group went on without does not.
func (m *Members) TakesPart() bool {
	row, known, err := m.knownRow()
	id := replica.ID(m.id(), m.number())
	return err == nil && m.o.Standing.Own() == nil &&
		slices.ContainsFunc(m.Configured(), func(s raft.Server) bool { return s.ID == id }) &&
		(!known || slices.ContainsFunc(row.Replicas, func(r store.GroupReplica) bool {
			return r.Node == m.id() && r.Number == m.number() && !r.Leaving
		}))
}

// Begins says that a replica of this node is the first one of its group, and that the group is not there yet: no other
// one may begin it, or it would begin twice.
func (m *Members) Begins(r datadir.Replica) (bool, error) {
	row, ok, err := m.GroupRow(r.Group)
	return err == nil && ok && row.ID == r.GroupID && row.State == store.GroupPreparing && len(row.Replicas) == 1 &&
		row.Begin == m.id() && row.Replicas[0].Number == r.Number && r.Number == replica.First, err
}

// Placed are the replicas that the table of groups gives this node, and those of its own that are over: the table has
// had their numbers and has them no more, because their groups have confirmed that they go on without them. A node has
// one replica of a group at a time.
func (m *Members) Placed(has []datadir.Replica) (placed, over []datadir.Replica, err error) {
	rows, err := m.GroupRows()
	for _, row := range rows {
		own := func(number uint64) bool {
			return slices.ContainsFunc(row.Replicas, func(r store.GroupReplica) bool {
				return r.Node == m.id() && r.Number == number
			})
		}
		i := slices.IndexFunc(has, func(r datadir.Replica) bool {
			return r.Group == row.Number && r.GroupID == row.ID && row.Last >= r.Number && !own(r.Number)
		})
		if i >= 0 {
			over = append(over, has[i])
			continue
		}
		for _, r := range row.Replicas {
			if r.Node == m.id() && r.Instance == m.o.Instance && !r.Leaving {
				placed = append(placed, datadir.Replica{Group: row.Number, GroupID: row.ID, Number: r.Number})
			}
		}
	}
	return placed, over, err
}

// Having are the addresses of the other nodes that have a replica of a group.
func (m *Members) Having(group uint32) (addrs []string) {
	g, _, err := m.GroupRow(group)
	if err != nil {
		m.log("row of a group not readable", "group", group, "error", err)
	}
	for _, r := range g.Replicas {
		if a := m.where(r.Node); a != "" && r.Node != m.id() {
			addrs = append(addrs, string(a))
		}
	}
	return addrs
}

// checkReplica refuses a replica that was given up: it was emptied and has forgotten its votes. One with a number that
// this node has not heard of is newer than what it knows.
func (m *Members) checkReplica(h transport.Hello) error {
	if m.o.Of == nil || mutant.On(mutant.RevivedReplica) {
		return nil
	}
	g, known, err := m.knownRow()
	if err != nil || !known || h.Replica > g.Last {
		return err
	}
	if !slices.ContainsFunc(g.Replicas, func(r store.GroupReplica) bool {
		return r.Node == h.NodeID && r.Number == h.Replica
	}) {
		return fmt.Errorf("replica %d of group %d is not, or no longer, on node %s: it was moved or removed",
			h.Replica, h.Group, h.NodeID)
	}
	return nil
}

// groupParam names the group that a probe is about.
const groupParam = "group"

func (m *Members) query() string { return groupQuery(m.group()) }

func groupQuery(group uint32) string {
	if group == 0 {
		return ""
	}
	return "?" + groupParam + "=" + strconv.FormatUint(uint64(group), 10)
}

// LeaderOf asks the other nodes that have a replica of a group which of them leads it; empty: none says that it does.
func (m *Members) LeaderOf(ctx context.Context, group uint32) (id, addr string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	addrs := m.Having(group)
	type answer struct{ id, addr string }
	answers := make(chan answer, len(addrs))
	for _, a := range addrs {
		go func() {
			s, err := m.probeBy(ctx, m.http.Transport, a+PeerPath+groupQuery(group), 0, nil)
			if err != nil || s.State != StateName(raft.Leader) {
				answers <- answer{}
				return
			}
			answers <- answer{s.NodeID, a}
		}()
	}
	for range addrs {
		if a := <-answers; a.id != "" {
			return a.id, a.addr
		}
	}
	return "", ""
}

// GroupOf is the group that a probe asks about.
func GroupOf(r *http.Request) (uint32, error) {
	text := r.URL.Query().Get(groupParam)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}
