package membership

import (
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
)

// Ref is what this node's worker says about its node.
func (m *Members) Ref() *job.NodeRef {
	id, epoch := m.Cluster()
	return &job.NodeRef{Cluster: id, Epoch: epoch, Instance: m.o.Instance, Address: m.address()}
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
	if m.o.Trusting {
		return false, nil
	}
	id, epoch := m.Cluster()
	r, known := m.Row(worker)
	switch {
	case n.Cluster != id:
		return false, notMember("look at --join and at the addresses", "node %s is in cluster %q and not in %s", worker,
			n.Cluster, id)
	case n.Epoch != epoch:
		return false, notMember("empty its data directory and let it join again",
			"the cluster was recovered or restored (epoch %d) and node %s was not part of that (epoch %d)", epoch, worker, n.Epoch)
	case !known:
		return false, notMember("start it with --join", "node %s is no member of the cluster", worker)
	case r.Instance != n.Instance:
		return false, notMember("run `carillon cluster remove "+worker+"`, empty its data directory and start it with --join", "node %s has another data directory than the one that joined", worker)
	case r.Removed:
		return true, nil
	case r.Address != n.Address && m.Override(worker) != n.Address && worker != m.id():
		return false, notMember("if it moved, wait until the leader has learned that; if its data directory was copied, stop the copy",
			"node %s is known at %s and its worker at %s", worker, r.Address, n.Address)
	}
	return false, nil
}

func notMember(remedy, format string, args ...any) error {
	return job.Errorf(job.CodeForbidden, remedy, format, args...)
}
