package node

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

// MembersConfig is about who belongs to the cluster. Zero values take the defaults.
type MembersConfig struct {
	Interval        time.Duration // how often the leader looks at the members; default 500 ms
	StableFor       time.Duration // how long a new node must keep up before it may vote; default 1 s
	RemoveDeadAfter time.Duration // remove a member that was silent for this long; 0: never
}

func (c *MembersConfig) defaults() {
	setDefault(&c.Interval, 500*time.Millisecond)
	setDefault(&c.StableFor, time.Second)
}

const (
	// promoteLag is how many entries a node may be behind and still count as one that keeps up.
	promoteLag = 1024
	whoTimeout = time.Second
)

// members is the node's part in its cluster: how it got in, what it knows of the others and, while it leads, who comes and goes.
//
// Two things say who is a member. Raft's configuration says who gets entries and who votes. The rows in the state say which data
// directory may speak under an id, which raft never asks. In every change the row comes first: a server without a row could not be told
// from a stranger, and what a crash leaves undone is then always raft's part, which the next leader does (settle).
type members struct {
	n    *Node
	g    *group
	log  func(msg string, args ...any) // at warning
	http *http.Client
	raft atomic.Pointer[raft.Raft] // nil until it runs; handshakes may come earlier
	kept keptRows

	changing chan struct{} // holds one token: changes of the membership are made one at a time

	mu       sync.Mutex
	identity datadir.ClusterIdentity // what node.json says
	why      string                  // why this node is not a working part of the cluster, if it is not
	removed  bool                    // the cluster said so
	refused  map[string]entry        // handshakes that failed, by peer
	peers    map[string]*peer        // the leader's view
	told     told                    // the last notice of a leader
	trouble  trouble

	handover handover
}

// entry is a refusal and when it was last logged.
type entry struct {
	text   string
	logged time.Time
}

// peer is a member as the leader sees it.
type peer struct {
	heard   time.Time // last answer; the start of the epoch if there was none
	seen    sighting  // what it said last; at is zero if it never answered
	problem string    // of the last probe
	odd     string    // how it differs from this node, in what should be the same everywhere
	close   time.Time // since when it keeps up; zero if it does not
}

var _ api.Cluster = (*members)(nil)

