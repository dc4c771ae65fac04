package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"io"
	"strconv"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// JobQuery filters and pages the list of jobs. Cursor is the next_cursor of the page before.
type JobQuery struct {
	Status job.Status
	Type   job.Type
	Prefix string            // of the name
	Tags   map[string]string // all of them
	Text   string            // somewhere in the name, whatever the case of its letters
	// Failing asks for jobs whose last run did not do what it was there for.
	Failing bool
	Limit   int
	Cursor  string
}

// Filters says that not every job is asked for.
func (q *JobQuery) Filters() bool {
	return q.Status != "" || q.Type != "" || q.Prefix != "" || len(q.Tags) > 0 || q.Text != "" || q.Failing
}

// JobPage is one page of jobs. One of a filter may be short, or empty, and have a next one all the same: it says how
// many jobs were looked at for it.
type JobPage struct {
	Jobs       []job.Job `json:"jobs"`
	Scanned    int       `json:"scanned,omitempty"`
	Total      uint64    `json:"total,omitempty"` // jobs that there are, for those who may see every namespace
	NextCursor string    `json:"next_cursor"`
}

// JobAction is what is to be done with every job that a filter matches.
type JobAction struct {
	Filter JobFilter     `json:"filter"`
	Action string        `json:"action"` // pause, resume, run, tag, untag, jitter or delete
	Args   JobActionArgs `json:"args,omitzero"`
	DryRun bool          `json:"dry_run,omitempty"` // only count
	// Expect is how many are expected to match; otherwise nothing is done. A delete needs it.
	Expect *int   `json:"expect,omitempty"`
	Cursor string `json:"cursor,omitempty"` // of the last line of an answer that broke off
}

// JobActionArgs are what actions need.
type JobActionArgs struct {
	// Tags are set by tag. Untag removes them; one with a value only where it has that.
	Tags     map[string]string `json:"tags,omitempty"`
	JitterMS *int64            `json:"jitter_ms,omitempty"`
}

