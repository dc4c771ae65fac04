package job

import "encoding/json"

// What a worker and the leader say to each other: register, poll, heartbeat, report. On the leader's own node it is a
// function call, elsewhere HTTP; the words are the same.

// SessionRef names a session: a worker, its incarnation and the leader's term, and which of the worker's registrations
// made it what it is.
type SessionRef struct {
	Worker       string `json:"worker"`
	Incarnation  uint64 `json:"incarnation"`
	Group        uint32 `json:"group,omitempty"` // the Raft group whose leader it is with; terms are the group's
	Term         uint64 `json:"term"`
	Registration uint64 `json:"registration,omitempty"`
	// Secret proves, on a cluster that asks for tokens, that the registration was this caller's.
	Secret string `json:"secret,omitempty"`
}

// Register opens a session. Incarnation 0 means a new process: the leader issues a number. What an older incarnation
// held it releases at once if this process has the same secret, and is refused until that one's lease has ended if it
// has another. A worker that merely moves to a new leader keeps its incarnation and names what it holds.
//
// A registration may be on its way for long after its worker gave up waiting for the answer and made another. So a
// worker counts them (Registration), and names the leader's Term together with its incarnation; one who does not know
// them yet is told, and nothing else happens (Session.Again). What names both was sent to this leader by this process;
// and of two such the one with the lower number came late.
type Register struct {
	Worker      string            `json:"worker"`
	Secret      string            `json:"secret"` // one living process at a time has it: it proves which one this is
	Incarnation uint64            `json:"incarnation,omitempty"`
	Namespace   string            `json:"namespace,omitempty"` // whose runs it takes; empty: those of all
	Types       []Type            `json:"types"`
	Tags        map[string]string `json:"tags,omitempty"`
	Slots       int               `json:"slots"`              // how many runs it takes, with those not started
	Prefetch    int               `json:"prefetch,omitempty"` // how many of them wait: they are claimed, not started
	Held        []Held            `json:"held,omitempty"`
	Version     string            `json:"version,omitempty"`
	Where       string            `json:"where,omitempty"` // host, process and directory, for those who look for it

	Secrets []string `json:"-"` // that its token was granted, as the API saw

	Node *NodeRef `json:"node,omitempty"` // of the worker of a node, whose id is the worker's name
	Sole bool     `json:"-"`              // the worker of this leader's own process, in a cluster of one node

	Registration uint64 `json:"registration,omitempty"` // 1, 2, …; 0: a worker that does not count is taken at its word
	Term         uint64 `json:"term,omitempty"`         // of the leader that it is meant for

	// Credit: the worker has sessions with the leaders of several groups over the same slots. Only its numbered polls
	// offer anything; slots are what all groups have together.
	Credit bool `json:"credit,omitempty"`
}

// NodeRef says which node a worker belongs to: a node works for its cluster only while it is a member of it.
type NodeRef struct {
	Cluster  string `json:"cluster"`
	Epoch    uint64 `json:"epoch"`
	Recovery string `json:"recovery,omitempty"` // that began the epoch
	Instance string `json:"instance"`           // of its data directory
	Address  string `json:"address"`
}

// Session is the answer to Register.
type Session struct {
	SessionRef
	TTL   Duration `json:"ttl"`
	Again bool     `json:"again,omitempty"` // there is no session yet: register again with this incarnation and term
}

// Held is one assignment in a worker's set: received, and its result not yet acknowledged as committed.
type Held struct {
	Run       RunKey  `json:"run"`
	Fence     uint64  `json:"fence"`
	StartedAt Instant `json:"started_at,omitzero"` // zero: prefetched, not started
}

// Poll asks for work. Acked is the number of the last assignment received; the leader re-sends later ones.
//
// In a session with Credit a poll has a Number: 1, 2, …; 0 is the last one of a worker that leaves. Free is then how
// many assignments beyond Acked may come, in this answer and after it, until a poll with a higher number tells
// otherwise.
type Poll struct {
	Session SessionRef `json:"session"`
	Acked   uint64     `json:"acked"`
	Free    int        `json:"free"`
	Wait    Duration   `json:"wait,omitempty"`
	Number  uint64     `json:"number,omitempty"`
	Told    bool       `json:"told,omitempty"` // it knows that runs wait: PollReply.Ready alone is no reason to answer
}

