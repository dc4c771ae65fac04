package wire

import (
	"encoding/json"

	"github.com/carillon-scheduler/carillon/job"
)

// What becomes of an occurrence. Those that did not run are named by the reason where people look for it.
const (
	FateSucceeded   = "succeeded"
	FateFailed      = "failed" // an attempt failed, and what followed is no longer known
	FateDead        = "dead"
	FateRunning     = "running"
	FateWaiting     = "waiting"
	FateSkipped     = "skipped"
	FateMissed      = "missed"
	FatePaused      = "paused"
	FateBlackout    = "blackout"
	FateExpired     = "expired"
	FateLost        = "lost"
	FateCanceled    = "canceled"
	FateUpcoming    = "upcoming"
	FateUnaccounted = "unaccounted" // it should have been and there is no trace of it: a bug
	FateMixed       = "mixed"       // of several that were put together: more than one
)

// OccurrenceQuery asks for the occurrences of a job in [From, To]. Cursor is the next_cursor of the page before.
type OccurrenceQuery struct {
	From, To job.Instant // zero: a day ago, and what comes next
	Limit    int
	Cursor   string
	Cells    int // put neighbours together until there are at most so many of what was; 0: each by itself
}

// OccurrencePage is what became of the occurrences of a job, oldest first. A page has the newest of those that it does
// not leave to the next one; the summary is about all of them.
type OccurrencePage struct {
	JobID       job.ID            `json:"job_id"`
	From        job.Instant       `json:"from"`
	To          job.Instant       `json:"to"`
	KnownFrom   job.Instant       `json:"known_from"` // before it, only what was recorded is shown
	Summary     OccurrenceSummary `json:"summary"`
	Occurrences []Occurrence      `json:"occurrences"`
	NextCursor  string            `json:"next_cursor"` // for older ones
}

// OccurrenceSummary counts fates. Expected is ran, open, explained and unaccounted together.
type OccurrenceSummary struct {
	Expected    int64 `json:"expected"`
	Ran         int64 `json:"ran"`
	Open        int64 `json:"open"`
	Explained   int64 `json:"explained"` // did not run, with a reason
	Unaccounted int64 `json:"unaccounted"`
	Upcoming    int64 `json:"upcoming"`
}

