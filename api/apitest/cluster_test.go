package apitest_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// someCluster is led by n1; a call for elsewhere is to ask another node, and nope is not a member.
type someCluster struct{}

func (someCluster) about(id string) error {
	switch id {
	case "elsewhere":
		return job.Errorf(job.CodeNoLeader, "", "this node does not lead")
	case "nope":
		return job.Errorf(job.CodeNotFound, "", "no such node")
	}
	return nil
}

func (c someCluster) Join(_ context.Context, rq wire.JoinRequest) (wire.JoinReply, error) {
	return wire.JoinReply{ClusterID: "c", Leader: "n1"}, c.about(rq.NodeID)
}
func (c someCluster) Remove(_ context.Context, id string) (wire.Removal, error) {
	if id == "n7" {
		return wire.Removal{NodeID: id, Groups: []uint32{1, 2}}, nil
	}
	return wire.Removal{NodeID: id, Removed: true}, c.about(id)
}
func (someCluster) MoveGroup(_ context.Context, rq wire.MoveGroupRequest) (wire.GroupMove, error) {
	return wire.GroupMove{Group: rq.Group, To: rq.To, Leaving: []string{"n2"}}, nil
}
func (c someCluster) Promote(_ context.Context, id string) error          { return c.about(id) }
func (c someCluster) Demote(_ context.Context, id string) error           { return c.about(id) }
func (c someCluster) Transfer(_ context.Context, id string, _ bool) error { return c.about(id) }
func (c someCluster) Grow(_ context.Context, n int) (wire.Growth, error) {
	return wire.Growth{Groups: 1, Want: n, New: []wire.NewGroup{{ID: 1, State: "begun", Replicas: []string{"n1"}}}}, nil
}
func (c someCluster) Self() wire.NodeInfo { return wire.NodeInfo{NodeID: "n1"} }
func (c someCluster) LogHash(group uint32, index uint64) (wire.LogHash, error) {
	return wire.LogHash{NodeID: "n1", Group: group, Index: index, Hash: "00000000000000ff"}, nil
}

type twice struct{ someCluster }

func (twice) Transfer(context.Context, string, bool) error { return errors.New("called") }

func TestClusterElsewhere(t *testing.T) {
	o := api.Options{Cluster: someCluster{}, Leader: func() string { return "h:2" }}
	w := serveWith(t, none, o, "POST", "/api/v1/cluster:remove", nil, `{"node_id":"elsewhere"}`)
	if w.Code != 421 || w.Header().Get(wire.LeaderHeader) != "h:2" {
		t.Error(w.Code, w.Header(), w.Body)
	}
	if w := serveWith(t, none, api.Options{}, "POST", "/api/v1/cluster:remove", nil, `{"node_id":"n1"}`); w.Code != 503 {
		t.Error(w.Code, w.Body)
	}
	r := httptest.NewRequestWithContext(api.WithRequestKey(t.Context(), "k", true), "POST", "/api/v1/cluster:transfer", nil)
	rec := httptest.NewRecorder()
	if api.New(none, api.Options{Cluster: twice{}}).ServeHTTP(rec, r); rec.Code != 204 {
		t.Error("a transfer to any node was made twice", rec.Code, rec.Body)
	}
	if w := serveWith(t, none, api.Options{}, "GET", "/api/v1/node", nil, ``); w.Code != 503 {
		t.Error(w.Code, w.Body)
	}
}
