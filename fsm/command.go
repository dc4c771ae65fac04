// Package fsm is the deterministic heart: the commands that travel through the log, what each does to the state, and how the
// state becomes a snapshot and back. It reads no clock, no zone and no random number; what depends on those is computed by
// the proposer and stands in the command.
package fsm

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Type is the first byte of an entry. Numbers are never reused.
type Type uint8

// The commands.
const (
	TypeCreate      Type = 1
	TypeUpdate      Type = 2
	TypeDelete      Type = 3
	TypePause       Type = 4
	TypeResume      Type = 5
	TypeTrigger     Type = 6
	TypeBackfill    Type = 7
	TypeClaim       Type = 8
	TypeComplete    Type = 9
	TypeExpire      Type = 10
	TypeAdvance     Type = 11
	TypeCancel      Type = 12
	TypeRedrive     Type = 13
	TypePurge       Type = 14
	TypeTrim        Type = 15
	TypeStamp       Type = 16
	TypeCalendar    Type = 17
	TypeQuarantine  Type = 18
	TypeClockReset  Type = 19
	TypeCleanup     Type = 20
	TypeInit        Type = 21
	TypePutNode     Type = 22
	TypeRemoveNode  Type = 23
	TypeSetLevel    Type = 24
	TypeRelease     Type = 25
	TypeLose        Type = 26
	TypePutQueue    Type = 27
	TypeDeleteQueue Type = 28

	TypeClaimNotices  Type = 29
	TypeSettleNotices Type = 30
	TypeAdmit         Type = 31
)

// MaxEntry is the largest entry that may be proposed: larger ones endanger leadership (pitfalls 22).
const MaxEntry = 512 << 10

// Head is in every command.
type Head struct {
	Now  int64  `codec:"w"` // the proposer's stamp, ms
	Term uint64 `codec:"t"` // the proposer's term; refused unless it is the entry's own
}

// Request identifies a mutating request of a client.
type Request struct {
	ID          string `codec:"i,omitempty"`
	Fingerprint uint64 `codec:"f,omitempty"`
	Expires     int64  `codec:"e,omitempty"` // ms; when its outcome may be forgotten
}

// When is the place of a job's next occurrence as the proposer computed it. At 0: there is none.
type When struct {
	At    int64 `codec:"a,omitempty"`
	Ready int64 `codec:"r,omitempty"` // At plus jitter
}

// Gap is an interval of occurrences that do not run, as the proposer counted it. Count 0: none.
type Gap struct {
	First   int64         `codec:"f,omitempty"`
	Last    int64         `codec:"l,omitempty"`
	Count   int64         `codec:"c,omitempty"`
	AtLeast bool          `codec:"m,omitempty"`
	Status  job.RunStatus `codec:"s,omitempty"`
	Reason  job.Reason    `codec:"r,omitempty"`
}

// Seen is where the proposer saw a job's state: a command that names another place or generation is answered CodeMoved and
// recomputed.
type Seen struct {
	Gen    uint32 `codec:"g"`
	Parked bool   `codec:"p,omitempty"`
	At     int64  `codec:"a,omitempty"`
	Ready  int64  `codec:"r,omitempty"`
}

// Create makes jobs. The leader picks the numbers, because H, jitter and @every depend on them: they must exceed every number
// given out before, in order.
type Create struct {
	Head  Head         `codec:"h"`
	Items []CreateItem `codec:"i"`
}

// CreateItem is one new job.
type CreateItem struct {
	Job     uint64  `codec:"j"`
	Def     []byte  `codec:"d"` // store.Definition, encoded
	Next    When    `codec:"n"`
	Request Request `codec:"q"`
}

// Update replaces a job's definition. Next is where its next occurrence is to be afterwards (for a paused job: where it would
// be); Dropped is what the edit takes away before it, After what it takes away behind it: a one-off in the past leaves nothing of what was
// due later.
type Update struct {
	Head    Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
	Version uint64  `codec:"v"` // the version it was made from; it must still be that one
	Seen    Seen    `codec:"s"`
	Def     []byte  `codec:"d"`
	Next    When    `codec:"n"`
	Dropped Gap     `codec:"x"`
	After   Gap     `codec:"y"`
}

// Delete removes a job. Version 0: whichever. NotRun are the occurrences from the one that was due up to now, as the proposer counted
// them; it counts only if that one is still the one that is due.
type Delete struct {
	Head    Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
	Version uint64  `codec:"v"`
	NotRun  Gap     `codec:"x"`
}

// Pause stops a job's occurrences and holds its pending retries.
type Pause struct {
	Head    Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
}