// Occurrence is one occurrence with its fate, or several: of one fate of which only the interval was recorded, or put
// together because there are too many.
type Occurrence struct {
	ScheduledAt job.Instant `json:"scheduled_at"`
	Last        job.Instant `json:"last,omitzero"` // of several: the last one
	Count       int64       `json:"count"`
	Fate        string      `json:"fate"`
	// Fates is how many have which fate, of those that were put together.
	Fates      map[string]int64 `json:"fates,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	RunID      string           `json:"run_id,omitempty"`
	Attempts   int              `json:"attempts,omitempty"`
	Redriven   bool             `json:"redriven,omitempty"` // it died, and was redriven
	StartAt    job.Instant      `json:"start_at,omitzero"`  // of one that is to come: with its jitter
	StartedAt  job.Instant      `json:"started_at,omitzero"`
	LagMS      *int64           `json:"lag_ms,omitempty"`
	DurationMS *int64           `json:"duration_ms,omitempty"`
	Backfill   string           `json:"backfill,omitempty"` // how the newest backfill of it ended
}

// The states of a check.
const (
	CheckOK      = "ok"
	CheckBlocked = "blocked"
	CheckUnknown = "unknown" // only the leader knows, and this node does not lead
)

// Why says why a job does not run now, or when it will.
type Why struct {
	JobID   job.ID      `json:"job_id"`
	At      job.Instant `json:"at"`
	Verdict string      `json:"verdict"`
	Checks  []Check     `json:"checks"` // in the order in which they stop a run
}

// Check is one thing that could keep a job from running.
type Check struct {
	Check  string      `json:"check"`
	State  string      `json:"state"`
	Text   string      `json:"text"`
	Remedy string      `json:"remedy,omitempty"`
	Since  job.Instant `json:"since,omitzero"`
}

// JobStats is how the last runs of a job went.
type JobStats struct {
	JobID       job.ID      `json:"job_id"`
	Runs        int         `json:"runs"` // that ended
	Succeeded   int         `json:"succeeded"`
	Failed      int         `json:"failed"`       // dead, lost or expired
	Redriven    int         `json:"redriven"`     // died before, and ended again after a redrive
	SuccessRate *float64    `json:"success_rate"` // of those two; null without any
	DurationMS  Quantiles   `json:"duration_ms"`  // of their last attempts
	LagMS       Quantiles   `json:"lag_ms"`
	From        job.Instant `json:"from"` // scheduled time of the oldest
	To          job.Instant `json:"to"`   // and of the newest
	Last        []LastRun   `json:"last"` // newest first
}

// Quantiles are those of some values; null without any.
type Quantiles struct {
	P50 *int64 `json:"p50"`
	P95 *int64 `json:"p95"`
	Max *int64 `json:"max"`
}

// LastRun is a run as a mark in a row of them.
type LastRun struct {
	RunID       string        `json:"run_id"`
	ScheduledAt job.Instant   `json:"scheduled_at"`
	Status      job.RunStatus `json:"status"`
}

// StatsBounds are the upper bounds of the histograms, in ms. What is above all of them is counted last.
var StatsBounds = []int64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000}

// Stats is how runs ended over a time. Buckets without anything in them are left out.
type Stats struct {
	Node         string        `json:"node"` // whose state it is from; all nodes agree
	From         job.Instant   `json:"from"`
	To           job.Instant   `json:"to"`
	StepMS       int64         `json:"step_ms"`
	CompleteFrom job.Instant   `json:"complete_from"` // null while the history is being read
	BoundsMS     []int64       `json:"bounds_ms"`
	Buckets      []StatsBucket `json:"buckets"`
}

// StatsBucket is one second or minute of it.
type StatsBucket struct {
	At job.Instant `json:"at"`
	StatsCounts
	LagMS      []uint32 `json:"lag_ms,omitempty"` // how many up to each bound
	DurationMS []uint32 `json:"duration_ms,omitempty"`
}

// StatsCounts are runs by how they ended, and occurrences that did not run.
type StatsCounts struct {
	Succeeded int64       `json:"succeeded"`
	Failed    int64       `json:"failed"` // attempts after which another follows
	Dead      int64       `json:"dead"`
	Retried   int64       `json:"retried"` // of all attempts those that were not the first of their run
	Lost      int64       `json:"lost"`
	Canceled  int64       `json:"canceled"`
	NotRun    NotRunCount `json:"not_run"`
}

// NotRunCount are occurrences that did not run, by why. They count when that is recorded.
type NotRunCount struct {
	Skipped  int64 `json:"skipped"`
	Missed   int64 `json:"missed"`
	Expired  int64 `json:"expired"`
	Paused   int64 `json:"paused"`
	Blackout int64 `json:"blackout"`
}

// EventQuery says what a stream of events is about: stats, cluster, runs, dead, and jobs by their references.
type EventQuery struct {
	Topics []string
}

// The topics of a stream of events. A topic job:REF is about one job.
const (
	TopicStats   = "stats"
	TopicCluster = "cluster"
	TopicRuns    = "runs"
	TopicDead    = "dead"
	TopicJob     = "job:"
)

// Event is one event of a stream.
type Event struct {
	Name string // hello, stats, cluster, runs, dead, job or bye
	ID   uint64 // the log entry that the node had applied; 0: it is not told
	Data []byte // JSON
}

// HelloEvent is the first event of a stream.
type HelloEvent struct {
	Node    string   `json:"node"`
	Applied uint64   `json:"applied_index,omitempty"` // for those who may see every namespace
	Version string   `json:"version"`
	Topics  []string `json:"topics"`
}

// StatsEvent is how things stand. What only the leader knows, and what is about the whole cluster where one namespace
// was asked for, is null.
type StatsEvent struct {
	At        job.Instant `json:"at"`     // the second
	Second    StatsCounts `json:"second"` // what ended in it
	Running   *int        `json:"running"`
	Slots     *int        `json:"slots"`
	Backlog   *int64      `json:"backlog"` // counted up to 10,000
	Dead      *uint64     `json:"dead"`
	Jobs      *uint64     `json:"jobs"`
	LagP50    *int64      `json:"lag_p50_ms"` // of the last ten seconds, as upper bounds; null without runs
	LagP99    *int64      `json:"lag_p99_ms"`
	Namespace string      `json:"namespace"`
}

// ClusterEvent is the cluster as a node sees it.
type ClusterEvent struct {
	Leader   string        `json:"leader"` // empty: there is none
	Term     uint64        `json:"term"`
	Ready    bool          `json:"ready"`
	NotReady string        `json:"not_ready,omitempty"`
	StaleMS  int64         `json:"stale_ms"` // how long ago the node heard from the leader
	Members  []MemberEvent `json:"members"`
	Troubles int           `json:"troubles"`
}

// MemberEvent is a member of it.
type MemberEvent struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Role    string `json:"role"`  // leader, voter or nonvoter
	Alive   *bool  `json:"alive"` // null: only the leader knows
}

// JobEvent says that something about a job changed.
type JobEvent struct {
	ID job.ID `json:"id"`
}

// ByeEvent is the last event of a stream.
type ByeEvent struct {
	Reason string `json:"reason"` // token_revoked, stopping or too_slow
}

// DeadGroupPage is dead letters by their cause, the largest group first.
type DeadGroupPage struct {
	Groups     []DeadGroup `json:"groups"`
	Scanned    int         `json:"scanned"`         // letters that were looked at
	Total      uint64      `json:"total,omitempty"` // letters that there are, for those who may see every namespace
	LeftOut    int         `json:"left_out"`        // of them, in none of these groups: there are too many
	NextCursor string      `json:"next_cursor"`     // for older ones, which may be of the same groups
}

// DeadGroup is the dead letters of one namespace that have one cause: their errors differ in numbers and names only.
type DeadGroup struct {
	Key       string         `json:"key"`
	Namespace string         `json:"namespace"`
	Error     string         `json:"error"` // without what differs
	Reason    job.Reason     `json:"reason"`
	Count     int            `json:"count"`
	Jobs      int            `json:"jobs"`
	JobNames  []string       `json:"job_names"` // some of them
	First     job.Instant    `json:"first"`
	Last      job.Instant    `json:"last"`
	Sample    job.DeadLetter `json:"sample"` // the newest
}

// RunSummary is how runs ended over a time, and what runs for longest.
type RunSummary struct {
	From job.Instant `json:"from"`
	To   job.Instant `json:"to"`
	// CountedFrom is from when on everything was counted: later than From if there was too much, or if it was trimmed.
	CountedFrom job.Instant      `json:"counted_from"`
	ByStatus    map[string]int64 `json:"by_status"` // attempts that ended, and occurrences that did not run
	ByReason    map[string]int64 `json:"by_reason"` // those of them that have one
	Longest     []LongRun        `json:"longest"`   // running now, longest first
	Scanned     int              `json:"scanned"`
}

// LongRun is a run that has not ended, and how long those of its job usually take.
type LongRun struct {
	job.Run
	RunningMS int64  `json:"running_ms"`
	P95MS     *int64 `json:"p95_ms"` // of the last 500 runs of its job; null: there are none
}

// UpcomingQuery asks for the next occurrences, of one job or of all.
type UpcomingQuery struct {
	From   job.Instant // 0: now
	Job    string
	Tags   map[string]string
	Limit  int
	Cursor string
}

// UpcomingPage is the next occurrences, in the order in which they may start.
type UpcomingPage struct {
	Occurrences []Upcoming `json:"occurrences"`
	NextCursor  string     `json:"next_cursor"`
}

// Upcoming is an occurrence that is to come.
type Upcoming struct {
	JobID       job.ID      `json:"job_id"`
	Name        string      `json:"name,omitempty"`
	Namespace   string      `json:"namespace"`
	ScheduledAt job.Instant `json:"scheduled_at"`
	StartAt     job.Instant `json:"start_at"` // with jitter
	Type        job.Type    `json:"type"`
	Queue       string      `json:"queue,omitempty"`
}

// LoadQuery asks how many occurrences there will be.
type LoadQuery struct {
	From, To job.Instant
	Step     int64       // ms
	Bucket   job.Instant // whose schedules are named; 0: of none
}

// UpcomingLoad is how many occurrences may start, by time.
type UpcomingLoad struct {
	From   job.Instant `json:"from"`
	To     job.Instant `json:"to"`
	StepMS int64       `json:"step_ms"`
	// ExactUntil is until when every occurrence of every job is counted.
	ExactUntil job.Instant  `json:"exact_until"`
	Sampled    bool         `json:"sampled"` // not every job was looked at
	Scanned    int          `json:"scanned"` // jobs that were
	Total      uint64       `json:"total,omitempty"`
	Buckets    []LoadBucket `json:"buckets"` // those with something in them
	Top        []LoadTop    `json:"top,omitempty"`
}

// The kinds of counts.
const (
	LoadExact     = "exact"
	LoadProjected = "projected"
)

// LoadBucket is one step of it.
type LoadBucket struct {
	At    job.Instant `json:"at"`
	Count int64       `json:"count"`
	Kind  string      `json:"kind"` // exact, or projected from some jobs
}

// LoadTop are the schedules that have most in a bucket.
type LoadTop struct {
	At        job.Instant    `json:"at"`
	Schedules []LoadSchedule `json:"schedules"`
}

// LoadSchedule is what jobs with one schedule have in a bucket.
type LoadSchedule struct {
	Schedule string `json:"schedule"`
	Timezone string `json:"timezone"`
	Count    int64  `json:"count"`
	Jobs     int64  `json:"jobs"`    // that have something in the bucket
	Example  string `json:"example"` // the name, or the id, of one of them
}

// EditPreview is what an edit of a job would do.
type EditPreview struct {
	Job        job.Job       `json:"job"` // as it would be
	Changes    []FieldChange `json:"changes"`
	NextBefore []job.Instant `json:"next_before"` // when it may start next, as it is
	NextAfter  []job.Instant `json:"next_after"`
	Dropped    EditDropped   `json:"dropped"`
	Warnings   []string      `json:"warnings"`
}

// FieldChange is a field that an edit changes; what is left out is not there.
type FieldChange struct {
	Field string          `json:"field"`
	From  json.RawMessage `json:"from,omitempty"`
	To    json.RawMessage `json:"to,omitempty"`
}

// EditDropped are occurrences that are due and would not run because of an edit.
type EditDropped struct {
	Occurrences int64  `json:"occurrences"`
	AtLeast     bool   `json:"at_least,omitempty"` // counting stopped there
	Text        string `json:"text,omitempty"`
}
