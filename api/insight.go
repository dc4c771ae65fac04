package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// insightRoutes are about what becomes of occurrences, and why.
func insightRoutes() []route {
	return []route{
		{"GET", "/jobs/{ref}/occurrences", Viewer, ToLeader, ByJob, emptyBody, (*call).occurrences,
			params("from to limit cursor cells stale")},
		{"GET", "/jobs/{ref}/stats", Viewer, ToLeader, ByJob, emptyBody, (*call).jobStats, params("stale")},
		{"GET", "/jobs/{ref}:why", Viewer, ToLeader, ByJob, emptyBody, (*call).why, params("stale")},
		{"GET", "/stats", Viewer, Here, AcrossJobs, emptyBody, (*call).stats, params("window stale")},
		{"GET", "/events", Viewer, Here, AcrossJobs, streamBody, (*call).events, params("topics stale")},
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
	// Stats is how runs ended in the last time, by this node's own state.
	Stats(ctx context.Context, window time.Duration, rd Read) (wire.Stats, error)
	// Events sends what happens on this node, until ctx ends or send fails. Each call of send is some whole events.
	Events(ctx context.Context, q wire.EventQuery, rd Read, send func([]byte) error) error
}

// windows are those that there are statistics of.
var windows = map[string]time.Duration{"": 5 * time.Minute, "5m": 5 * time.Minute, "1h": time.Hour,
	"24h": 24 * time.Hour}

func (c *call) stats() error {
	window, err := c.one("window")
	if err == nil {
		err = known("window", window, "5m", "1h", "24h")
	}
	if err != nil {
		return err
	}
	rd, err := c.read()
	if err != nil {
		return err
	}
	s, err := c.h.backend.Stats(c.ctx, windows[window], rd)
	if err != nil {
		return err
	}
	s.Buckets = list(s.Buckets)
	return c.reply(http.StatusOK, s)
}

// slowReader is how long a frame of a stream may take to be written: a client that does not read is cut off.
const slowReader = 5 * time.Second

// events streams server-sent events. They come from the node that is asked, leader or not.
func (c *call) events() error {
	topics := c.words("topics")
	if len(topics) == 0 {
		topics = []string{wire.TopicStats, wire.TopicRuns, wire.TopicDead}
	}
	for _, topic := range topics {
		if strings.HasPrefix(topic, wire.TopicJob) {
			continue
		}
		if err := known("topics", topic, wire.TopicStats, wire.TopicCluster, wire.TopicRuns, wire.TopicDead,
			"job:REF"); err != nil {
			return err
		}
		if topic == wire.TopicCluster && !c.space.All {
			return job.Errorf(job.CodeForbidden, "leave the topic out, or use a token for all namespaces",
				"the topic %s is about the whole cluster, not one namespace", topic)
		}
	}
	rc := http.NewResponseController(c.w)
	defer deadline(rc.SetWriteDeadline, 0) // net/http would leave it on the connection for the next request
	err := c.h.backend.Events(c.ctx, wire.EventQuery{Topics: topics}, Read{Stale: true, Space: c.space},
		func(frame []byte) error {
			if !c.started {
				c.started = true
				c.w.Header().Set("Content-Type", "text/event-stream")
				c.w.Header().Set("Cache-Control", "no-store")
				c.w.Header().Set("X-Accel-Buffering", "no") // or a proxy collects them
				c.w.WriteHeader(http.StatusOK)
			}
			if c.r.Method == http.MethodHead {
				return errHead
			}
			if Revoked(c.ctx) == nil { // the end of a token has set one already
				deadline(rc.SetWriteDeadline, slowReader)
			}
			if _, err := c.w.Write(frame); err != nil {
				return err
			}
			return rc.Flush()
		})
	if errors.Is(err, errHead) {
		return nil
	}
	return err
}

// errHead ends a stream of which only the head is wanted: without it the handler, and its connection, would be kept for
// a client that reads nothing.
var errHead = errors.New("only the head is wanted")

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
		return job.Invalid("cursor", "leave out cells or cursor", "with cells there is only one page")
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