// Resume starts a paused or quarantined job again. NotRun is what passed meanwhile.
type Resume struct {
	Head    Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
	Seen    Seen    `codec:"s"`
	Next    When    `codec:"n"`
	NotRun  Gap     `codec:"x"`
}

// Trigger makes a manual run. Its time is the stamp, moved to the next free millisecond.
type Trigger struct {
	Head    Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
	Key     string  `codec:"k,omitempty"` // idempotency key template of the job, if it has one; the key is made from it in apply
	Name    string  `codec:"m,omitempty"`
}

// Backfill makes runs of past occurrences. History newer than SeenHead is looked through again in apply; what is older was
// looked through by the proposer. Left are the occurrences that it left out for what it found there: they belong to the answer, which a
// repeated request gets again, and to the record.
type Backfill struct {
	Head     Head     `codec:"h"`
	Request  Request  `codec:"q"`
	Job      uint64   `codec:"j"`
	At       []int64  `codec:"a"`
	Keys     []string `codec:"k,omitempty"` // empty: default keys
	SeenHead uint64   `codec:"s"`
	Force    bool     `codec:"f,omitempty"`
	Left     []int64  `codec:"l,omitempty"`
}

// WorkerRef names the worker that a claim is for.
type WorkerRef struct {
	Name        string `codec:"n"`
	Incarnation uint64 `codec:"i"`
	Owner       uint64 `codec:"o,omitempty"` // store.Row.Owner
}

// Claim gives runs to workers. Columns: item i is (Lane[i], Ready[i], Jobs[i], Kind[i], At[i]), a key of the due index.
type Claim struct {
	Head      Head        `codec:"h"`
	Workers   []WorkerRef `codec:"w"`
	Lane      []byte      `codec:"l"`
	Kind      []byte      `codec:"k"` // store.Kind<<4 | job.Origin
	Ready     Times       `codec:"r"`
	Jobs      Numbers     `codec:"j"`
	At        Times       `codec:"a"`
	Gen       Gens        `codec:"g"` // the generation that Next, Timeout and Version belong to
	Next      Times       `codec:"n"` // occurrences: the next nominal time; 0 = none
	NextReady Times       `codec:"x"`
	Worker    Indexes     `codec:"o"`           // index into Workers
	Timeout   Times       `codec:"t"`           // what the attempt is started with, ms: a later edit does not reach it
	Version   Numbers     `codec:"v"`           // of the definition that the assignment is made from
	Keys      []string    `codec:"e"`           // empty, or one a run: its idempotency key where that is not the default
	Flags     []byte      `codec:"f,omitempty"` // empty, or one a run
	Late      []Late      `codec:"s,omitempty"` // in the order of their items
}

// Late is what became due behind an occurrence while that waited for a slot, and does not run. Unless overlap is allow or queue, a claim
// disposes of all that is due.
type Late struct {
	Item uint16 `codec:"i"`
	Gap  Gap    `codec:"g"`
}

// What a claim may say of an occurrence.
const (
	// ClaimLast: the run is the last one by max_runs, if it becomes a run: then nothing follows. Next is for the case that the overlap policy
	// skips it, which only apply knows.
	ClaimLast = 1
	// ClaimDue: the next occurrence is due already, and is left to be looked at by itself: it is in a blackout, or fell into an outage.
	ClaimDue = 2
)

// Result says how an attempt ended, after the proposer applied the job's retry rule.
type Result uint8

// The results.
const (
	ResultSucceeded Result = 1
	ResultRetry     Result = 2 // failed; the next attempt is at RetryAt
	ResultDead      Result = 3 // failed for good
	ResultCanceled  Result = 4
	ResultReturned  Result = 5 // never started
)

// Complete records the ends of attempts.
type Complete struct {
	Head    Head     `codec:"h"`
	Jobs    Numbers  `codec:"j"`
	At      Times    `codec:"a"`
	Origin  []byte   `codec:"o"`
	Fence   Numbers  `codec:"f"`
	Result  []byte   `codec:"r"`
	Reason  []byte   `codec:"x"`
	RetryAt Times    `codec:"y"`
	Started Times    `codec:"s"`
	Ended   Times    `codec:"e"`
	Error   []string `codec:"m"` // empty, or one an item
	Output  []string `codec:"u"` // empty, or one an item
}

// Expire takes runs from workers that fell silent or came back as another incarnation.
type Expire struct {
	Head   Head    `codec:"h"`
	Jobs   Numbers `codec:"j"`
	At     Times   `codec:"a"`
	Origin []byte  `codec:"o"`
	Fence  Numbers `codec:"f"`
}