// JobFilter selects jobs: by ids, all of them, or those that have everything else that it names.
type JobFilter struct {
	Text    string            `json:"q,omitempty"`
	Prefix  string            `json:"prefix,omitempty"`
	Status  job.Status        `json:"status,omitempty"`
	Type    job.Type          `json:"type,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
	Failing bool              `json:"failing,omitempty"`
	IDs     []job.ID          `json:"ids,omitempty"`
	All     bool              `json:"all,omitempty"`
}

// Query is the filter as lists have it; ids and all are not in it.
func (f *JobFilter) Query() JobQuery {
	return JobQuery{Status: f.Status, Type: f.Type, Prefix: f.Prefix, Tags: f.Tags, Text: f.Text, Failing: f.Failing}
}

// JobActionProgress is a line of the answer to a JobAction.
type JobActionProgress struct {
	DryRun  bool   `json:"dry_run,omitempty"`
	Matched int    `json:"matched"`
	Done    int    `json:"done"`
	Failed  int    `json:"failed"`
	Scanned int    `json:"scanned"`
	Total   uint64 `json:"total,omitempty"` // jobs that there are, for those who may see every namespace
	Cursor  string `json:"cursor"`          // go on from here if no other line comes
	// Errors are some of those since the line before.
	Errors   []JobActionError `json:"errors"`
	Finished bool             `json:"finished,omitempty"`
	Error    *job.Error       `json:"error,omitempty"` // why it ended before its end
}

// JobActionError is why an action failed on one job.
type JobActionError struct {
	JobID job.ID     `json:"job_id"`
	Name  string     `json:"name,omitempty"`
	Error *job.Error `json:"error"`
}

// RunQuery filters and pages runs. Statuses empty means all.
type RunQuery struct {
	Statuses []job.RunStatus
	Job      string // reference; empty for all jobs
	// From and To bound when a run was recorded, and of an open one its scheduled time; 0: they do not.
	From, To job.Instant
	Worker   string // that had its last attempt
	Error    string // a text in its error, whatever the case of its letters
	Limit    int
	Cursor   string
}

// Searches says that runs are looked for, beyond what a list is ordered by.
func (q *RunQuery) Searches() bool {
	return q.From != 0 || q.To != 0 || q.Worker != "" || q.Error != ""
}

// RunPage is one page of runs, newest first.
type RunPage struct {
	Runs []job.Run `json:"runs"`
	// Scanned is about how many runs and records were looked at for a search, which may be many for a short page.
	Scanned    int    `json:"scanned,omitempty"`
	NextCursor string `json:"next_cursor"`
}

// RunDetail is one run: as it stands, and its attempts so far, newest first.
type RunDetail struct {
	job.Run
	Attempts []job.Run `json:"attempts"`
}

// DeadQuery selects dead letters: by job, by id, or all.
type DeadQuery struct {
	IDs []uint64 `json:"ids,omitempty"`
	Job string   `json:"job,omitempty"`
	All bool     `json:"all,omitempty"` // redrive and purge want to be told explicitly
	// Group is the key of a group of dead letters that have one cause.
	Group string `json:"group,omitempty"`
	// Max is how many are taken at most, newest first; 0: all of them.
	Max    int    `json:"max,omitempty"`
	Limit  int    `json:"-"`
	Cursor string `json:"-"`
}

// DeadPage is one page of dead letters, newest first.
type DeadPage struct {
	Dead       []job.DeadLetter `json:"dead"`
	NextCursor string           `json:"next_cursor"`
}

// DeadResult says how many dead letters a redrive or purge took.
type DeadResult struct {
	Count   int      `json:"count"`
	Unknown []uint64 `json:"unknown,omitempty"` // of the ids that were given: those that there is no dead letter of
	// Gone and Open count those that a redrive left: their job is deleted, or the same run is open already.
	Gone int `json:"gone,omitempty"`
	Open int `json:"open,omitempty"`
}

// BulkLine is one line of a bulk create.
type BulkLine struct {
	Line int
	Spec job.Spec
	Err  *job.Error // the line could not be read; it is answered in its place
	Raw  []byte     // the line as it came: an unnamed job's identity for a rerun
}

// ID identifies a line without a name under a client's key: a rerun has the same ones.
func (l *BulkLine) ID(owner, key string) string {
	h := sha256.New()
	h.Write([]byte(owner + "\x00" + key + "\x00"))
	if l.Spec.Namespace != job.DefaultNamespace { // the line itself may leave it to the request
		h.Write([]byte(l.Spec.Namespace + "\x00"))
	}
	h.Write(l.Raw)
	return "bulk:" + hex.EncodeToString(h.Sum(nil)[:16]) + ":" + strconv.Itoa(l.Line)
}

// BulkResult answers one line: "created", "exists" (the same job is there already) or "error".
type BulkResult struct {
	Line   int        `json:"line"`
	Status string     `json:"status"`
	JobID  *job.ID    `json:"job_id,omitempty"`
	Name   string     `json:"name,omitempty"`
	Error  *job.Error `json:"error,omitempty"`
}

// BackfillRequest asks for runs of the occurrences in [From, To]. Force repeats those that ran already, with a new key.
type BackfillRequest struct {
	From   job.Instant `json:"from"`
	To     job.Instant `json:"to"`
	Max    int         `json:"max,omitempty"` // refused if it would be more; default 100, at most job.MaxBackfill
	DryRun bool        `json:"dry_run,omitempty"`
	Force  bool        `json:"force,omitempty"`
}

// BackfillResult says what a backfill did, or with dry_run would do.
type BackfillResult struct {
	DryRun  bool          `json:"dry_run"`
	Times   []job.Instant `json:"times"`   // the occurrences that (would) run
	Skipped []job.Instant `json:"skipped"` // ran already or are open
}

// PreviewRequest asks for fire times of an expression before a job is saved.
type PreviewRequest struct {
	Schedule   string       `json:"schedule"`
	Timezone   string       `json:"timezone,omitempty"`
	From       job.Instant  `json:"from,omitzero"`
	Count      int          `json:"count,omitempty"`
	DSTGap     string       `json:"dst_gap,omitempty"`
	DSTOverlap string       `json:"dst_overlap,omitempty"`
	StartAt    job.Instant  `json:"start_at,omitzero"`
	EndAt      job.Instant  `json:"end_at,omitzero"`
	Calendars  []string     `json:"calendars,omitempty"`
	JobID      *job.ID      `json:"job_id,omitempty"` // H, @every and jitter depend on it; without: no jitter
	Jitter     job.Duration `json:"jitter,omitempty"`
	Until      job.Instant  `json:"until,omitzero"`    // no time after this
	Zones      []string     `json:"zones,omitempty"`   // in which the times are said as well
	Sharing    bool         `json:"sharing,omitempty"` // say what else there is in the minute of the first time
}

// PreviewTime is one fire time.
type PreviewTime struct {
	At    string      `json:"at"` // RFC 3339 with the zone's offset
	UTC   job.Instant `json:"utc"`
	Note  string      `json:"note,omitempty"` // what daylight saving or a calendar does to it
	Fires bool        `json:"fires"`          // false: a calendar or dst_gap forbids it
	// Zones is the same time in the zones that were asked for.
	Zones map[string]string `json:"zones,omitempty"`
}

// PreviewResult answers a PreviewRequest.
type PreviewResult struct {
	Schedule    string        `json:"schedule"`
	Timezone    string        `json:"timezone"`
	Description string        `json:"description"`
	Times       []PreviewTime `json:"times"`
	ByJob       bool          `json:"by_job,omitempty"`  // H or @every without a job_id: a job will have other times
	Sharing     *Sharing      `json:"sharing,omitempty"` // null: it was not asked for, or there is no next time
}

// Sharing is how many occurrences of jobs that there are may start in one minute, and what jitter would make of it.
type Sharing struct {
	Minute job.Instant  `json:"minute"`
	Jobs   int64        `json:"jobs"`
	Kind   string       `json:"kind"` // exact, or projected from some jobs
	Peaks  []JitterPeak `json:"peak_with_jitter"`
}

// JitterPeak is the most that any minute would have if what shares the first one were spread over a jitter.
type JitterPeak struct {
	JitterMS int64 `json:"jitter_ms"`
	Peak     int64 `json:"peak"`
}

// CalendarList is all blackout calendars.
type CalendarList struct {
	Calendars []schedule.Calendar `json:"calendars"`
}

// Problem is an error as it travels: RFC 9457 with the code, field and remedy of job.Error.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	job.Error
}

// Patch is an RFC 7386 merge patch of a job.
type Patch = json.RawMessage

// CancelResult says how many open runs a cancel took.
type CancelResult struct {
	Canceled int `json:"canceled"`
}

// Queue is a queue that is declared or that jobs use.
type Queue struct {
	Namespace   string      `json:"namespace"`
	Name        string      `json:"name"`
	Declared    bool        `json:"declared"`    // false: only jobs name it; no limit, not paused
	Concurrency int         `json:"concurrency"` // how many of its runs may be with workers at once; 0: no limit
	Paused      bool        `json:"paused"`
	Jobs        int         `json:"jobs"`
	Running     int         `json:"running"` // claimed and without a result, on all workers
	Backlog     int64       `json:"backlog"` // due and not claimed
	BacklogMore bool        `json:"backlog_more,omitempty"`
	OldestDueAt job.Instant `json:"oldest_due_at,omitzero"`
	Workers     []string    `json:"workers"`               // that take it; null if the node that answers does not lead
	WaitReason  string      `json:"wait_reason,omitempty"` // why its backlog is not claimed
	Version     uint64      `json:"version,omitempty"`
	UpdatedAt   job.Instant `json:"updated_at,omitzero"`
}

// QueueQuery selects a page of the queues of a namespace, or of all.
type QueueQuery struct {
	Limit  int
	Cursor string
}

// QueueList is a page of queues, by namespace and name.
type QueueList struct {
	Queues     []Queue `json:"queues"`
	NextCursor string  `json:"next_cursor,omitempty"`
}

// QueueChange is what to change of a queue; nil leaves it as it is.
type QueueChange struct {
	Concurrency *int  `json:"concurrency,omitempty"`
	Paused      *bool `json:"paused,omitempty"`
}

// LinesHeader is how many lines went before those of a bulk create that is a part of a longer input.
const LinesHeader = "Carillon-Lines-Before"

// GroupHeader names a group: between nodes the one that a request is for, of a worker the one whose leader it means.
const GroupHeader = "Carillon-Group"

// KnownHeader is, between nodes, how many groups of jobs the node knows of that a request came to, if it is several.
const KnownHeader = "Carillon-Known-Groups"

// Fingerprint tells two requests under one key apart. It is stored for a day and compared on other nodes, so it may not
// change.
func Fingerprint(method, path, query string, body []byte) uint64 {
	f := fnv.New64a()
	for _, s := range []string{method, path, query} {
		io.WriteString(f, s) //nolint:errcheck // a hash takes everything
		f.Write([]byte{0})
	}
	f.Write(body)
	return f.Sum64()
}

// RequestID is the identity of a request in the state. client: the key is its client's; owner is the token whose key it
// is.
func RequestID(owner, key string, client bool) string {
	switch {
	case key == "":
		return ""
	case owner != "":
		return "t:" + owner + ":" + key // a key that another token made up is another key
	case client:
		return "k:" + key
	}
	return "s:" + key
}

// MissingHeader names the groups that are not in the answer to a stale read, separated by commas.
const MissingHeader = "Carillon-Missing-Groups"

// WarningHeader says what the caller should know of what was done, such as a better way.
const WarningHeader = "Carillon-Warning"
