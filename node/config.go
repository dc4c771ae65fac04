package node

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/internal/otlp"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/internal/slowread"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/disk"
	"github.com/carillon-scheduler/carillon/node/formation"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/node/raftslog"
	"github.com/carillon-scheduler/carillon/node/security"
	"github.com/carillon-scheduler/carillon/notify"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
)

// Config says what a node is. Zero values take the defaults.
type Config struct {
	NodeID    string
	Listen    string // host:port of the one port; port 0 picks a free one
	Advertise string // how others reach it; empty: the address it listens on
	DataDir   string
	Bootstrap bool     // begin a cluster of one if the directory holds none; ignored otherwise
	Groups    int      // over how many groups a cluster that it begins has its jobs; 0 and 1: one group has everything
	Join      []string // addresses of nodes of the cluster to join if the directory holds none; ignored otherwise
	// Cluster are the addresses of all nodes that form a cluster, this one included: it founds or joins it by what the
	// others say. If the directory holds a cluster, they only help to find the others.
	Cluster []string

	Executors []job.Type            // what the local worker carries out; empty: no local worker
	Slots     int                   // how many runs it works on at once
	Brokers   map[string]job.Broker // where message jobs may publish to by a name
	Shell     executor.ShellOptions // bounds its shell jobs; the directory is the node's own
	Tags      map[string]string
	Version   string
	Logger    *slog.Logger

	HistoryMaxAge   time.Duration
	HistoryMaxCount uint64
	DrainTimeout    time.Duration // how long a stop waits for attempts in progress

	Clock stamp.Clock
	TTL   time.Duration // of a worker's lease
	Raft  RaftConfig
	Store StoreConfig

	Members MembersConfig
	Notify  notify.Settings
	Traces  *otlp.Config // where the spans of runs go; nil: nowhere
	// Egress says what http and message jobs, and webhooks, may connect to. A node that is reached over the loopback
	// interface only allows loopback addresses, too.
	Egress egress.Config

	Machine Machine // what it stands on; the zero value is the real one

	// Fatal ends the process after a storage error: memory, log and state must not drift apart. It must not return;
	// tests replace it.
	Fatal func(error)

	DebugPprof bool
	// DevKill ends the process at once. It makes the cluster one to play with, whose nodes anyone may kill.
	DevKill func()

	// Secure asks everybody for a token, or, of another node, for its certificate.
	Secure bool
	// Insecure says that the node is reached by others and asks for no token, on purpose. It makes that known.
	Insecure bool
	Keys     KeysConfig // of a secure cluster

	// AllowedHosts are names by which it may be called besides those that it listens on and advertises.
	AllowedHosts []string

	AllowNetworkFS bool // the data directory may be on a file system that other machines can write to

	MinFreeDisk DiskLimit // with less room than this the leader creates no jobs

	// MaxConnections is how many may be open on its port; 0: 16,384, or half of the files that the process may open.
	// From one address it is a quarter of them, members excepted, and an eighth is kept for those.
	MaxConnections int

	// MaxTokenRequests is how many requests a second it takes of one API token; 0: 2,000. What workers say is not
	// counted.
	MaxTokenRequests int
	// MaxBadTokens is how many requests of one address may have a token that is none, a minute; 0: 60.
	MaxBadTokens int
	// MaxJoins is how often one address may ask to join, a minute; 0: 600.
	MaxJoins int

	// For tests of upgrades: the feature level to support, 0: that of the binary; and the level that a command needs,
	// nil: fsm.CommandLevel.
	level int
	needs func(cmd fsm.Command) (int, error)
}

// MembersConfig is about who belongs to the cluster.
type MembersConfig = membership.Config

// KeysConfig is about the keys of a secure cluster.
type KeysConfig = security.Config

// DiskLimit is how much room must be left for jobs to be created.
type DiskLimit = disk.Limit

// supports is the feature level that this node supports.
func (c *Config) supports() int { return cmp.Or(c.level, fsm.Level) }

