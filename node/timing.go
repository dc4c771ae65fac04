package node

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
)

// RaftConfig are the timings of the Raft group. Zero values take the defaults.
type RaftConfig struct {
	// Multiplier makes the timeouts this many times longer; 1 to MaxMultiplier, 0: 1. A timeout that is set is not
	// multiplied.
	Multiplier int

	Heartbeat         time.Duration // without a word from the leader for this long a follower stands for election
	Election          time.Duration // how long a candidate waits for votes
	LeaderLease       time.Duration // a leader that heard nothing from a majority for this long steps down
	CommitTimeout     time.Duration // how soon an idle leader tells its followers what is committed
	SnapshotInterval  time.Duration
	SnapshotThreshold uint64
	TrailingLogs      uint64
	CompactBytes      uint64 // compact the log after this many bytes, and keep about as many behind a snapshot
	MaxAppendEntries  int
	ApplyTimeout      time.Duration // how long a proposal may wait to be taken in
}

const (
	// heartbeatTimeout is that of multiplier 1. A leader sends a heartbeat every tenth to fifth of it, and followers
	// look at their timers once or twice in it: after the death of a leader they elect another one within one to three
	// of it. A shorter one is taken for a dead leader when the processes have to wait for the processor.
	heartbeatTimeout = 600 * time.Millisecond
	// MaxMultiplier is the longest that the timeouts may be.
	MaxMultiplier = 10

	minTTL = 30 * time.Second
	// timeoutsInTTL is how many heartbeat timeouts a worker's lease has at least. The longest election without a split
	// vote takes three, one after a split vote two more; a worker counts two thirds of its lease, and its last
	// heartbeat may be a fifth of it old.
	timeoutsInTTL = 15
)

func (r *RaftConfig) defaults() {
	setDefault(&r.Multiplier, 1)
	setDefault(&r.Heartbeat, heartbeatTimeout*time.Duration(r.Multiplier))
	setDefault(&r.Election, r.Heartbeat)
	// As long as raft allows. A leader that steps down sooner than its followers would replace it does so for nothing;
	// one that was replaced confirms nothing in either case (see quorum).
	setDefault(&r.LeaderLease, r.Heartbeat)
	// Nothing waits for a follower to apply an entry, so that an idle leader need not hurry to tell it: a message to
	// each follower every few milliseconds was most of what an idle cluster did.
	setDefault(&r.CommitTimeout, r.Heartbeat/4)
	// Entries pile up at thousands a second; the default interval of minutes deletes them in one huge transaction.
	setDefault(&r.SnapshotInterval, 15*time.Second)
	setDefault(&r.SnapshotThreshold, 16384)
	setDefault(&r.TrailingLogs, r.SnapshotThreshold*5/4)
	setDefault(&r.CompactBytes, 64<<20)
	setDefault(&r.MaxAppendEntries, 512)
	setDefault(&r.ApplyTimeout, 5*time.Second)
}

// sessionTTL is how long a worker's lease is unless it is set: long enough to come from a leader that died to the next.
func (r *RaftConfig) sessionTTL() time.Duration {
	return max(minTTL, timeoutsInTTL*heartbeatTimeout*time.Duration(r.Multiplier))
}

// validate checks what was set, after defaults. ttl is a worker's lease.
func (r *RaftConfig) validate(ttl time.Duration) error {
	if r.Multiplier < 1 || r.Multiplier > MaxMultiplier {
		return job.Invalid("--raft-multiplier", fmt.Sprintf("use 1 (fast) to %d (slow machines and networks)",
			MaxMultiplier),
			"a multiplier of %d", r.Multiplier)
	}
	if least := 5 * heartbeatTimeout * time.Duration(r.Multiplier); r.Multiplier > 1 && ttl < least {
		return job.Invalid("--lease", fmt.Sprintf("use at least %s, or a lower --raft-multiplier", least),
			"%s is shorter than an election may take with a --raft-multiplier of %d", ttl, r.Multiplier)
	}
	if r.TrailingLogs < r.SnapshotThreshold*5/4 {
		// Fewer make a slow follower go from snapshot to snapshot for ever.
		return fmt.Errorf("trailing logs %d: keep at least 1.25 times the snapshot threshold (%d)", r.TrailingLogs,
			r.SnapshotThreshold)
	}
	return nil
}

// raftConfig is what raft wants to know. The timeouts are a trace longer than asked for; see campaignAlone.
func (c *Config) raftConfig(notify chan<- bool) *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = replica.ID(c.NodeID, replica.First)
	rc.HeartbeatTimeout = c.Raft.Heartbeat + time.Millisecond
	rc.ElectionTimeout = c.Raft.Election + time.Millisecond
	rc.LeaderLeaseTimeout = c.Raft.LeaderLease
	rc.CommitTimeout = c.Raft.CommitTimeout
	rc.MaxAppendEntries = c.Raft.MaxAppendEntries
	rc.SnapshotInterval = c.Raft.SnapshotInterval
	rc.SnapshotThreshold = c.Raft.SnapshotThreshold
	rc.TrailingLogs = c.Raft.TrailingLogs
	// One proposer pipelines its entries instead of waiting for the disk at each. What it breaks is the enqueue
	// timeout: an entry may sit in the channel for longer, and then it is refused or its term no longer matches. Both
	// are safe.
	rc.BatchApplyCh = true
	rc.NotifyCh = notify
	rc.NoSnapshotRestoreOnStart = true // the state file is the state
	rc.ShutdownOnRemove = false        // removal is a state, not an end
	rc.PreVoteDisabled = false
	rc.NoLegacyTelemetry = true
	rc.Logger = newRaftLogger(c.Logger)
	return rc
}
