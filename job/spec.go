package job

import (
	"encoding/json"
	"strings"
	"time"
)

// Type says how an attempt of the job is carried out.
type Type string

// The types.
const (
	TypeHTTP    Type = "http"
	TypeShell   Type = "shell"
	TypeMessage Type = "message"
	TypeQueue   Type = "queue"
)

// The values of the policies, as they stand in a job.
const (
	OverlapSkip    = "skip"
	OverlapQueue   = "queue"
	OverlapAllow   = "allow"
	OverlapReplace = "replace"

	DeliverAtLeastOnce = "at_least_once"
	DeliverAtMostOnce  = "at_most_once"

	MissedSkip    = "skip"
	MissedRunOnce = "run_once"
	MissedRunAll  = "run_all"

	BackoffImmediate   = "immediate"
	BackoffLinear      = "linear"
	BackoffExponential = "exponential"

	WindowAuto = "auto"
)

// Lane is a priority as a number: 0 is served first. It is the first byte of the due index.
type Lane uint8

// Lanes is how many priorities there are.
const Lanes = 4

var laneNames = [Lanes]string{"critical", "high", "normal", "low"}

func (l Lane) String() string {
	if int(l) < len(laneNames) {
		return laneNames[l]
	}
	return "lane?"
}

// LaneOf is the lane of a priority name.
func LaneOf(priority string) (Lane, bool) {
	for i, n := range laneNames {
		if n == priority {
			return Lane(i), true
		}
	}
	return 0, false
}

//go:generate go run ../internal/fieldgen

// Spec is a job as its owner writes it: what to do and when. Only its owner edits it.
//
// The fields of a job are declared here and nowhere else, with those of Retry, Missed and Notify. `go generate ./job`
// makes of them how a job is read and written as JSON, how it is stored, and its schema in api/openapi.json; the view
// of `carillon jobs get` and the lists of known fields follow them at run time. The comment of a field is its
// description in the schema. The tags:
//
//	json     the name in the API and in job files
//	codec    the name in the stored form: short, because ten million of them are kept
//	default  what Normalize fills in. It is not stored, so it is a part of the stored form too: with another default,
//	         jobs that are stored already would change
//	implied  a default that is not filled in
//	enum     the values there are
//	min, max the bounds of a number, for the schema; Validate has the checks
//	view     the label in `carillon jobs get`, where it is not the name; - if the view places it by hand
type Spec struct {
	// Unique in its namespace, at most 200 bytes, without space / \ ? # % : " and not beginning with j_ or r_. A job
	// without a name is known by its id.
	Name string `json:"name,omitempty" codec:"n" view:"-"`
	// Where the job lives: names of jobs, queues and calendars are unique in a namespace. Up to 63 of a-z, 0-9 and -.
	// It never changes.
	Namespace string `json:"namespace,omitempty" codec:"ns" default:"default" view:"-"`
	// How an attempt is executed.
	Type Type `json:"type" codec:"t" view:"-"`
	// A cron expression of 5 or 6 fields, @hourly to @yearly, "@every 90s", an RFC 5545 DTSTART and RRULE, an RFC 3339
	// instant, or @manual.
	Schedule string `json:"schedule" codec:"s" view:"-"`
	// IANA name of the zone in which the schedule is read.
	Timezone string          `json:"timezone,omitempty" codec:"z" default:"UTC" view:"-"`
	Payload  json.RawMessage `json:"payload" codec:"p"`
	Retry    Retry           `json:"retry" codec:"r" view:"-"`
	// How long one attempt may take.
	Timeout Duration `json:"timeout,omitempty" codec:"to" default:"5m0s"`
	// A run that has not started this long after its scheduled time is recorded as expired. Left out: no deadline.
	Deadline Duration `json:"deadline,omitempty" codec:"dl"`
	Missed   Missed   `json:"missed" codec:"m"`
	// What happens to an occurrence while an earlier run of the job is open.
	Overlap string `json:"overlap,omitempty" codec:"o" enum:"skip,queue,allow,replace" default:"skip"`
	// at_most_once never repeats a run; a run whose worker is lost is then reported as lost.
	Delivery string `json:"delivery,omitempty" codec:"d" enum:"at_least_once,at_most_once" default:"at_least_once"`
	// If there is a backlog, higher priorities are claimed first.
	Priority string `json:"priority,omitempty" codec:"pr" enum:"critical,high,normal,low" default:"normal"`
	// With overlap allow: how many runs of the job may be open at once; 0 for no limit.
	Concurrency int `json:"concurrency,omitempty" codec:"c" min:"0" max:"10000"`
	// Delays each run by up to this much. The delay is a stable hash of the job id, the same every time.
	Jitter Duration `json:"jitter,omitempty" codec:"j"`
	// No occurrence before this.
	StartAt Instant `json:"start_at,omitzero" codec:"sa"`
	// No occurrence after this.
	EndAt Instant `json:"end_at,omitzero" codec:"ea"`
	// The job is completed after this many runs; 0 for no limit.
	MaxRuns int `json:"max_runs,omitempty" codec:"mr" min:"0"`
	// Names of blackout calendars in which the job does not fire.
	Calendars []string `json:"calendars,omitempty" codec:"ca"`
	// Labels.
	Tags map[string]string `json:"tags,omitempty" codec:"tg"`
	// Tags that a worker must have to get a run of this job.
	Workers map[string]string `json:"workers,omitempty" codec:"w"`
	// Template of the key that the target receives.
	IdempotencyKey string `json:"idempotency_key,omitempty" codec:"ik" implied:"{job_id}:{scheduled_at_unix}" view:"key"`
	// How long a one-off job is kept after its completion.
	Retention Duration `json:"retention,omitempty" codec:"re" default:"24h0m0s"`
	Notify    *Notify  `json:"notify,omitempty" codec:"nt"`
	// What happens to a time that daylight saving skips.
	DSTGap string `json:"dst_gap,omitempty" codec:"dg" enum:"run_after,skip" default:"run_after"`
	// What happens to a time that occurs twice. Left out: a fixed time fires the first time, an interval-like schedule
	// both times.
	DSTOverlap string `json:"dst_overlap,omitempty" codec:"do" enum:"first,both"`
}

