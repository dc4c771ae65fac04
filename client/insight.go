package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func between(v url.Values, from, to job.Instant) url.Values {
	set(v, "from", from.String())
	set(v, "to", to.String())
	return v
}

// Occurrences reads what became of the occurrences of a job, oldest first; the next page has older ones.
func (c *Client) Occurrences(ctx context.Context, ref string, q OccurrenceQuery) (p OccurrencePage, err error) {
	v := between(page(q.Limit, q.Cursor), q.From, q.To)
	if q.Cells > 0 {
		v.Set("cells", strconv.Itoa(q.Cells))
	}
	err = c.do(ctx, request{method: http.MethodGet, path: jobPath(ref) + "/occurrences", query: v, out: &p,
		need: "occurrences"})
	return p, err
}

// Why reads what keeps a job from running now.
func (c *Client) Why(ctx context.Context, ref string) (w Why, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: jobPath(ref) + ":why", out: &w, need: "checks"})
	return w, err
}

// JobStats reads how the last runs of a job went.
func (c *Client) JobStats(ctx context.Context, ref string) (s JobStats, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: jobPath(ref) + "/stats", out: &s, need: "runs"})
	return s, err
}

// Upcoming reads the next occurrences, of one job or of all, in the order in which they may start.
func (c *Client) Upcoming(ctx context.Context, q UpcomingQuery) (p UpcomingPage, err error) {
	v := between(page(q.Limit, q.Cursor), q.From, 0)
	set(v, "job", q.Job)
	for k, t := range q.Tags {
		v.Add("tag", k+"="+t)
	}
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/upcoming", query: v, out: &p,
		need: "occurrences"})
	return p, err
}

// UpcomingLoad counts the occurrences to come, by minute or, with a step of an hour, by hour. With a bucket it names
// the schedules that have most in that.
func (c *Client) UpcomingLoad(ctx context.Context, q LoadQuery) (l UpcomingLoad, err error) {
	v := between(url.Values{}, q.From, q.To)
	set(v, "bucket", q.Bucket.String())
	if q.Step == time.Hour.Milliseconds() {
		v.Set("step", "1h")
	}
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/upcoming:load", query: v, out: &l,
		need: "buckets"})
	return l, err
}
