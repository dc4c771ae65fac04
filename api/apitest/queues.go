package apitest

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// queueLocked is a queue with what jobs make of it; nil if it is unknown.
func (f *Fake) queueLocked(name string) *wire.Queue {
	q, declared := f.queues[name]
	q.Name, q.Declared, q.Workers = name, declared, []string{}
	for _, j := range f.jobs {
		var p job.QueuePayload
		if j.Type == job.TypeQueue && json.Unmarshal(j.Payload, &p) == nil && p.Queue == name {
			q.Jobs++
		}
	}
	if !declared && q.Jobs == 0 {
		return nil
	}
	return &q
}

func (f *Fake) queueNamesLocked() []string {
	names := map[string]bool{}
	for n := range f.queues {
		names[n] = true
	}
	for _, j := range f.jobs {
		var p job.QueuePayload
		if j.Type == job.TypeQueue && json.Unmarshal(j.Payload, &p) == nil {
			names[p.Queue] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (f *Fake) unknownQueueLocked(name string) error {
	return job.Errorf(job.CodeUnknownQueue, "", "there is no queue %q; known are %s", name, strings.Join(f.queueNamesLocked(), ", "))
}

// KnownQueue implements api.Backend.
func (f *Fake) KnownQueue(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queueLocked(name) == nil {
		return f.unknownQueueLocked(name)
	}
	return nil
}

// Queues implements api.Backend.
func (f *Fake) Queues(ctx context.Context, _ api.Read) (out []wire.Queue, err error) {
	if err := f.begin(ctx, "Queues"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.queueNamesLocked() {
		out = append(out, *f.queueLocked(n))
	}
	return out, nil
}

// GetQueue implements api.Backend.
func (f *Fake) GetQueue(ctx context.Context, name string, _ api.Read) (wire.Queue, error) {
	if err := f.begin(ctx, "GetQueue"); err != nil {
		return wire.Queue{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.queueLocked(name); q != nil {
		return *q, nil
	}
	return wire.Queue{}, f.unknownQueueLocked(name)
}

// PutQueue implements api.Backend.
func (f *Fake) PutQueue(ctx context.Context, name string, c wire.QueueChange, version uint64, mustExist bool, rq api.Request) (wire.Queue, error) {
	q, _, err := change(ctx, f, "PutQueue", rq, func() (wire.Queue, error) {
		q := f.queues[name]
		switch {
		case mustExist && f.queueLocked(name) == nil:
			return q, f.unknownQueueLocked(name)
		case version != 0 && version != q.Version:
			return q, job.Errorf(job.CodeVersionConflict, "", "the queue is at version %d by now", q.Version)
		}
		if c.Concurrency != nil {
			q.Concurrency = *c.Concurrency
		}
		if c.Paused != nil {
			q.Paused = *c.Paused
		}
		q.Version++
		q.UpdatedAt = job.At(f.Now())
		f.queues[name] = q
		return *f.queueLocked(name), nil
	})
	return q, err
}

// DeleteQueue implements api.Backend.
func (f *Fake) DeleteQueue(ctx context.Context, name string, version uint64, rq api.Request) error {
	_, _, err := change(ctx, f, "DeleteQueue", rq, func() (bool, error) {
		q, ok := f.queues[name]
		switch {
		case !ok:
			return false, f.unknownQueueLocked(name)
		case version != 0 && version != q.Version:
			return false, job.Errorf(job.CodeVersionConflict, "", "the queue is at version %d by now", q.Version)
		}
		delete(f.queues, name)
		return true, nil
	})
	return err
}
