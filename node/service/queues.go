package service

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// backlogScan is how many due entries of each lane are looked at for the backlog of queues: some 20 ms of work.
	backlogScan = 50_000
	// backlogView is how many of them in one view.
	backlogView = 4096
)

// KnownQueue is nil for a queue that was declared or that jobs use. It costs a look into a map, so that every poll may
// ask.
func (b *Service) KnownQueue(k job.QueueKey) error { return scheduler.KnownQueue(b.o.Store, k) }

// queueKey is the queue that a request names.
func queueKey(sc api.Space, name string) job.QueueKey {
	return job.QueueKey{Namespace: sc.Name(), Name: name}
}

func (b *Service) Queues(ctx context.Context, rd api.Read) ([]wire.Queue, error) {
	var all []store.QueueUse
	err := b.read(ctx, rd, func(r *view.Reader) error {
		r.EachQueue(func(q store.QueueUse) bool {
			if rd.Space.Lists(q.Namespace) {
				all = append(all, q)
			}
			return true
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y store.QueueUse) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return b.describeQueues(ctx, all)
}

func (b *Service) GetQueue(ctx context.Context, name string, rd api.Read) (wire.Queue, error) {
	if err := b.fresh(ctx, rd); err != nil {
		return wire.Queue{}, err
	}
	key := queueKey(rd.Space, name)
	if err := b.KnownQueue(key); err != nil {
		return wire.Queue{}, err
	}
	return b.showQueue(ctx, key)
}

func (b *Service) showQueue(ctx context.Context, k job.QueueKey) (wire.Queue, error) {
	out, err := b.describeQueues(ctx, []store.QueueUse{b.o.Store.Queue(k)})
	if err != nil {
		return wire.Queue{}, err
	}
	return out[0], nil
}

// describeQueues adds what is not in the queues' rows: their backlog, and what the leader knows of workers.
func (b *Service) describeQueues(ctx context.Context, all []store.QueueUse) ([]wire.Queue, error) {
	backlog, err := b.Backlog(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]wire.Queue, len(all))
	e := b.o.Tracker.Epoch()
	err = b.view(func(r *view.Reader) error {
		for i, u := range all {
			w := backlog.Queues[u.Key()]
			q := wire.Queue{Namespace: u.Namespace, Name: u.Name, Declared: u.Declared,
				Concurrency: u.Concurrency, Paused: u.Paused, Jobs: u.Jobs, Running: u.Claimed,
				Backlog: w.Count, BacklogMore: backlog.More, OldestDueAt: job.Instant(w.Oldest), Version: u.Version,
				UpdatedAt: job.Instant(u.UpdatedAt)}
			if e != nil {
				q.Workers = append([]string{}, e.Scheduler.QueueWorkers(u.Key())...)
				if w.Count > 0 {
					class := job.Class{Namespace: u.Namespace, Type: job.TypeQueue, Queue: u.Name}
					q.WaitReason = e.Scheduler.ClassReason(r.View, class.String())
				}
			}
			out[i] = q
		}
		return nil
	})
	return out, err
}

// Backlog is what is due and not claimed, in all and of each queue. More says that there is more.
type Backlog struct {
	DueWork
	Queues map[job.QueueKey]DueWork
	More   bool
}

// DueWork is how much is due and not claimed, and since when; 0: there is none.
type DueWork struct{ Count, Oldest int64 }

func (w *DueWork) add(ready int64) {
	if w.Count++; w.Oldest == 0 || ready < w.Oldest {
		w.Oldest = ready
	}
}

// Backlog counts what is due and not claimed in views that are short. It gives up in a lane that has very much.
func (b *Service) Backlog(ctx context.Context) (out Backlog, err error) {
	out.Queues = map[job.QueueKey]DueWork{}
	queues := map[uint32]job.QueueKey{}
	now := b.now()
	for lane := range job.Lane(job.Lanes) {
		from := store.DueKey{Lane: lane}
		for seen, end := 0, false; !end; {
			if err := ctx.Err(); err != nil {
				return out, err
			}
			err := b.view(func(r *view.Reader) error {
				n := 0
				end = true
				return r.ScanDue(from, now, func(e store.DueEntry) bool {
					if n == backlogView {
						from, end = e.DueKey, false
						return false
					}
					if seen == backlogScan {
						out.More = true
						return false
					}
					n++
					seen++
					if e.Kind == store.KindCleanup {
						return true
					}
					out.add(e.Ready)
					key, ok := queues[e.Class]
					if !ok {
						class := job.ParseClass(r.Class(e.Class))
						if k, queued := class.QueueKey(); queued {
							key = k
						}
						queues[e.Class] = key
					}
					if key.Name != "" {
						w := out.Queues[key]
						w.add(e.Ready)
						out.Queues[key] = w
					}
					return true
				})
			})
			if err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

func (b *Service) PutQueue(ctx context.Context, name string, change wire.QueueChange, version uint64, mustExist bool,
	rq api.Request) (wire.Queue, error) {
	key := queueKey(rq.Space, name)
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
	return b.showQueue(ctx, key)
}

func (b *Service) DeleteQueue(ctx context.Context, name string, version uint64, rq api.Request) error {
	key := queueKey(rq.Space, name)
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
