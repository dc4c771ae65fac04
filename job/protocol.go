package job

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// The worker protocol: what a worker and the leader say to each other. docs/worker-protocol.md describes it for those
// who write a worker. On the leader's own node the messages are arguments of function calls, elsewhere they travel over
// HTTP as JSON or msgpack.

// Ref names a claim: by the opaque text that a poll was answered with, or, in a message that has its session, by the
// fence alone.
type Ref struct {
	Claim string `json:"claim,omitempty"`
	Fence uint64 `json:"fence,omitempty"`
	Run   RunKey `json:"-"` // of a claim that was read
}

const claimPrefix = "c_"

// Text is the claim as workers see it: c_<run id without its prefix>.<fence>. It names the run too, because two groups
// may have the same fence. It is a string, because some read JSON numbers as floats and lose digits.
func (r Ref) Text() string {
	return claimPrefix + strings.TrimPrefix(r.Run.String(), runPrefix) + "." + strconv.FormatUint(r.Fence, 32)
}

// ParseClaim reads what Ref.Text wrote.
func ParseClaim(text string) (Ref, error) {
	rest, ok := strings.CutPrefix(text, claimPrefix)
	i := max(strings.LastIndexByte(rest, '.'), 0)
	run, err := ParseRunKey(runPrefix + rest[:i])
	fence, wrong := strconv.ParseUint(strings.TrimPrefix(rest[i:], "."), 32, 64)
	r := Ref{Run: run, Fence: fence}
	if !ok || err != nil || wrong != nil || r.Text() != text {
		return Ref{}, errors.New("no poll gave out this claim")
	}
	return r, nil
}

// Poll asks for runs.
type Poll struct {
	Session string   `json:"session,omitempty"` // from the last answer; empty: open one
	Worker  string   `json:"worker,omitempty"`
	Free    int      `json:"free"`           // how many runs there is room for
	Wait    Duration `json:"wait,omitempty"` // how long to wait for the first one
	Hold    Duration `json:"hold,omitempty"` // how long the offer stands after the answer
	Leave   bool     `json:"leave,omitempty"`

	// Secret makes the name the worker's own. Only the poll that opens a session has it: of two living processes only
	// one knows it.
	Secret string `json:"secret,omitempty"`

	Namespace string            `json:"namespace,omitempty"` // whose runs it takes; empty: those of all
	Types     []Type            `json:"types,omitempty"`
	Tags      map[string]string `json:"tags,omitempty"`
	Slots     int               `json:"slots,omitempty"` // how many runs it takes in all
	Version   string            `json:"version,omitempty"`
	Where     string            `json:"where,omitempty"` // host, process and directory, for those who look for it
	Node      *NodeRef          `json:"node,omitempty"`  // of the worker of a node, whose id is the worker's name

	// Shared: the slots are offered to the leaders of other groups too, so that only polls offer any, and results that
	// are reported free none. Told: it knows that runs wait, and is not answered for that alone.
	Shared bool `json:"shared,omitempty"`
	Told   bool `json:"told,omitempty"`

	Queue   QueueKey `json:"-"` // that the request is for; without a name: it is for a group
	Most    int      `json:"-"` // how many runs the worker's token allows it in all; 0: any number
	Secrets []string `json:"-"` // that its token was granted, as the API saw
	Sole    bool     `json:"-"` // the worker of this leader's own process, in a cluster of one node
	From    string   `json:"-"` // the address that it came from
}

// NodeRef says which node a worker belongs to: a node works for its cluster only while it is a member of it.
type NodeRef struct {
	Cluster  string `json:"cluster"`
	Epoch    uint64 `json:"epoch"`
	Recovery string `json:"recovery,omitempty"` // that began the epoch
	Instance string `json:"instance"`           // of its data directory
	Address  string `json:"address"`
}

// PollReply carries runs, in order of their fences, and names attempts that are to stop.
type PollReply struct {
	Session string       `json:"session"`          // for the next poll, once the runs of this answer are taken
	Opened  bool         `json:"opened,omitempty"` // it is new, and nothing else was done: poll again
	Lease   Duration     `json:"lease"`
	Waited  Duration     `json:"waited,omitempty"` // for runs, in this poll: a worker may count the lease from after that
	Runs    []Assignment `json:"runs"`
	Stop    []Stop       `json:"stop,omitempty"`
	Watch   []Ref        `json:"watch,omitempty"` // attempts whose output is watched; see Output
	Ready   int          `json:"ready,omitempty"` // how many more runs wait, for a worker whose slots are shared
}

// Stop names an attempt that is to end and to be reported.
type Stop struct {
	Ref
	Why string `json:"why"`
}

