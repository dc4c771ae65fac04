package api

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/mergepatch"
	"github.com/carillon-scheduler/carillon/job"
)

// jobRoutes are about jobs.
func jobRoutes() []route {
	return []route{
		{"POST", "/jobs", Operator, ToLeader, ByPlace, jsonBody, (*call).createJob, nil},
		{"GET", "/jobs", Viewer, ToLeader, AcrossJobs, emptyBody, (*call).listJobs,
			params("q status type prefix tag failing limit cursor stale")},
		{"POST", "/jobs:bulk", Operator, Once, AcrossJobs, linesBody, (*call).bulk, nil},
		{"POST", "/jobs:apply", Operator, Once, AcrossJobs, linesBody, (*call).applyJobs,
			params("dry_run set take_over calendars")},
		{"GET", "/jobs/{ref}", Viewer, ToLeader, ByJob, emptyBody, (*call).getJob, params("stale")},
		{"PUT", "/jobs/{ref}", Operator, ToLeader, ByJob, jsonBody, (*call).putJob, params("dry_run")},
		{"PATCH", "/jobs/{ref}", Operator, ToLeader, ByJob, patchBody, (*call).patchJob, params("dry_run")},
		{"DELETE", "/jobs/{ref}", Operator, ToLeader, ByJob, emptyBody, (*call).deleteJob, nil},
		{"GET", "/jobs/{ref}/runs", Viewer, ToLeader, ByJob, emptyBody, (*call).jobRuns,
			params("status from to worker error limit cursor stale")},
		{"POST", "/jobs/{ref}:run", Operator, ToLeader, ByJob, emptyBody, (*call).runJob, nil},
		{"POST", "/jobs/{ref}:pause", Operator, ToLeader, ByJob, emptyBody, (*call).pauseJob, nil},
		{"POST", "/jobs/{ref}:resume", Operator, ToLeader, ByJob, emptyBody, (*call).resumeJob, nil},
		{"POST", "/jobs/{ref}:cancel", Operator, ToLeader, ByJob, emptyBody, (*call).cancelJob, nil},
		{"POST", "/jobs/{ref}:backfill", Operator, ToLeader, ByJob, jsonBody, (*call).backfill, nil},
	}
}

// JobBackend is what the routes of jobs stand on.
type JobBackend interface {
	// CreateJob normalizes, validates and creates. replay: the request was answered before.
	CreateJob(ctx context.Context, spec job.Spec, rq Request) (j job.Job, replay bool, err error)
	// BulkCreate creates many; each line has its own result, in order. rq.Key may be empty here: named lines are safe
	// to repeat by their name, unnamed ones by their content.
	BulkCreate(ctx context.Context, lines []wire.BulkLine, rq Request) ([]wire.BulkResult, error)
	// ApplyJobs creates, changes or leaves jobs as they are, by their names; each line has its own result, in order.
	ApplyJobs(ctx context.Context, lines []wire.BulkLine, o wire.ApplyOptions, rq Request) ([]wire.ApplyResult, error)
	GetJob(ctx context.Context, ref string, rd Read) (job.Job, error)
	ListJobs(ctx context.Context, q wire.JobQuery, rd Read) (wire.JobPage, error)
	// UpdateJob replaces the spec, of which an empty namespace means the one that the job is in. version 0 means any;
	// otherwise a mismatch is CodeVersionConflict.
	UpdateJob(ctx context.Context, ref string, spec job.Spec, version uint64, rq Request) (job.Job, error)
	// UpdatedJob is the job that an earlier try of the request updated; ok is false if there was none.
	UpdatedJob(ctx context.Context, ref string, rq Request) (j job.Job, ok bool, err error)
	// PreviewUpdate is what UpdateJob would do.
	PreviewUpdate(ctx context.Context, ref string, spec job.Spec, version uint64, rd Read) (wire.EditPreview, error)
	DeleteJob(ctx context.Context, ref string, version uint64, rq Request) error
	PauseJob(ctx context.Context, ref string, rq Request) (job.Job, error)
	ResumeJob(ctx context.Context, ref string, rq Request) (job.Job, error)
	// RunJob makes a manual run now.
	RunJob(ctx context.Context, ref string, rq Request) (job.Run, error)
	// CancelJob cancels every open run of the job and says how many.
	CancelJob(ctx context.Context, ref string, rq Request) (int, error)
	Backfill(ctx context.Context, ref string, b wire.BackfillRequest, rq Request) (wire.BackfillResult, error)
}