// Advance moves occurrences on without running them (missed, blackout, expired), or closes a pending run that expired.
type Advance struct {
	Head      Head    `codec:"h"`
	Lane      []byte  `codec:"l"`
	Kind      []byte  `codec:"k"`
	Ready     Times   `codec:"r"`
	Jobs      Numbers `codec:"j"`
	At        Times   `codec:"a"`
	Gen       Gens    `codec:"g"`
	Next      Times   `codec:"n"`
	NextReady Times   `codec:"x"`
	Gaps      []Gap   `codec:"p"` // what does not run; Count 0: nothing (the run at Next is the same occurrence moved)
	// Rows are the runs of run_all between the interval and the next occurrence, in the order of the items and of their times. They
	// wait for the gaps of the live schedule.
	Rows []CatchUp `codec:"c,omitempty"`
}

// CatchUp is one run of run_all.
type CatchUp struct {
	Item uint16 `codec:"i"`
	At   int64  `codec:"a"`
	Key  string `codec:"k,omitempty"` // its idempotency key where that is not the default
}

// Admit decides about occurrences that find a run of their job open when they are ready, without a slot. Apply knows what is open: by the
// overlap policy the occurrence becomes a run that waits, and Next follows, or what is in its interval does not run, and Past follows.
type Admit struct {
	Head      Head     `codec:"h"`
	Lane      []byte   `codec:"l"`
	Ready     Times    `codec:"r"`
	Jobs      Numbers  `codec:"j"`
	At        Times    `codec:"a"`
	Gen       Gens     `codec:"g"`
	Next      Times    `codec:"n"`
	NextReady Times    `codec:"x"`
	Gaps      []Gap    `codec:"p"` // from the occurrence to the last one that the same run is in the way of, and why they do not run under skip
	Past      Times    `codec:"s"`
	PastReady Times    `codec:"y"`
	Keys      []string `codec:"e,omitempty"` // empty, or one an item
	Flags     []byte   `codec:"f,omitempty"` // empty, or one an item: ClaimLast
}

// Cancel stops a run: one that nobody has started closes at once, a claimed one is marked canceling.
type Cancel struct {
	Head    Head    `codec:"h"`
	Request Request `codec:"q"`
	Job     uint64  `codec:"j"`
	At      int64   `codec:"a"`
	Origin  byte    `codec:"o"`
	All     bool    `codec:"l,omitempty"` // every open run of the job
}

// Redrive puts dead letters back to work: same key, higher fence, attempts go on counting.
type Redrive struct {
	Head    Head     `codec:"h"`
	Request Request  `codec:"q"`
	Seqs    []uint64 `codec:"s"`
}

// Purge forgets dead letters.
type Purge struct {
	Head    Head     `codec:"h"`
	Request Request  `codec:"q"`
	Seqs    []uint64 `codec:"s"`
}

// Trim removes old history and expired requests, a bounded number at a time.
type Trim struct {
	Head     Head   `codec:"h"`
	Before   int64  `codec:"b"` // history recorded before this goes
	MaxCount uint64 `codec:"m"` // and what exceeds this count
	Limit    int    `codec:"l"`
}

// Stamp commits the leader's clock. With Takeover it also records the outage since the last stamp.
type Stamp struct {
	Head     Head `codec:"h"`
	Takeover bool `codec:"o,omitempty"`
}

// Calendar writes a blackout calendar; empty Data removes it.
type Calendar struct {
	Head    Head    `codec:"h"`
	Request Request `codec:"q"`
	Name    string  `codec:"n"`
	Data    []byte  `codec:"d"`
}

// Quarantine parks a job that the scheduler cannot handle, with the reason.
type Quarantine struct {
	Head Head   `codec:"h"`
	Job  uint64 `codec:"j"`
	Gen  uint32 `codec:"g"`
	Why  string `codec:"y"`
}

// ClockReset lowers the mark to the stamp.
type ClockReset struct {
	Head    Head    `codec:"h"`
	Request Request `codec:"q"`
}

// Cleanup removes one-off jobs whose retention is over; entries are clean-up keys of the due index. One that still has open
// runs or dead letters is put off to Later.
type Cleanup struct {
	Head  Head    `codec:"h"`
	Lane  []byte  `codec:"l"`
	Ready Times   `codec:"r"`
	Jobs  Numbers `codec:"j"`
	Later int64   `codec:"a"`
}

// Init names a new cluster.
type Init struct {
	Head      Head   `codec:"h"`
	ClusterID string `codec:"c"`
}

// PutNode writes a member's row. Index and JoinedAt are set in apply.
type PutNode struct {
	Head Head       `codec:"h"`
	Node store.Node `codec:"n"`
}

// RemoveNode marks a member as removed. Instance "": whichever.
type RemoveNode struct {
	Head     Head   `codec:"h"`
	ID       string `codec:"i"`
	Instance string `codec:"n,omitempty"`
}

