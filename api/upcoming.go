package api

import (
	"context"
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// upcomingRoutes are about what is to come.
func upcomingRoutes() []route {
	return []route{
		{"GET", "/upcoming", Viewer, ToLeader, AcrossJobs, emptyBody, (*call).upcoming,
			params("from job tag limit cursor stale")},
		{"GET", "/upcoming:load", Viewer, ToLeader, AcrossJobs, emptyBody, (*call).upcomingLoad,
			params("from to step bucket stale")},
	}
}

// UpcomingBackend is what these routes stand on.
type UpcomingBackend interface {
	// Upcoming is the next occurrences.
	Upcoming(ctx context.Context, q wire.UpcomingQuery, rd Read) (wire.UpcomingPage, error)
	// UpcomingLoad counts those to come, by time.
	UpcomingLoad(ctx context.Context, q wire.LoadQuery, rd Read) (wire.UpcomingLoad, error)
}

func (c *call) upcoming() error {
	var q wire.UpcomingQuery
	var rd Read
	var err error
	if q.Limit, q.Cursor, rd, err = c.page(); err != nil {
		return err
	}
	if q.From, err = c.moment("from"); err != nil {
		return err
	}
	if q.Job, err = c.one("job"); err != nil {
		return err
	}
	if q.Tags, err = c.tags(); err != nil {
		return err
	}
	page, err := c.h.backend.Upcoming(c.ctx, q, rd)
	if err != nil {
		return err
	}
	page.Occurrences = list(page.Occurrences)
	return c.replyPage(&page.NextCursor, &page)
}

func (c *call) upcomingLoad() error {
	var q wire.LoadQuery
	var err error
	q.From, q.To, err = c.interval()
	if err != nil {
		return err
	}
	name, err := c.one("step")
	if err == nil {
		err = known("step", name, "1m", "1h")
	}
	if err != nil {
		return err
	}
	if q.Bucket, err = c.moment("bucket"); err != nil {
		return err
	}
	rd, err := c.read()
	if err != nil {
		return err
	}
	if q.Step = time.Minute.Milliseconds(); name == "1h" {
		q.Step = time.Hour.Milliseconds()
	}
	l, err := c.h.backend.UpcomingLoad(c.ctx, q, rd)
	if err != nil {
		return err
	}
	l.Buckets = list(l.Buckets)
	return c.reply(http.StatusOK, l)
}
