// Package membership is who belongs to the cluster: how a node joins it, which data directory may speak under an id,
// what the leader sees of the others (whether they answer, how far they are, what time they have), and who should lead.
package membership

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/memberrows"
	"github.com/carillon-scheduler/carillon/node/placement"
	"github.com/carillon-scheduler/carillon/node/quorum"
	"github.com/carillon-scheduler/carillon/node/scrub"
	"github.com/carillon-scheduler/carillon/node/standing"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// Config is about who belongs to the cluster. Zero values take the defaults.
type Config struct {
	Interval        time.Duration // how often the leader looks at the members; default 500 ms
	StableFor       time.Duration // how long a new node must keep up before it may vote; default 1 s
	RemoveDeadAfter time.Duration // remove a member that was silent for this long; 0: never
}

// Defaults fills in what is not set.
func (c *Config) Defaults() {
	c.Interval = cmp.Or(c.Interval, 500*time.Millisecond)
	c.StableFor = cmp.Or(c.StableFor, time.Second)
}

// Options are what a node is, and what its membership stands on.
type Options struct {
	Config
	NodeID   string
	Instance string // of its data directory
	Address  string // how others reach it
	Listen   string // where it listens
	Insecure bool   // it is reached by others and asks for no token, on purpose
	Version  string
	Level    int // the feature level that it supports
	Slots    int
	Tags     map[string]string
	Join     []string               // addresses of nodes of the cluster to join
	Former   Former                 // of a node with --cluster; nil: it has none
	Skips    []datadir.SkippedEntry // entries of the log that it passes over

	Identity     datadir.ClusterIdentity
	Save         func(datadir.ClusterIdentity) error // replaces it in the data directory
	Standing     *standing.Standing                  // whether the replica takes part
	Store        *store.Store
	Tracker      *forward.Tracker
	Flight       Flight
	ApplyTimeout time.Duration // how long raft may take to take a change in
	Clock        stamp.Clock
	Logger       *slog.Logger
	Disk         func() wire.DiskSpace
	Fail         func(error) // ends the node
	Dial         func(timeout, keepAlive time.Duration) func(ctx context.Context, network, addr string) (net.Conn,
		error)
	Pace      func(time.Duration) time.Duration // slows housekeeping down
	Campaign  func(context.Context)             // stands for election, if this node follows
	StandNow  func(s raft.Server) error         // asks a voter to stand for election at once
	Turn      time.Duration                     // between the voters that could succeed a leader
	Connected func(id string) bool              // says whether a connection for Raft that a node made is open
	// Greet shakes hands with the node at an address, as for Raft, and hangs up.
	Greet func(addr string, timeout time.Duration)

	// Keys are those of the node; nil: the cluster is plain. Dial then makes connections with them, and Raw without.
	Keys  *keys.Ring
	Raw   func(timeout, keepAlive time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error)
	Token keys.Token // that it joins with; no id: none
	First keys.Token // the join token that a cluster begins with; no id: none
	// Recheck judges open connections again, after a CA ceased to be trusted.
	Recheck func()
	// Outdated are secrets whose values are sealed with a cluster key that was replaced, sealed anew; some of them at a
	// time.
	Outdated func() ([]fsm.ResealedSecret, error)
	Step     faultpoint.Step // between the steps of a rotation; of tests

	// Files are those of a group that this node has a replica of; nil: it has none.
	Files func(group uint32) *datadir.Files

	Scrub *scrub.Replica // of the group; nil: there is none, in tests

	// Of says which other group's replicas these are; nil: those of the control group.
	Of *ReplicaOf

	// Of tests: the cluster that a node belongs to before it joined one, where raft dials a server if not where it
	// should, and that the rules which refuse a data directory are off.
	ClusterID string
	Where     func(id string) string
	Trusting  bool
}

// Flight counts what raft has been asked and has not answered: it is not shut down before.
type Flight interface {
	Enter() bool
	Leave()
}

const (
	// PromoteLag is how many entries a node may be behind and still count as one that keeps up.
	PromoteLag = 1024
	whoTimeout = time.Second
)

// Members is the node's part in its cluster: how it got in, what it knows of the others and, while it leads, who comes
// and goes.
//
// Two things say who is a member. Raft's configuration says who gets entries and who votes. The rows in the state say
// which data directory may speak under an id, which raft never asks. In every change the row comes first: a server
// without a row could not be told from a stranger, and what a crash leaves undone is then always raft's part, which the
// next leader does (settle).
type Members struct {
	o    Options
	log  func(msg string, args ...any) // at warning
	http *http.Client
	// enroll is for a node that has no certificate yet: it makes sure of the cluster, which knows it by its token.
	enroll *http.Client
	tended time.Time                 // when the keys were last looked after; of follow alone
	raft   atomic.Pointer[raft.Raft] // nil until it runs; handshakes may come earlier
	kept   memberrows.Cache

	lost chan string // a leader whose connection ended

	certifying sync.Mutex // one certificate of this node at a time is signed by itself

	saving sync.Mutex // one change of the identity in the data directory at a time; taken before mu

	changing chan struct{} // holds one token: changes of the membership are made one at a time

	mu         sync.Mutex
	identity   datadir.ClusterIdentity // what node.json says
	why        string                  // why this node is not a working part of the cluster, if it is not
	waits      said                    // why it is not part of a cluster yet
	mentions   said                    // what is wrong with the addresses of --cluster
	removed    bool                    // the cluster said so
	refused    map[string]entry        // handshakes that failed, by peer
	peers      map[string]*peer        // the leader's view
	clocks     map[string]*probeReply  // of the control group's voters, as groups that this node leads asked for them
	lastNotice lastNotice              // the last notice of a leader
	quorum     *quorum.Look

	handover handover
	tried    placement.Tried
	growing  growing
}

