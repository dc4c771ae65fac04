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

// Spec is a job as its owner writes it: what to do and when. Only its owner edits it.
//
// The codec tags are the names in the stored definition: short, because ten million of them are kept.
type Spec struct {
	Name           string            `json:"name,omitempty" codec:"n,omitempty"`
	Type           Type              `json:"type" codec:"t"`
	Schedule       string            `json:"schedule" codec:"s"`
	Timezone       string            `json:"timezone,omitempty" codec:"z,omitempty"`
	Payload        json.RawMessage   `json:"payload" codec:"p"`
	Retry          Retry             `json:"retry" codec:"r"`
	Timeout        Duration          `json:"timeout,omitempty" codec:"to,omitempty"`
	Deadline       Duration          `json:"deadline,omitempty" codec:"dl,omitempty"`
	Missed         Missed            `json:"missed" codec:"m"`
	Overlap        string            `json:"overlap,omitempty" codec:"o,omitempty"`
	Delivery       string            `json:"delivery,omitempty" codec:"d,omitempty"`
	Priority       string            `json:"priority,omitempty" codec:"pr,omitempty"`
	Concurrency    int               `json:"concurrency,omitempty" codec:"c,omitempty"`
	Jitter         Duration          `json:"jitter,omitempty" codec:"j,omitempty"`
	StartAt        Instant           `json:"start_at,omitzero" codec:"sa,omitempty"`
	EndAt          Instant           `json:"end_at,omitzero" codec:"ea,omitempty"`
	MaxRuns        int               `json:"max_runs,omitempty" codec:"mr,omitempty"`
	Calendars      []string          `json:"calendars,omitempty" codec:"ca,omitempty"`
	Tags           map[string]string `json:"tags,omitempty" codec:"tg,omitempty"`
	Workers        map[string]string `json:"workers,omitempty" codec:"w,omitempty"`
	IdempotencyKey string            `json:"idempotency_key,omitempty" codec:"ik,omitempty"`
	Retention      Duration          `json:"retention,omitempty" codec:"re,omitempty"`
	Notify         *Notify           `json:"notify,omitempty" codec:"nt,omitempty"`
	DSTGap         string            `json:"dst_gap,omitempty" codec:"dg,omitempty"`
	DSTOverlap     string            `json:"dst_overlap,omitempty" codec:"do,omitempty"`
}

// OneOff says whether the job runs at one instant only. It is decided by the form of the expression alone, so that every
// replica decides alike, and as package schedule does: RFC 3339 allows t and z in lower case.
func (s *Spec) OneOff() bool {
	if len(s.Schedule) < len("2027-03-01T09:00:00Z") || s.Schedule[4] != '-' {
		return false // before the parser makes an error that nobody reads: apply asks for every new job
	}
	_, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s.Schedule))
	return err == nil
}

// Manual says whether the job has no schedule of its own.
func (s *Spec) Manual() bool { return s.Schedule == ScheduleManual }

// ScheduleManual is the schedule of a job that runs only when triggered.
const ScheduleManual = "@manual"

// Retry says what happens after a failed attempt.
type Retry struct {
	MaxRetries *int     `json:"max_retries,omitempty" codec:"n,omitempty"`
	Backoff    string   `json:"backoff,omitempty" codec:"b,omitempty"`
	Base       Duration `json:"base,omitempty" codec:"s,omitempty"`
	Cap        Duration `json:"cap,omitempty" codec:"c,omitempty"`
	Jitter     *float64 `json:"jitter,omitempty" codec:"j,omitempty"` // fraction of the delay that is random, 0 to 1
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
	Policy string   `json:"policy,omitempty" codec:"p,omitempty"`
	Window string   `json:"window,omitempty" codec:"w,omitempty"` // "auto" or a duration
	Max    int      `json:"max,omitempty" codec:"m,omitempty"`
	Grace  Duration `json:"grace,omitempty" codec:"g,omitempty"`
}

// HTTPPayload is the payload of an http job.
type HTTPPayload struct {
	URL          string            `json:"url"`
	Method       string            `json:"method,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
	Body         json.RawMessage   `json:"body,omitempty"` // a JSON string is sent as it is, anything else as JSON
	ExpectStatus StatusSet         `json:"expect_status,omitempty"`
	// RetryClientErrors makes every 3xx and 4xx a failure that is retried; without it they are permanent, except 408, 425 and 429.
	RetryClientErrors bool `json:"retry_client_errors,omitempty"`
	// InsecureSkipVerify accepts any certificate.
	InsecureSkipVerify bool `json:"insecure_skip_verify,omitempty"`
}

// QueuePayload is the payload of a queue job, handed to whoever takes the run.
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

// Job is a job as the API returns it.
type Job struct {
	ID     ID     `json:"job_id"`
	Status Status `json:"status"`
	Spec
	NextRunAt     Instant   `json:"next_run_at"`
	LastRunAt     Instant   `json:"last_run_at"`
	LastRunStatus RunStatus `json:"last_run_status,omitempty"`
	OpenRuns      int       `json:"open_runs"`
	RunsStarted   int       `json:"runs_started"`
	WaitReason    string    `json:"wait_reason,omitempty"` // why a due job is not running, or why it is quarantined
	Failing       bool      `json:"failing,omitempty"`     // of a job with notify: it failed, and has not succeeded since
	// LastNotification is the newest notification of a job with notify, and what became of it.
	LastNotification *Notification `json:"last_notification,omitempty"`
	Version          uint64        `json:"version"`
	CreatedAt        Instant       `json:"created_at"`
	UpdatedAt        Instant       `json:"updated_at"`
}
