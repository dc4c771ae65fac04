package applier

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// applyOther applies a queue or a calendar: it is read, compared, and written if it differs.
func (r *run) applyOther(d *document) error {
	c := r.c
	if d.namespace != "" {
		c = c.In(d.namespace)
	}
	apply := r.applyCalendar
	if d.kind == kindQueue {
		apply = r.applyQueue
	}
	res, err := apply(c, d)
	switch job.CodeOf(err) {
	case job.CodeInvalid, job.CodeTooLarge, job.CodeForbidden, job.CodeState, job.CodeVersionConflict:
		r.refused(d, nil, d.at(err))
		return nil
	}
	if err != nil {
		return err
	}
	res.Name, res.Namespace = d.name, d.namespace
	return r.done(d, res)
}

func (r *run) applyCalendar(c *client.Client, d *document) (res client.ApplyResult, err error) {
	have, err := c.GetCalendar(r.ctx, d.name)
	there := err == nil
	if err != nil && job.CodeOf(err) != job.CodeNotFound {
		return res, err
	}
	want := d.calendar
	want.Namespace, have.Namespace = "", ""
	res.Changes, err = compare(there, plain(have), plain(want), &res.Status)
	if err == nil && res.Status != "unchanged" && !r.dryRun {
		_, err = c.PutCalendar(client.WithWarnings(r.ctx, func(text string) {
			fmt.Fprintf(r.cmd.ErrOrStderr(), "warning: %s: %s\n", d.title(), text)
		}), want)
	}
	return res, err
}

// plain is a calendar with its times in one zone.
func plain(c schedule.Calendar) schedule.Calendar {
	c.Windows = slices.Clone(c.Windows)
	for i := range c.Windows {
		c.Windows[i].From, c.Windows[i].To = c.Windows[i].From.UTC(), c.Windows[i].To.UTC()
	}
	return c
}

// applyQueue leaves the pause of a queue alone.
func (r *run) applyQueue(c *client.Client, d *document) (res client.ApplyResult, err error) {
	have, err := c.GetQueue(r.ctx, d.name)
	if code := job.CodeOf(err); err != nil && code != job.CodeUnknownQueue && code != job.CodeNotFound {
		return res, err
	}
	there := err == nil && have.Declared
	type limits struct {
		Concurrency int `json:"concurrency"`
	}
	res.Changes, err = compare(there, limits{have.Concurrency}, limits{d.queue.Concurrency}, &res.Status)
	if err != nil || res.Status == "unchanged" || r.dryRun {
		return res, err
	}
	change := client.QueueChange{Concurrency: &d.queue.Concurrency}
	if there {
		_, err = c.PatchQueue(r.ctx, d.name, change, have.Version)
	} else {
		_, err = c.PutQueue(r.ctx, d.name, change, 0)
	}
	return res, err
}

// compare finds the fields that differ, and says in one word what is to be done.
func compare(there bool, have, want any, status *string) (out []client.ChangedField, err error) {
	if *status = "created"; !there {
		return nil, nil
	}
	fields := func(v any) (m map[string]json.RawMessage) {
		var text []byte
		if err == nil {
			text, err = json.Marshal(v)
		}
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		return m
	}
	from, to := fields(have), fields(want)
	if err != nil {
		return nil, err
	}
	names := maps.Clone(from)
	maps.Copy(names, to)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(from[name], to[name]) {
			out = append(out, client.ChangedField{Field: name, Before: from[name], After: to[name]})
		}
	}
	if *status = "unchanged"; len(out) > 0 {
		*status = "changed"
	}
	return out, nil
}
