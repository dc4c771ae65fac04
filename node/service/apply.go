package service

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/view"
)

const (
	// applyTries is how often a job is compared that keeps changing.
	applyTries = 3
	// applyAtOnce is how many edits are proposed side by side: what is proposed together is on the disk by one fsync.
	applyAtOnce = 128
)

// applied is a line on its way.
type applied struct {
	at   int // its place
	line *wire.BulkLine
	spec job.Spec // what the job is to be
	res  *wire.ApplyResult

	id      job.ID    // of the job that there is
	version uint64    // that the comparison was with
	old     *job.Spec // a part of that; nil: there is no job of the name
}

// ApplyJobs implements api.Backend. A line is compared with the job of its name. What is the same is left alone and
// leaves no trace in the log. An edit insists on the version that it was compared with; if another came first, or the
// job was created or deleted meanwhile, it is compared again. So a repetition of any part is safe, and needs no key.
func (b *Service) ApplyJobs(ctx context.Context, lines []wire.BulkLine, o wire.ApplyOptions,
	rq api.Request) ([]wire.ApplyResult, error) {
	out := make([]wire.ApplyResult, len(lines))
	var open []*applied
	since := time.Now()
	for i := range lines {
		l, r := &lines[i], &out[i]
		r.BulkResult = wire.BulkResult{Line: l.Line, Name: l.Spec.Name}
		if l.Err != nil {
			fail(&r.BulkResult, l.Err)
			continue
		}
		if err := b.applicable(ctx, &l.Spec, &o, since); err != nil {
			fail(&r.BulkResult, err)
			continue
		}
		r.Name, r.Namespace = l.Spec.Name, l.Spec.Namespace
		open = append(open, &applied{at: i, line: l, res: r})
	}
	for try := 1; len(open) > 0; try++ {
		if err := b.verify(ctx); err != nil {
			if try == 1 {
				return nil, err
			}
			for _, a := range open {
				fail(&a.res.BulkResult, err)
			}
			break
		}
		created, changed, err := b.compare(ctx, open, &o)
		if err != nil {
			return nil, err
		}
		if o.DryRun {
			break
		}
		again, err := b.createApplied(ctx, created, rq)
		if err != nil {
			return nil, err // the batcher may still write into the lines
		}
		open = append(again, b.editApplied(ctx, changed, rq)...)
		if try == applyTries {
			for _, a := range open {
				fail(&a.res.BulkResult, job.Errorf(job.CodeVersionConflict, "apply it again",
					"others keep changing the job"))
			}
			break
		}
	}
	for i := range out {
		if out[i].Error != nil {
			out[i].Changes = nil
		}
	}
	return out, nil
}

// applicable checks a line by itself. The calendars that a dry run takes as there are not looked for.
func (b *Service) applicable(ctx context.Context, spec *job.Spec, o *wire.ApplyOptions, since time.Time) error {
	all := spec.Calendars
	if len(o.Calendars) > 0 {
		spec.Calendars = slices.DeleteFunc(slices.Clone(all),
			func(name string) bool { return slices.Contains(o.Calendars, name) })
	}
	err := b.checkFields(ctx, spec, since)
	spec.Calendars = all
	if err != nil {
		return err
	}
	_, err = b.schedules.Compile(spec, 1)
	return wire.ScheduleError(err)
}

