package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/fsm/chain"
	"github.com/carillon-scheduler/carillon/fsm/snapshots"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/formation"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/node/meters"
	"github.com/carillon-scheduler/carillon/node/names"
	"github.com/carillon-scheduler/carillon/node/propose"
	"github.com/carillon-scheduler/carillon/node/raftlog"
	"github.com/carillon-scheduler/carillon/node/scrub"
	"github.com/carillon-scheduler/carillon/node/service"
	"github.com/carillon-scheduler/carillon/node/standing"
	"github.com/carillon-scheduler/carillon/node/vault"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// group is one Raft group on this node: its log, its state and, while it leads, its scheduler. Every node has a replica
// of the control group, which has what concerns the whole cluster; host.go has the others.
type group struct {
	of        datadir.Replica // which one, and the number of this node's replica
	control   *group          // nil: this is the control group
	cfg       *Config
	log       *slog.Logger
	files     *datadir.Files
	store     *store.Store
	logs      *raftlog.Log
	snaps     *snapshots.Store
	fsm       *fsm.FSM
	applier   *raftlog.Applier
	quorum    *propose.Quorum
	newQuorum func() *propose.Quorum
	raft      *raft.Raft
	lead      *leadership
	tracker   *forward.Tracker
	// parts are begun with every leadership, before it is known to others, and run until it ends.
	parts  []func(*forward.Epoch) func(context.Context)
	flight *propose.Flight
	meters *meters.Group
	// standing says whether the replica takes part.
	standing *standing.Standing
	scrub    *scrub.Replica
	damage   error // what was found to be damaged when the files were opened

	layer *transport.StreamLayer
	trans *transport.RaftTransport

	leading, following sync.WaitGroup // what runs until endLead and endFollow
	endLead, endFollow context.CancelFunc

	members *membership.Members // set before raft starts
	service *service.Service    // what its API asks for
	forward *forward.Forwarder  // brings requests to its leader
	names   *names.Keeper       // nil: this is the control group
	admin   store.Token         // that a new cluster begins with
	keys    *keys.Ring          // nil: the cluster is plain
	vault   *vault.Vault        // of the secrets; of a plain cluster it opens none
}

// openGroup opens the files of a replica. Raft is not running yet.
func openGroup(cfg *Config, dir *datadir.Dir, of datadir.Replica, all *meters.Meters) (*group, error) {
	log := cfg.Logger
	if of.Group != 0 {
		log = log.With("group", of.Group)
	}
	m := all.Group(of.Group)
	g := &group{of: of, cfg: cfg, log: log, flight: &propose.Flight{}, meters: m}
	f, err := dir.OpenFiles(of.Group, datadir.FileOptions{
		State: store.Options{
			MmapSize: cfg.Store.MmapSize, RecentNames: cfg.Store.RecentNames, NoSync: cfg.Store.NoSync,
			LockTimeout: cfg.Store.LockTimeout, BeforeCommit: cfg.Machine.BeforeWrite("state"),
		},
		Level: cfg.supports(), Applied: m.Applied, Logger: log, Fatal: cfg.Fatal,
		Differs: func(d chain.Difference) { g.differs(datadir.Hashed(d)) },
		Damaged: g.foundDamaged, Scrub: func(s fsm.Scrubbed) { g.scrub.Apply(s) },
		BeforeLogWrite: cfg.Machine.BeforeWrite("log"), Trusting: cfg.Machine.Trusting,
	})
	if err != nil {
		return nil, err
	}
	g.files, g.store, g.logs, g.snaps, g.fsm = f, f.State, f.Log, f.Snapshots, f.FSM
	g.scrub = scrub.New(scrub.Options{
		Store: g.store, Self: cfg.NodeID, Damaged: g.foundDamaged, Pace: cfg.Machine.Pace.Of, Logger: log,
		Voters: g.voters, Others: func() map[string]scrub.Result { return g.members.Scrubs() },
	})
	g.applier = raftlog.NewApplier(g.fsm, raftlog.DelayOf(of.Group), g.flight.Busy)
	if !cfg.Machine.Trusting && !mutant.On(mutant.TwoStates) {
		f.Log.Guard(g.applier.Applied, func(at, to uint64) { g.differs(datadir.CutBack(at, to)) })
	}
	return g, nil
}

