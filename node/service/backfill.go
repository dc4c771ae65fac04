package service

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

// Backfill implements api.Backend: runs for the occurrences of an interval that lies in the past. What ran already, is
// open or is about to run by itself is left out.
func (b *Service) Backfill(ctx context.Context, ref string, q wire.BackfillRequest,
	rq api.Request) (wire.BackfillResult, error) {
	if q.DryRun {
		rq = api.Request{}
	}
	res := wire.BackfillResult{DryRun: q.DryRun, Times: []job.Instant{}, Skipped: []job.Instant{}}
	o, replayed, err := b.replay(ctx, rq)
	if err != nil {
		return res, err
	}
	if replayed {
		res.Times, res.Skipped = append(res.Times, instants(o.Times)...), append(res.Skipped, instants(o.Skipped)...)
		return res, nil
	}
	if err := b.verify(ctx); err != nil {
		return res, err
	}
	if err := b.room(); err != nil && !q.DryRun {
		return res, err
	}
	var p backfill
	if q.DryRun {
		_, now, err := b.stamp(ctx)
		if err == nil {
			p, err = b.planBackfill(ctx, ref, rq.Space, q, now)
		}
		if err != nil {
			return res, err
		}
		o.Times, o.Skipped = p.times, p.skipped
	} else {
		o, err = b.changeNamed(ctx, rq, ref, func(a attempt) (_ fsm.Command, err error) {
			if p, err = b.planBackfill(ctx, ref, rq.Space, q, a.now); err != nil {
				return nil, err
			}
			return p.command(a, q.Force), nil
		})
		if err != nil {
			return res, err
		}
	}
	res.Times, res.Skipped = append(res.Times, instants(o.Times)...), append(res.Skipped, instants(o.Skipped)...)
	slices.Sort(res.Skipped)
	return res, nil
}

// maxOpenRuns bounds how many runs of a job people may have open. All of them end in one entry of the log when the job
// is deleted, and nothing else is applied meanwhile.
const maxOpenRuns = 100_000

// roomForRuns refuses more runs by hand. Requests of the same moment may go a little beyond.
func roomForRuns(s *store.State, more int) error {
	if open := int(s.Active) + int(s.Waiting); open+more > maxOpenRuns {
		return job.Errorf(job.CodeState, "wait until some have finished, or cancel them",
			"%d runs of the job are open, and at most %d may be", open, maxOpenRuns)
	}
	return nil
}

func instants(ms []int64) []job.Instant {
	out := make([]job.Instant, len(ms))
	for i, t := range ms {
		out[i] = job.Instant(t)
	}
	return out
}

// backfill is what one would do.
type backfill struct {
	held    view.Held
	times   []int64
	skipped []int64 // ran, are open, or will run by themselves
	head    uint64  // the history up to here was looked through
}

func (b *Service) planBackfill(ctx context.Context, ref string, sc api.Space, q wire.BackfillRequest,
	now int64) (backfill, error) {
	if int64(q.To) > now {
		return backfill{}, job.Invalid("to", "choose a time in the past",
			"the interval ends at %s, which is in the future", q.To)
	}
	h, err := b.look(ref, sc)
	if err != nil {
		return backfill{}, err
	}
	p := backfill{held: h, head: h.State.HistHead}
	all, err := occurrences(&h, q)
	if err != nil || len(all) == 0 {
		return p, err
	}
	if err := roomForRuns(&h.State, len(all)); err != nil {
		return p, err
	}
	taken, err := b.findTaken(ctx, h.ID, p.head, all[0], q.Force)
	if err != nil {
		return p, err
	}
	for _, t := range all {
		if taken[t] || !h.Place.Parked && t >= h.Place.At {
			p.skipped = append(p.skipped, t)
		} else {
			p.times = append(p.times, t)
		}
	}
	return p, nil
}

// occurrences are those of the interval, refused if they are too many.
func occurrences(h *view.Held, q wire.BackfillRequest) ([]int64, error) {
	limit := q.Max
	if limit <= 0 || limit > job.MaxBackfill {
		limit = job.MaxBackfill
	}
	sched, err := view.Compile(&h.Def.Spec, h.ID)
	if err != nil {
		return nil, err
	}
	if sched.Kind() == schedule.Manual {
		return nil, job.Errorf(job.CodeState, "use :run", "a manual job has no occurrences to backfill")
	}
	var out []int64
	for at := int64(q.From) - 1; ; {
		t, ok := sched.Next(time.UnixMilli(at))
		if !ok || t.UnixMilli() > int64(q.To) {
			return out, nil
		}
		if len(out) == limit {
			return nil, job.Invalid("max",
				"choose a shorter interval, or raise max (up to "+strconv.Itoa(job.MaxBackfill)+")",
				"there are more than %d occurrences in the interval", limit)
		}
		if at = t.UnixMilli(); !sched.Skipped(t) {
			out = append(out, at)
		}
	}
}

// findTaken is what is open, and unless forced what ran. The job's chain is walked until its records are older than the
// interval: an occurrence is never recorded before its time.
func (b *Service) findTaken(ctx context.Context, id job.ID, head uint64, from int64, force bool) (map[int64]bool,
	error) {
	taken := map[int64]bool{}
	err := b.view(func(r *view.Reader) error {
		for _, ref := range r.Open(id) {
			if ref.Origin != job.OriginManual {
				taken[ref.At] = true
			}
		}
		return nil
	})
	for cur := head; err == nil && cur != 0 && !force; {
		start := cur
		cur = 0
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := 0
		err = b.view(func(r *view.Reader) error {
			return r.EachOfJob(start, func(_ uint64, rec store.Record) bool {
				if rec.Recorded+view.ChainSlack < from {
					return false
				}
				if rec.Attempt > 0 && rec.Origin != job.OriginManual {
					taken[rec.At] = true
				}
				if n++; n == view.Rows {
					cur = rec.Prev
				}
				return n < view.Rows
			})
		})
	}
	return taken, err
}

// command proposes the backfill. The state machine looks again at what happened since, and records what it leaves out.
func (p *backfill) command(a attempt, force bool) *fsm.Backfill {
	cmd := &fsm.Backfill{Head: a.head, Request: a.req, Job: uint64(p.held.ID), SeenHead: p.head, Force: force,
		Left: p.skipped}
	spec := &p.held.Def.Spec
	for _, t := range p.times {
		cmd.At = append(cmd.At, t)
		if spec.IdempotencyKey == "" && !force {
			continue
		}
		key := job.IdempotencyKey(spec.IdempotencyKey, spec.Name,
			job.RunKey{Job: p.held.ID, At: t, Origin: job.OriginBackfill})
		if force { // it repeats what ran, so a target must not take it for that
			key = job.ForcedKey(key, a.now)
		}
		cmd.Keys = append(cmd.Keys, key)
	}
	return cmd
}
