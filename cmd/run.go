package cmd

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/carillon-scheduler/carillon/cmd/devcluster"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/internal/enroll"
	"github.com/carillon-scheduler/carillon/internal/gc"
	"github.com/carillon-scheduler/carillon/internal/otlp"
	"github.com/carillon-scheduler/carillon/internal/systemd"
	"github.com/carillon-scheduler/carillon/internal/undumpable"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/notify"
)

// ServerConfig is what `server` and `dev` know about the node they start.
type ServerConfig struct {
	NodeID, Listen, Advertise, DataDir string
	Bootstrap                          bool
	Groups                             values.Groups
	Join, Cluster                      []string
	RemoveDeadAfter                    time.Duration
	Lease                              time.Duration
	RaftMultiplier                     int
	toolFlags                          // of its own worker
	Slots                              int
	Tags                               map[string]string
	Dev                                bool
	LogLevel, LogFormat                string
	HistoryMaxAge                      time.Duration
	HistoryMaxCount                    uint64
	SnapshotInterval                   time.Duration
	SnapshotThreshold                  uint64
	Pprof                              bool
	AllowNetworkFS                     bool
	MinFreeDisk                        node.DiskLimit
	MaxConnections, MaxTokenRequests   int
	AllowedHosts                       []string
	Notify                             notify.Settings
	Traces                             *otlp.Config
	enroll.Settings
}

// startNode and checkData are how tests put something in place of a node.
var (
	startNode = runServer
	checkData = datadir.Check
	recovers  = datadir.Recover
	skips     = datadir.Skip
)

// runServer runs a node until the context ends. ready is called once it serves, with the address it serves on.
func runServer(ctx context.Context, cfg ServerConfig, ready func(addr string)) error {
	gc.Tune()
	manager := systemd.Find()
	manager.Starting()
	manager.Stopping(ctx, stoppingText)
	if cfg.Secure {
		if err := undumpable.Set(); err != nil {
			return err
		}
	}
	brokers, err := cfg.brokers()
	if err != nil {
		return err
	}
	var kill func()
	if os.Getenv(devcluster.Variable) != "" && !cfg.Secure && onlyLoopback(cfg.Listen) == nil {
		kill = devcluster.KillSelf
	}
	n, err := node.Open(node.Config{
		NodeID: cfg.NodeID, Listen: cfg.Listen, Advertise: cfg.Advertise, DataDir: cfg.DataDir,
		Bootstrap: cfg.Bootstrap, Groups: int(cfg.Groups), Join: cfg.Join, Cluster: cfg.Cluster,
		Members:   node.MembersConfig{RemoveDeadAfter: cfg.RemoveDeadAfter},
		Executors: cfg.types(), Slots: cfg.Slots, Brokers: brokers, Shell: cfg.Shell, Tags: cfg.Tags, TTL: cfg.Lease,
		Version: version().Version, Logger: processLog(cfg.LogLevel, cfg.LogFormat),
		HistoryMaxAge: cfg.HistoryMaxAge, HistoryMaxCount: cfg.HistoryMaxCount, DebugPprof: cfg.Pprof,
		DevKill:     kill,
		MinFreeDisk: cfg.MinFreeDisk, MaxConnections: cfg.MaxConnections, MaxTokenRequests: cfg.MaxTokenRequests,
		AllowedHosts: cfg.AllowedHosts,
		Secure:       cfg.Secure, Insecure: cfg.Insecure,
		Keys: node.KeysConfig{On: cfg.Secure, From: cfg.From, Token: cfg.Token,
			TLSCert: cfg.TLSCert, TLSKey: cfg.TLSKey},
		Notify: cfg.Notify, Traces: cfg.Traces, Egress: cfg.Egress, AllowNetworkFS: cfg.AllowNetworkFS,
		Raft: node.RaftConfig{Multiplier: cfg.RaftMultiplier, SnapshotInterval: cfg.SnapshotInterval,
			SnapshotThreshold: cfg.SnapshotThreshold}, Store: node.StoreConfig{NoSync: noSync},
	})
	if err != nil {
		return err
	}
	if ready != nil {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go announce(ctx, n, ready)
	}
	done := make(chan struct{})
	defer close(done)
	go manager.Follow(ctx, done, func() bool { return n.Live() == nil }, func() string {
		if err := n.Ready(); err != nil {
			return err.Error()
		}
		text := "ready"
		if err := n.Runs(); err != nil { // it has started, and nothing runs before it is released
			text = err.Error()
		}
		manager.Ready(text)
		return text
	})
	return n.Run(ctx)
}

// announce calls ready as soon as the node takes work.
func announce(ctx context.Context, n *node.Node, ready func(addr string)) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n.Ready() != nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	ready(n.Addr())
}

// processLog is the log of this process. What libraries write with package log goes there, too.
func processLog(level, format string) *slog.Logger {
	log := newLogger(os.Stderr, level, format)
	slog.SetDefault(log)
	return log
}