// differs stops the node: its state of the group is another one than the leader's. Raft's goroutines call it.
func (g *group) differs(d datadir.Difference) {
	d.Group, d.Leader = g.of.Group, g.members.LeaderID()
	if !g.cfg.Machine.Trusting && !mutant.On(mutant.TwoStates) {
		g.standing.Stop(d.Stopped(g.cfg.NodeID, job.At(g.cfg.Clock.Now())))
	}
}

// receives says whether a snapshot that a leader sends may take the place of the state.
func (g *group) receives(h fsm.Header) error {
	if err := g.members.Receives(h); err != nil || g.cfg.Machine.Trusting {
		return err
	}
	g.applier.Flush()
	d, err := g.files.GoesOn(h)
	if d != nil {
		g.differs(*d)
	}
	return err
}

// bootstrap begins a group of one, or, if there are founders, of those.
func (g *group) bootstrap(rc *raft.Config, trans raft.Transport, servers []raft.Server) error {
	// Raft writes the term first and the configuration after it. A crash between the two leaves a directory that is
	// neither empty nor a cluster, and raft would refuse it for ever.
	if err := raftlog.SetTerm(g.logs, 0); err != nil {
		return err
	}
	if servers == nil || g.control != nil {
		servers = []raft.Server{{Suffrage: raft.Voter, ID: rc.LocalID, Address: trans.LocalAddr()}}
	}
	return raft.BootstrapCluster(rc, g.logs, g.logs, g.snaps, trans, raft.Configuration{Servers: servers})
}

// start runs raft.
func (g *group) start(trans raft.Transport) error {
	g.lead = newLeadership(g)
	rc := g.cfg.raftConfig(g.of.Number, g.log, g.lead.notify)
	if g.damaged() {
		return g.standAside(rc, trans)
	}
	has, err := g.files.InCluster()
	if err != nil {
		return err
	}
	if !has {
		joined := g.members.Cluster().ID
		switch {
		case g.control != nil:
			if begins, err := g.control.members.Begins(g.of); err != nil {
				return err
			} else if begins {
				if err := g.bootstrap(rc, trans, nil); err != nil {
					return fmt.Errorf("begin group %d: %w", g.of.Group, err)
				}
			}
		case g.cfg.Bootstrap && joined != "" && g.cfg.Machine.ClusterID == "":
			return fmt.Errorf("data directory %s has joined cluster %s: start the node with --join, or empty the "+
				"directory to begin another cluster", g.cfg.DataDir, joined)
		case g.cfg.Bootstrap:
			if err := g.bootstrap(rc, trans, g.cfg.Machine.Servers); err != nil {
				return fmt.Errorf("begin a cluster: %w", err)
			}
		case joined != "" && len(g.founders()) > 0: // it ended between the two steps of formation
			if err := g.bootstrap(rc, trans, g.founders()); err != nil {
				return fmt.Errorf("begin the cluster of --cluster: %w", err)
			}
		case len(g.cfg.Join) == 0 && len(g.cfg.Cluster) == 0 && joined == "":
			return errNoCluster(g.cfg.DataDir)
		} // otherwise raft starts without a configuration and waits for a leader's word
	}
	logs := raftlog.ForRaft{Log: g.logs, Damaged: g.standStill}
	if err := g.newRaft(rc, logs, logs, snapshots.Sent{Store: g.snaps}, trans); err != nil {
		if g.damaged() {
			return g.standAside(rc, trans)
		}
		return fmt.Errorf("start raft: %w", err)
	}
	return g.campaignAlone()
}

// newRaft starts raft. What it reads from a damaged log ends the goroutine that reads (raftlog.ForRaft), so that is not
// the caller's.
func (g *group) newRaft(rc *raft.Config, logs raft.LogStore, stable raft.StableStore, snaps raft.SnapshotStore,
	trans raft.Transport) error {
	err := errors.New("what it has on the disk cannot be read")
	var starting sync.WaitGroup
	starting.Go(func() {
		defer func() { // raft panics on a hole in its log
			if r := recover(); r != nil {
				err = fmt.Errorf("%v", r)
			}
		}()
		g.raft, err = raft.NewRaft(rc, g.applier, logs, stable, snaps, trans)
	})
	starting.Wait()
	if err != nil {
		return err
	}
	g.newQuorum = func() *propose.Quorum {
		return &propose.Quorum{Raft: g.raft, Transport: trans, ID: rc.LocalID, Wait: g.cfg.Raft.Election}
	}
	g.quorum = g.newQuorum()
	g.members.Attach(g.raft)
	return nil
}

