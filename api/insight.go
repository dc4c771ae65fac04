package api

import (
	"context"
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// insightRoutes are about what becomes of occurrences, and why.
func insightRoutes() []route {
	return []route{
		{"GET", "/jobs/{ref}/occurrences", Viewer, ToLeader, emptyBody, (*call).occurrences,
			params("from to limit cursor cells stale")},
		{"GET", "/jobs/{ref}/stats", Viewer, ToLeader, emptyBody, (*call).jobStats, params("stale")},
		{"GET", "/jobs/{ref}:why", Viewer, ToLeader, emptyBody, (*call).why, params("stale")},
	}
}

// InsightBackend is what these routes stand on.
type InsightBackend interface {
	// Occurrences joins what the schedule of a job has with what became of it.
	Occurrences(ctx context.Context, ref string, q wire.OccurrenceQuery, rd Read) (wire.OccurrencePage, error)
	// Why says what keeps a job from running.
	Why(ctx context.Context, ref string, rd Read) (wire.Why, error)
	// JobStats is how the last runs of a job went.
	JobStats(ctx context.Context, ref string, rd Read) (wire.JobStats, error)
}

// moment is a parameter that is a time; zero if it is not given.
func (c *call) moment(name string) (job.Instant, error) {
	s, err := c.one(name)
	if err != nil || s == "" {
		return 0, err
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, job.Invalid(name, "write it as 2027-03-01T09:00:00Z", "%q is not an RFC 3339 time", s)
	}
	return job.At(t), nil
}

// interval is what the parameters from and to say; zero is what they do not.
func (c *call) interval() (from, to job.Instant, err error) {
	if from, err = c.moment("from"); err == nil {
		to, err = c.moment("to")
	}
	if err == nil && from != 0 && to != 0 && to < from {
		err = job.Invalid("to", "make it later than from", "the interval ends (%s) before it begins (%s)", to, from)
	}
	return from, to, err
}

const (
	defaultCells = 1500 // the minutes of a day
	maxCells     = 5000
)

func (c *call) occurrences() error {
	var q wire.OccurrenceQuery
	var err error
	if q.From, q.To, err = c.interval(); err != nil {
		return err
	}
	if q.Limit, err = c.limit(defaultCells, maxCells); err != nil {
		return err
	}
	if q.Cursor, err = c.one("cursor"); err != nil {
		return err
	}
	if q.Cells, err = c.number("cells"); err != nil {
		return err
	}
	switch {
	case q.Cells > maxCells:
		return job.Invalid("cells", "", "%d is more than %d", q.Cells, maxCells)
	case q.Cells > 0 && q.Cursor != "":
		return job.Invalid("cursor", "leave out one of the two", "with cells the answer is one page")
	}
	rd, err := c.read()
	if err != nil {
		return err
	}
	page, err := c.h.backend.Occurrences(c.ctx, c.ref(), q, rd)
	if err != nil {
		return err
	}
	page.Occurrences = list(page.Occurrences)
	return c.reply(http.StatusOK, page)
}

func (c *call) jobStats() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	stats, err := c.h.backend.JobStats(c.ctx, c.ref(), rd)
	if err != nil {
		return err
	}
	stats.Last = list(stats.Last)
	return c.reply(http.StatusOK, stats)
}

func (c *call) why() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	why, err := c.h.backend.Why(c.ctx, c.ref(), rd)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, why)
}