// StoreConfig is about the files.
type StoreConfig struct {
	MmapSize    int  // initial memory map of the state file; 0: 64 GiB
	RecentNames int  // how many names are kept in memory before they move to their bucket; 0: half a million
	NoSync      bool // no fsync: for tests only
	LockTimeout time.Duration
}

const (
	defaultHistoryAge   = 7 * 24 * time.Hour
	defaultHistoryCount = 1_000_000
	defaultSlots        = 256
	defaultDrain        = 30 * time.Second
	exitStorage         = 70 // EX_SOFTWARE: the supervisor should restart us and look at the disk
)

func (c *Config) defaults() {
	if c.Machine.Dial != nil {
		c.Notify.Dial = c.Machine.Dial
	}
	setDefault(&c.Listen, "127.0.0.1:7400")
	setDefault(&c.HistoryMaxAge, defaultHistoryAge)
	setDefault(&c.HistoryMaxCount, defaultHistoryCount)
	setDefault(&c.DrainTimeout, defaultDrain)
	setDefault(&c.Slots, defaultSlots)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = stamp.NewClock()
	}
	c.Raft.defaults()
	setDefault(&c.TTL, c.Raft.sessionTTL())
	setDefault(&c.Store.LockTimeout, time.Second)
	c.Members.Defaults()
	c.Bootstrap = c.Bootstrap && len(c.Cluster) == 0 // the list says who founds
	c.MinFreeDisk.Defaults()
	if c.Fatal == nil {
		logger := c.Logger
		c.Fatal = func(err error) {
			what := "its storage failed"
			if errors.As(err, new(*fsm.EntryError)) {
				what = "an entry of the log cannot be applied"
			}
			logger.Error("the process ends: "+what+", and if it went on, memory, log and state could diverge",
				"error", err)
			os.Exit(exitStorage)
		}
	}
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func (c *Config) validate() error {
	if c.DataDir == "" {
		return job.Invalid("--data-dir", "give it a directory", "a node needs a place for its state")
	}
	if err := datadir.CheckNodeID(c.NodeID); err != nil {
		return err
	}
	if c.Bootstrap && len(c.Join) > 0 {
		return job.Invalid("--join", "begin a cluster on one node with --bootstrap, and let the others join it",
			"both --bootstrap and --join were given")
	}
	if len(c.Cluster) > 0 && len(c.Join) > 0 {
		return job.Invalid("--join", "give only --cluster: with it a node joins the cluster of its list, if there "+
			"is one", "both --cluster and --join were given")
	}
	for _, a := range c.Join {
		if err := datadir.CheckAddress(a); err != nil {
			return job.Invalid("--join", "use HOST:PORT of a node of the cluster", "%s: %v", a, err)
		}
	}
	if err := formation.CheckList(c.Cluster); err != nil {
		return err
	}
	if c.Slots < 1 || c.Slots > 65536 {
		return job.Invalid("--slots", "use 1 to 65536", "%d slots", c.Slots)
	}
	return c.Raft.validate(c.TTL)
}

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
	// one that was replaced confirms nothing in either case (see propose.Quorum).
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
func (c *Config) raftConfig(number uint64, log *slog.Logger, notify chan<- bool) *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = replica.ID(c.NodeID, number)
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
	rc.Logger = raftslog.New(log)
	return rc
}

// Machine is what a node stands on: network, disk, time, and the carrying out of attempts. The zero value is the real
// one.
type Machine struct {
	faultpoint.Node
	// Runners stand in for the executors of the local worker.
	Runners     map[job.Type]executor.Runner
	WorkerClock worker.Clock
	// Leader is put between the local worker and the leader.
	Leader func(worker.Leader) worker.Leader
	Memory membudget.Limits // the zero value has the defaults
	Unread slowread.Limits  // likewise
	// ProposeNotice is put between the outbox and the log.
	ProposeNotice func(cmd fsm.Command, next func(fsm.Command) (*fsm.Reply, error)) (*fsm.Reply, error)
}