// readOnly are the fields that answers have and a spec has not.
var readOnly = []string{"job_id", "status", "next_run_at", "last_run_at", "last_run_status", "last_success_at",
	"open_runs", "runs_started", "wait_reason", "failing", "last_notification", "version", "created_at", "updated_at"}

// decodeSpec reads a job as its owner writes it.
func decodeSpec(data []byte) (job.Spec, error) {
	s, err := job.DecodeSpec(data)
	var e *job.Error
	if err != nil && errors.As(err, &e) && e.Code == job.CodeUnknownField && slices.Contains(readOnly, e.Field) {
		e.Message, e.Remedy = "Carillon sets this field itself", "remove it"
	}
	return s, err
}

func (c *call) createJob() error {
	spec, err := decodeSpec(c.body)
	if err != nil {
		return err
	}
	if spec.Namespace, err = c.into(spec.Namespace); err != nil {
		return err
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	j, replay, err := c.h.backend.CreateJob(c.ctx, spec, rq)
	if err != nil {
		return err
	}
	if replay {
		c.markReplay()
	}
	c.w.Header().Set("Location", prefix+"/jobs/"+j.ID.String())
	c.warn(&j.Spec)
	return c.replyJob(http.StatusCreated, j)
}

func (c *call) listJobs() error {
	q, rd, err := c.jobQuery()
	if err != nil {
		return err
	}
	page, err := c.h.backend.ListJobs(c.ctx, q, rd)
	if err != nil {
		return err
	}
	page.Jobs = list(page.Jobs)
	return c.replyPage(&page.NextCursor, &page)
}

func (c *call) getJob() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	j, err := c.h.backend.GetJob(c.ctx, c.ref(), rd)
	if err != nil {
		return err
	}
	return c.replyJob(http.StatusOK, j)
}

