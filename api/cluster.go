package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// clusterRoutes are about membership.
func clusterRoutes() []route {
	return []route{
		// A node that joins has no certificate yet: the leader asks for its join token.
		{"POST", "/cluster:join", Anyone, ToLeader, Control, jsonBody, (*call).clusterJoin, nil},
		{"POST", "/cluster:remove", Admin, ToLeader, Control, jsonBody, (*call).clusterRemove, nil},
		{"POST", "/cluster:move-group", Admin, ToLeader, Control, jsonBody, (*call).clusterMoveGroup, nil},
		{"POST", "/cluster:promote", Admin, ToLeader, Control, jsonBody, (*call).clusterPromote, nil},
		{"POST", "/cluster:demote", Admin, ToLeader, Control, jsonBody, (*call).clusterDemote, nil},
		{"POST", "/cluster:transfer", Admin, ToLeader, Control, jsonMaybe, (*call).clusterTransfer, nil},
		{"POST", "/cluster:grow-groups", Admin, ToLeader, Control, jsonBody, (*call).clusterGrow, nil},
		{"GET", "/node/log-hash", Viewer, Here, AtNode, emptyBody, (*call).nodeLogHash, params("stale group index")},
		{"GET", "/node", Viewer, Here, AtNode, emptyBody, (*call).node, params("stale")},
	}
}

// Cluster is membership as the leader sees it. A node that does not lead answers CodeNotLeader or CodeNoLeader; Self
// answers on any. Each of them may be repeated: doing what is done already is a success.
type Cluster interface {
	Join(context.Context, wire.JoinRequest) (wire.JoinReply, error)
	// Remove takes a node out, or has it begin to leave if it has replicas of groups: the answer says how far that is.
	Remove(ctx context.Context, id string) (wire.Removal, error)
	// MoveGroup has a group be on other nodes, and says how far that is.
	MoveGroup(context.Context, wire.MoveGroupRequest) (wire.GroupMove, error)
	Promote(ctx context.Context, id string) error
	Demote(ctx context.Context, id string) error
	// Transfer hands the leadership to a node, or with "" to one that is fit. One whose clock is wrong or not known is
	// refused unless forced.
	Transfer(ctx context.Context, id string, force bool) error
	// Grow has the cluster have so many groups of jobs. It is done some time later.
	Grow(ctx context.Context, groups int) (wire.Growth, error)
	Self() wire.NodeInfo
	// LogHash is the hash over the log of a group up to an entry, if this node has a replica of the group.
	LogHash(group uint32, index uint64) (wire.LogHash, error)
}

func (c *call) cluster() (Cluster, error) {
	if c.h.opts.Cluster == nil {
		return nil, job.Errorf(job.CodeNotReady, "ask another node", "this node is not part of a cluster")
	}
	return c.h.opts.Cluster, nil
}

func (c *call) clusterJoin() error {
	m, err := c.cluster()
	if err != nil {
		return err
	}
	var rq wire.JoinRequest
	if err := c.readMessage(&rq); err != nil { // not strict: a newer node may say more
		return err
	}
	switch {
	case rq.NodeID == "":
		return job.Invalid("node_id", "set --node-id", "a node needs an id")
	case rq.InstanceID == "":
		return job.Invalid("instance_id", "", "a data directory has an instance id")
	case rq.Address == "":
		return job.Invalid("address", "set --advertise", "a node needs an address at which others reach it")
	}
	r, err := m.Join(c.ctx, rq)
	if err != nil {
		return c.leaderError(err)
	}
	return c.reply(http.StatusOK, r)
}

func (c *call) clusterMoveGroup() error {
	m, err := c.cluster()
	if err != nil {
		return err
	}
	if _, err := c.request(); err != nil {
		return err
	}
	var rq wire.MoveGroupRequest
	if err := job.DecodeStrict(c.body, &rq); err != nil {
		return err
	}
	out, err := m.MoveGroup(c.ctx, rq)
	if err != nil {
		return c.leaderError(err)
	}
	return c.reply(http.StatusOK, out)
}

// member is an operation on one member.
func (c *call) member(needed bool, do func(Cluster, context.Context, wire.NodeRequest) error) error {
	m, err := c.cluster()
	if err != nil {
		return err
	}
	ident, err := c.request()
	if err != nil {
		return err
	}
	var rq wire.NodeRequest
	if len(c.body) > 0 {
		if err := job.DecodeStrict(c.body, &rq); err != nil {
			return err
		}
	}
	if rq.NodeID == "" && needed {
		return job.Invalid("node_id", "name a member; GET "+prefix+"/status lists them", "which node?")
	}
	if rq.NodeID == "" && ident.Repeat {
		// A node sends a request again because the leader that had it leads no more: that is what was asked for, and
		// doing it again would undo it.
		return c.noContent()
	}
	if err := do(m, c.ctx, rq); err != nil {
		return c.leaderError(err)
	}
	if c.pending != nil {
		return c.reply(http.StatusAccepted, c.pending)
	}
	return c.noContent()
}

// named does something to the node that a request names.
func named(do func(Cluster, context.Context, string) error) func(Cluster, context.Context, wire.NodeRequest) error {
	return func(m Cluster, ctx context.Context, rq wire.NodeRequest) error {
		if rq.Force {
			return job.Invalid("force", "leave it out", "only a transfer can be forced")
		}
		return do(m, ctx, rq.NodeID)
	}
}

func (c *call) clusterRemove() error {
	return c.member(true, named(func(m Cluster, ctx context.Context, id string) error {
		r, err := m.Remove(ctx, id)
		if err == nil && !r.Removed {
			c.pending = r
		}
		return err
	}))
}

func (c *call) clusterPromote() error {
	return c.member(true, named(func(m Cluster, ctx context.Context, id string) error {
		// A voter has the keys of the cluster, which allow everything.
		if err := MayGrant(c.r.Context(), "", "give a node a vote, and with it the keys of the cluster"); err != nil {
			return err
		}
		return m.Promote(ctx, id)
	}))
}

func (c *call) clusterDemote() error { return c.member(true, named(Cluster.Demote)) }

func (c *call) clusterTransfer() error {
	return c.member(false, func(m Cluster, ctx context.Context, rq wire.NodeRequest) error {
		return m.Transfer(ctx, rq.NodeID, rq.Force)
	})
}

func (c *call) clusterGrow() error {
	m, err := c.cluster()
	if err == nil {
		_, err = c.request()
	}
	var rq wire.GrowRequest
	if err == nil {
		err = job.DecodeStrict(c.body, &rq)
	}
	if err != nil {
		return err
	}
	g, err := m.Grow(c.ctx, rq.Groups)
	if err != nil {
		return c.leaderError(err)
	}
	return c.reply(http.StatusOK, g)
}

func (c *call) node() error {
	m, err := c.cluster()
	if err != nil {
		return err
	}
	if _, err := c.read(); err != nil {
		return err
	}
	return c.reply(http.StatusOK, m.Self())
}

func (c *call) nodeLogHash() error {
	m, err := c.cluster()
	if err != nil {
		return err
	}
	if _, err := c.read(); err != nil {
		return err
	}
	number := func(name string, bits int) (uint64, error) {
		text, err := c.one(name)
		if err != nil || text == "" {
			return 0, err
		}
		n, err := strconv.ParseUint(text, 10, bits)
		if err != nil {
			return 0, job.Invalid(name, "give a number", "%q is none", text)
		}
		return n, nil
	}
	group, err := number("group", 32)
	if err != nil {
		return err
	}
	index, err := number("index", 64)
	if err != nil {
		return err
	}
	h, err := m.LogHash(uint32(group), index)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, h)
}
