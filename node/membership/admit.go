package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/transport"
)

// Join implements api.Cluster: the leader's side. The row is committed first, then the server is added: a server
// without a row could not be told from a stranger. Who says to be a member is refused: that is not for a route that
// anybody may call and that nodes pass on (announce.go).
func (m *Members) Join(ctx context.Context, rq wire.JoinRequest) (wire.JoinReply, error) {
	var none wire.JoinReply
	if rq.Member {
		return none, job.Errorf(job.CodeForbidden, "start it with the carillon that the leader runs",
			"node %s says that it is a member, but members tell the leader that over a connection of their own",
			rq.NodeID)
	}
	if rq.InstanceID == m.o.Instance {
		return none, job.Errorf(job.CodeState, "give --join the address of another node", "this is node %s itself",
			m.id())
	}
	if _, err := m.o.Tracker.Leading(); err != nil {
		return none, err
	}
	by, err := m.authenticate(rq)
	if err != nil {
		return none, err
	}
	key := ""
	if by != nil {
		key = by.key.String()
	}
	return m.admit(ctx, rq, by, key, false)
}

// admit makes a node a member, or the row of one true. by is nil for members, and on a plain cluster; key is the hash
// of the key that the node has shown.
func (m *Members) admit(ctx context.Context, rq wire.JoinRequest, by *admission, key string,
	member bool) (wire.JoinReply, error) {
	var none wire.JoinReply
	e, err := m.o.Tracker.Leading()
	if err != nil {
		return none, err
	}
	if err := m.admissible(rq); err != nil {
		return none, err
	}
	if err := m.lock(ctx); err != nil {
		return none, err
	}
	defer m.unlock()
	old, known := m.Row(rq.NodeID)
	servers := m.Configured()
	_, in := FindServer(servers, rq.NodeID)
	switch {
	case member && (known && (old.Removed || old.Instance != rq.InstanceID) || !known && !in):
		// A leader that was replaced without knowing it must not say this: the node that hears it stops to take part.
		if err := e.Proposer.VerifyLeader(ctx); err != nil {
			return none, forward.ErrNoLeader()
		}
		return none, errNoMember
	case member && known && m.o.Keys != nil && old.Key != "" && old.Key != key:
		return none, job.Errorf(job.CodeForbidden,
			"put its keys back, or remove the node, empty its data directory and let it rejoin",
			"node %s uses another key than the one that its data directory joined with", rq.NodeID)
	case known && !old.Removed && old.Instance != rq.InstanceID && !m.o.Trusting:
		// Raft would give the new directory the old one's vote.
		return none, m.duplicate(ctx, rq, old.Address)
	case known && !old.Removed && by != nil && old.Key != by.key.String():
		return none, m.duplicate(ctx, rq, old.Address)
	}
	if by != nil && known && !old.Removed { // its answer got lost: nothing changes
		return m.certified(by, old)
	}
	if known && old.Removed && in {
		// Its removal was begun and is to be ended first: raft would give the new directory the old one's vote.
		if err := m.drop(ctx, e, rq.NodeID); err != nil {
			return none, err
		}
		in = false
	}
	row := m.rowOf(rq)
	row.Key = key
	token := ""
	if by != nil {
		token, row.Standby = by.token, !by.votes
	}
	if known && !old.Removed {
		row.Standby = old.Standby
		if old.Address != row.Address && rq.NodeID != m.id() {
			// It moved, or it was copied. One of the two lives where the row says.
			if err := m.leftFor(ctx, rq, old.Address); err != nil {
				return none, err
			}
		}
	}
	if rq.NodeID != m.id() {
		if err := m.reachable(ctx, rq, by, cmp.Or(old.Key, key)); err != nil {
			return none, err
		}
	}
	if !known || old.Removed || differs(old, row) {
		if err := m.addressFree(rq); err != nil {
			return none, err
		}
		if err := m.putRow(ctx, e, m.asked(ctx, e), row, token); err != nil {
			return none, err
		}
		what, name := "member updated", event.MemberUpdated
		if !in {
			what, name = "member added", event.MemberAdded
		}
		m.o.Logger.Info(what, name, "node", row.ID, "address", row.Address, "version", row.Version)
	}
	if !in {
		if err := m.add(ctx, replica.ID(row.ID, replica.First), row.Address); err != nil {
			return none, err
		}
	}
	now, _ := m.Row(rq.NodeID)
	return m.certified(by, now)
}

// leftFor makes sure that a member is no longer where its row has it, before it is believed that it moved. A process
// that stands still (it was stopped, its disk hangs) does not answer, but its port takes connections: it goes on as
// soon as it can, and is the one that joined. Where not even a connection is made the machine is gone, or cut off from
// this node; that looks the same from here, and a node must be able to move from a machine that died.
func (m *Members) leftFor(ctx context.Context, rq wire.JoinRequest, at string) error {
	info, err := m.probePatiently(ctx, at)
	switch {
	case err == nil && info.NodeID == rq.NodeID && info.InstanceID == rq.InstanceID:
		return job.Errorf(job.CodeState,
			"stop one of the two; a copy can never join: give it an empty data directory and an id of its own",
			"node %s is running at %s, and now also calls from %s: its data directory was copied",
			rq.NodeID, at, rq.Address)
	case !errors.Is(err, transport.ErrSilent):
		return nil
	}
	c, err := m.o.Raw(whoTimeout, 0)(ctx, "tcp", at)
	if err != nil {
		return nil //nolint:nilerr // nobody is there
	}
	_ = c.Close()
	return job.Errorf(job.CodeState, "stop what listens at "+at+"; if this is a copy, stop this one",
		"node %s is known at %s, where something accepts connections but does not answer, and now calls from %s: it "+
			"is not admitted while the other may still run", rq.NodeID, at, rq.Address)
}