// putJob takes what getJob gave: GET, edit, PUT is the natural way, so what Carillon itself says is read past. Only the
// version in it counts.
func (c *call) putJob() error {
	var j job.Job
	if err := job.DecodeStrict(c.body, &j); err != nil {
		return err
	}
	if id, err := job.ParseID(c.ref()); err == nil && j.ID != 0 && j.ID != id {
		return job.Invalid("job_id", "send it to the job it came from", "the body is job %s", j.ID)
	}
	if j.Namespace != "" { // what getJob gave names it
		space, err := c.into(j.Namespace)
		if err != nil {
			return err
		}
		c.space.Namespace = space
	}
	version, err := c.matchVersion(j.Version)
	if err != nil {
		return err
	}
	if dry, err := c.flag("dry_run"); dry || err != nil {
		if err != nil {
			return err
		}
		return c.previewUpdate(j.Spec, version)
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	return c.updated(c.h.backend.UpdateJob(c.ctx, c.ref(), j.Spec, version, rq))
}

func (c *call) updated(j job.Job, err error) error {
	if err != nil {
		return err
	}
	c.warn(&j.Spec)
	return c.replyJob(http.StatusOK, j)
}

// previewUpdate says what an edit would do.
func (c *call) previewUpdate(spec job.Spec, version uint64) error {
	p, err := c.h.backend.PreviewUpdate(c.ctx, c.ref(), spec, version, Read{Space: c.space})
	if err != nil {
		return err
	}
	p.Changes, p.NextBefore, p.NextAfter = list(p.Changes), list(p.NextBefore), list(p.NextAfter)
	p.Warnings = list(p.Warnings)
	return c.reply(http.StatusOK, p)
}

// patchAttempts is how often a patch without a version is put onto a job that keeps changing under it.
const patchAttempts = 8

// patchJob merges over the job as it stands. The update names the version that was merged over, so no other edit is
// lost; who named no version gets the merge repeated.
func (c *call) patchJob() error {
	patch, err := mergepatch.Read(c.body)
	if err != nil {
		return err
	}
	want, err := c.matchVersion(patch.Version)
	if err != nil {
		return err
	}
	dry, err := c.flag("dry_run")
	if err != nil {
		return err
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	if !dry { // a patch that renamed the job is not found under its old name when it is repeated
		if j, ok, err := c.h.backend.UpdatedJob(c.ctx, c.ref(), rq); err != nil || ok {
			return c.updated(j, err)
		}
	}
	for attempt := 1; ; attempt++ {
		current, err := c.h.backend.GetJob(c.ctx, c.ref(), Read{Space: c.space})
		if err != nil {
			return err
		}
		text, err := patch.Apply(current.Spec)
		if err != nil {
			return err
		}
		spec, err := decodeSpec(text)
		if err != nil {
			return err
		}
		version := want
		if version == 0 {
			version = current.Version
		}
		if dry {
			return c.previewUpdate(spec, version)
		}
		j, err := c.h.backend.UpdateJob(c.ctx, c.ref(), spec, version, rq)
		if want != 0 || job.CodeOf(err) != job.CodeVersionConflict || attempt == patchAttempts {
			return c.updated(j, err)
		}
	}
}

func (c *call) deleteJob() error {
	version, err := c.matchVersion(0)
	if err != nil {
		return err
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	return c.done(c.h.backend.DeleteJob(c.ctx, c.ref(), version, rq))
}

func (c *call) pauseJob() error { return c.changeJob(c.h.backend.PauseJob) }

func (c *call) resumeJob() error { return c.changeJob(c.h.backend.ResumeJob) }

func (c *call) changeJob(change func(context.Context, string, Request) (job.Job, error)) error {
	rq, err := c.request()
	if err != nil {
		return err
	}
	j, err := change(c.ctx, c.ref(), rq)
	if err != nil {
		return err
	}
	return c.replyJob(http.StatusOK, j)
}

func (c *call) runJob() error {
	rq, err := c.request()
	if err != nil {
		return err
	}
	run, err := c.h.backend.RunJob(c.ctx, c.ref(), rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, run)
}

func (c *call) cancelJob() error {
	rq, err := c.request()
	if err != nil {
		return err
	}
	n, err := c.h.backend.CancelJob(c.ctx, c.ref(), rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, wire.CancelResult{Canceled: n})
}

const defaultBackfill = 100

func (c *call) backfill() error {
	var b wire.BackfillRequest
	if err := job.DecodeStrict(c.body, &b); err != nil {
		return err
	}
	switch {
	case b.From == 0:
		return job.Invalid("from", `send {"from": …, "to": …} in RFC 3339`, "a backfill needs a beginning")
	case b.To == 0:
		return job.Invalid("to", `send {"from": …, "to": …} in RFC 3339`, "a backfill needs an end")
	case b.To < b.From:
		return job.Invalid("to", "make it later than from",
			"the interval ends (%s) before it begins (%s)", b.To, b.From)
	case b.Max < 0 || b.Max > job.MaxBackfill:
		return job.Invalid("max", "backfill in several steps", "%d is not between 1 and %d", b.Max, job.MaxBackfill)
	case b.Max == 0:
		b.Max = defaultBackfill
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	res, err := c.h.backend.Backfill(c.ctx, c.ref(), b, rq)
	if err != nil {
		return err
	}
	res.Times, res.Skipped = list(res.Times), list(res.Skipped)
	return c.reply(http.StatusOK, res)
}

// list makes sure that a list is never null in JSON.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func (c *call) jobRuns() error {
	q, rd, err := c.runQuery()
	if err != nil {
		return err
	}
	page, err := c.h.backend.JobRuns(c.ctx, c.ref(), q, rd)
	if err != nil {
		return err
	}
	page.Runs = list(page.Runs)
	return c.replyPage(&page.NextCursor, &page)
}
