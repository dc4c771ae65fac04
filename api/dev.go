package api

import (
	"context"
	"net/http"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// devRoutes are for a cluster to play with.
func devRoutes() []route {
	return []route{
		{"POST", "/dev:kill", Admin, Here, AtNode, jsonBody, (*call).devKill, nil},
	}
}

// DevBackend is what these routes stand on.
type DevBackend interface {
	// DevKill kills a node of a cluster to play with; of any other it answers CodeNotFound. If that is this node, it
	// returns what does it, for after the answer.
	DevKill(ctx context.Context, rq wire.DevKillRequest) (then func(), err error)
}

// devKill ends a node as kill -9 does. If that is the one that is asked, it says so first.
func (c *call) devKill() error {
	var rq wire.DevKillRequest
	if err := job.DecodeStrict(c.body, &rq); err != nil {
		return err
	}
	if rq.NodeID == "" {
		return job.Invalid("node_id", "name a member; GET "+prefix+"/status lists them", "which node?")
	}
	then, err := c.h.backend.DevKill(c.ctx, rq)
	if err != nil {
		return err
	}
	if err := c.noContent(); err != nil || then == nil {
		return err
	}
	if err := http.NewResponseController(c.w).Flush(); err != nil {
		return err
	}
	then()
	return nil
}
