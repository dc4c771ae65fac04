package job

import "fmt"

// RunStatus is the state of a run, or the end of an attempt. Numbers are part of the stored format.
type RunStatus uint8

// The run states. The open ones come first.
const (
	RunNone      RunStatus = 0
	RunPending   RunStatus = 1 // in the due index: a manual, backfill, redriven or released run
	RunWaiting   RunStatus = 2 // behind another run of its job, or its job is paused
	RunClaimed   RunStatus = 3 // given to a worker
	RunRunning   RunStatus = 4 // never stored: claimed, and a heartbeat said it has started
	RunRetrying  RunStatus = 5 // in the due index, after a failed attempt
	RunCanceling RunStatus = 6 // claimed, and its worker is being told to stop

	RunSucceeded RunStatus = 16
	RunFailed    RunStatus = 17 // an attempt failed; the run goes on
	RunDead      RunStatus = 18 // the last attempt failed
	RunSkipped   RunStatus = 19
	RunMissed    RunStatus = 20
	RunExpired   RunStatus = 21
	RunCanceled  RunStatus = 22
	RunLost      RunStatus = 23
)

var runStatusNames = map[RunStatus]string{
	RunPending: "pending", RunWaiting: "waiting", RunClaimed: "claimed", RunRunning: "running", RunRetrying: "retrying",
	RunCanceling: "canceling", RunSucceeded: "succeeded", RunFailed: "failed", RunDead: "dead", RunSkipped: "skipped",
	RunMissed: "missed", RunExpired: "expired", RunCanceled: "canceled", RunLost: "lost",
}

func (s RunStatus) String() string { return runStatusNames[s] }

// Open says whether a run in this state still has something to happen.
func (s RunStatus) Open() bool { return s > RunNone && s < RunSucceeded }

// MarshalText makes a RunStatus a string in JSON.
func (s RunStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *RunStatus) UnmarshalText(b []byte) error {
	v, err := ParseRunStatus(string(b))
	if err == nil {
		*s = v
	}
	return err
}

// ParseRunStatus reads the name of a state.
func ParseRunStatus(name string) (RunStatus, error) {
	if name == "" {
		return RunNone, nil
	}
	for s, n := range runStatusNames {
		if n == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("unknown run status %q", name)
}

// Reason says why a run ended as it did, or why an occurrence did not run. Numbers are part of the stored format.
type Reason uint8

// The reasons.
const (
	ReasonNone        Reason = 0
	ReasonOverlap     Reason = 1  // skipped: an earlier run was open
	ReasonQueueFull   Reason = 2  // skipped: too many runs of the job wait already
	ReasonOutage      Reason = 3  // missed: there was no leader at the time
	ReasonPaused      Reason = 4  // skipped: the job was paused
	ReasonBlackout    Reason = 5  // skipped: a calendar forbids it
	ReasonDeadline    Reason = 6  // expired: not started within the job's deadline
	ReasonReplaced    Reason = 7  // canceled: a newer occurrence took its place
	ReasonCanceled    Reason = 8  // canceled: on request
	ReasonDeleted     Reason = 9  // canceled: the job was deleted
	ReasonEdited      Reason = 10 // skipped: an edit of the schedule dropped it
	ReasonWorkerLost  Reason = 11 // failed, lost or dead: its worker fell silent
	ReasonExhausted   Reason = 12 // dead: no retries left
	ReasonPermanent   Reason = 13 // dead: the target said that trying again is useless
	ReasonTimeout     Reason = 14 // failed or dead: the attempt took longer than the job's timeout
	ReasonQuarantined Reason = 15 // skipped: the job was in quarantine
	ReasonAlreadyRan  Reason = 16 // skipped: a backfill found that it ran already
	ReasonRestored    Reason = 17 // missed: before the release of a restored cluster
	ReasonWaiting     Reason = 18 // skipped: an earlier occurrence still waited for a slot
	ReasonPast        Reason = 19 // missed: a one-off that was created after its time
	ReasonEgress      Reason = 20 // dead: the rules of its worker do not let jobs reach the target
	ReasonSecret      Reason = 21 // dead: a secret that it needs is not there, or not for its target
	ReasonBackfill    Reason = 22 // waiting: a catch-up run of its job is in its way
	ReasonNoRoom      Reason = 23 // waiting: a catch-up run that does not fit before the next occurrence
	ReasonDSTGap      Reason = 24 // skipped: the clock goes ahead over its time
)

var reasonNames = map[Reason]string{
	ReasonNone: "", ReasonOverlap: "overlap", ReasonQueueFull: "queue_full", ReasonOutage: "outage",
	ReasonPaused:   "paused",
	ReasonBlackout: "blackout", ReasonDeadline: "deadline", ReasonReplaced: "replaced", ReasonCanceled: "canceled",
	ReasonDeleted: "job_deleted", ReasonEdited: "job_edited", ReasonWorkerLost: "worker_lost",
	ReasonExhausted: "retries_exhausted", ReasonPermanent: "permanent_failure", ReasonTimeout: "timeout",
	ReasonQuarantined: "quarantined", ReasonAlreadyRan: "already_ran", ReasonRestored: "restored",
	ReasonWaiting: "waiting",
	ReasonPast:    "past", ReasonEgress: "egress_denied", ReasonSecret: "secret_missing",
	ReasonBackfill: "backfill", ReasonNoRoom: "no_room", ReasonDSTGap: "dst_gap",
}

func (r Reason) String() string { return reasonNames[r] }

// MarshalText makes a Reason a string in JSON.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *Reason) UnmarshalText(b []byte) error {
	for k, n := range reasonNames {
		if n == string(b) {
			*r = k
			return nil
		}
	}
	return fmt.Errorf("unknown reason %q", b)
}