// compare finds out what is to be done about lines. Each has its answer afterwards as if that were done already, or an
// error; those that are the same are done.
func (b *Service) compare(ctx context.Context, open []*applied, o *wire.ApplyOptions) (created, changed []*applied,
	err error) {
	errs := make([]error, len(open))
	err = b.view(func(r *view.Reader) error {
		for i, a := range open {
			a.res.Error, a.res.JobID, a.res.Changes = nil, nil, nil
			a.spec, a.old = a.line.Spec, nil
			var known *job.Error
			if errs[i] = a.compare(r, o); errs[i] != nil && !errors.As(errs[i], &known) {
				return errs[i]
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for i, a := range open {
		same := a.old != nil && len(a.res.Changes) == 0
		err := errs[i]
		if err == nil && !same {
			err = b.mayWrite(ctx, a.old, &a.spec, o)
		}
		switch {
		case err != nil:
			fail(&a.res.BulkResult, err)
		case same:
			a.res.Status = wire.ApplyUnchanged
		case a.old == nil:
			a.res.Status = wire.ApplyCreated
			created = append(created, a)
		default:
			a.res.Status = wire.ApplyChanged
			changed = append(changed, a)
		}
	}
	return created, changed, nil
}

// compare compares a line with the job of its name, if there is one.
func (a *applied) compare(r *view.Reader, o *wire.ApplyOptions) error {
	id, err := r.Find(a.spec.Name, api.Space{Namespace: a.spec.Namespace})
	if job.CodeOf(err) == job.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	def, err := r.Def(id)
	if err != nil {
		return err
	}
	if def == nil {
		return fmt.Errorf("the name of %s leads to no job", id)
	}
	a.id, a.version, a.res.JobID = id, def.Version, &id
	// What else there is of it is not kept: a chunk of lines may be about jobs of any size.
	a.old = &job.Spec{Type: def.Spec.Type, Schedule: def.Spec.Schedule, Calendars: def.Spec.Calendars}
	if err := keepSet(&def.Spec, &a.spec, o); err != nil {
		return err
	}
	a.res.Changes, err = differences(&def.Spec, &a.spec)
	return err
}

// keepSet leaves a job in its set unless the request says otherwise.
func keepSet(old, spec *job.Spec, o *wire.ApplyOptions) error {
	have, want := old.Tags[job.SetTag], spec.Tags[job.SetTag]
	switch {
	case have == "" || have == want:
	case want == "":
		tags := maps.Clone(spec.Tags)
		if tags == nil {
			tags = map[string]string{}
		}
		tags[job.SetTag] = have
		spec.Tags = tags
	case !o.TakeOver:
		return job.Invalid("tags", "remove it from that set first, or move it with --take-over (take_over=true)",
			"the job %q is in the set %q, not in %q", spec.Name, have, want)
	}
	return nil
}

// mayWrite checks what depends on who writes and on what was there. A viewer asks on behalf of those who will apply it.
func (b *Service) mayWrite(ctx context.Context, old, spec *job.Spec, o *wire.ApplyOptions) error {
	if id := api.IdentityOf(ctx); !o.DryRun || id == nil || id.Role != job.RoleViewer {
		if err := api.CheckShell(ctx, old, spec); err != nil {
			return err
		}
	}
	if len(o.Calendars) > 0 || old != nil && spec.Schedule == old.Schedule &&
		slices.Equal(spec.Calendars, old.Calendars) {
		return nil
	}
	return b.neverRuns(ctx, spec, time.Now())
}

// createApplied creates jobs. It returns those whose names were taken meanwhile.
func (b *Service) createApplied(ctx context.Context, some []*applied, rq api.Request) (again []*applied, _ error) {
	if len(some) == 0 {
		return nil, nil
	}
	by := forward.CallerOf(ctx)
	if by != nil {
		if by.Bulk = true; rq.Client {
			by.Request = rq.Key
		}
	}
	var batch createBatch
	items := make([]*creation, len(some))
	for i, a := range some {
		items[i] = &creation{spec: &a.spec, size: sizeOf(&a.spec), batch: &batch, by: by, first: i == 0}
	}
	err := b.createLines(ctx, slices.Clone(items), func(int64) {
		for i, c := range items {
			if b.names() != nil {
				c.again = some[i].line.ID(rq.Owner, rq.Key)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for i, c := range items {
		a := some[i]
		taken := c.err == nil && (c.outcome.Code == fsm.CodeDuplicate || c.outcome.Code == fsm.CodeExists)
		if taken || job.CodeOf(c.err) == job.CodeDuplicateName {
			again = append(again, a)
			continue
		}
		if answer(&a.res.BulkResult, c); a.res.Error == nil {
			a.res.NextRunAt = job.Instant(c.next.Ready)
		}
	}
	return again, nil
}

// editApplied edits jobs, several at a time. It returns those that were changed or deleted by others meanwhile.
func (b *Service) editApplied(ctx context.Context, some []*applied, rq api.Request) (again []*applied) {
	errs := make([]error, len(some))
	free := make(chan struct{}, applyAtOnce)
	var all sync.WaitGroup
	for i, a := range some {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			own := rq
			own.Key, own.Client, own.Repeat = rand.Text(), false, false // the version keeps it from being done twice
			own.Space = api.Space{Namespace: a.spec.Namespace}
			j, err := b.UpdateJob(ctx, a.id.String(), a.spec, a.version, own)
			if errs[i] = err; err == nil && j.Status == job.StatusScheduled {
				a.res.NextRunAt = j.NextRunAt
			}
		})
	}
	all.Wait()
	for i, err := range errs {
		switch a := some[i]; job.CodeOf(err) {
		case job.CodeVersionConflict, job.CodeNotFound:
			again = append(again, a)
		default:
			if err != nil {
				answer(&a.res.BulkResult, &creation{err: err})
			}
		}
	}
	return again
}

// differences are the fields that an apply would change.
func differences(before, after *job.Spec) ([]wire.ChangedField, error) {
	x, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	y, err := json.Marshal(after)
	if err != nil || bytes.Equal(x, y) {
		return nil, err
	}
	all, err := changesOf(before, after)
	if err != nil {
		return nil, err
	}
	var out []wire.ChangedField
	for _, c := range all {
		if c.Field == "payload" && sameJSON(c.From, c.To) {
			continue
		}
		f := wire.ChangedField{Field: c.Field, Before: c.From, After: c.To}
		if max(len(c.From), len(c.To)) > wire.MaxChange {
			f = wire.ChangedField{Field: c.Field, Large: true}
		}
		out = append(out, f)
	}
	return out, nil
}

// sameJSON says that two texts are the same value: members in another order and numbers that are written otherwise,
// as after a way through YAML, are no change.
func sameJSON(a, b []byte) bool {
	read := func(text []byte) (v any, ok bool) {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		return v, dec.Decode(&v) == nil
	}
	x, ok1 := read(a)
	y, ok2 := read(b)
	return ok1 && ok2 && sameValue(x, y)
}

func sameValue(x, y any) bool {
	switch x := x.(type) {
	case map[string]any:
		y, ok := y.(map[string]any)
		return ok && maps.EqualFunc(x, y, sameValue)
	case []any:
		y, ok := y.([]any)
		return ok && slices.EqualFunc(x, y, sameValue)
	case json.Number:
		y, ok := y.(json.Number)
		return ok && (x == y || sameNumber(x.String(), y.String()))
	}
	return x == y
}

// maxDigits bounds the arithmetic about a number: 1e999999999 takes gigabytes to be written out.
const maxDigits = 400

func sameNumber(a, b string) bool {
	exact := func(s string) (*big.Rat, bool) {
		f, err := json.Number(s).Float64()
		if err != nil || len(s) > maxDigits || f == 0 { // too large, or so small that its exponent is
			return nil, false
		}
		return new(big.Rat).SetString(s)
	}
	x, ok1 := exact(a)
	y, ok2 := exact(b)
	if !ok1 || !ok2 {
		return zero(a) && zero(b)
	}
	return x.Cmp(y) == 0
}

// zero says that a number has no other digit than 0 before its exponent.
func zero(s string) bool {
	mantissa, _, _ := strings.Cut(strings.ToLower(s), "e")
	return !strings.ContainsAny(mantissa, "123456789")
}