// SetLevel commits a feature level: from here on every member may be sent what that level added.
type SetLevel struct {
	Head  Head `codec:"h"`
	Level int  `codec:"l"`
}

// Release ends the hold of a restored cluster. Occurrences up to the stamp do not run any more.
type Release struct {
	Head    Head    `codec:"h"`
	Request Request `codec:"q"`
}

// Lose closes up to Limit open runs that came with the backup of a cluster that is being released. When none is left the hold is over.
type Lose struct {
	Head  Head `codec:"h"`
	Limit int  `codec:"l"`
}

// What a PutQueue sets, and when.
const (
	QueueConcurrency uint8 = 1 << iota
	QueuePaused
	// QueueKnown: only if the queue exists, declared or used by a job. A typing error must not make a queue.
	QueueKnown
)

// PutQueue sets something of a queue, and makes its row if it has none. Version, if not 0, is the one that the row must have.
type PutQueue struct {
	Head        Head    `codec:"h"`
	Request     Request `codec:"q"`
	Name        string  `codec:"n"`
	Version     uint64  `codec:"v"`
	Set         uint8   `codec:"s"`
	Concurrency int     `codec:"c"`
	Paused      bool    `codec:"p"`
}

// DeleteQueue removes a queue's row: no limit, and not paused. Version 0: whichever.
type DeleteQueue struct {
	Head    Head    `codec:"h"`
	Request Request `codec:"q"`
	Name    string  `codec:"n"`
	Version uint64  `codec:"v"`
}

// ClaimNotices gives notifications of the outbox to the leader that proposes it: only then may it send them. Want are all the channels that
// the job names now, Try those that are tried this time.
type ClaimNotices struct {
	Head Head    `codec:"h"`
	Node string  `codec:"n"`
	Jobs Numbers `codec:"j"`
	Seqs Numbers `codec:"s"`
	Want []byte  `codec:"w"`
	Try  []byte  `codec:"y"`
}

// SettleNotices records what became of claimed notifications, channel by channel. Channels that were tried and are in none of the three
// are tried again, not before RetryAt.
type SettleNotices struct {
	Head    Head     `codec:"h"`
	Jobs    Numbers  `codec:"j"`
	Seqs    Numbers  `codec:"s"`
	Attempt Gens     `codec:"a"`
	Sent    []byte   `codec:"t"`
	Unknown []byte   `codec:"u"`
	Failed  []byte   `codec:"f"`
	RetryAt Times    `codec:"y"`
	Error   []string `codec:"m"` // empty, or one an item
}

// Code is the outcome of one item.
type Code uint8

// The outcomes. A stale item changed nothing.
const (
	CodeOK        Code = 1  // done
	CodeClaimed   Code = 2  // claimed: Fence and Attempt are set
	CodeSkipped   Code = 3  // the overlap policy skipped it, with a record
	CodeQueued    Code = 4  // it waits behind another run of its job
	CodeStale     Code = 5  // the entry, generation, fence or term is no longer that one
	CodeExists    Code = 6  // create: the same job is there already
	CodeDuplicate Code = 7  // create, update: another job has that name
	CodeNotFound  Code = 8  // no such job or run
	CodeMoved     Code = 9  // the state moved since it was read; recompute and propose again
	CodeConflict  Code = 10 // the version is another
	CodeRefused   Code = 11 // not in this state; Text says why
	CodeKeyReused Code = 12 // the request id belongs to another request
	CodeBusy      Code = 13 // claim: its queue is paused or at its limit
)

// Outcome is what became of one item.
type Outcome struct {
	Code    Code       `codec:"c"`
	Replay  bool       `codec:"-"` // answered from requests
	Job     job.ID     `codec:"j,omitempty"`
	Version uint64     `codec:"v,omitempty"` // redrive, purge: how many dead letters were named
	Run     job.RunKey `codec:"r,omitempty"`
	Fence   uint64     `codec:"f,omitempty"`
	Attempt uint16     `codec:"a,omitempty"`
	Key     string     `codec:"k,omitempty"` // claim: the run's idempotency key if it is not the default
	Count   int        `codec:"n,omitempty"`
	Times   []int64    `codec:"t,omitempty"` // backfill: what was made
	Skipped []int64    `codec:"s,omitempty"` // backfill: what was there already
	Text    string     `codec:"x,omitempty"`
}

// Reply is the answer to a command: one outcome an item (a command about one thing has one item). Commands that cancel claimed
// runs name them in Canceling, so that their workers can be told.
type Reply struct {
	Items     []Outcome
	Canceling []Canceling
}

// Canceling is a claimed run whose worker is to be told to stop.
type Canceling struct {
	Run         job.RunKey
	Fence       uint64
	Worker      string
	Incarnation uint64
}