// PollReply carries assignments, in order of their numbers, and the fences of attempts that are to stop.
type PollReply struct {
	Assignments []Assignment `json:"assignments,omitempty"`
	Cancel      []uint64     `json:"cancel,omitempty"`
	Watch       []uint64     `json:"watch,omitempty"` // attempts whose output is watched; see Output

	// Number is that of the poll, if no more than Free assignments come on its account and that of all polls before it,
	// with those in this answer; 0: more may come. Ready is how many more runs this worker could take.
	Number uint64 `json:"number,omitempty"`
	Ready  int    `json:"ready,omitempty"`
}

// Assignment is a committed claim on its way to its worker.
type Assignment struct {
	Number      uint64          `json:"number"` // grows by one on a session
	Term        uint64          `json:"term"`
	Run         RunKey          `json:"run"`
	JobName     string          `json:"job_name,omitempty"`
	Namespace   string          `json:"namespace,omitempty"` // of the job; empty: the usual one
	Attempt     int             `json:"attempt"`
	Fence       uint64          `json:"fence"`
	Key         string          `json:"idempotency_key"`
	Type        Type            `json:"type"`
	Payload     json.RawMessage `json:"payload"`
	Timeout     Duration        `json:"timeout"`
	Delivery    string          `json:"delivery"`
	Traceparent string          `json:"traceparent,omitempty"`
	ClaimedAt   Instant         `json:"claimed_at"`
	// Secrets are values that the payload has in it, and that nothing the attempt leaves may show; Hosts are those that
	// it may talk to on their account, none: any.
	Secrets []string `json:"secrets,omitempty"`
	Hosts   []string `json:"hosts,omitempty"`
}

// Heartbeat extends the lease of a session without a Raft write. Held is the worker's whole set; absence from it
// counts only for assignments up to Acked.
type Heartbeat struct {
	Session SessionRef `json:"session"`
	Acked   uint64     `json:"acked"`
	Free    int        `json:"free"`
	Held    []Held     `json:"held,omitempty"`

	Number uint64 `json:"number,omitempty"` // 1, 2, … in a session, with those not answered; 0: not counted
	Nonce  uint64 `json:"nonce,omitempty"`  // of the last answer, 0 before the first
	From   string `json:"-"`                // the address that it came from, as the leader saw it
}

// HeartbeatReply names attempts that are to stop.
type HeartbeatReply struct {
	Cancel []uint64 `json:"cancel,omitempty"`
	Nonce  uint64   `json:"nonce,omitempty"` // for the next heartbeat
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

// Result is the end of one attempt.
type Result struct {
	Run       RunKey  `json:"run"`
	Fence     uint64  `json:"fence"`
	Outcome   Outcome `json:"outcome"`
	Permanent bool    `json:"permanent,omitempty"`
	TimedOut  bool    `json:"timed_out,omitempty"`
	// EgressDenied: the rules of the worker do not let jobs reach the target. It is permanent.
	EgressDenied bool     `json:"egress_denied,omitempty"`
	RetryAfter   Duration `json:"retry_after,omitempty"`
	Error        string   `json:"error,omitempty"`
	Output       string   `json:"output,omitempty"`
	StartedAt    Instant  `json:"started_at,omitzero"`
	FinishedAt   Instant  `json:"finished_at,omitzero"`
}

// Report hands in results. It is answered once they are committed.
type Report struct {
	Session SessionRef `json:"session"`
	Results []Result   `json:"results"`
}

// Ack answers one result: committed, or refused because its fence is old. Either way the worker forgets the assignment.
type Ack struct {
	Fence uint64 `json:"fence"`
	Stale bool   `json:"stale,omitempty"`
}

// ReportReply answers a Report; results that it does not name are to be reported again.
type ReportReply struct {
	Acks []Ack `json:"acks"`
}

// The caps on what a result may carry: it goes into the replicated log.
const (
	MaxErrorBytes  = 2 << 10
	MaxOutputBytes = 4 << 10
)

// Output is a part of what a running attempt wrote. It goes from the worker to the leader while it is watched, and is
// never stored.
type Output struct {
	Session SessionRef `json:"session"`
	Fence   uint64     `json:"fence"`
	Offset  int64      `json:"offset"` // of Data in all that was written; a gap was too long ago to be kept
	Data    []byte     `json:"data"`
	// StartedAt is when the attempt began: what is watched is shown as running before the next heartbeat says so.
	StartedAt Instant `json:"started_at,omitzero"`
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
