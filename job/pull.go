package job

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// What a pull worker and a node say to each other about the runs of one queue: poll, heartbeat, complete, fail. It
// needs no registration and no more memory than the claims of what it got, so that a script with curl can be a worker.

// PullPoll asks for runs. Session is what the last answer said: it tells the leader which answers arrived, and what
// was in one that did not is delivered again, same claim, same fence. Without it every poll stands for itself.
type PullPoll struct {
	Queue   QueueKey          `json:"-"`
	Worker  string            `json:"worker,omitempty"`
	Session string            `json:"session,omitempty"`
	Max     int               `json:"max"`            // free slots; 0 asks for nothing new
	Wait    Duration          `json:"wait,omitempty"` // how long to wait for the first run
	Tags    map[string]string `json:"tags,omitempty"`
	Secrets []string          `json:"-"`              // that its token was granted, as the API saw
	Held    []PullRef         `json:"held,omitempty"` // extends their leases, as a heartbeat does
}

// PullRef names a claim: by the opaque string that the poll was answered with, or by run and fence.
type PullRef struct {
	Claim string `json:"claim,omitempty"`
	RunID string `json:"run_id,omitempty"`
	Fence uint64 `json:"fence,omitempty"`
}

// PullReply answers a poll.
type PullReply struct {
	Worker  string       `json:"worker"`
	Session string       `json:"session"` // for the next poll
	Lease   Duration     `json:"lease"`   // a run that is not named for so long is taken back
	Runs    []PullRun    `json:"runs"`
	Held    []PullAnswer `json:"held,omitempty"` // about those that the poll named
}

// PullRun is a claimed run on its way to a pull worker.
type PullRun struct {
	Claim       string          `json:"claim"` // names it in heartbeats and reports
	RunID       string          `json:"run_id"`
	JobID       ID              `json:"job_id"`
	JobName     string          `json:"job_name,omitempty"`
	Namespace   string          `json:"namespace"`
	Queue       string          `json:"queue"`
	ScheduledAt Instant         `json:"scheduled_at"`
	Attempt     int             `json:"attempt"`
	Fence       uint64          `json:"fence"`
	Key         string          `json:"idempotency_key"`
	Data        json.RawMessage `json:"data"`
	Timeout     Duration        `json:"timeout"` // counted from now; a run that takes longer has failed
	Delivery    string          `json:"delivery"`
	Traceparent string          `json:"traceparent,omitempty"`
	Lease       Duration        `json:"lease"`
}

// PullBeat extends the leases of the runs that it names, and says nothing about others.
type PullBeat struct {
	Queue   QueueKey  `json:"-"`
	Worker  string    `json:"worker,omitempty"`
	Session string    `json:"session,omitempty"`
	Runs    []PullRef `json:"runs"`
}

// PullReport hands in results: of complete if Failed is false.
type PullReport struct {
	Queue   QueueKey     `json:"-"`
	Failed  bool         `json:"-"`
	Worker  string       `json:"worker,omitempty"`
	Session string       `json:"session,omitempty"`
	Runs    []PullResult `json:"runs"`
}

// PullResult is the end of one attempt. All but the output are about failures.
type PullResult struct {
	PullRef
	Output    string   `json:"output,omitempty"`
	Error     string   `json:"error,omitempty"`
	Permanent bool     `json:"permanent,omitempty"` // trying again is useless
	Delay     Duration `json:"delay,omitempty"`     // try again no sooner than this
	Unstarted bool     `json:"unstarted,omitempty"` // it was not begun: it goes back without using up an attempt
}

// The answers to one item.
const (
	PullOK        = "ok"        // the lease is extended, or the result is committed
	PullCanceling = "canceling" // stop it, and report it as failed
	PullStale     = "stale"     // it is not yours any more; do not go on with it
)

// PullAnswer is the answer to one item of a call.
type PullAnswer struct {
	PullRef
	Status   string `json:"status"`
	Why      string `json:"why,omitempty"`       // in words, unless it is ok
	TimedOut bool   `json:"timed_out,omitempty"` // canceling because it is over its timeout, not canceled
	Repeated bool   `json:"repeated,omitempty"`  // this result was committed before
}

// PullAnswers answers a heartbeat or a report, item by item, in order.
type PullAnswers struct {
	Lease Duration     `json:"lease"`
	Runs  []PullAnswer `json:"runs"`
}

// The bounds of a call.
const (
	MaxPullRuns = 1000
	MaxPullWait = Duration(60e9)
)

// ClaimRef names a claim among all groups: fences order the claims of one group, and two groups may have the same. To
// clients it is an opaque string, which also spares those that read JSON numbers as floats from losing digits.
type ClaimRef struct {
	Run   RunKey
	Group uint32
	Fence uint64
}

const claimPrefix = "c_"

// String is the claim as clients see it: c_<run id without its prefix>.<group>.<fence>.
func (c ClaimRef) String() string {
	return claimPrefix + strings.TrimPrefix(c.Run.String(), runPrefix) + "." +
		strconv.FormatUint(uint64(c.Group), 32) + "." + strconv.FormatUint(c.Fence, 32)
}

var errClaimRef = errors.New("no poll gave out this claim")

// ParseClaimRef reads what ClaimRef.String wrote.
func ParseClaimRef(s string) (ClaimRef, error) {
	parts := strings.Split(s, ".")
	if len(parts) != 5 || !strings.HasPrefix(s, claimPrefix) {
		return ClaimRef{}, errClaimRef
	}
	run, err := ParseRunKey(runPrefix + strings.TrimPrefix(strings.Join(parts[:3], "."), claimPrefix))
	if err != nil {
		return ClaimRef{}, errClaimRef
	}
	group, err := strconv.ParseUint(parts[3], 32, 32)
	if err != nil {
		return ClaimRef{}, errClaimRef
	}
	fence, err := strconv.ParseUint(parts[4], 32, 64)
	c := ClaimRef{Run: run, Group: uint32(group), Fence: fence}
	if err != nil || c.String() != s {
		return ClaimRef{}, errClaimRef
	}
	return c, nil
}

// MaxQueueConcurrency is the highest limit that a queue can have.
const MaxQueueConcurrency = 1_000_000

// QueueName says whether a text can be the name of a queue.
func QueueName(name string) bool { return queueRE.MatchString(name) }
