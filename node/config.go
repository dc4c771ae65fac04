package node

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/notify"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// Config says what a node is. Zero values take the defaults.
type Config struct {
	NodeID    string
	Listen    string // host:port of the one port; port 0 picks a free one
	Advertise string // how others reach it; empty: the address it listens on
	DataDir   string
	Bootstrap bool     // begin a cluster of one if the directory holds none; ignored otherwise
	Join      []string // addresses of nodes of the cluster to join if the directory holds none; ignored otherwise

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

	Clock scheduler.Clock
	TTL   time.Duration // of a worker's lease
	Raft  RaftConfig
	Store StoreConfig

	Members MembersConfig
	Notify  notify.Settings

	Machine Machine // what it stands on; the zero value is the real one

	// Fatal ends the process after a storage error: memory, log and state must not drift apart. It must not return;
	// tests replace it.
	Fatal func(error)

	DebugPprof bool

	AllowNetworkFS bool // the data directory may be on a file system that other machines can write to

	MinFreeDisk DiskLimit // with less room than this the leader creates no jobs

	// For tests of upgrades: the feature level to support, 0: that of the binary; and the level that a command needs,
	// nil: fsm.CommandLevel.
	level int
	needs func(cmd fsm.Command) (int, error)
}

// MembersConfig is about who belongs to the cluster.
type MembersConfig = membership.Config

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
		c.Clock = scheduler.NewClock()
	}
	c.Raft.defaults()
	setDefault(&c.TTL, c.Raft.sessionTTL())
	setDefault(&c.Store.LockTimeout, time.Second)
	c.Members.Defaults()
	c.MinFreeDisk.defaults()
	if c.Fatal == nil {
		logger := c.Logger
		c.Fatal = func(err error) {
			what := "its storage failed"
			if errors.As(err, new(*fsm.EntryError)) {
				what = "an entry of the log cannot be applied"
			}
			logger.Error("the process ends: "+what+", and going on would let memory, log and state drift apart",
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
	for _, a := range c.Join {
		if err := datadir.CheckAddress(a); err != nil {
			return job.Invalid("--join", "use HOST:PORT of a node of the cluster", "%s: %v", a, err)
		}
	}
	if c.Slots < 1 || c.Slots > 65536 {
		return job.Invalid("--slots", "use 1 to 65536", "%d slots", c.Slots)
	}
	return c.Raft.validate(c.TTL)
}