// voters are the nodes whose replicas vote.
func (g *group) voters() (ids []string) {
	for _, s := range g.members.Servers() {
		if s.Suffrage == raft.Voter {
			ids = append(ids, replica.Node(s.ID))
		}
	}
	return ids
}

// standAside runs raft for a replica that takes no part because its files are damaged: on a log without anything in it,
// not even a configuration, so that raft reads nothing of those files and waits for ever.
func (g *group) standAside(rc *raft.Config, trans raft.Transport) error {
	none := raft.NewInmemStore()
	return g.newRaft(rc, none, none, raft.NewInmemSnapshotStore(), trans)
}

func (g *group) damaged() bool {
	why := g.standing.Own()
	return why != nil && why.Reason == datadir.StoppedDamaged
}

// foundDamaged is told by those who read the files. At first nobody can be told that the replica takes no part.
func (g *group) foundDamaged(err error) {
	if g.standing == nil {
		g.damage = err
		return
	}
	g.standStill(err)
}

// standStill has the replica take no part any more, because its files are not what was written to them. Raft's
// goroutines call it.
func (g *group) standStill(err error) {
	g.standing.Stop(datadir.Damaged(g.of.Group, g.cfg.NodeID, err.Error(), job.At(g.cfg.Clock.Now())))
}

func errNoCluster(dir string) error {
	return fmt.Errorf("data directory %s belongs to no cluster: give all nodes of a new one the same --cluster, "+
		"begin one with --bootstrap, or join one with --join HOST:PORT", dir)
}

// founders are the servers of the cluster that the nodes of --cluster have founded; none: they have not.
func (g *group) founders() []raft.Server {
	if f := g.members.Identity().Formation; f != nil {
		return formation.Servers(f.Members)
	}
	return nil
}

// found begins the group while raft runs.
func (g *group) found(servers []raft.Server) error {
	if err := g.raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
		return err
	}
	return g.campaignAlone()
}

// campaignAlone makes a server that is the only voter stand for election at once instead of waiting up to a second for
// the heartbeats of a leader that cannot exist. Raft has no call for that, but a follower whose heartbeat timeout is
// lowered looks at its timer immediately; so raft starts with timeouts a millisecond longer than configured, and they
// are put right here.
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
		Every: g.cfg.Machine.Pace.Of(raftlog.CompactEvery), Logger: g.log,
	}
}

func (g *group) newScheduler(prop *propose.Proposer, term uint64) *scheduler.Scheduler {
	return scheduler.New(scheduler.Options{
		Store: g.store, Proposer: prop, Term: term, Clock: g.cfg.Clock, Logger: g.log, TTL: g.cfg.TTL,
		Metrics:       g.meters.Hooks(g.cfg.Traces.Sampler()),
		HistoryMaxAge: g.cfg.HistoryMaxAge, HistoryMaxCount: g.cfg.HistoryMaxCount, Skew: g.members.Skew,
		Standing: g.members.Standing, Pace: g.cfg.Machine.Pace, ByToken: g.cfg.Secure,
		Vault: g.vault, Calendar: g.calendars(), Traces: g.cfg.Traces.Sampler(),
	})
}

// calendars are where those of the cluster are looked up in; nil: in the group's own state.
func (g *group) calendars() func(namespace, name string) []byte {
	if g.control == nil {
		return nil
	}
	return func(namespace, name string) (data []byte) {
		err := g.control.store.View(func(v *store.View) error {
			data = v.Calendar(namespace, name)
			return nil
		})
		if err != nil {
			g.log.Warn("calendars not readable", "error", err)
		}
		return data
	}
}

// term is the term that raft is in, and whether it has no log yet.
func (g *group) term() (term uint64, fresh bool) {
	term, err := raftlog.Term(g.logs)
	if err != nil {
		g.log.Error("term not readable", "error", err)
	}
	last, err := g.logs.LastIndex()
	return term, err == nil && last == 0
}

func (g *group) now() int64 {
	return g.cfg.Clock.Now().UnixMilli()
}

// shutdown ends raft. Nothing may be on its way to it any more. killed: as if the process had ended.
func (g *group) shutdown(killed bool) error {
	if g.raft == nil {
		return nil
	}
	if !g.flight.Land(landTimeout) {
		g.log.Warn("raft shut down with proposals pending")
	}
	err := g.raft.Shutdown().Error()
	g.applier.Close(!killed)
	return err
}

const landTimeout = 5 * time.Second

func (g *group) closeFiles() error {
	g.meters.Detach()
	g.scrub.Close()
	return g.files.Close()
}
