package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

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
