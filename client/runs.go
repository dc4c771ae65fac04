package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func runPath(id string) string { return prefix + "/runs/" + url.PathEscape(id) }

// Runs reads one page of the open runs of all jobs, or of one; with a finished status in the query, of the history.
func (c *Client) Runs(ctx context.Context, q RunQuery) (p RunPage, err error) {
	v := page(q.Limit, q.Cursor)
	for _, s := range q.Statuses {
		v.Add("status", s.String())
	}
	set(v, "job", q.Job)
	between(v, q.From, q.To)
	set(v, "worker", q.Worker)
	set(v, "error", q.Error)
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/runs", query: v, out: &p, need: "runs"})
	return p, err
}

// RunSummary counts how runs ended between two times (zero: the last hour), of one job or of all, and has what runs for
// longest.
func (c *Client) RunSummary(ctx context.Context, q RunQuery) (s RunSummary, err error) {
	v := between(url.Values{}, q.From, q.To)
	set(v, "job", q.Job)
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/runs:summary", query: v, out: &s,
		need: "by_status"})
	return s, err
}

// GetRun reads one run with its attempts.
func (c *Client) GetRun(ctx context.Context, id string) (r RunDetail, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: runPath(id), out: &r, need: "run_id"})
	return r, err
}

// outputWait is how long a node may wait for more output before it answers.
const outputWait = 5 * time.Second

// RunOutput reads the output of a run's last attempt from an offset of an attempt on. If that has written nothing more
// and runs, the answer waits a while for it.
func (c *Client) RunOutput(ctx context.Context, id string, fence uint64, after int64) (o job.RunOutput, err error) {
	v := url.Values{}
	if fence != 0 {
		v.Set("fence", strconv.FormatUint(fence, 10))
		v.Set("after", strconv.FormatInt(after, 10))
	}
	err = c.do(ctx, request{method: http.MethodGet, path: runPath(id) + "/output", query: v, out: &o, need: "run_id",
		waits: outputWait})
	return o, err
}

// CancelRun cancels an open run.
func (c *Client) CancelRun(ctx context.Context, id string) (r job.Run, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: runPath(id) + ":cancel", out: &r, need: "run_id"})
	return r, err
}

// ExportHistory calls fn with every history record above after, oldest first. limit 0 means all. An export that broke
// off goes on behind the Seqs of the records that it had.
func (c *Client) ExportHistory(ctx context.Context, after Seqs, limit int,
	fn func(job.Run, json.RawMessage) error) error {
	v := page(limit, "")
	set(v, "after", after.String())
	return c.do(ctx, request{method: http.MethodGet, path: prefix + "/runs:export", query: v, lines: true,
		stream: func(r io.Reader) error { return eachLine(r, fn) }})
}

// DeadLetters reads one page of dead letters.
func (c *Client) DeadLetters(ctx context.Context, q DeadQuery) (p DeadPage, err error) {
	v := page(q.Limit, q.Cursor)
	set(v, "job", q.Job)
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/dead", query: v, out: &p, need: "dead"})
	return p, err
}

// DeadGroups reads dead letters by their cause. The groups of the next page may be those of this one.
func (c *Client) DeadGroups(ctx context.Context, q DeadQuery) (p DeadGroupPage, err error) {
	v := page(q.Limit, q.Cursor)
	set(v, "job", q.Job)
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/dead:groups", query: v, out: &p, need: "groups"})
	return p, err
}

// GetDead reads one dead letter.
func (c *Client) GetDead(ctx context.Context, id uint64) (d job.DeadLetter, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/dead/" + strconv.FormatUint(id, 10), out: &d,
		need: "dead_id"})
	return d, err
}

// Redrive puts dead letters back to work: by id, by job, by group, or all.
func (c *Client) Redrive(ctx context.Context, q DeadQuery) (r DeadResult, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: prefix + "/dead:redrive", body: q, out: &r, need: "count"})
	return r, err
}

// PurgeDead removes dead letters: by id, by job, or all.
func (c *Client) PurgeDead(ctx context.Context, q DeadQuery) (r DeadResult, err error) {
	v := url.Values{}
	for _, id := range q.IDs {
		v.Add("ids", strconv.FormatUint(id, 10))
	}
	set(v, "job", q.Job)
	if q.All {
		v.Set("all", "true")
	}
	set(v, "group", q.Group)
	if q.Max > 0 {
		v.Set("max", strconv.Itoa(q.Max))
	}
	err = c.do(ctx, request{method: http.MethodDelete, path: prefix + "/dead", query: v, out: &r, need: "count"})
	return r, err
}
