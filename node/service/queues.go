package service

import (
	"context"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/insight"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// KnownQueue is nil for a queue that was declared or that jobs use. It costs a look into a map, so that every poll may
// ask.
func (b *Service) KnownQueue(k job.QueueKey) error { return scheduler.KnownQueue(b.o.Store, k) }

func (b *Service) PutQueue(ctx context.Context, name string, change wire.QueueChange, version uint64, mustExist bool,
	rq api.Request) (wire.Queue, error) {
	key := insight.QueueKey(rq.Space, name)
	if !mustExist {
		if err := b.hasQueue(ctx, key); err != nil {
			return wire.Queue{}, err
		}
	}
	o, err := b.change(ctx, rq, func(a attempt) (fsm.Command, error) {
		c := &fsm.PutQueue{Head: a.head, Request: a.req, Namespace: spaceIn(key.Namespace), Name: name,
			Version: version}
		if change.Concurrency != nil {
			c.Set |= fsm.QueueConcurrency
			c.Concurrency = *change.Concurrency
		}
		if change.Paused != nil {
			c.Set |= fsm.QueuePaused
			c.Paused = *change.Paused
		}
		if mustExist {
			c.Set |= fsm.QueueKnown
		}
		return c, nil
	})
	if err == nil {
		err = b.queueError(o, key)
	}
	if err != nil {
		return wire.Queue{}, err
	}
	return b.ShowQueue(ctx, key)
}

func (b *Service) DeleteQueue(ctx context.Context, name string, version uint64, rq api.Request) error {
	key := insight.QueueKey(rq.Space, name)
	o, err := b.change(ctx, rq, func(a attempt) (fsm.Command, error) {
		return &fsm.DeleteQueue{Head: a.head, Request: a.req, Namespace: spaceIn(key.Namespace), Name: name,
			Version: version}, nil
	})
	if err != nil {
		return err
	}
	return b.queueError(o, key)
}

// queueError is what an outcome that changed nothing means.
func (b *Service) queueError(o fsm.Outcome, k job.QueueKey) error {
	switch o.Code {
	case fsm.CodeNotFound:
		if err := b.KnownQueue(k); err != nil {
			return err
		}
		return job.Errorf(job.CodeNotFound, "there is nothing to delete; the queue disappears when no job names it",
			"the queue %q has no settings of its own", k.String())
	case fsm.CodeConflict:
		if o.Version == 0 {
			return job.Errorf(job.CodeVersionConflict, "leave the version out to declare it",
				"the queue %q no longer has settings of its own", k.String())
		}
		return job.Errorf(job.CodeVersionConflict, "read the queue again and repeat the change",
			"the queue is now at version %d", o.Version)
	}
	return outcomeError(o, k.String())
}
