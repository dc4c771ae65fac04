package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/mask"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// Runner carries out one attempt. It returns soon after ctx ends; context.Cause(ctx) says why that did (the errors of
// package worker). It fills in Outcome (succeeded or failed), Permanent, RetryAfter, Error and Output; the rest of the
// result is the worker's.
type Runner interface {
	Run(ctx context.Context, a job.Assignment) job.Result
}

// NewWorker makes a worker of the types that it has runners for.
func NewWorker(o worker.Options, runners map[job.Type]Runner) (*worker.Worker, error) {
	if len(runners) == 0 {
		return nil, errors.New("executor: a worker needs at least one runner")
	}
	o.Types = slices.Sorted(maps.Keys(runners))
	o.Do = func(ctx context.Context, a job.Assignment) job.Result {
		r := runners[a.Type]
		if r == nil {
			return failure("this worker cannot run jobs of type %q", a.Type)
		}
		m := mask.New(a.Secrets...)
		defer func() {
			if p := recover(); p != nil {
				panic(m.String(fmt.Sprint(p)))
			}
		}()
		res := r.Run(ctx, a)
		if m != nil {
			res.Error, res.Output = m.String(res.Error), m.String(res.Output)
		}
		return res
	}
	return worker.New(o)
}
