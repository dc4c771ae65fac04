package service

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

// look reads a job for a change that is computed from it.
func (b *Service) look(ref string, sc api.Space) (h view.Held, err error) {
	err = b.view(func(r *view.Reader) error {
		id, err := r.Find(ref, sc)
		if err == nil {
			h, err = r.Held(id)
		}
		return err
	})
	return h, err
}

// changeJob proposes a change of one job. It is built from what the job is at each try.
func (b *Service) changeJob(ctx context.Context, ref string, rq api.Request,
	build func(attempt, view.Held) (fsm.Command, error)) (fsm.Outcome, error) {
	if o, ok, err := b.replay(ctx, rq); err != nil || ok {
		return o, err
	}
	// The job must be there before anything is proposed about it, and this node's word counts only while it leads.
	if err := b.verify(ctx); err != nil {
		return fsm.Outcome{}, err
	}
	return b.changeNamed(ctx, rq, ref, func(a attempt) (fsm.Command, error) {
		h, err := b.look(ref, rq.Space)
		if err != nil {
			return nil, err
		}
		return build(a, h)
	})
}

// showChanged shows a job after a change. If it has been removed since, it shows what is known of it: the change was
// made, and an answer that the job is not there would say that it was not.
func (b *Service) showChanged(o fsm.Outcome, known job.Job) (job.Job, error) {
	j, err := b.show(o.Job)
	if job.CodeOf(err) == job.CodeNotFound {
		known.ID, known.Version = o.Job, o.Version
		return known, nil
	}
	return j, err
}

// removed is what is known of a job that has been removed since it was changed.
func removed(ref string, rq api.Request) job.Spec {
	s := job.Spec{Namespace: rq.Space.Name()}
	if _, err := job.ParseID(ref); err != nil {
		s.Name = ref
	}
	return s
}

// editable checks the new spec of a job by itself. Its namespace is the job's: that never changes, so this look is as
// good as any.
func (b *Service) editable(ctx context.Context, ref string, spec *job.Spec, sc api.Space) error {
	space := sc.Name()
	if h, err := b.look(ref, sc); err == nil {
		space = h.Def.Spec.Namespace
	}
	if spec.Namespace = cmp.Or(spec.Namespace, space); spec.Namespace != space {
		return job.Invalid("namespace", "leave it out, or create the job there and delete this one",
			"the job is in namespace %q and cannot be moved", space)
	}
	return b.check(ctx, spec)
}

// planUpdate checks an edit against the job as it is, and says what becomes of its next occurrence.
func (b *Service) planUpdate(ctx context.Context, ref string, h *view.Held, spec *job.Spec, version uint64,
	now int64) (plan, error) {
	if version != 0 && version != h.Def.Version {
		return plan{}, outcomeError(fsm.Outcome{Code: fsm.CodeConflict, Version: h.Def.Version}, ref)
	}
	if err := api.CheckShell(ctx, &h.Def.Spec, spec); err != nil {
		return plan{}, err
	}
	if old := &h.Def.Spec; spec.Schedule != old.Schedule || !slices.Equal(spec.Calendars, old.Calendars) {
		if err := b.neverRuns(ctx, spec, time.Now()); err != nil {
			return plan{}, err
		}
	}
	return planEdit(h, spec, now)
}

func (b *Service) UpdateJob(ctx context.Context, ref string, spec job.Spec, version uint64, rq api.Request) (job.Job,
	error) {
	if err := b.editable(ctx, ref, &spec, rq.Space); err != nil {
		return job.Job{}, err
	}
	o, err := b.changeReserved(ctx, func(held *reserved) (fsm.Outcome, error) {
		return b.changeJob(ctx, ref, rq, func(a attempt, h view.Held) (fsm.Command, error) {
			p, err := b.planUpdate(ctx, ref, &h, &spec, version, a.now)
			if err != nil {
				return nil, err
			}
			if *held, err = b.renamed(ctx, &h, &spec, a.req); err != nil {
				return nil, err
			}
			def := store.Definition{Spec: spec, Version: h.Def.Version + 1, CreatedAt: h.Def.CreatedAt,
				UpdatedAt: a.now, Follows: p.follows}
			return &fsm.Update{Head: a.head, Request: a.req, Job: uint64(h.ID), Version: h.Def.Version,
				Seen: h.Seen(), Def: def.Append(nil), Next: p.next, Dropped: p.gap, After: p.after,
				Home: held.grant.Home, Reservation: held.grant.Number}, nil
		})
	})
	if err != nil {
		return job.Job{}, err
	}
	return b.showChanged(o, job.Job{Status: job.StatusScheduled, Spec: spec})
}

