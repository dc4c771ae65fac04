package node

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/raftlog"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// group is one Raft group on this node: its log, its state and, while it leads, its scheduler. A node runs one today.
type group struct {
	cfg       *Config
	log       *slog.Logger
	store     *store.Store
	logs      *raftlog.Log
	snaps     *fsm.Snapshots
	fsm       *fsm.FSM
	applier   *applier
	quorum    *quorum
	newQuorum func() *quorum
	raft      *raft.Raft
	lead      *leadership
	flight    *flight
	meters    *meters

	schedules scheduler.Schedules          // of jobs that were created lately
	members   *members                     // set before raft starts
	skew      func() (time.Duration, bool) // how far this node's clock is from the majority's
	standing  func(worker string, n job.NodeRef) (leaving bool, err error)
}

// openGroup opens the files of the group and holds them against each other. Raft is not running yet.
func openGroup(cfg *Config, dir *dataDir, m *meters) (_ *group, err error) {
	g := &group{cfg: cfg, log: cfg.Logger, flight: &flight{}, meters: m}
	defer func() {
		if err != nil {
			g.closeFiles()
		}
	}()
	if err := dir.checkLogLost(); err != nil {
		return nil, err
	}
	if err := store.VerifyPages(dir.file(fileRaft)); err != nil { // of the state file the store does it
		return nil, err
	}
	g.logs, err = raftlog.Open(dir.file(fileRaft), raftlog.Options{
		NoSync: cfg.Store.NoSync, LockTimeout: cfg.Store.LockTimeout, Fatal: cfg.Fatal, BeforeWrite: cfg.Machine.write("log"),
	})
	if err != nil {
		return nil, err
	}
	o := store.Options{MmapSize: cfg.Store.MmapSize, RecentNames: cfg.Store.RecentNames, NoSync: cfg.Store.NoSync, LockTimeout: cfg.Store.LockTimeout, BeforeCommit: cfg.Machine.write("state")}
	if g.store, err = store.Open(dir.file(fileState), o); err != nil {
		return nil, err
	}
	if err := fsm.CheckLevel(g.store.Info().Level, cfg.supports()); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir.path, err)
	}
	g.fsm = fsm.New(g.store, fsm.Options{Logger: cfg.Logger, Fatal: stuck(dir, cfg.Fatal), Applied: m.applied, Level: cfg.supports(), Skip: dir.skips(cfg.Logger, g.store)})
	g.applier = newApplier(g.fsm, g.flight)
	if g.snaps, err = fsm.NewSnapshots(dir.file(dirSnapshot), g.store); err != nil {
		return nil, err
	}
	if err := g.restorePending(); err != nil {
		return nil, err
	}
	// The names of new files are safe only once their directory is: a power loss could otherwise take files whose contents were
	// synced, and everything acknowledged with them.
	if err := store.SyncDir(dir.path); err != nil {
		return nil, err
	}
	return g, g.checkReach()
}

// restorePending takes over a snapshot that was received whole when the process ended, but not restored (pitfalls 1).
func (g *group) restorePending() error {
	rc, err := g.snaps.Pending()
	if err != nil || rc == nil {
		return err
	}
	g.log.Info("restoring a snapshot that was received before the last stop")
	return g.fsm.Restore(rc)
}

func (g *group) checkReach() error {
	meta, err := newest(g.snaps)
	if err != nil {
		return err
	}
	var snap snapshot
	if meta != nil {
		snap.Index, snap.Term = meta.Index, meta.Term
		if snap.State, snap.StateTerm, err = g.snaps.State(); err != nil {
			return err
		}
	}
	if g.cfg.hooks.trusting {
		return nil
	}
	index, term := g.fsm.Applied()
	return reach(g.logs, snap, index, term)
}

