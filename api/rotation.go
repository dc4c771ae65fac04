package api

import (
	"context"
	"net/http"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// rotationRoutes are about the CA of a secure cluster.
func rotationRoutes() []route {
	return []route{
		{"POST", "/cluster:rotate-ca", Admin, ToLeader, Control, jsonMaybe, (*call).rotateCA, nil},
	}
}

// RotationBackend is what they stand on.
type RotationBackend interface {
	// RotateCA begins to replace the CA and the cluster key, or gives that up. One that is under way is the answer.
	RotateCA(ctx context.Context, r wire.RotateRequest, rq Request) (wire.Rotation, error)
}

func (c *call) rotateCA() error {
	var r wire.RotateRequest
	if len(c.body) > 0 {
		if err := job.DecodeStrict(c.body, &r); err != nil {
			return err
		}
	}
	if r.Abort && r.DistrustOld {
		return job.Invalid("abort", "leave one of them out", "abort and distrust_old exclude each other")
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	out, err := c.h.backend.RotateCA(c.ctx, r, rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, out)
}