// probePatiently asks a node that may be busy: to take one that is slow for one that is gone would let its copy in.
func (m *Members) probePatiently(ctx context.Context, addr string) (s probeReply, err error) {
	for range 3 {
		if s, err = m.Probe(ctx, addr); err == nil || errors.Is(err, syscall.ECONNREFUSED) || ctx.Err() != nil {
			break
		}
	}
	return s, err
}

// duplicate refuses a second directory under one id, and says whether the first one lives.
func (m *Members) duplicate(ctx context.Context, rq wire.JoinRequest, addr string) error {
	remedy := fmt.Sprintf("if that one is gone for good, run `carillon cluster remove %s` first; otherwise choose "+
		"another --node-id", rq.NodeID)
	state := "does not answer"
	if addr == rq.Address {
		state = "was" // who answers there now is the one that asks
	} else if info, err := m.Probe(ctx, addr); err == nil && info.NodeID == rq.NodeID &&
		info.InstanceID != rq.InstanceID {
		state = "is running"
	}
	return job.Errorf(job.CodeState, remedy, "the cluster has a node %s with another data directory; it %s at %s",
		rq.NodeID, state, addr)
}

// maxRowField bounds what a node says of itself and becomes a part of its row.
const maxRowField = 255

// admissible checks what does not depend on the other members.
func (m *Members) admissible(rq wire.JoinRequest) error {
	if err := datadir.CheckNodeID(rq.NodeID); err != nil {
		return job.Invalid("node_id", "", "%v", err)
	}
	if err := datadir.CheckAddress(rq.Address); err != nil {
		return job.Invalid("address", "set --advertise NAME:PORT", "%v", err)
	}
	if len(rq.InstanceID) > maxRowField || len(rq.Version) > maxRowField || len(rq.Address) > maxRowField {
		return job.Invalid("instance_id", "", "what a node says about itself is longer than %d bytes", maxRowField)
	}
	level := m.o.Store.Info().Level
	if m.o.Trusting {
		return nil
	}
	if rq.ClusterID != "" {
		its := lineage.Cluster{ID: rq.ClusterID, Epoch: rq.Epoch, Recovery: rq.Recovery}
		if why, remedy := lineage.Differ(m.id(), m.Cluster(), rq.NodeID, its); why != "" {
			return job.Errorf(job.CodeState, remedy, "%s", why)
		}
	}
	if rq.Level < level {
		return job.Errorf(job.CodeState, "start it with the carillon that the others run",
			"the cluster is at feature level %d and node %s (version %s) supports levels up to %d",
			level, rq.NodeID, rq.Version, rq.Level)
	}
	return nil
}

// addressFree refuses a node at the address of another one before anything is proposed: what is refused is to leave
// nothing in the log. The state machine decides.
func (m *Members) addressFree(rq wire.JoinRequest) error {
	rows, err := m.Rows()
	if err != nil {
		return err
	}
	for id, r := range rows {
		if id != rq.NodeID && r.Address == rq.Address {
			return job.Errorf(job.CodeState, "set another --advertise, or remove that node",
				"node %s already has the address %s", id, rq.Address)
		}
	}
	return nil
}

// reachable makes sure that the address leads to who it should, and that the node is there what it says here: its level
// decides about that of the cluster, and a request can claim any. On a secure cluster what answers has the key, and if
// it is a member its certificate.
func (m *Members) reachable(ctx context.Context, rq wire.JoinRequest, by *admission, key string) error {
	ask := m.Probe
	switch {
	case by != nil:
		ask = func(ctx context.Context, addr string) (probeReply, error) { return m.probeKey(ctx, addr, by.key) }
	case m.o.Keys != nil:
		ask = func(ctx context.Context, addr string) (probeReply, error) {
			return m.probeInstance(ctx, addr, rq.NodeID, rq.InstanceID, key)
		}
	}
	info, err := ask(ctx, rq.Address)
	switch {
	case err != nil:
		return job.Errorf(job.CodeUnavailable, "check --advertise and the firewall",
			"node %s (the leader) cannot reach node %s at %s: %v", m.id(), rq.NodeID, rq.Address, err)
	case info.NodeID != rq.NodeID || info.InstanceID != rq.InstanceID:
		return job.Errorf(job.CodeState, "set --advertise to an address that leads to this node and no other",
			"at %s the leader reaches node %s, not node %s", rq.Address, info.NodeID, rq.NodeID)
	case info.Level != rq.Level || info.Version != rq.Version:
		return job.Errorf(job.CodeState, "start it again",
			"node %s is reported as version %s with feature level %d, but says at %s that it is version %s with "+
				"level %d",
			rq.NodeID, rq.Version, rq.Level, rq.Address, info.Version, info.Level)
	}
	return nil
}