func newMembers(n *Node) *members {
	m := &members{
		n: n, g: n.group, log: n.cfg.Logger.Warn, identity: n.dir.ClusterIdentity, changing: make(chan struct{}, 1), refused: map[string]entry{}, peers: map[string]*peer{},
		http: &http.Client{
			Transport: &http.Transport{ // no proxy: nodes talk to each other
				DialContext:         n.cfg.Machine.dialer(whoTimeout, 0),
				MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, DisableCompression: true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	m.g.store.Listen(m.kept.changed)
	m.trouble.asking = make(chan struct{}, 1)
	m.trouble.asking <- struct{}{}
	m.changing <- struct{}{}
	return m
}

func (m *members) close() { m.http.CloseIdleConnections() }

func (m *members) client(addr string) *client.Client {
	return client.New(addr, client.WithHTTPClient(m.http), client.WithAttempts(1), client.WithStale(), client.WithUserAgent("carillon-node/"+m.n.cfg.Version))
}

// level is the feature level that this node supports.
func (c *Config) supports() int {
	if c.level != 0 {
		return c.level
	}
	return fsm.Level
}

func (m *members) id() string { return m.n.cfg.NodeID }

func (m *members) address() string { return m.n.advertise }

// cluster is the cluster and epoch that this node belongs to: as its state says, and before it has one, as it was told when it joined.
func (m *members) cluster() (id string, epoch uint64) {
	if info := m.g.store.Info(); info.ClusterID != "" {
		return info.ClusterID, info.Epoch
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.identity.ClusterID, m.n.cfg.hooks.clusterID), m.identity.Epoch
}

// self is the row that this node should have.
func (m *members) self() store.Node {
	c := &m.n.cfg
	return store.Node{ID: c.NodeID, Instance: m.n.dir.Instance, Address: m.address(), Version: c.Version, Level: c.supports(), Slots: c.Slots, Tags: c.Tags}
}

// Self implements api.Cluster.
func (m *members) Self() client.NodeInfo {
	id, epoch := m.cluster()
	i := client.NodeInfo{NodeID: m.id(), InstanceID: m.n.dir.Instance, ClusterID: id, Epoch: epoch, Address: m.address(), Version: m.n.cfg.Version, Level: m.n.cfg.supports(),
		Applied: m.g.store.Counters().Index, Now: job.Instant(m.g.now()), Removed: m.isRemoved(), State: "stopped"}
	if r := m.raft.Load(); r != nil {
		_, leader := r.LeaderWithID()
		i.State, i.Leader, i.Term = stateName(r.State()), string(leader), r.CurrentTerm()
	}
	return i
}

// configured is raft's latest configuration.
func (m *members) configured() []raft.Server {
	r := m.raft.Load()
	if r == nil {
		return nil
	}
	return r.GetConfiguration().Configuration().Servers
}

// servers are those of raft's latest configuration, each with the address at which it is now.
func (m *members) servers() []raft.Server {
	servers := m.configured()
	servers = slices.Clone(servers)
	for i, s := range servers {
		servers[i].Address = cmp.Or(m.where(string(s.ID)), s.Address)
	}
	return servers
}

func findServer(servers []raft.Server, id string) (raft.Server, bool) {
	i := slices.IndexFunc(servers, func(s raft.Server) bool { return string(s.ID) == id })
	if i < 0 {
		return raft.Server{}, false
	}
	return servers[i], true
}

// leaderAddress is where the leader is, "" if nobody leads or this node does.
func (m *members) leaderAddress() string {
	r := m.raft.Load()
	if r == nil {
		return ""
	}
	addr, id := r.LeaderWithID()
	if string(id) == m.id() {
		return ""
	}
	return string(addr)
}

func (m *members) setWhy(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.why = fmt.Sprintf(format, args...)
}

// isRemoved says that the cluster no longer has this node.
func (m *members) isRemoved() bool {
	m.mu.Lock()
	told := m.removed
	m.mu.Unlock()
	if told {
		return true
	}
	if r, ok := m.row(m.id()); ok && r.Removed && r.Instance == m.n.dir.Instance {
		return true
	}
	servers := m.configured()
	_, in := findServer(servers, m.id())
	return len(servers) > 0 && !in
}

// ready says why this node is not a working part of the cluster.
func (m *members) ready() error {
	if m.isRemoved() {
		return job.Errorf(job.CodeNotReady, "stop it; to bring it back, empty its data directory and start it with --join", "this node was removed from the cluster")
	}
	m.mu.Lock()
	why := m.why
	m.mu.Unlock()
	if servers := m.configured(); len(servers) == 0 {
		if why == "" {
			why = "it waits for the leader's first word"
		}
		return job.Errorf(job.CodeNotReady, "", "this node has not joined its cluster yet: %s", why)
	}
	r := m.raft.Load()
	if r == nil {
		return forward.ErrNoLeader()
	}
	if _, leader := r.LeaderWithID(); leader == "" && why != "" {
		return job.Errorf(job.CodeNotReady, "", "nobody leads as far as this node knows: %s", why)
	}
	return nil
}

// describe adds to a member what its row and, on the leader, its last answer say of it. applied is how far the leader is.
func (m *members) describe(c *client.Member, applied uint64) {
	if r, ok := m.row(c.ID); ok && !r.Removed {
		c.Instance, c.Version, c.Level, c.Slots, c.Tags = r.Instance, r.Version, r.Level, r.Slots, r.Tags
		c.Standby, c.JoinedAt = r.Standby, job.Instant(r.JoinedAt)
	}
	if m.g.tracker.Epoch() == nil {
		return
	}
	median, known := m.median()
	if c.ID == m.id() {
		c.State, c.Applied, c.LastHeard, c.Lag, c.Disk = "leader", applied, job.At(time.Now()), new(uint64), m.n.ownDisk()
		if known || len(m.configured()) == 1 {
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
	if c.State, c.Problem = p.seen.State, cmp.Or(p.problem, p.odd); p.problem != "" {
		c.State = "unreachable"
	}
	if p.seen.at.IsZero() {
		return
	}
	c.Applied, c.LastHeard = p.seen.Applied, job.At(p.seen.at)
	c.Lag = new(applied - min(c.Applied, applied))
	if known {
		c.SkewMS = new((p.seen.offset(m.n.cfg.Clock) - median).Milliseconds())
	}
	if p.seen.Disk.Total > 0 {
		c.Disk = new(p.seen.Disk)
	}
}

// lock waits for the turn to change the membership.
func (m *members) lock(ctx context.Context) error {
	select {
	case <-m.changing:
		return nil
	case <-ctx.Done():
		return job.Errorf(job.CodeUnavailable, "try again", "another change of the membership takes its time")
	}
}

func (m *members) unlock() { m.changing <- struct{}{} }