// UpdatedJob implements api.JobBackend.
func (b *Service) UpdatedJob(ctx context.Context, ref string, rq api.Request) (job.Job, bool, error) {
	o, ok, err := b.replay(ctx, rq)
	if err != nil || !ok {
		return job.Job{}, false, err
	}
	j, err := b.showChanged(o, job.Job{Status: job.StatusScheduled, Spec: removed(ref, rq)})
	return j, true, err
}

func (b *Service) DeleteJob(ctx context.Context, ref string, version uint64, rq api.Request) error {
	_, err := b.changeJob(ctx, ref, rq, func(a attempt, h view.Held) (fsm.Command, error) {
		return &fsm.Delete{Head: a.head, Request: a.req, Job: uint64(h.ID), Version: version,
			NotRun: h.Passed(a.now)}, nil
	})
	return err
}

func (b *Service) PauseJob(ctx context.Context, ref string, rq api.Request) (job.Job, error) {
	o, err := b.changeJob(ctx, ref, rq, func(a attempt, h view.Held) (fsm.Command, error) {
		return &fsm.Pause{Head: a.head, Request: a.req, Job: uint64(h.ID)}, nil
	})
	if err != nil {
		return job.Job{}, err
	}
	return b.showChanged(o, job.Job{Status: job.StatusPaused, Spec: removed(ref, rq)})
}

func (b *Service) ResumeJob(ctx context.Context, ref string, rq api.Request) (job.Job, error) {
	o, err := b.changeJob(ctx, ref, rq, func(a attempt, h view.Held) (fsm.Command, error) {
		cmd := &fsm.Resume{Head: a.head, Request: a.req, Job: uint64(h.ID), Seen: h.Seen()}
		if !h.Stopped() {
			return cmd, nil // nothing to do, and the state machine says so
		}
		p, err := planResume(&h, a.now)
		if err != nil {
			return nil, err
		}
		cmd.Next, cmd.NotRun = p.next, p.gap
		return cmd, nil
	})
	if err != nil {
		return job.Job{}, err
	}
	return b.showChanged(o, job.Job{Status: job.StatusScheduled, Spec: removed(ref, rq)})
}

func (b *Service) RunJob(ctx context.Context, ref string, rq api.Request) (job.Run, error) {
	o, err := b.changeJob(ctx, ref, rq, func(a attempt, h view.Held) (fsm.Command, error) {
		if err := roomForRuns(&h.State, 1); err != nil {
			return nil, err
		}
		return &fsm.Trigger{Head: a.head, Request: a.req, Job: uint64(h.ID), Key: h.Def.Spec.IdempotencyKey,
			Name: h.Def.Spec.Name}, nil
	})
	if err != nil {
		if e, ok := err.(*job.Error); ok && e.Code == job.CodeState {
			switch o.Text {
			case fsm.TextOverlap:
				e.Code, e.Remedy = job.CodeOverlap, "wait for it, cancel it, or set overlap to queue or allow"
			case fsm.TextFull:
				e.Code, e.Remedy = job.CodeOverlap, "wait for some to finish, or cancel them"
			}
		}
		return job.Run{}, err
	}
	return b.showRun(o.Run, rq.Space)
}

func (b *Service) CancelJob(ctx context.Context, ref string, rq api.Request) (int, error) {
	o, err := b.changeJob(ctx, ref, rq, func(a attempt, h view.Held) (fsm.Command, error) {
		return &fsm.Cancel{Head: a.head, Request: a.req, Job: uint64(h.ID), All: true}, nil
	})
	return o.Count, err
}
