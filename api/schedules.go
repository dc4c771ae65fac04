package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// scheduleRoutes are about schedules and calendars.
func scheduleRoutes() []route {
	return []route{
		{"POST", "/schedule:preview", Viewer, ToLeader, AcrossJobs, jsonBody, (*call).preview, nil},
		{"GET", "/calendars", Viewer, ToLeader, Control, emptyBody, (*call).listCalendars, params("stale")},
		{"GET", "/calendars/{name}", Viewer, ToLeader, Control, emptyBody, (*call).getCalendar, params("stale")},
		{"PUT", "/calendars/{name}", Operator, ToLeader, Control, jsonBody, (*call).putCalendar, nil},
		{"DELETE", "/calendars/{name}", Operator, ToLeader, Control, emptyBody, (*call).deleteCalendar, nil},
	}
}

// ScheduleBackend is what the routes of schedules and calendars stand on.
type ScheduleBackend interface {
	Preview(ctx context.Context, p wire.PreviewRequest, rd Read) (wire.PreviewResult, error)
	PutCalendar(ctx context.Context, c schedule.Calendar, rq Request) (schedule.Calendar, error)
	Calendars(ctx context.Context, rd Read) ([]schedule.Calendar, error)
	GetCalendar(ctx context.Context, name string, rd Read) (schedule.Calendar, error)
	DeleteCalendar(ctx context.Context, name string, rq Request) error
}

const (
	defaultPreview = 10
	maxPreview     = 1000
)

func (c *call) preview() error {
	var p wire.PreviewRequest
	if err := job.DecodeStrict(c.body, &p); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(p.Schedule) == "":
		return job.Invalid("schedule", `use a cron expression, "@every 90s", an RRULE, an RFC 3339 time or "@manual"`,
			"there is nothing to preview")
	case p.Count < 0 || p.Count > maxPreview:
		return job.Invalid("count", "", "%d is not between 1 and %d", p.Count, maxPreview)
	case len(p.Calendars) > job.MaxCalendars:
		return job.Invalid("calendars", "name those that a job would have", "%d calendars, at most %d are allowed",
			len(p.Calendars), job.MaxCalendars)
	}
	if p.Count == 0 {
		p.Count = defaultPreview
	}
	res, err := c.h.backend.Preview(c.ctx, p, Read{Stale: true, Space: c.space})
	if err != nil {
		return err
	}
	res.Times = list(res.Times)
	return c.reply(http.StatusOK, res)
}

func (c *call) listCalendars() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	all, err := c.h.backend.Calendars(c.ctx, rd)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, wire.CalendarList{Calendars: list(all)})
}

func (c *call) getCalendar() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	cal, err := c.h.backend.GetCalendar(c.ctx, c.r.PathValue("name"), rd)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, cal)
}

func (c *call) putCalendar() error {
	var cal schedule.Calendar
	if err := job.DecodeStrict(c.body, &cal); err != nil {
		return err
	}
	name := c.r.PathValue("name")
	if cal.Name != "" && cal.Name != name {
		return job.Invalid("name", "leave it out, or use the same name",
			"the body names %q and the path %q", cal.Name, name)
	}
	cal.Name = name
	space, err := c.into(cal.Namespace)
	if err != nil {
		return err
	}
	cal.Namespace, c.space.Namespace = space, space
	rq, err := c.request()
	if err != nil {
		return err
	}
	cal, err = c.h.backend.PutCalendar(c.ctx, cal, rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, cal)
}

func (c *call) deleteCalendar() error {
	rq, err := c.request()
	if err != nil {
		return err
	}
	return c.done(c.h.backend.DeleteCalendar(c.ctx, c.r.PathValue("name"), rq))
}
