package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// check normalizes and validates a job. The id matters to H, jitter and @every but not to whether a schedule is right.
func (b *Service) check(ctx context.Context, spec *job.Spec) error {
	if err := b.checkFields(ctx, spec, time.Now()); err != nil {
		return err
	}
	_, err := b.schedules.Compile(spec, 1)
	return wire.ScheduleError(err)
}

// checkFields is check without the schedule, which the batcher reads anyway. since is when the job came.
func (b *Service) checkFields(ctx context.Context, spec *job.Spec, since time.Time) error {
	if spec.Timezone == "" && strings.Contains(spec.Schedule, "TZ") {
		// The expression may name the zone itself. Without this the default would contradict it.
		if s, err := view.Compile(spec, 1); err == nil {
			spec.Timezone = zoneOf(s, "")
		}
	}
	spec.Normalize()
	if err := spec.Validate(); err != nil {
		return err
	}
	if err := b.again(ctx, since, func() error { return b.checkSecrets(spec) }); err != nil {
		return err
	}
	if spec.Notify != nil {
		if err := b.o.Notify.Check(spec.Namespace, spec.Notify); err != nil {
			return err
		}
	}
	if len(spec.Calendars) == 0 {
		return nil
	}
	return b.again(ctx, since, func() error {
		return b.view(func(r *view.Reader) error { return r.CheckCalendars(spec) })
	})
}

// neverRuns refuses a one-off job that a calendar forbids.
func (b *Service) neverRuns(ctx context.Context, spec *job.Spec, since time.Time) error {
	if len(spec.Calendars) == 0 || !spec.OneOff() {
		return nil
	}
	return b.again(ctx, since, func() error {
		return b.view(func(r *view.Reader) error { return r.CheckBlackout(spec) })
	})
}

func (b *Service) CreateJob(ctx context.Context, spec job.Spec, rq api.Request) (job.Job, bool, error) {
	if err := cmp.Or(b.check(ctx, &spec), api.CheckShell(ctx, &spec)); err != nil {
		return job.Job{}, false, err
	}
	if err := b.neverRuns(ctx, &spec, time.Now()); err != nil {
		return job.Job{}, false, err
	}
	c := &creation{spec: &spec, size: sizeOf(&spec), batch: &createBatch{}, by: forward.CallerOf(ctx), first: true}
	if rq.Client {
		c.again = requestID(rq)
	}
	if err := b.create(ctx, []*creation{c}, func(now int64) { c.request = requestOf(rq, now) }); err != nil {
		return job.Job{}, false, err
	}
	if c.err != nil {
		return job.Job{}, false, forward.Explain(c.err)
	}
	if err := outcomeError(c.outcome, spec.Name); err != nil {
		return job.Job{}, false, err
	}
	if !c.outcome.Replay && len(spec.Calendars) == 0 {
		return c.job(), false, nil
	}
	j, err := b.show(c.outcome.Job)
	if job.CodeOf(err) == job.CodeNotFound && rq.Repeat {
		return c.job(), false, nil // our own repetition: the client knows of one request, and that created it
	}
	if job.CodeOf(err) == job.CodeNotFound && c.outcome.Replay {
		err = job.Errorf(job.CodeNotFound, "use a new key to create it again",
			"this request created %s, which has been removed since", c.outcome.Job)
	}
	return j, c.outcome.Replay && !rq.Repeat, err
}

// job is the job as it was created, which is what a create is answered with: by now it may have run.
func (c *creation) job() job.Job {
	j := job.Job{ID: c.outcome.Job, Status: job.StatusScheduled, Spec: *c.spec, NextRunAt: job.Instant(c.next.Ready),
		Version:   c.outcome.Version,
		CreatedAt: job.Instant(c.now), UpdatedAt: job.Instant(c.now)}
	if c.next.At == 0 && !c.spec.Manual() {
		j.Status = job.StatusCompleted
	}
	return j
}

// sizeOf is how much of a log entry a job takes at most, without its request. An entry that turns out too large fails
// as a whole.
func sizeOf(s *job.Spec) int {
	n := 350 + len(s.Payload) + len(s.Name) + len(s.Namespace) + len(s.Schedule) + len(s.Timezone) +
		len(s.IdempotencyKey)
	for _, c := range s.Calendars {
		n += len(c) + 5
	}
	if s.Notify != nil {
		n += 40 + len(s.Notify.Webhook)
		for _, e := range s.Notify.Email {
			n += len(e) + 5
		}
	}
	for k, v := range s.Tags {
		n += len(k) + len(v) + 10
	}
	for k, v := range s.Workers {
		n += len(k) + len(v) + 10
	}
	return n
}

