package checker

import (
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Takeover is the moment at which a node began a leadership. The leases of all sessions begin anew there.
type Takeover struct {
	Node string
	Term uint64
	At   job.Instant
	// Epoch is that of the cluster as the node knew it.
	Epoch uint64
}

// Replica is the state that a node's replica had at one moment.
type Replica struct {
	Node    string
	At      job.Instant
	Index   uint64 // the last entry in it
	Digest  string
	Stopped bool // it takes no part, and says so
}

// Trimmed is what is known of a history that does not keep everything. Final.History is then all that was ever
// committed.
type Trimmed struct {
	MaxAge   time.Duration   // 0: whatever its age
	MaxCount uint64          // 0: however many
	Late     time.Duration   // how long after its time a record may still be there; 0: two minutes
	Kept     map[uint64]bool // the records that are still there at the end, by seq
	Floors   []Floor         // in the order of their times
}

// Floor says that everything up to a record may be gone, the newest of each job excepted.
type Floor struct {
	At   job.Instant // when it was first seen, which is not before it was committed
	Seq  uint64
	Last uint64 // the newest record then
}

// Notified is one notification as it reached its receiver.
type Notified struct {
	At      job.Instant
	Key     string // the same for every try of one notification
	Job     job.ID
	Failure bool   // false: a recovery
	Run     string // that ended; empty: the job went into quarantine
	Status  string
	Refused bool // the receiver said that it could not take it now: it is to come again
}

// Restored says that the cluster was lost and made anew from a backup. What it did between the two is not in the rest
// of the input.
type Restored struct {
	Backup  job.Instant  // when it was taken
	Lost    job.Instant  // when the cluster before ended
	Release job.Instant  // the stamp of the release
	Fence   uint64       // the highest one in the backup
	Given   uint64       // the highest one that the cluster before gave out
	Done    []job.RunKey // what the cluster before started after the backup
}

// Rules about what is remembered, and for how long.
const (
	RuleLease   Rule = "lease"   // an inherited lease was not kept for its full length
	RuleOrder   Rule = "order"   // runs that waited for their turn were not started oldest first
	RuleRequest Rule = "request" // a repeated request was not answered by its first outcome
	RuleTrim    Rule = "trim"    // a record or a job was removed too early, or kept for too long
	RuleNotice  Rule = "notice"  // a notification was invented, sent again or never sent
	RuleEpoch   Rule = "epoch"   // nodes that a recovery gave up led beside those that went on
	RuleRestore Rule = "restore" // a restored cluster did what the one before may have done
	RuleRead    Rule = "read"    // a read showed less than had been answered before it began
)

// keepRequest is how long the outcome of a request with a key of its client's is kept.
const keepRequest = 24 * time.Hour
