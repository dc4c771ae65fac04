package client

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
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

// Stats reads how runs ended over the last 5m, 1h or 24h, as the node that is asked has it.
func (c *Client) Stats(ctx context.Context, window string) (s Stats, err error) {
	v := url.Values{}
	set(v, "window", window)
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/stats", query: v, out: &s, need: "buckets"})
	return s, err
}

// eventSilence is for how long a stream of events may have nothing to say: a node sends a comment every ten seconds.
const eventSilence = 15 * time.Second

// Events calls fn with what happens on the node that is asked, until fn or the stream fails, ctx ends or the node says
// that it is over. Topics are those of the API: stats, cluster, runs, dead, job:REF.
func (c *Client) Events(ctx context.Context, topics []string, fn func(Event) error) error {
	v := url.Values{}
	set(v, "topics", strings.Join(topics, ","))
	return c.do(ctx, request{method: http.MethodGet, path: prefix + "/events", query: v, waits: eventSilence,
		stream: func(r io.Reader) error {
			lines := bufio.NewScanner(r)
			var e Event
			for lines.Scan() {
				name, value, _ := strings.Cut(lines.Text(), ": ")
				switch {
				case name == "event":
					e.Name = value
				case name == "id":
					e.ID, _ = strconv.ParseUint(value, 10, 64) //nolint:errcheck // 0 is as good as none
				case name == "data":
					e.Data = []byte(value)
				case name == "" && e.Name != "": // the end of an event; of a comment there is none
					if err := fn(e); err != nil || e.Name == "bye" {
						return err
					}
					e = Event{}
				}
			}
			if err := lines.Err(); err != nil {
				return readError{err}
			}
			return nil
		}})
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
