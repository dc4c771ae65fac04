package service

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/schedule"
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
