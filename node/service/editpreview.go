package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// editTimes is how many of the next times are shown, before and after an edit.
const editTimes = 10

// PreviewUpdate implements api.Backend: what UpdateJob would do, without doing it. Both make the same checks and the
// same plan.
func (b *Service) PreviewUpdate(ctx context.Context, ref string, spec job.Spec, version uint64,
	rd api.Read) (wire.EditPreview, error) {
	var out wire.EditPreview
	if err := b.verify(ctx); err != nil {
		return out, err
	}
	if err := b.editable(ctx, ref, &spec, rd.Space); err != nil {
		return out, err
	}
	h, err := b.look(ref, rd.Space)
	if err != nil {
		return out, err
	}
	now := b.now()
	p, err := b.planUpdate(ctx, ref, &h, &spec, version, now)
	if err != nil {
		return out, err
	}
	if out.Job, err = b.show(h.ID); err != nil {
		return out, err
	}
	if out.Changes, err = changesOf(&h.Def.Spec, &spec); err != nil {
		return out, err
	}
	out.NextBefore, out.NextAfter = []job.Instant{}, []job.Instant{}
	if !h.Stopped() {
		out.NextBefore = nextTimes(&h, &h.Def.Spec, h.Due())
		out.NextAfter = nextTimes(&h, &spec, p.next)
	}
	out.Job.Spec, out.Job.NextRunAt = spec, 0
	if len(out.NextAfter) > 0 {
		out.Job.NextRunAt = out.NextAfter[0]
	}
	out.Dropped = droppedBy(p)
	out.Warnings = append([]string{}, spec.Warnings()...)
	return out, nil
}

// changesOf are the fields of a spec that differ, as they are written.
func changesOf(before, after *job.Spec) ([]wire.FieldChange, error) {
	fields := func(s *job.Spec) (m map[string]json.RawMessage, err error) {
		text, err := json.Marshal(s)
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		return m, err
	}
	from, err := fields(before)
	if err != nil {
		return nil, err
	}
	to, err := fields(after)
	if err != nil {
		return nil, err
	}
	names := maps.Clone(from)
	maps.Copy(names, to)
	out := []wire.FieldChange{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(from[name], to[name]) {
			out = append(out, wire.FieldChange{Field: name, From: from[name], To: to[name]})
		}
	}
	return out, nil
}

// nextTimes are when a job may start next, from an occurrence on.
func nextTimes(h *view.Held, spec *job.Spec, w fsm.When) []job.Instant {
	out := []job.Instant{}
	sched, err := view.Compile(spec, h.ID)
	if err != nil {
		return out // it is in quarantine for that
	}
	for runs := h.State.Runs; w.At != 0 && len(out) < editTimes; {
		out = append(out, job.Instant(w.Ready))
		runs++
		w = scheduler.NextAfter(spec, sched, runs, w.At)
	}
	return out
}

// droppedBy says which occurrences that are due an edit leaves out.
func droppedBy(p plan) wire.EditDropped {
	d := wire.EditDropped{Occurrences: p.gap.Count + p.after.Count, AtLeast: p.gap.AtLeast || p.after.AtLeast}
	if d.Occurrences == 0 {
		return d
	}
	first, last := p.gap.First, max(p.gap.Last, p.after.Last)
	if p.gap.Count == 0 {
		first = p.after.First
	}
	d.Text = fmt.Sprintf("%d occurrences that are due, from %s to %s, will be recorded as not run", d.Occurrences,
		job.Instant(first), job.Instant(last))
	if d.Occurrences == 1 {
		d.Text = fmt.Sprintf("the occurrence of %s, which is due, will be recorded as not run", job.Instant(first))
	}
	return d
}