// Run is a run, a finished attempt of one, or an interval of occurrences that did not run, as the API returns it.
type Run struct {
	RunID       string    `json:"run_id,omitempty"`
	JobID       ID        `json:"job_id"`
	JobName     string    `json:"job_name,omitempty"`
	JobDeleted  bool      `json:"job_deleted,omitempty"` // the history outlives the definition
	Namespace   string    `json:"namespace,omitempty"`
	ScheduledAt Instant   `json:"scheduled_at,omitzero"`
	Origin      Origin    `json:"origin,omitempty"`
	ClaimedAt   Instant   `json:"claimed_at,omitzero"`
	StartedAt   Instant   `json:"started_at,omitzero"`
	FinishedAt  Instant   `json:"finished_at,omitzero"`
	ReadyAt     Instant   `json:"ready_at,omitzero"` // since when the run, or this attempt of it, may be claimed
	Attempt     int       `json:"attempt,omitempty"`
	Status      RunStatus `json:"status"`
	WaitReason  string    `json:"wait_reason,omitempty"` // of a run whose time has come: why it is not claimed
	// LaterStatus is what the run came to after this attempt, in a list: it was retried or redriven.
	LaterStatus RunStatus `json:"later_status,omitempty"`
	Reason      Reason    `json:"reason,omitempty"`
	Error       string    `json:"error,omitempty"`
	Output      string    `json:"output,omitempty"`
	Worker      string    `json:"worker,omitempty"`
	Fence       uint64    `json:"fence,omitempty"`
	LagMS       *int64    `json:"lag_ms,omitempty"` // started (or claimed) minus ready
	Key         string    `json:"idempotency_key,omitempty"`
	JobVersion  uint64    `json:"job_version,omitempty"` // of the definition that the attempt was started with
	// Forced: a backfill that repeats what ran. It has the id of the occurrence's other backfills, and a key and
	// attempts of its own.
	Forced bool `json:"forced,omitempty"`

	// An interval of occurrences that did not run has these instead of a run id.
	First        Instant `json:"first,omitzero"`
	Last         Instant `json:"last,omitzero"`
	Count        int64   `json:"count,omitempty"`
	CountAtLeast bool    `json:"count_at_least,omitempty"` // counting stopped at Count

	Seq uint64 `json:"seq,omitempty"` // its place in the history log; 0 while it is open
}

// DeadLetter is a run whose last attempt failed.
type DeadLetter struct {
	Seq uint64 `json:"dead_id"`
	Run
}