// create puts jobs through the batcher once. stamp is called with the time before. The error is about all of them; each
// has its own beside it.
func (b *Service) create(ctx context.Context, items []*creation, stamp func(now int64)) error {
	e, now, err := b.stamp(ctx)
	if err != nil {
		leftOver(items, err)
		return nil
	}
	stamp(now)
	if items = b.withRoom(items); len(items) == 0 {
		return nil
	}
	for tries := 1; ; tries++ {
		if items = b.reserve(ctx, items); len(items) == 0 {
			return nil
		}
		batch := items[0].batch
		batch.add(len(items))
		b.submit(e, items)
		select {
		case <-batch.done:
		case <-ctx.Done():
			// The batcher goes on and writes into the creations; they must not be read any more.
			return job.Errorf(job.CodeOutcomeUnknown, "repeat it with the same Idempotency-Key",
				"no answer in time: it may or may not have been done")
		}
		items = b.decided(items)
		if len(items) == 0 || tries == reserveTries || !wait.For(ctx, reservePause) {
			return nil
		}
	}
}

// createLines is create for lines of a stream, which the forwarder cannot repeat: those that may be tried again are,
// under the next leadership of this node if this one ended first. An ambiguous one as well: its request id, or its
// name, makes that a replay.
func (b *Service) createLines(ctx context.Context, items []*creation, stamp func(now int64)) error {
	for a := b.o.Tracker.NewAttempts(); ; {
		l, _ := a.Leader(ctx)
		if err := b.create(ctx, items, stamp); err != nil || l.Epoch == nil {
			return err
		}
		items = slices.DeleteFunc(slices.Clone(items), func(c *creation) bool { return c.err == nil || isFinal(c.err) })
		if len(items) == 0 || !a.Again(ctx, l) {
			return nil
		}
	}
}

// isFinal says that trying again would not help.
func isFinal(err error) bool {
	var known *job.Error
	return errors.As(err, &known) || errors.Is(err, fsm.ErrTooLarge)
}

// leftOver answers those for which there is no leader to try with. One whose earlier outcome is unknown keeps that
// error.
func leftOver(open []*creation, err error) {
	for _, c := range open {
		if c.err == nil || errors.Is(c.err, scheduler.ErrNotApplied) {
			c.err = err
		}
	}
}

// BulkCreate implements api.Backend. A named line is safe to repeat by its name; an unnamed one by its content and its
// place.
func (b *Service) BulkCreate(ctx context.Context, lines []wire.BulkLine, rq api.Request) ([]wire.BulkResult,
	error) {
	out := make([]wire.BulkResult, len(lines))
	var batch createBatch
	all := make([]creation, len(lines))
	items := make([]*creation, 0, len(lines))
	at := make([]int, 0, len(lines)) // the line of each item
	since, by := time.Now(), forward.CallerOf(ctx)
	if by != nil {
		if by.Bulk = true; rq.Client {
			by.Request = rq.Key
		}
	}
	for i := range lines {
		l := &lines[i]
		out[i] = wire.BulkResult{Line: l.Line, Name: l.Spec.Name}
		if l.Err != nil {
			fail(&out[i], l.Err)
			continue
		}
		err := cmp.Or(b.checkFields(ctx, &l.Spec, since), api.CheckShell(ctx, &l.Spec))
		if err == nil {
			err = b.neverRuns(ctx, &l.Spec, since)
		}
		if err != nil {
			fail(&out[i], err)
			continue
		}
		out[i].Name = l.Spec.Name
		all[i] = creation{spec: &l.Spec, size: sizeOf(&l.Spec), batch: &batch, by: by, first: len(items) == 0}
		items = append(items, &all[i])
		at = append(at, i)
	}
	if len(items) == 0 {
		return out, nil
	}
	err := b.createLines(ctx, items, func(now int64) {
		for k, c := range items {
			if c.spec.Name == "" || b.names() != nil {
				c.again = lines[at[k]].ID(rq.Owner, rq.Key)
			}
			if c.spec.Name == "" {
				c.request = fsm.Request{ID: c.again, Expires: now + keepClient.Milliseconds()}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for k, c := range items {
		answer(&out[at[k]], c)
	}
	return out, nil
}

func fail(r *wire.BulkResult, err error) {
	var known *job.Error
	if !errors.As(err, &known) {
		known = job.Errorf(job.CodeInternal, "see the node's log", "something went wrong inside the node")
	}
	r.Status, r.Error = "error", known
}

// answer puts what became of a line into its result.
func answer(r *wire.BulkResult, c *creation) {
	if err := forward.Explain(c.err); err != nil {
		if job.CodeOf(err) == job.CodeNotLeader {
			err = forward.ErrNoLeader() // the sender of the stream cannot do anything with another node's address
		}
		fail(r, err)
		return
	}
	switch {
	case c.outcome.Code == fsm.CodeExists, c.outcome.Code == fsm.CodeOK && c.outcome.Replay:
		r.Status, r.JobID = "exists", &c.outcome.Job
	case c.outcome.Code == fsm.CodeOK:
		r.Status, r.JobID = "created", &c.outcome.Job
	default:
		fail(r, outcomeError(c.outcome, r.Name))
	}
}

func (b *Service) GetJob(ctx context.Context, ref string, rd api.Read) (job.Job, error) {
	var j job.Job
	err := b.read(ctx, rd, func(r *view.Reader) error {
		id, err := r.Find(ref, rd.Space)
		if err == nil {
			j, err = r.Job(id)
		}
		return err
	})
	return j, err
}