func newest(s raft.SnapshotStore) (*raft.SnapshotMeta, error) {
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// hasState says whether the group is part of a cluster already.
func (g *group) hasState() (bool, error) {
	last, err := g.logs.LastIndex()
	if err != nil {
		return false, err
	}
	snap, err := newest(g.snaps)
	return last > 0 || snap != nil, err
}

// bootstrap begins a cluster of one.
func (g *group) bootstrap(rc *raft.Config, trans raft.Transport) error {
	// Raft writes the term first and the configuration after it. A crash between the two leaves a directory that is neither empty nor a
	// cluster, and raft would refuse it for ever.
	if err := raftlog.SetTerm(g.logs, 0); err != nil {
		return err
	}
	servers := g.cfg.hooks.servers
	if servers == nil {
		servers = []raft.Server{{Suffrage: raft.Voter, ID: rc.LocalID, Address: trans.LocalAddr()}}
	}
	return raft.BootstrapCluster(rc, g.logs, g.logs, g.snaps, trans, raft.Configuration{Servers: servers})
}

// start runs raft.
func (g *group) start(trans raft.Transport) (err error) {
	defer func() { // raft panics on a hole in its log
		if r := recover(); r != nil {
			err = fmt.Errorf("raft could not start: %v", r)
		}
	}()
	g.lead = newLeadership(g)
	rc := g.cfg.raftConfig(g.lead.notify)
	has, err := g.hasState()
	if err != nil {
		return err
	}
	if !has {
		joined := ""
		if g.members != nil {
			joined, _ = g.members.cluster()
		}
		switch {
		case g.cfg.Bootstrap && joined != "" && g.cfg.hooks.clusterID == "":
			return fmt.Errorf("data directory %s has joined cluster %s: start it with --join, or empty it to begin another cluster", g.cfg.DataDir, joined)
		case g.cfg.Bootstrap:
			if err := g.bootstrap(rc, trans); err != nil {
				return fmt.Errorf("begin a cluster: %w", err)
			}
		case len(g.cfg.Join) == 0 && joined == "":
			return errNoCluster(g.cfg.DataDir)
		} // otherwise raft starts without a configuration and waits for a leader's word
	}
	if g.raft, err = raft.NewRaft(rc, g.applier, g.logs, g.logs, g.snaps, trans); err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	g.newQuorum = func() *quorum {
		return &quorum{raft: g.raft, trans: trans, id: rc.LocalID, wait: g.cfg.Raft.Election, busy: map[raft.ServerID]bool{}}
	}
	g.quorum = g.newQuorum()
	if g.members != nil {
		g.members.raft.Store(g.raft)
	}
	return g.campaignAlone()
}

func errNoCluster(dir string) error {
	return fmt.Errorf("data directory %s holds no cluster: begin one with --bootstrap, or join one with --join HOST:PORT", dir)
}

// campaignAlone makes a server that is the only voter stand for election at once instead of waiting up to a second for the heartbeats
// of a leader that cannot exist. Raft has no call for that, but a follower whose heartbeat timeout is lowered looks at its
// timer immediately; so raft starts with timeouts a millisecond longer than configured, and they are put right here.
func (g *group) campaignAlone() error {
	servers := g.raft.GetConfiguration().Configuration().Servers
	voters := 0
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	if voters != 1 {
		return nil
	}
	rc := g.raft.ReloadableConfig()
	rc.HeartbeatTimeout, rc.ElectionTimeout = g.cfg.Raft.Heartbeat, g.cfg.Raft.Election
	return g.raft.ReloadConfig(rc)
}

func (g *group) compactor() *raftlog.Compactor {
	return &raftlog.Compactor{
		Raft: g.raft, Log: g.logs, Bytes: g.cfg.Raft.CompactBytes, Trailing: g.cfg.Raft.TrailingLogs,
		Every: g.cfg.Machine.paced(raftlog.CompactEvery), Logger: g.log,
	}
}

func (g *group) newScheduler(prop *proposer, term uint64) *scheduler.Scheduler {
	return scheduler.New(scheduler.Options{
		Store: g.store, Proposer: prop, Term: term, Clock: g.cfg.Clock, Logger: g.log, TTL: g.cfg.TTL, Metrics: g.meters.hooks(),
		HistoryMaxAge: g.cfg.HistoryMaxAge, HistoryMaxCount: g.cfg.HistoryMaxCount, Skew: g.skew, Standing: g.standing, Pace: g.cfg.Machine.Pace,
	})
}

func (g *group) now() int64 {
	return g.cfg.Clock.Now().UnixMilli()
}

// shutdown ends raft. Nothing may be on its way to it any more. killed: as if the process had ended.
func (g *group) shutdown(killed bool) error {
	if g.raft == nil {
		return nil
	}
	if !g.flight.land(landTimeout) {
		g.log.Warn("raft is shut down with questions unanswered")
	}
	err := g.raft.Shutdown().Error()
	g.applier.close(!killed)
	return err
}

const landTimeout = 5 * time.Second

func (g *group) closeFiles() error {
	var errs []error
	if g.store != nil {
		errs = append(errs, g.store.Close())
	}
	if g.logs != nil {
		errs = append(errs, g.logs.Close())
	}
	return errors.Join(errs...)
}
