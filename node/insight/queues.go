package insight

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// QueueKey is the queue that a request names.
func QueueKey(sc api.Space, name string) job.QueueKey {
	return job.QueueKey{Namespace: sc.Name(), Name: name}
}

// byQueue is the order of a list of queues.
func byQueue(a, b job.QueueKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// queueCursor is that of a list of queues which goes on behind one.
func queueCursor(k job.QueueKey) string {
	return base64.RawURLEncoding.EncodeToString([]byte(k.Namespace + "/" + k.Name))
}

func parseQueueCursor(cursor string) (k job.QueueKey, err error) {
	if cursor == "" {
		return k, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	namespace, name, ok := strings.Cut(string(text), "/")
	if err != nil || !ok {
		return k, view.BadCursor()
	}
	return job.QueueKey{Namespace: namespace, Name: name}, nil
}

// Queues implements api.Backend. Any job may name a queue of its own, so that there may be as many as there are jobs.
func (b *Service) Queues(ctx context.Context, q wire.QueueQuery, rd api.Read) (wire.QueueList, error) {
	list := wire.QueueList{Queues: []wire.Queue{}}
	behind, err := parseQueueCursor(q.Cursor)
	if err != nil {
		return list, err
	}
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return list, err
	}
	defer done()
	first := Firsts[store.QueueUse]{Most: q.Limit, Compare: func(x, y store.QueueUse) int {
		return byQueue(x.Key(), y.Key())
	}}
	backlog, err := b.Backlog(ctx)
	if err != nil {
		return list, err
	}
	err = b.view(func(r *view.Reader) error {
		r.EachQueue(func(u store.QueueUse) bool {
			if rd.Space.Lists(u.Namespace) && byQueue(u.Key(), behind) > 0 {
				first.Add(u)
			}
			return true
		})
		return nil
	})
	if err != nil {
		return list, err
	}
	if list.Queues, err = b.describeQueues(first.Rows(), &backlog); err == nil && first.Omitted > 0 {
		last := &list.Queues[len(list.Queues)-1]
		list.NextCursor = queueCursor(job.QueueKey{Namespace: last.Namespace, Name: last.Name})
	}
	return list, err
}

// Firsts are the first of some rows that come in any order.
type Firsts[T any] struct {
	Most    int
	Compare func(x, y T) int
	Omitted int // how many came besides, as of Rows
	some    []T
}

// Add adds a row.
func (f *Firsts[T]) Add(x T) {
	// Twice as many are kept, so that they are sorted once for as many that come.
	if f.some = append(f.some, x); len(f.some) >= 2*f.Most {
		f.Rows()
	}
}

// Rows are those that came first, in order.
func (f *Firsts[T]) Rows() []T {
	slices.SortFunc(f.some, f.Compare)
	if extra := len(f.some) - f.Most; extra > 0 {
		clear(f.some[f.Most:])
		f.some, f.Omitted = f.some[:f.Most], f.Omitted+extra
	}
	return f.some
}

// GetQueue implements api.Backend.
func (b *Service) GetQueue(ctx context.Context, name string, rd api.Read) (wire.Queue, error) {
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return wire.Queue{}, err
	}
	defer done()
	key := QueueKey(rd.Space, name)
	if err := scheduler.KnownQueue(b.o.Source.Store, key); err != nil {
		return wire.Queue{}, err
	}
	backlog, err := b.Backlog(ctx)
	if err != nil {
		return wire.Queue{}, err
	}
	return b.oneQueue(key, &backlog)
}

// ShowQueue is a queue that was changed. Its backlog is left out, with backlog_more, if it cannot be counted soon: the
// change was made, and is not to look as if it was not.
func (b *Service) ShowQueue(ctx context.Context, k job.QueueKey) (wire.Queue, error) {
	soon, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	backlog := Backlog{More: true}
	if done, err := b.Turn(soon, api.Read{Stale: true}); err == nil {
		defer done()
		if backlog, err = b.Backlog(ctx); err != nil {
			return wire.Queue{}, err
		}
	}
	return b.oneQueue(k, &backlog)
}

func (b *Service) oneQueue(k job.QueueKey, backlog *Backlog) (wire.Queue, error) {
	all, err := b.describeQueues([]store.QueueUse{b.o.Source.Store.Queue(k)}, backlog)
	if err != nil {
		return wire.Queue{}, err
	}
	return all[0], nil
}

// describeQueues adds what is not in the queues' rows: their backlog, and what the leader knows of workers.
func (b *Service) describeQueues(all []store.QueueUse, backlog *Backlog) ([]wire.Queue, error) {
	out := make([]wire.Queue, len(all))
	leads := b.o.Source.Leads()
	err := b.view(func(r *view.Reader) error {
		for i, u := range all {
			w := backlog.Queues[u.Key()]
			q := wire.Queue{Namespace: u.Namespace, Name: u.Name, Declared: u.Declared,
				Concurrency: u.Concurrency, Paused: u.Paused, Jobs: u.Jobs, Running: u.Claimed,
				Backlog: w.Count, BacklogMore: backlog.More, OldestDueAt: job.Instant(w.Oldest), Version: u.Version,
				UpdatedAt: job.Instant(u.UpdatedAt)}
			if leads != nil {
				q.Workers = append([]string{}, leads.QueueWorkers(u.Key())...)
				if w.Count > 0 {
					class := job.Class{Namespace: u.Namespace, Type: job.TypeQueue, Queue: u.Name}
					q.WaitReason = leads.ClassReason(r.View, class.String())
				}
			}
			out[i] = q
		}
		return nil
	})
	return out, err
}

const (
	// backlogScan is how many due entries of each lane are looked at for the backlog of queues: some 20 ms of work.
	backlogScan = 50_000
	// backlogView is how many of them in one view.
	backlogView = 4096
)

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