// Why an attempt is to stop.
const (
	StopCanceled = "canceled" // on request, or because a newer occurrence takes its place
	StopTimeout  = "timeout"  // it takes longer than its job allows
)

// Assignment is a committed claim on its way to its worker.
type Assignment struct {
	Claim       string          `json:"claim,omitempty"`
	Fence       uint64          `json:"fence"`
	Run         RunKey          `json:"-"`
	JobName     string          `json:"job_name,omitempty"`
	Namespace   string          `json:"namespace"` // of the job; empty: the usual one
	Attempt     int             `json:"attempt"`
	Key         string          `json:"idempotency_key"`
	Type        Type            `json:"type"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	Timeout     Duration        `json:"timeout"`
	Delivery    string          `json:"delivery"`
	Traceparent string          `json:"traceparent,omitempty"`
	ClaimedAt   Instant         `json:"claimed_at"`
	// Secrets are values that the payload has in it, and that nothing the attempt leaves may show; Hosts are those that
	// it may talk to on their account, none: any.
	Secrets []string `json:"secrets,omitempty"`
	Hosts   []string `json:"hosts,omitempty"`
}

// QueueOf is the queue and the data in the payload of a run of one.
func (a *Assignment) QueueOf() (p QueuePayload) {
	if a.Type == TypeQueue {
		_ = json.Unmarshal(a.Payload, &p) //nolint:errcheck // it was validated when the job was made
	}
	return p
}

type assignmentFields Assignment // that do not read and write themselves

// assignmentJSON is an assignment as workers in other languages see it: with the run's id, and for a queue its name and
// data in place of the payload.
type assignmentJSON struct {
	assignmentFields
	RunID       string          `json:"run_id"`
	JobID       ID              `json:"job_id"`
	ScheduledAt Instant         `json:"scheduled_at"`
	Queue       string          `json:"queue,omitempty"`
	Data        json.RawMessage `json:"data,omitempty"`
}

// MarshalJSON writes an assignmentJSON.
func (a Assignment) MarshalJSON() ([]byte, error) {
	v := assignmentJSON{assignmentFields: assignmentFields(a), RunID: a.Run.String(), JobID: a.Run.Job,
		ScheduledAt: Instant(a.Run.At)}
	v.Namespace = cmp.Or(a.Namespace, DefaultNamespace)
	if a.Type == TypeQueue {
		p := a.QueueOf()
		v.Queue, v.Data, v.Payload = p.Queue, p.Data, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(&v)
	return b.Bytes(), err
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (a *Assignment) UnmarshalJSON(b []byte) error {
	var v assignmentJSON
	err := json.Unmarshal(b, &v)
	if err == nil {
		v.Run, err = ParseRunKey(v.RunID)
	}
	if err == nil && v.Type == TypeQueue {
		v.Payload, err = json.Marshal(QueuePayload{Queue: v.Queue, Data: v.Data})
	}
	if v.Namespace == DefaultNamespace {
		v.Namespace = ""
	}
	*a = Assignment(v.assignmentFields)
	return err
}

// Heartbeat extends the leases of the claims that it names, without a Raft write, and says nothing of others.
type Heartbeat struct {
	Session string `json:"session,omitempty"`
	Runs    []Ref  `json:"runs"`
}

// HeartbeatReply answers item by item, in order.
type HeartbeatReply struct {
	Lease Duration `json:"lease"`
	Runs  []Answer `json:"runs"`
}

// Answer is what one item of a heartbeat or report comes to.
type Answer struct {
	Ref
	Status   string `json:"status"`
	Why      string `json:"why,omitempty"`
	Repeated bool   `json:"repeated,omitempty"` // this result was committed before
}

// The answers to one item.
const (
	StatusOK      = "ok"      // the lease is extended, or the result is committed
	StatusStop    = "stop"    // end it and report it; Why is why
	StatusGone    = "gone"    // it is not the worker's any more: end it, and report nothing
	StatusInvalid = "invalid" // the item makes no sense: forget it
)

// Report hands in results. It is answered once they are committed.
type Report struct {
	Session string   `json:"session,omitempty"`
	Results []Result `json:"results"`
}

// ReportReply answers item by item, in order.
type ReportReply struct {
	Results []Answer `json:"results"`
}

// Outcome is how an attempt ended, as its worker saw it.
type Outcome uint8

// The outcomes.
const (
	OutcomeSucceeded Outcome = 1
	OutcomeFailed    Outcome = 2
	OutcomeCanceled  Outcome = 3 // stopped because the leader said so
	OutcomeReturned  Outcome = 4 // never started; does not use up an attempt
)

var outcomeNames = []string{OutcomeSucceeded: "succeeded", OutcomeFailed: "failed", OutcomeCanceled: "canceled",
	OutcomeReturned: "returned"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return ""
}

// MarshalText makes an Outcome a string in JSON.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads what MarshalText wrote. What it does not know is 0: the leader refuses that item, and no other.
func (o *Outcome) UnmarshalText(b []byte) error {
	*o = 0
	for i, name := range outcomeNames {
		if name == string(b) {
			*o = Outcome(i)
		}
	}
	return nil
}

// Result is the end of one attempt.
type Result struct {
	Ref
	Outcome   Outcome `json:"outcome"`
	Permanent bool    `json:"permanent,omitempty"` // trying again is useless
	TimedOut  bool    `json:"timed_out,omitempty"`
	// EgressDenied: the rules of the worker do not let jobs reach the target. It is permanent.
	EgressDenied bool     `json:"egress_denied,omitempty"`
	RetryAfter   Duration `json:"retry_after,omitempty"`
	Error        string   `json:"error,omitempty"`
	Output       string   `json:"output,omitempty"`
	StartedAt    Instant  `json:"started_at,omitzero"`
	FinishedAt   Instant  `json:"finished_at,omitzero"`
}

// The caps on what a result may carry: it goes into the replicated log.
const (
	MaxErrorBytes  = 2 << 10
	MaxOutputBytes = 4 << 10
)

// The bounds of a message.
const (
	MaxItems    = 1000 // claims in a heartbeat, results in a report
	MaxPollFree = 1 << 20
)

// Output is a part of what a running attempt wrote. It goes from the worker to the leader while it is watched, and is
// never stored.
type Output struct {
	Session string `json:"session,omitempty"`
	Ref
	Offset int64  `json:"offset"` // of Data in all that was written; a gap was too long ago to be kept
	Data   []byte `json:"data"`
}

// OutputReply answers an Output.
type OutputReply struct {
	Watched bool `json:"watched"` // more is wanted
}

// RunOutput is a part of the output of a run's last attempt.
type RunOutput struct {
	RunID   string    `json:"run_id"`
	Status  RunStatus `json:"status"`
	Attempt int       `json:"attempt,omitempty"`
	Fence   uint64    `json:"fence,omitempty"`
	Offset  int64     `json:"offset"` // where the text begins in the output of the attempt, as far as that is known
	Next    int64     `json:"next"`   // what to ask for next
	Text    string    `json:"text"`
	Done    bool      `json:"done"` // the run is finished: there will be no more
}

// Session is what the text of a session says. To workers it is opaque; every leader of the group can read it.
type Session struct {
	Group       uint32 // whose leader wrote it
	Cluster     uint64 // stands for its id: a backup that is restored elsewhere begins another one
	Epoch       uint64 // of the cluster: a recovery raises it
	Worker      string
	Incarnation uint64 // with the name, which process
	Owner       uint64 // what the process's secret comes to
	Term        uint64 // of the leader that wrote it
	Serial      uint64 // one more than that of the poll that it answers
	Fence       uint64 // the highest that was handed out in that answer or before it
	Nonce       uint64 // no two answers have the same
}

// Before says whether an earlier leader than another session's wrote it.
func (s Session) Before(o Session) bool {
	return s.Epoch < o.Epoch || s.Epoch == o.Epoch && s.Term < o.Term
}

const sessionPrefix = "s1."

// String is the session as workers see it.
func (s Session) String() string {
	b := make([]byte, 0, 64)
	for _, n := range []uint64{uint64(s.Group), s.Cluster, s.Epoch, s.Incarnation, s.Owner, s.Term, s.Serial, s.Fence,
		s.Nonce} {
		b = binary.AppendUvarint(b, n)
	}
	return sessionPrefix + base64.RawURLEncoding.EncodeToString(append(b, s.Worker...))
}

// ParseSession reads what Session.String wrote.
func ParseSession(text string) (s Session, err error) {
	bad := Invalid("session", "send the session from the last answer, or none", "this is not a session")
	rest, ok := strings.CutPrefix(text, sessionPrefix)
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if !ok || err != nil {
		return s, bad
	}
	var group uint64
	for _, to := range []*uint64{&group, &s.Cluster, &s.Epoch, &s.Incarnation, &s.Owner, &s.Term, &s.Serial, &s.Fence,
		&s.Nonce} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return s, bad
		}
		*to, b = v, b[n:]
	}
	s.Group, s.Worker = uint32(group), string(b)
	return s, nil
}

// MaxQueueConcurrency is the highest limit that a queue can have.
const MaxQueueConcurrency = 1_000_000

// QueueName says whether a text can be the name of a queue.
func QueueName(name string) bool { return queueRE.MatchString(name) }