// OneOff says whether the job runs at one instant only. It is decided by the form of the expression alone, so that
// every replica decides alike, and as package schedule does: RFC 3339 allows t and z in lower case.
func (s *Spec) OneOff() bool {
	if len(s.Schedule) < len("2027-03-01T09:00:00Z") || s.Schedule[4] != '-' {
		return false // before the parser makes an error that is not read: apply asks for every new job
	}
	_, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s.Schedule))
	return err == nil
}

// Manual says whether the job has no schedule of its own.
func (s *Spec) Manual() bool { return s.Schedule == ScheduleManual }

// SetTag is the tag that names the set of a job: jobs that are applied together, from one place.
const SetTag = "carillon-set"

// ScheduleManual is the schedule of a job that runs only when triggered.
const ScheduleManual = "@manual"

// Retry says what happens after a failed attempt.
type Retry struct {
	// Attempts after the first.
	MaxRetries *int `json:"max_retries,omitempty" codec:"n" min:"0" max:"1000" default:"3"`
	// How the delay grows.
	Backoff string `json:"backoff,omitempty" codec:"b" enum:"immediate,linear,exponential" default:"exponential"`
	// First delay.
	Base Duration `json:"base,omitempty" codec:"s" default:"1s"`
	// Longest delay.
	Cap Duration `json:"cap,omitempty" codec:"c" default:"5m0s"`
	// Fraction of the delay that is random.
	Jitter *float64 `json:"jitter,omitempty" codec:"j" min:"0" max:"1" default:"0.2"`
}

// Limit is how many retries there may be.
func (r Retry) Limit() int {
	if r.MaxRetries == nil {
		return 0
	}
	return *r.MaxRetries
}

// Missed says what happens to occurrences that fell into an outage.
type Missed struct {
	// skip: none of them runs. run_once: the latest runs. run_all: each of them runs.
	Policy string `json:"policy,omitempty" codec:"p" enum:"skip,run_once,run_all" default:"run_once"`
	// How old an occurrence may be to run: a Go duration, or auto for the larger of 30 minutes and half the distance to
	// the next occurrence.
	Window string `json:"window,omitempty" codec:"w" default:"auto"`
	// How many occurrences run_all may run.
	Max int `json:"max,omitempty" codec:"m" min:"0" max:"10000" default:"10"`
	// An occurrence that is not older than this is late, not missed.
	Grace Duration `json:"grace,omitempty" codec:"g" default:"1m0s"`
}

// HTTPPayload is the payload of an http job.
type HTTPPayload struct {
	URL          string            `json:"url"`
	Method       string            `json:"method,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
	Body         json.RawMessage   `json:"body,omitempty"` // a JSON string is sent as it is, anything else as JSON
	ExpectStatus StatusSet         `json:"expect_status,omitempty"`
	// RetryClientErrors makes every 3xx and 4xx a failure that is retried; without it they are permanent, except 408,
	// 425 and 429.
	RetryClientErrors bool `json:"retry_client_errors,omitempty"`
	// InsecureSkipVerify accepts any certificate.
	InsecureSkipVerify bool `json:"insecure_skip_verify,omitempty"`
}

// QueuePayload is the payload of a queue job, handed to the worker that takes the run.
type QueuePayload struct {
	Queue string          `json:"queue"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// Status is the state of a job as its owner sees it.
type Status string

// The job states.
const (
	StatusScheduled   Status = "scheduled"
	StatusPaused      Status = "paused"
	StatusCompleted   Status = "completed"
	StatusFailed      Status = "failed"
	StatusQuarantined Status = "quarantined"
)

// Statuses are all of them.
var Statuses = [...]Status{StatusScheduled, StatusPaused, StatusCompleted, StatusFailed, StatusQuarantined}

// Job is a job as the API returns it.
type Job struct {
	ID     ID     `json:"job_id"`
	Status Status `json:"status"`
	Spec
	NextRunAt     Instant   `json:"next_run_at"`
	LastRunAt     Instant   `json:"last_run_at"`
	LastRunStatus RunStatus `json:"last_run_status,omitempty"`
	LastSuccessAt Instant   `json:"last_success_at,omitzero"`
	OpenRuns      int       `json:"open_runs"`
	RunsStarted   int       `json:"runs_started"`
	WaitReason    string    `json:"wait_reason,omitempty"` // why a due job is not running, or why it is quarantined
	Failing       bool      `json:"failing,omitempty"`     // of a job with notify: not succeeded since it failed
	// LastNotification is the newest notification of a job with notify, and what became of it.
	LastNotification *Notification `json:"last_notification,omitempty"`
	Version          uint64        `json:"version"`
	CreatedAt        Instant       `json:"created_at"`
	UpdatedAt        Instant       `json:"updated_at"`
}

// Fails says that the last run of a job did not do what it was there for.
func (j *Job) Fails() bool {
	switch j.LastRunStatus {
	case RunDead, RunLost, RunExpired:
		return true
	}
	return j.Failing
}
