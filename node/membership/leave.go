package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// A node that has replicas of groups is removed in steps. Its row says that it is to leave; the table of groups gives
// its replicas to other nodes; each group brings that about and confirms it; then it is removed as one without replicas
// is. Each step is in the log before the next one, so that any leader goes on with it.

// ReplicaGonePath is where the leader of a group tells that of the control group that a replica is out of it.
const ReplicaGonePath = "/internal/v1/replica-gone"

// replicasOf are the rows of the groups that a node has a replica of, also of one that is about to go.
func (m *Members) replicasOf(node string) ([]store.GroupRow, error) {
	rows, err := m.GroupRows()
	return slices.DeleteFunc(rows, func(g store.GroupRow) bool {
		return !slices.ContainsFunc(g.Replicas, func(r store.GroupReplica) bool { return r.Node == node })
	}), err
}

func numbersOf(rows []store.GroupRow) (numbers []uint32) {
	for _, g := range rows {
		numbers = append(numbers, g.Number)
	}
	return numbers
}

// canLeave refuses to have a node go without which groups would have no majority, now or when its replicas are replaced
// by what there is.
func (m *Members) canLeave(id string, has []store.GroupRow) error {
	rows, err := m.GroupRows()
	if err != nil {
		return err
	}
	p, err := m.placing(rows)
	if err != nil {
		return err
	}
	m.mu.Lock()
	answers := func(node string) bool {
		peer := m.peers[node]
		return node == m.id() || peer != nil && peer.problem == ""
	}
	var stuck []uint32
	for i := range has {
		g := &has[i]
		living, left, livingLeft := 0, 0, 0
		for _, r := range g.Replicas {
			if answers(r.Node) {
				living++
			}
			if r.Node == id || r.Leaving {
				continue
			}
			if left++; answers(r.Node) {
				livingLeft++
			}
		}
		if _, ok := p.Another(g, id); ok {
			left, livingLeft = left+1, livingLeft+1
		}
		if living*2 <= len(g.Replicas) || livingLeft*2 <= left {
			stuck = append(stuck, g.Number)
		}
	}
	m.mu.Unlock()
	if len(stuck) == 0 {
		return nil
	}
	return job.Errorf(job.CodeState, "first bring back the other nodes that have replicas of them; `carillon "+
		"status` shows which", "without node %s there would be no majority left of %s", id, job.GroupNames(stuck...))
}

// setLeaving writes into a member's row that it is to leave. What it says of itself later does not change that.
func (m *Members) setLeaving(ctx context.Context, e *forward.Epoch, h fsm.Head, row store.Node) error {
	if row.ID == "" || row.Removed {
		return job.Errorf(job.CodeState, "wait until it has announced itself", "the node has no row yet")
	}
	row.Leaving = true
	return m.putRow(ctx, e, h, row, "")
}

// Remove implements api.Cluster.
func (m *Members) Remove(ctx context.Context, id string) (left wire.Removal, err error) {
	left.NodeID = id
	err = m.on(ctx, id, func(t subject) error {
		// One whose row is marked was removed by an earlier try: to refuse the repeat would say that it was not.
		if err := m.quorumWithout(t.servers, id); err != nil && !t.row.Removed {
			return err
		}
		has, err := m.replicasOf(id)
		if err != nil {
			return err
		}
		if len(has) > 0 && !t.row.Removed {
			left.Groups = numbersOf(has)
			if t.row.Leaving {
				return nil
			}
			if err := m.canLeave(id, has); err != nil {
				return err
			}
			m.o.Logger.Info("removing a member, as requested", event.MemberLeaving, "node", id, "groups", left.Groups)
			return m.setLeaving(ctx, t.e, m.asked(ctx, t.e), t.row)
		}
		if id == m.id() {
			return m.handOver(ctx, verbRemove)
		}
		return m.drop(ctx, t.e, id)
	})
	if r, ok := m.Row(id); ok && r.Removed && job.CodeOf(err) == job.CodeNotFound {
		err = nil // done before
	}
	left.Removed = err == nil && len(left.Groups) == 0
	return left, err
}

// removeLeaving removes a member that was to leave and has no replica any more, and says whether it did something.
func (m *Members) removeLeaving(ctx context.Context, e *forward.Epoch, rows map[string]store.Node,
	servers []raft.Server) (bool, error) {
	for id, r := range rows {
		if !r.Leaving || m.quorumWithout(servers, id) != nil {
			continue
		}
		if has, err := m.replicasOf(id); err != nil || len(has) > 0 {
			continue
		}
		if id == m.id() { // the next leader does it
			m.StampBeforeTransfer(ctx, e)
			return true, m.transfer(ctx, m.successor(), handoverTries)
		}
		return true, m.drop(ctx, e, id)
	}
	return false, nil
}

// ServeReplicaGone hears from the leader of a group that a replica is out of it.
func (m *Members) ServeReplicaGone(w http.ResponseWriter, r *http.Request) {
	var g gone
	if !readInternal(w, r, &g) {
		return
	}
	if err := m.replicaGone(r.Context(), g); err != nil {
		api.WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// post tells another node something; on a secure cluster by this node's certificate.
func (m *Members) post(ctx context.Context, addr, path string, what any) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	body, err := json.Marshal(what)
	if err != nil {
		return err
	}
	rq, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	rq.Header.Set(forward.HeaderForwarded, m.id())
	rq.Header.Set("Content-Type", wire.MediaJSON)
	resp, err := m.http.Do(rq)
	if err != nil {
		return transport.Plainly(err, whoTimeout)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, MaxMessage))
	if err == nil && resp.StatusCode >= 300 {
		err = errors.New(resp.Status + ": " + string(text))
	}
	return err
}
