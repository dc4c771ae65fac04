package api

import (
	"context"
	"io"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// Request identifies a mutating request, so that a repeat is answered with the first outcome.
type Request struct {
	Key         string // the client's Idempotency-Key, or one that the receiving node stamped; never empty
	Client      bool   // the key is the client's: keep its outcome for 24 hours
	Fingerprint uint64 // of method, path and body: the same key with another request is refused
	// Repeat says that a node sent this before and does not know how that ended: what is stored about it comes first.
	Repeat bool
}

// Read says how fresh a read must be.
type Read struct {
	Stale bool // answer from this node's own state, leader or not
}

// Backend is what the routes stand on; package node/service implements it. Every error it returns is a *job.Error or is treated as
// internal. A job reference is an id (j_…) or a name.
type Backend interface {
	// CreateJob normalizes, validates and creates. replay: the request was answered before.
	CreateJob(ctx context.Context, spec job.Spec, rq Request) (j job.Job, replay bool, err error)
	// BulkCreate creates many; each line has its own result, in order. rq.Key may be empty here: named lines are safe to repeat by
	// their name, unnamed ones by their content.
	BulkCreate(ctx context.Context, lines []wire.BulkLine, rq Request) ([]wire.BulkResult, error)
	GetJob(ctx context.Context, ref string, rd Read) (job.Job, error)
	ListJobs(ctx context.Context, q wire.JobQuery, rd Read) (wire.JobPage, error)
	// UpdateJob replaces the spec. version 0 means any; otherwise a mismatch is CodeVersionConflict.
	UpdateJob(ctx context.Context, ref string, spec job.Spec, version uint64, rq Request) (job.Job, error)
	DeleteJob(ctx context.Context, ref string, version uint64, rq Request) error
	PauseJob(ctx context.Context, ref string, rq Request) (job.Job, error)
	ResumeJob(ctx context.Context, ref string, rq Request) (job.Job, error)
	// RunJob makes a manual run now.
	RunJob(ctx context.Context, ref string, rq Request) (job.Run, error)
	// CancelJob cancels every open run of the job and says how many.
	CancelJob(ctx context.Context, ref string, rq Request) (int, error)
	Backfill(ctx context.Context, ref string, b wire.BackfillRequest, rq Request) (wire.BackfillResult, error)

	// JobRuns is a job's open runs and then its history, newest first.
	JobRuns(ctx context.Context, ref string, q wire.RunQuery, rd Read) (wire.RunPage, error)
	// Runs is the open runs of all jobs (q.Statuses filters); with a finished status among q.Statuses it is the history.
	Runs(ctx context.Context, q wire.RunQuery, rd Read) (wire.RunPage, error)
	GetRun(ctx context.Context, runID string, rd Read) (wire.RunDetail, error)
	// RunOutput is the output of the run's last attempt from an offset on; of a running one it waits a while for more.
	RunOutput(ctx context.Context, runID string, fence uint64, after int64) (job.RunOutput, error)
	CancelRun(ctx context.Context, runID string, rq Request) (job.Run, error)
	// ExportHistory returns up to limit records with a sequence number above after, oldest first.
	ExportHistory(ctx context.Context, after uint64, limit int, rd Read) ([]job.Run, error)

	DeadLetters(ctx context.Context, q wire.DeadQuery, rd Read) (wire.DeadPage, error)
	Redrive(ctx context.Context, q wire.DeadQuery, rq Request) (wire.DeadResult, error)
	PurgeDead(ctx context.Context, q wire.DeadQuery, rq Request) (wire.DeadResult, error)

	Preview(ctx context.Context, p wire.PreviewRequest) (wire.PreviewResult, error)
	PutCalendar(ctx context.Context, c schedule.Calendar, rq Request) (schedule.Calendar, error)
	Calendars(ctx context.Context, rd Read) ([]schedule.Calendar, error)
	DeleteCalendar(ctx context.Context, name string, rq Request) error

	// Queues are those that are declared or that jobs use, by name.
	Queues(ctx context.Context, rd Read) ([]wire.Queue, error)
	GetQueue(ctx context.Context, name string, rd Read) (wire.Queue, error)
	// PutQueue changes what is not nil, and declares the queue if it is not; with mustExist only if jobs use it. version 0 means any.
	PutQueue(ctx context.Context, name string, c wire.QueueChange, version uint64, mustExist bool, rq Request) (wire.Queue, error)
	DeleteQueue(ctx context.Context, name string, version uint64, rq Request) error
	// KnownQueue is nil for a queue that was declared or that jobs use; otherwise CodeUnknownQueue, with those that are known. It is
	// cheap, from this node's own state.
	KnownQueue(name string) error

	// ClockReset lowers the clock mark to the leader's clock after a clock that ran ahead was put right.
	ClockReset(ctx context.Context, rq Request) error

	// Release ends the hold of a restored cluster. Doing it again changes nothing.
	Release(ctx context.Context, rq Request) (wire.ReleaseResult, error)
	// Backup is a consistent copy of this node's own state, leader or not. Closing it frees what it holds.
	Backup(ctx context.Context) (wire.BackupInfo, io.ReadCloser, error)

	Status(ctx context.Context, rd Read) (wire.Status, error)
	// Live says whether the process should be restarted, Ready whether it should get traffic.
	Live() error
	Ready() error
}
