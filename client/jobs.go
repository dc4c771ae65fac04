package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/carillon-scheduler/carillon/job"
)

func jobPath(ref string) string { return prefix + "/jobs/" + url.PathEscape(ref) }

// CreateJob creates a job.
func (c *Client) CreateJob(ctx context.Context, spec job.Spec) (j job.Job, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: prefix + "/jobs", body: spec, out: &j, need: "job_id"})
	return j, err
}

// GetJob reads a job by id or name.
func (c *Client) GetJob(ctx context.Context, ref string) (j job.Job, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: jobPath(ref), out: &j, need: "job_id"})
	return j, err
}

// ListJobs reads one page of jobs.
func (c *Client) ListJobs(ctx context.Context, q JobQuery) (p JobPage, err error) {
	v := page(q.Limit, q.Cursor)
	set(v, "status", string(q.Status))
	set(v, "type", string(q.Type))
	set(v, "prefix", q.Prefix)
	set(v, "q", q.Text)
	if q.Failing {
		v.Set("failing", "true")
	}
	for k, t := range q.Tags {
		v.Add("tag", k+"="+t)
	}
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/jobs", query: v, out: &p, need: "jobs"})
	return p, err
}

// UpdateJob replaces a job's spec. Version 0 means whatever is there.
func (c *Client) UpdateJob(ctx context.Context, ref string, spec job.Spec, version uint64) (j job.Job, err error) {
	err = c.do(ctx, request{method: http.MethodPut, path: jobPath(ref), body: spec, match: version, out: &j,
		need: "job_id"})
	return j, err
}

// PreviewUpdate reads what UpdateJob would do.
func (c *Client) PreviewUpdate(ctx context.Context, ref string, spec job.Spec, version uint64) (p EditPreview,
	err error) {
	err = c.do(ctx, request{method: http.MethodPut, path: jobPath(ref), query: url.Values{"dry_run": {"true"}},
		body: spec, match: version, out: &p, need: "changes"})
	return p, err
}

// PatchJob changes the fields that an RFC 7386 merge patch names. Version 0 means whatever is there.
func (c *Client) PatchJob(ctx context.Context, ref string, p Patch, version uint64) (j job.Job, err error) {
	err = c.do(ctx, request{method: http.MethodPatch, path: jobPath(ref), raw: p, media: "application/merge-patch+json",
		match: version, out: &j, need: "job_id"})
	return j, err
}

// DeleteJob deletes a job. Version 0 means whatever is there.
func (c *Client) DeleteJob(ctx context.Context, ref string, version uint64) error {
	return c.do(ctx, request{method: http.MethodDelete, path: jobPath(ref), match: version})
}

// PauseJob stops a job from firing until it is resumed.
func (c *Client) PauseJob(ctx context.Context, ref string) (j job.Job, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: jobPath(ref) + ":pause", out: &j, need: "job_id"})
	return j, err
}

// ResumeJob undoes a pause.
func (c *Client) ResumeJob(ctx context.Context, ref string) (j job.Job, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: jobPath(ref) + ":resume", out: &j, need: "job_id"})
	return j, err
}

// RunJob makes a manual run now.
func (c *Client) RunJob(ctx context.Context, ref string) (r job.Run, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: jobPath(ref) + ":run", out: &r, need: "run_id"})
	return r, err
}

// CancelJob cancels every open run of a job and says how many there were.
func (c *Client) CancelJob(ctx context.Context, ref string) (int, error) {
	var r CancelResult
	err := c.do(ctx, request{method: http.MethodPost, path: jobPath(ref) + ":cancel", out: &r, need: "canceled"})
	return r.Canceled, err
}

// Backfill runs a job for the occurrences of a past interval.
func (c *Client) Backfill(ctx context.Context, ref string, b BackfillRequest) (r BackfillResult, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: jobPath(ref) + ":backfill", body: b, out: &r, need: "times"})
	return r, err
}

// JobRuns reads one page of a job's runs: the open ones, then its history, newest first.
func (c *Client) JobRuns(ctx context.Context, ref string, q RunQuery) (p RunPage, err error) {
	v := page(q.Limit, q.Cursor)
	for _, s := range q.Statuses {
		v.Add("status", s.String())
	}
	err = c.do(ctx, request{method: http.MethodGet, path: jobPath(ref) + "/runs", query: v, out: &p, need: "runs"})
	return p, err
}

func page(limit int, cursor string) url.Values {
	v := url.Values{}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	set(v, "cursor", cursor)
	return v
}

func set(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}
