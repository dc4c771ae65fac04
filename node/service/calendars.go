package service

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

// maxCalendar keeps a calendar far below the size of a log entry.
const maxCalendar = 64 << 10

func (b *Service) PutCalendar(ctx context.Context, c schedule.Calendar, rq api.Request) (schedule.Calendar, error) {
	if c.Name == "" || c.Name == "." || c.Name == ".." || len(c.Name) > job.MaxName ||
		strings.ContainsAny(c.Name, "/\\?#%:\"\x00 ") {
		return c, job.Invalid("name", "use letters, digits, - _ .", "%q is not a name for a calendar", c.Name)
	}
	if _, err := c.Compile(); err != nil {
		return c, wire.ScheduleError(err)
	}
	c.Namespace = "" // its key has it
	data, err := json.Marshal(c)
	if err != nil {
		return c, err
	}
	c.Namespace = rq.Space.Name()
	if len(data) > maxCalendar {
		return c, job.Errorf(job.CodeTooLarge, "split it into several calendars; a job may name up to 16",
			"the calendar has %d bytes, at most %d are allowed", len(data), maxCalendar)
	}
	_, err = b.changeNamed(ctx, rq, c.Name, func(a attempt) (fsm.Command, error) {
		return &fsm.Calendar{Head: a.head, Request: a.req, Namespace: spaceIn(c.Namespace), Name: c.Name,
			Data: data}, nil
	})
	return c, err
}

func (b *Service) Calendars(ctx context.Context, rd api.Read) ([]schedule.Calendar, error) {
	var out []schedule.Calendar
	err := b.read(ctx, rd, func(r *view.Reader) error {
		var bad error
		err := r.EachCalendar(func(namespace, name string, data []byte) {
			if !rd.Space.Lists(namespace) {
				return
			}
			var c schedule.Calendar
			if err := json.Unmarshal(data, &c); err != nil {
				bad = err
				return
			}
			c.Namespace = namespace
			out = append(out, c)
		})
		if err == nil {
			err = bad
		}
		return err
	})
	return out, err
}

const (
	// viewScan is how many definitions one view looks at for a name, which decodes few of them: about a millisecond.
	viewScan = 4096
	// usersShown is how many jobs are named, usersCounted how many are counted, that keep a calendar from being
	// deleted.
	usersShown   = 5
	usersCounted = 1000
)

// users refuses a calendar that is in use. It looks through all jobs, a few thousand at a time: about 0.15 s per
// million of those in memory. A job that is created or edited meanwhile may be missed; its calendar is then none, and
// the scheduler's log says so.
func (b *Service) users(ctx context.Context, namespace, calendar string) error {
	known := false
	err := b.view(func(r *view.Reader) error {
		known = r.Calendar(namespace, calendar) != nil
		return nil
	})
	if err != nil || !known {
		return err // the state machine says so
	}
	var names []string
	count := 0
	var after job.ID
	for end := false; !end && count < usersCounted; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := b.view(func(r *view.Reader) (err error) {
			after, end, err = r.JobsWith(calendar, after, viewScan, func(id job.ID, d store.Definition) {
				if d.Spec.Namespace != namespace || !slices.Contains(d.Spec.Calendars, calendar) {
					return
				}
				if count++; count <= usersShown {
					names = append(names, cmp.Or(d.Spec.Name, id.String()))
				}
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	if count == 0 {
		return nil
	}
	text := strconv.Itoa(count) + " jobs use"
	switch {
	case count == 1:
		text = "1 job uses"
	case count >= usersCounted:
		text = "at least " + text
	}
	list := strings.Join(names, ", ")
	if count > usersShown {
		list += ", …"
	}
	return job.Errorf(job.CodeState, "remove it from those jobs first", "%s the calendar %q: %s", text, calendar, list)
}

// DeleteCalendar implements api.Backend. One that jobs name stays: they would fire on the days that they were meant to
// keep clear.
func (b *Service) DeleteCalendar(ctx context.Context, name string, rq api.Request) error {
	o, done, err := b.replay(ctx, rq)
	if err == nil && !done {
		if err = b.verify(ctx); err == nil {
			err = b.users(ctx, rq.Space.Name(), name)
		}
		if err == nil {
			o, err = b.change(ctx, rq, func(a attempt) (fsm.Command, error) {
				return &fsm.Calendar{Head: a.head, Request: a.req, Namespace: spaceIn(rq.Space.Name()),
					Name: name}, nil
			})
		}
	}
	switch {
	case err != nil:
		return err
	case o.Code == fsm.CodeNotFound:
		return job.Errorf(job.CodeNotFound, "GET /api/v1/calendars lists them",
			"there is no calendar %q in namespace %q", name, rq.Space.Name())
	}
	return outcomeError(o, name)
}

// spaceIn is a namespace as commands name it: the usual one is left out.
func spaceIn(namespace string) string {
	if namespace == job.DefaultNamespace {
		return ""
	}
	return namespace
}

// Preview implements api.Backend. It needs the leader only for its calendars, and those may be a moment old.
func (b *Service) Preview(ctx context.Context, p wire.PreviewRequest, rd api.Read) (wire.PreviewResult, error) {
	var all []schedule.Calendar
	if len(p.Calendars) > 0 {
		var err error
		if all, err = b.Calendars(ctx, rd); err != nil {
			return wire.PreviewResult{}, err
		}
	}
	res, err := wire.LocalPreview(p, time.UnixMilli(b.now()), all)
	if err == nil && p.Sharing && len(res.Times) > 0 {
		res.Sharing, err = b.Share(ctx, int64(res.Times[0].UTC), rd)
	}
	return res, err
}

// zoneOf is the zone that a schedule is in: the job's, or the one that the expression itself names.
func zoneOf(s *schedule.Schedule, zone string) string {
	if zone != "" {
		return zone
	}
	if fires := s.Preview(time.Unix(0, 0), 1); len(fires) == 1 {
		return fires[0].At.Location().String()
	}
	return "UTC"
}
