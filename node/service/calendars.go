package service

import (
	"context"
	"encoding/json"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// maxCalendar keeps a calendar far below the size of a log entry.
	maxCalendar = 64 << 10
	// So many calendars a namespace has, with so many bytes together, and all namespaces: a list shows all of them, and
	// no namespace uses up what they share. Requests that come at the same moment may go a little beyond it.
	maxCalendarsIn, maxCalendarBytesIn = 512, 4 << 20
	maxCalendars, maxCalendarBytes     = 4096, 32 << 20
)

// calendarFits refuses a calendar if there were too many then, or they were too large together. One that becomes
// smaller fits in any case.
func (b *Service) calendarFits(namespace, name string, size int) error {
	return b.view(func(r *view.Reader) error {
		if was := r.Calendar(namespace, name); was != nil && size <= len(was) {
			return nil
		}
		in, all, err := r.CalendarSizes(namespace, name)
		if err != nil {
			return err
		}
		return oneMoreCalendar(namespace, in, all, size)
	})
}

// oneMoreCalendar says whether there is room for a calendar of a size beside those of its namespace, and of all.
func oneMoreCalendar(namespace string, in, all store.CalendarSize, size int) error {
	const remedy = "delete some of them"
	switch {
	case in.Count >= maxCalendarsIn:
		return job.Errorf(job.CodeState, remedy, "namespace %s has %d calendars already", namespace, in.Count)
	case in.Bytes+size > maxCalendarBytesIn:
		return job.Errorf(job.CodeState, remedy+", or leave out dates that are over",
			"the calendars of namespace %s would have %d bytes together, at most %d are allowed", namespace,
			in.Bytes+size, maxCalendarBytesIn)
	case all.Count >= maxCalendars || all.Bytes+size > maxCalendarBytes:
		return job.Errorf(job.CodeState, remedy, "there are %d calendars already, with %d bytes together",
			all.Count, all.Bytes)
	}
	return nil
}

func (b *Service) PutCalendar(ctx context.Context, c schedule.Calendar, rq api.Request) (schedule.Calendar, error) {
	if err := job.CheckCalendarName(c.Name); err != nil {
		return c, err
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
		if err := b.calendarFits(c.Namespace, c.Name, len(data)); err != nil {
			return nil, err
		}
		return &fsm.Calendar{Head: a.head, Request: a.req, Namespace: spaceIn(c.Namespace), Name: c.Name,
			Data: data}, nil
	})
	if err == nil {
		b.heardByGroups(ctx, "the calendar as it was before")
	}
	return c, err
}

func (b *Service) Calendars(ctx context.Context, rd api.Read) ([]schedule.Calendar, error) {
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return nil, err
	}
	defer done()
	var out []schedule.Calendar
	err = b.view(func(r *view.Reader) error {
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

// GetCalendar implements api.Backend.
func (b *Service) GetCalendar(ctx context.Context, name string, rd api.Read) (c schedule.Calendar, err error) {
	err = b.read(ctx, rd, func(r *view.Reader) error {
		var there bool
		if c, there, err = calendarOf(r, rd.Space.Name(), name); err == nil && !there {
			err = noCalendar(name, rd.Space.Name())
		}
		return err
	})
	return c, err
}

func calendarOf(r *view.Reader, namespace, name string) (c schedule.Calendar, there bool, err error) {
	data := r.Calendar(namespace, name)
	if data == nil {
		return c, false, nil
	}
	err = json.Unmarshal(data, &c)
	c.Namespace = namespace
	return c, true, err
}

func noCalendar(name, namespace string) error {
	return job.Errorf(job.CodeNotFound, "GET /api/v1/calendars lists them",
		"there is no calendar %q in namespace %q", name, namespace)
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
		return noCalendar(name, rq.Space.Name())
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
	if len(p.Calendars) > 0 { // to compile them may take a while
		done, err := b.Turn(ctx, rd)
		if err != nil {
			return wire.PreviewResult{}, err
		}
		defer done()
		err = b.view(func(r *view.Reader) error {
			for _, name := range p.Calendars {
				c, there, err := calendarOf(r, rd.Space.Name(), name)
				if err != nil {
					return err
				}
				if there {
					all = append(all, c)
				}
			}
			return nil
		})
		if err != nil {
			return wire.PreviewResult{}, err
		}
	}
	res, err := wire.LocalPreview(p, time.UnixMilli(b.now()), all)
	api.EndTurn(ctx)
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