// entry is a refusal and when it was last logged.
type entry struct {
	text   string
	logged time.Time
}

// peer is a member as the leader sees it.
type peer struct {
	heard   time.Time  // last answer; the start of the epoch if there was none
	seen    probeReply // what it said last; at is zero if it never answered
	problem string     // of the last probe
	odd     string     // how it differs from this node, in what should be the same everywhere
	close   time.Time  // since when it keeps up; zero if it does not
}

var _ api.Cluster = (*Members)(nil)

// New makes the membership of a node whose raft does not run yet.
func New(o Options) *Members {
	m := &Members{
		o: o, log: o.Logger.Warn, identity: o.Identity, changing: make(chan struct{},
			1), refused: map[string]entry{}, peers: map[string]*peer{},
		clocks: map[string]*probeReply{}, lost: make(chan string, 1),
		http: httpClient(o.Dial(whoTimeout, 0)),
	}
	if o.Keys != nil {
		m.enroll = httpClient(transport.PinnedDial(o.Keys, o.Raw(whoTimeout, 0)))
		o.Keys.Recognise(m.recognise)
	}
	m.o.Store.Listen(m.kept.Changed)
	m.quorum = quorum.New()
	m.changing <- struct{}{}
	if err := m.Stopped(); err != nil {
		o.Tracker.Halt(err)
	}
	return m
}

