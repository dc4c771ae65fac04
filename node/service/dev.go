package service

import (
	"context"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
)

// DevKill implements api.Backend. Each node ends itself; one that is asked about another passes it on, once.
func (b *Service) DevKill(ctx context.Context, rq wire.DevKillRequest) (func(), error) {
	if b.o.DevKill == nil || b.o.Secure {
		return nil, job.Errorf(job.CodeNotFound, "`carillon dev --nodes 3` starts one",
			"this is not a `carillon dev` cluster")
	}
	if rq.NodeID == b.o.NodeID {
		b.o.Logger.Warn("killed by request")
		return b.o.DevKill, nil
	}
	for _, m := range b.o.Members.Servers() {
		if replica.Node(m.ID) == rq.NodeID && !rq.Passed {
			c := client.New(string(m.Address), client.WithHTTPClient(b.o.Client()), client.WithAttempts(1))
			return nil, c.DevKill(ctx, wire.DevKillRequest{NodeID: rq.NodeID, Passed: true})
		}
	}
	return nil, job.Errorf(job.CodeNotFound, "GET /api/v1/status lists the members", "there is no node %q", rq.NodeID)
}
