package checker

import (
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// Input is everything that is known about one cluster, from before its first job to a moment at which it was at rest.
//
// All times are milliseconds of one clock, the observer's. Where a node stamps by another one, ClockError says how far
// apart the two may be; a simulation with one clock leaves it zero.
type Input struct {
	Group        uint32                       // what was seen is of this one; faults are of all
	Calls        []Call                       // in any order
	Faults       []Fault                      // in any order
	Outages      []Outage                     // every outage that a takeover committed, also those pruned since
	Effects      []Effect                     // every attempt that a worker started
	Handed       []Handed                     // optional: every assignment that reached a worker, each time
	QueueWorkers []string                     // optional: workers that name a queue in each call
	Tags         map[string]map[string]string // optional: the tags of each worker, if those do not change
	// Namespaces are those of the workers that take runs of one only; optional.
	Namespaces map[string]string
	// Takeovers are all leaderships; optional, and with it goes the rule about inherited leases.
	Takeovers []Takeover
	Notified  []Notified // optional: every notification that arrived
	Reads     []Read     // optional: jobs as nodes showed them, by reads that confirm
	Restored  *Restored
	States    []Replica // optional: which states replicas had, where a fault could make them differ
	Final     Final

	TTL        time.Duration // of a session's lease; 0 = 30 s
	ClockError time.Duration
	// Latency is how long a message takes at most while no fault delays it.
	Latency time.Duration
	// SlackEffects is how much later than it happened an effect may be written down (a request sits in a socket
	// buffer). A recorder in the worker's own process leaves it zero.
	SlackEffects time.Duration
	// LooseCut says that an attempt may go on after its worker was cut off and has given up, because what it does
	// cannot be stopped from there (a request that is already with its target). Without it a cut-off worker has to stop
	// before its run is given away.
	LooseCut bool
	// MaxLag, if set, is how late an occurrence may be claimed while no fault, outage, pause, edit or open run of its
	// own job explains it. Only sensible where there are always free slots.
	MaxLag time.Duration
	// Recovery, if set, is how late an occurrence may be claimed while nothing is wrong but the clocks of a minority of
	// the Voters. Only sensible where there are always free slots and no run of a job keeps its next one from starting.
	Recovery time.Duration
	Voters   int
}

// CallKind is what a call of the API asked for.
type CallKind uint8

// The kinds of calls. Reads are not among them; package linear is about those.
const (
	CallCreate    CallKind = iota + 1
	CallUpdate             // PUT with or without a version
	CallDelete             // of the job
	CallPause              // of the job
	CallResume             // of the job
	CallRun                // run now
	CallBackfill           // with From, To, Force
	CallCancel             // of all open runs of the job (and of a one-off that has not run)
	CallCancelRun          // of one Run
	CallRedrive            // of the dead letters in Dead, or of all of Job
	CallPurge              // of the dead letters in Dead, or of all of Job
	CallCalendar           // put or (Calendar nil) delete the calendar Name
	CallQueue              // give the queue Name its Limit and whether it is Paused
)

var callNames = [...]string{"", "create", "update", "delete", "pause", "resume", "run", "backfill", "cancel",
	"cancel run", "redrive", "purge", "calendar", "queue"}

func (k CallKind) String() string {
	if int(k) < len(callNames) {
		return callNames[k]
	}
	return "call?"
}

// CallOutcome is what the caller knows.
type CallOutcome uint8

// The outcomes.
const (
	Unknown CallOutcome = iota // no answer, outcome_unknown, a timeout: may have happened, at any time from Invoke on
	OK                         // answered 2xx: happened, once, between Invoke and Return
	Refused                    // answered with an error that promises that nothing changed
)

func (o CallOutcome) String() string { return [...]string{"unknown", "ok", "refused"}[o] }

// Call is one mutating request.
type Call struct {
	Kind    CallKind
	Outcome CallOutcome
	Invoke  job.Instant
	Return  job.Instant // 0: it never came back (until Final.At)
	At      job.Instant // optional: the stamp under which it was committed; 0 = anywhere from Invoke to Return
	Request string      // the Idempotency-Key: calls with the same one are one call; "" = its own

	Job  job.ID // 0: a create that was not answered; it is found by Name, which must be unique in the whole Input then
	Name string // of a create: the job's name. Of CallCalendar and CallQueue: theirs. Of other namespaces: see In

	Spec    *job.Spec // create, update: as sent; the checker normalizes it
	Version uint64    // update: the version that was named (0: none). delete: likewise
	Answer  *job.Job  // create, update with outcome OK: what was answered. Its version and stamps are used

	From, To job.Instant // backfill
	Force    bool
	Times    []job.Instant // backfill, OK: what was answered as made
	Skipped  []job.Instant // backfill, OK: what was answered as left out

	Run   job.RunKey // run, OK: the run that was made. cancel run: which one
	Count int        // cancel, OK: how many were answered as canceled
	Dead  []uint64   // redrive, purge: the dead letters named; empty: all of Job

	Calendar *schedule.Calendar // CallCalendar
	// Unheard: CallCalendar, OK: the answer said that a node may not know of it yet.
	Unheard bool
	Limit   int  // CallQueue: 0 is none
	Paused  bool // CallQueue
}

// FaultKind is what was done to the cluster.
type FaultKind uint8

// The faults.
const (
	FaultKill   FaultKind = iota + 1 // the process is dead from From to To; everything in its memory is gone
	FaultPause                       // it stands still (SIGSTOP) and does not know it
	FaultCut                         // it cannot talk with Peer (empty: with anybody)
	FaultLink                        // messages between it and Peer are lost, late or doubled now and then
	FaultClock                       // its wall clock is wrong by Amount
	FaultDisk                        // its disk is slow
	FaultStop                        // it was stopped in good order (drained)
	FaultLeader                      // its leadership ended (transfer) while it lived
)

var faultNames = [...]string{"", "kill", "pause", "cut", "link", "clock", "disk", "stop", "leader"}

func (k FaultKind) String() string {
	if int(k) < len(faultNames) {
		return faultNames[k]
	}
	return "fault?"
}

// Fault is one of them. Node is the name of a node, and with it of the worker on it, or of a worker that stands alone.
type Fault struct {
	Kind   FaultKind
	Node   string
	Peer   string
	From   job.Instant
	To     job.Instant // 0: still so at the end
	Amount time.Duration
	Led    []uint32 // FaultPause: the groups that it led when that began, whose workers wait
}

func (f Fault) String() string {
	peer := f.Peer
	if peer != "" {
		peer = "/" + peer
	}
	return fmt.Sprintf("%s of %s%s from %s to %s", f.Kind, f.Node, peer, f.From, f.To)
}

// Outage is a time without a leader, as a takeover committed it: after the last committed stamp of the leadership
// before, up to the takeover's own stamp.
type Outage struct{ From, To job.Instant }

// EffectOutcome is how an attempt ended as its worker saw it.
type EffectOutcome uint8

// The outcomes of an attempt.
const (
	Cut       EffectOutcome = iota // its process died, or was still in it at the end
	Succeeded                      // says success
	Failed                         // says failure
	Permanent                      // says failure, and that trying again is useless
	TimedOut                       // the job's timeout ended it
	Canceled                       // it was told to stop, or its worker lost its session
)

func (o EffectOutcome) String() string {
	return [...]string{"cut off", "succeeded", "failed", "failed for good", "timed out", "canceled"}[o]
}

// Effect is one attempt that a worker really started: what the world saw.
type Effect struct {
	Worker      string
	Incarnation uint64 // optional: of the worker's session, 0 if not known
	Run         job.RunKey
	Fence       uint64
	Attempt     int
	Key         string
	Start       job.Instant
	End         job.Instant // Cut: when the process died; 0: was still in it at the end
	Outcome     EffectOutcome
	RetryAfter  time.Duration // Failed: the delay that was asked for
	Got         *Received     // optional: what it was given to do
}

// Handed is one assignment as it reached a worker.
type Handed struct {
	Worker      string
	Incarnation uint64
	Term        uint64 // of the leader that made the session
	Run         job.RunKey
	Fence       uint64
	Attempt     int
	Key         string
	At          job.Instant
	Got         *Received // optional
}

// Final is what the cluster says at the end. It must be at rest: every occurrence that is due has been decided.
type Final struct {
	At      job.Instant
	Jobs    []job.Job         // all that exist
	History []job.Run         // the whole of it, oldest first. Intervals that are not written out yet go into Pending
	Pending []job.Run         // intervals that the job shows and that are not in the history yet
	Open    []job.Run         // open runs
	Dead    []job.DeadLetter  // all of them
	Digests map[string]string // by node: a hash of its state at the same applied index
	// Recorded is the stamp of the command that wrote a record, by its seq; optional, and where it is missing the end
	// of the attempt is all that is known, which makes some rules looser.
	Recorded map[uint64]job.Instant
	// Seen is when a record was first in the state of any node, by its seq and the observer's clock; optional. A leader
	// that holds has no stamps and records results with its last one: this bounds when such a record was committed.
	Seen map[uint64]job.Instant
	// Slack is how long an occurrence may have been due at the end without anybody having decided about it. A cluster
	// with free slots, asked a few seconds after its last fault, leaves it small; one that was cut off in full run says
	// how long it was busy.
	Slack time.Duration
	// Trimmed is set where the history does not keep everything, and Cleaned says when jobs were first seen to be gone.
	Trimmed *Trimmed
	Cleaned map[job.ID]job.Instant
}

// Problem is one broken rule.
type Problem struct {
	Rule       Rule
	Job        job.ID
	Name       string
	Occurrence job.Instant // scheduled time, 0 if the problem is not about one
	Text       string
}

func (p Problem) String() string {
	who := ""
	if p.Job != 0 {
		who = " " + p.Job.String()
		if p.Name != "" {
			who += " (" + p.Name + ")"
		}
	}
	if p.Occurrence != 0 {
		who += " at " + p.Occurrence.String()
	}
	return fmt.Sprintf("[%s]%s: %s", p.Rule, who, p.Text)
}

// Rule names what was broken.
type Rule string

// The rules.
const (
	RuleInput      Rule = "input"        // the observation contradicts itself; the checker cannot judge it
	RuleLost       Rule = "lost"         // an occurrence, a run or an acknowledged change is nowhere
	RuleInvented   Rule = "invented"     // a run or a record for a time that is no occurrence, or was not asked for
	RuleTwice      Rule = "twice"        // an occurrence is accounted for more than once
	RuleLive       Rule = "live"         // two live attempts of one run, or a second one without an excuse
	RuleFence      Rule = "fence"        // a fence that does not grow, is shared or is unknown
	RuleAttempt    Rule = "attempt"      // an attempt number that does not grow
	RuleOverlap    Rule = "overlap"      // the overlap policy was not kept
	RuleMissed     Rule = "missed"       // a missed window was handled against its rule, or backlog as missed
	RuleReason     Rule = "reason"       // an occurrence did not run for a reason that did not exist
	RuleDeadline   Rule = "deadline"     // started after its deadline, or expired before it
	RuleBounds     Rule = "bounds"       // outside start_at and end_at, more than max_runs, inside a blackout
	RuleOnce       Rule = "at_most_once" // done twice in spite of it, or lost without a record
	RuleRetry      Rule = "retry"        // too many, too early, or given up too soon
	RuleKey        Rule = "key"          // an idempotency key that changed or that two runs share
	RuleEarly      Rule = "early"        // started before its time
	RulePaused     Rule = "paused"       // fired while it was paused
	RuleDeleted    Rule = "deleted"      // fired while it did not exist
	RuleCanceled   Rule = "canceled"     // canceled without a request, or went on in spite of one
	RuleOutcome    Rule = "outcome"      // the record says something else than the worker
	RuleDead       Rule = "dead"         // dead letters and history disagree
	RuleCall       Rule = "call"         // the answer to a call does not fit what became of it
	RuleNext       Rule = "next_run"     // a job's next run is not its next occurrence
	RuleReplicas   Rule = "replicas"     // two replicas differ
	RuleCommitted  Rule = "claim"        // an attempt of a claim that the history does not know
	RuleTerm       Rule = "term"         // an assignment of a lower term was taken
	RuleLate       Rule = "late"         // due, free to run, and not claimed
	RuleQueue      Rule = "queue"        // claimed from a paused queue, or more than its limit
	RuleStalled    Rule = "stalled"      // nothing ran although a majority of the clocks was right
	RuleOutage     Rule = "outage"       // an outage was committed for a time with a leader
	RuleNamespace  Rule = "namespace"    // a run went to a worker of another namespace, or is shown in another
	RuleDefinition Rule = "definition"   // an attempt is not what the definition at its claim says
)

// Report is the outcome of Check.
type Report struct {
	Problems []Problem

	Jobs, Runs, Attempts, Effects int
	Occurrences                   int // that had to be accounted for
	NotRun                        int // of those: recorded as not run
	Repeated                      int // runs with more than one started attempt
	LostWorkers                   int // attempts that ended with their worker
	Worlds                        int // possible worlds that were looked at because of calls without an answer
}

// Err is nil if every rule was kept, and names every broken one otherwise.
func (r Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	text := fmt.Sprintf("%d problems:", len(r.Problems))
	for i, p := range r.Problems {
		if i == 30 {
			text += fmt.Sprintf("\n  and %d more", len(r.Problems)-i)
			break
		}
		text += "\n  " + p.String()
	}
	return fmt.Errorf("%s", text)
}

func (r Report) String() string {
	return fmt.Sprintf("%d jobs, %d occurrences (%d not run), %d runs, %d attempts recorded, %d effects, %d runs "+
		"repeated, %d attempts lost with their worker, %d worlds, %d problems",
		r.Jobs, r.Occurrences, r.NotRun, r.Runs, r.Attempts, r.Effects, r.Repeated, r.LostWorkers, r.Worlds,
		len(r.Problems))
}