func httpClient(dial transport.DialFunc) *http.Client {
	return &http.Client{
		Transport: &http.Transport{ // no proxy: nodes talk to each other
			DialContext:         dial,
			MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Attach is called when raft runs. Handshakes may come earlier.
func (m *Members) Attach(r *raft.Raft) { m.raft.Store(r) }

// Close gives up idle connections.
func (m *Members) Close() {
	m.http.CloseIdleConnections()
	if m.enroll != nil {
		m.enroll.CloseIdleConnections()
	}
}

func (m *Members) client(addr string, more ...client.Option) *client.Client {
	return client.New(addr, append(more, client.WithHTTPClient(m.http), client.WithAttempts(1), client.WithStale(),
		client.WithUserAgent("carillon-node/"+m.o.Version))...)
}

func (m *Members) id() string { return m.o.NodeID }

func (m *Members) address() string { return m.o.Address }

// Cluster is the history that this node's replica is of: as its state says, and before it has one, as it was told when
// it joined.
func (m *Members) Cluster() lineage.Cluster {
	if info := m.o.Store.Info(); info.ClusterID != "" {
		return info.Cluster()
	}
	if of := m.o.Of; of != nil {
		return of.Control.Cluster()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.identity.Cluster()
	c.ID = cmp.Or(c.ID, m.o.ClusterID)
	return c
}

// self is the row that this node should have.
func (m *Members) self() store.Node {
	o := &m.o
	return store.Node{ID: o.NodeID, Instance: o.Instance, Address: o.Address, Version: o.Version, Level: o.Level,
		Slots: o.Slots, Tags: o.Tags, Key: m.ownKey()}
}

// Self implements api.Cluster.
func (m *Members) Self() wire.NodeInfo {
	c := m.Cluster()
	i := wire.NodeInfo{NodeID: m.id(), InstanceID: m.o.Instance, ClusterID: c.ID, Epoch: c.Epoch,
		Recovery: c.Recovery, Address: m.address(), Version: m.o.Version, Level: m.o.Level,
		Applied: m.o.Store.Counters().Index, Now: job.Instant(m.now()), Removed: m.Removed(), State: "stopped"}
	if r := m.raft.Load(); r != nil {
		_, leader := r.LeaderWithID()
		i.State, i.Leader, i.Term = StateName(r.State()), replica.Node(leader), r.CurrentTerm()
	}
	return i
}

func (m *Members) now() int64 { return m.o.Clock.Now().UnixMilli() }

// disk is the room of this node's own directory, nil if that is not known.
func (m *Members) disk() *wire.DiskSpace {
	if d := m.o.Disk(); d.Total != 0 {
		return &d
	}
	return nil
}

// StateName is what a state of raft is called.
func StateName(s raft.RaftState) string {
	switch s {
	case raft.Leader:
		return "leader"
	case raft.Candidate:
		return "candidate"
	case raft.Follower:
		return "follower"
	}
	return "stopped"
}

// Configured is raft's latest configuration.
func (m *Members) Configured() []raft.Server {
	r := m.raft.Load()
	if r == nil {
		return nil
	}
	return r.GetConfiguration().Configuration().Servers
}

// Servers are those of raft's latest configuration, each with the address at which it is now.
func (m *Members) Servers() []raft.Server {
	servers := m.Configured()
	servers = slices.Clone(servers)
	for i, s := range servers {
		servers[i].Address = cmp.Or(m.where(replica.Node(s.ID)), s.Address)
	}
	return servers
}

// FindServer is a server of a configuration.
func FindServer(servers []raft.Server, id string) (raft.Server, bool) {
	i := slices.IndexFunc(servers, func(s raft.Server) bool { return replica.Node(s.ID) == id })
	if i < 0 {
		return raft.Server{}, false
	}
	return servers[i], true
}

func (m *Members) setWhy(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.why = fmt.Sprintf(format, args...)
}

// Removed says that the cluster no longer has this node.
func (m *Members) Removed() bool {
	if m.o.Of != nil {
		return m.o.Of.Control.Removed()
	}
	m.mu.Lock()
	told := m.removed
	m.mu.Unlock()
	if told {
		return true
	}
	if r, ok := m.Row(m.id()); ok && r.Removed && r.Instance == m.o.Instance {
		return true
	}
	servers := m.Configured()
	_, in := FindServer(servers, m.id())
	return len(servers) > 0 && !in
}

// Outside is what a removed node says.
func (m *Members) Outside() error {
	if !m.Removed() {
		return nil
	}
	return job.Errorf(job.CodeNotReady,
		"use another node; stop this one, or empty its data directory and start it with --join to bring it back",
		"node %s was removed from the cluster", m.id())
}

// Ready says why this node is not a working part of the cluster.
func (m *Members) Ready() error {
	if err := m.Stopped(); err != nil {
		return err
	}
	if err := m.Outside(); err != nil {
		return err
	}
	m.mu.Lock()
	why := m.why
	m.mu.Unlock()
	if servers := m.Configured(); len(servers) == 0 {
		if err := m.unformed(); err != nil {
			return err
		}
		why = cmp.Or(why, "it waits for the leader's first message")
		return job.Errorf(job.CodeNotReady, "wait; if that does not help, start the nodes that --join names, or "+
			"correct --join",
			"this node has not joined its cluster yet: %s", why)
	}
	r := m.raft.Load()
	if r == nil {
		return forward.ErrNoLeader()
	}
	if _, leader := r.LeaderWithID(); leader == "" && why != "" {
		return job.Errorf(job.CodeNotReady, "", "this node knows of no leader: %s", why)
	}
	return nil
}

// Describe adds to a member what its row and, on the leader, its last answer say of it. applied is how far the leader
// is.
func (m *Members) Describe(c *wire.Member, applied uint64) {
	if r, ok := m.Row(c.ID); ok && !r.Removed {
		c.Instance, c.Version, c.Level, c.Slots, c.Tags = r.Instance, r.Version, r.Level, r.Slots, r.Tags
		c.Standby, c.Leaving, c.JoinedAt = r.Standby, r.Leaving, job.Instant(r.JoinedAt)
	}
	if m.o.Tracker.Epoch() == nil {
		return
	}
	median, known := m.median()
	if c.ID == m.id() {
		c.State, c.Applied, c.LastHeard, c.Lag, c.Disk = "leader", applied, job.At(time.Now()), new(uint64), m.disk()
		if known || len(m.Configured()) == 1 {
			c.SkewMS = new((-median).Milliseconds())
		}
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[c.ID]
	if p == nil {
		return
	}
	if c.State, c.Problem = p.seen.State, cmp.Or(p.problem, p.stopped(), p.odd); p.problem != "" {
		c.State = "unreachable"
	}
	if p.seen.at.IsZero() {
		return
	}
	c.Applied, c.LastHeard = p.seen.Applied, job.At(p.seen.at)
	c.Lag = new(applied - min(c.Applied, applied))
	if known {
		c.SkewMS = new((p.seen.offset(m.o.Clock) - median).Milliseconds())
	}
	if p.seen.Disk.Total > 0 {
		c.Disk = new(p.seen.Disk)
	}
}

// Insecure are the nodes that are known to serve without TLS and tokens on purpose: this one, and, on the leader, those
// that said so when they were last probed.
func (m *Members) Insecure() (ids []string) {
	if m.o.Insecure {
		ids = append(ids, m.id())
	}
	if m.o.Tracker.Epoch() != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		for id, p := range m.peers {
			if p.seen.Insecure {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// lock waits for the turn to change the membership.
func (m *Members) lock(ctx context.Context) error {
	select {
	case <-m.changing:
		return nil
	case <-ctx.Done():
		return job.Errorf(job.CodeUnavailable, "try again", "another membership change is still in progress")
	}
}

func (m *Members) unlock() { m.changing <- struct{}{} }
