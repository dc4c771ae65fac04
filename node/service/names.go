package service

import (
	"cmp"
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/crash"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/names"
	"github.com/carillon-scheduler/carillon/node/view"
)

// With several groups a name may have its home in another one, which is asked to keep it before a job gets it.

const (
	// reserveTries is how often a name is reserved for one change: the reservation that an earlier try of it had may be
	// given up meanwhile. reservePause is between two of them, for the home to hear of that.
	reserveTries = 3
	reservePause = 20 * time.Millisecond
)

// reserved is a name that a home keeps for a job.
type reserved struct {
	name  job.NameRef
	grant names.Grant
}

// names keeps names over groups; nil: the cluster has one.
func (b *Service) names() *names.Keeper {
	if k := b.o.Names; k != nil && k.Open() {
		return k
	}
	return nil
}

// want is what only one job of the cluster may have: its name, or the key of its request, which may be repeated in
// another group when there are more by then. A job in a queue stays where the queue is.
func (c *creation) want() names.Want {
	n := job.NameRef{Kind: job.NameJob, Namespace: c.spec.Namespace, Name: c.spec.Name}
	if n.Name == "" {
		if c.again == "" || c.spec.Type == job.TypeQueue {
			return names.Want{}
		}
		n.Kind, n.Name = job.NameRequest, c.request.ID
	}
	return names.Want{Name: n, Create: true, Request: cmp.Or(c.again, c.request.ID),
		Fingerprint: c.request.Fingerprint}
}

// reserve has homes keep the names of new jobs. It returns those that can be created; the others have their errors.
func (b *Service) reserve(ctx context.Context, items []*creation) []*creation {
	k := b.names()
	if k == nil {
		return items
	}
	if err := k.Ready(); err != nil {
		leftOver(items, err)
		return nil
	}
	items = b.inPlace(ctx, items)
	wants := make([]names.Want, len(items))
	for i, c := range items {
		wants[i] = c.want()
	}
	open := make([]*creation, 0, len(items))
	for i, g := range k.Reserve(ctx, wants) {
		c := items[i]
		if c.reserved = &(reserved{wants[i].Name, g}); g.Err != nil {
			c.outcome, c.err = fsm.Outcome{}, g.Err
			continue
		}
		open = append(open, c)
	}
	return open
}

// inPlace are the jobs without those whose queue is in another group.
func (b *Service) inPlace(ctx context.Context, items []*creation) []*creation {
	seen := map[job.QueueKey]error{}
	open := make([]*creation, 0, len(items))
	for _, c := range items {
		key, queued := queueOf(c.spec)
		err, known := seen[key]
		if queued && !known {
			err = b.hasQueue(ctx, key)
			seen[key] = err
		}
		if err != nil {
			c.outcome, c.err = fsm.Outcome{}, err
			if id, ok := b.named(c.spec); ok && job.CodeOf(err) == job.CodeOtherGroup {
				c.err = names.Taken(id) // the group of the queue may have sent it here, and would do so again
			}
			continue
		}
		open = append(open, c)
	}
	return open
}

// named is the job of this group that has the name of a new one.
func (b *Service) named(spec *job.Spec) (id job.ID, ok bool) {
	err := b.view(func(r *view.Reader) error {
		id, ok = r.Named(spec.Namespace, spec.Name)
		return nil
	})
	return id, ok && spec.Name != "" && err == nil
}

// queueOf is the queue that a job is in.
func queueOf(spec *job.Spec) (job.QueueKey, bool) {
	if spec.Type != job.TypeQueue {
		return job.QueueKey{}, false
	}
	class := job.ParseClass(spec.Class())
	return class.QueueKey()
}

// hasQueue says that a queue is in this group, which it is given to if it is used for the first time. Otherwise the
// error names its group.
func (b *Service) hasQueue(ctx context.Context, key job.QueueKey) error {
	k := b.names()
	if k == nil {
		return nil
	}
	group, err := k.Queue(ctx, key)
	if err == nil && group != b.o.Store.Info().Group {
		err = job.OtherGroup(group)
	}
	return err
}

// decided says what became of new jobs. It returns those whose names are to be reserved again.
func (b *Service) decided(items []*creation) (again []*creation) {
	k := b.names()
	if k == nil {
		return nil
	}
	for _, c := range items {
		if c.err != nil {
			continue // it may come again; if it does not, the home finds out
		}
		if c.reserved != nil {
			if c.reserved.grant.Number != 0 {
				crash.At(crash.JobCreated)
			}
			k.Decided(c.reserved.name, c.reserved.grant, c.outcome)
		}
		switch o := &c.outcome; {
		case o.Code == fsm.CodeAborted:
			again = append(again, c)
		case o.Code == fsm.CodePending && o.Group != b.o.Group:
			c.err = job.OtherGroup(o.Group) // it may be an earlier try of this request, which is known there
		case o.Code == fsm.CodeDuplicate && uint32(o.Job.Group()) != b.o.Group:
			c.err = job.OtherGroup(uint32(o.Job.Group())) // which knows how the two jobs compare
		}
	}
	return again
}

// renamed has the home of a job's new name keep it, if that is another group. A job stays in its group, so it cannot be
// moved to a queue of another one.
func (b *Service) renamed(ctx context.Context, h *view.Held, spec *job.Spec, rq fsm.Request) (reserved, error) {
	k := b.names()
	if k == nil {
		return reserved{}, nil
	}
	old, _ := queueOf(&h.Def.Spec)
	if key, queued := queueOf(spec); queued && key != old {
		err := b.hasQueue(ctx, key)
		if job.CodeOf(err) == job.CodeOtherGroup {
			err = job.Invalid("payload.queue", "create a new job in that queue, and delete this one",
				"the queue %q is in another group of the cluster than the job, and a job cannot move", key.String())
		}
		if err != nil {
			return reserved{}, err
		}
	}
	if spec.Name == "" || spec.Name == h.Def.Spec.Name {
		return reserved{}, nil
	}
	n := job.NameRef{Kind: job.NameJob, Namespace: spec.Namespace, Name: spec.Name}
	g := k.Reserve(ctx, []names.Want{{Name: n, Request: rq.ID, Fingerprint: rq.Fingerprint}})[0]
	return reserved{n, g}, g.Err
}

// changeReserved is a change under a name that is reserved in it, again if the reservation was given up meanwhile.
func (b *Service) changeReserved(ctx context.Context, change func(*reserved) (fsm.Outcome, error)) (fsm.Outcome,
	error) {
	for tries := 1; ; tries++ {
		var held reserved
		o, err := change(&held)
		k := b.names()
		if k == nil {
			return o, err
		}
		if o.Code != 0 {
			if held.grant.Number != 0 {
				crash.At(crash.JobRenamed)
			}
			k.Decided(held.name, held.grant, o)
		}
		if o.Code != fsm.CodeAborted || tries == reserveTries || !wait.For(ctx, reservePause) {
			return o, err
		}
	}
}
