package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
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
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
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

	changing chan struct{} // holds one token: changes of the membership are made one at a time

	mu      sync.Mutex
	home    home             // what node.json says
	why     string           // why this node is not a working part of the cluster, if it is not
	removed bool             // the cluster said so
	refused map[string]entry // handshakes that failed, by peer
	peers   map[string]*peer // the leader's view
	trouble trouble
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
		n: n, g: n.group, log: n.cfg.Logger.Warn, home: n.dir.home, changing: make(chan struct{}, 1), refused: map[string]entry{}, peers: map[string]*peer{},
		http: &http.Client{
			Transport: &http.Transport{ // no proxy: nodes talk to each other
				DialContext:         (&net.Dialer{Timeout: whoTimeout}).DialContext,
				MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, DisableCompression: true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
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

func (m *members) id() string      { return m.n.cfg.NodeID }
func (m *members) address() string { return m.n.advertise }

// cluster is the cluster and epoch that this node belongs to: as its state says, and before it has one, as it was told when it joined.
func (m *members) cluster() (id string, epoch uint64) {
	if info := m.g.store.Info(); info.ClusterID != "" {
		return info.ClusterID, info.Epoch
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.home.ClusterID, m.n.cfg.hooks.clusterID), m.home.Epoch
}

// row is a member's row in this node's own state.
func (m *members) row(id string) (r store.Node, ok bool) {
	err := m.g.store.View(func(v *store.View) (err error) {
		r, ok, err = v.Node(id)
		return err
	})
	if err != nil && !errors.Is(err, store.ErrClosed) {
		m.log("the row of a member cannot be read", "node", id, "error", err)
	}
	return r, ok && err == nil
}

// rows are all rows of living members, by id.
func (m *members) rows() (map[string]store.Node, error) {
	out := map[string]store.Node{}
	err := m.g.store.View(func(v *store.View) error {
		return v.EachNode(func(r store.Node) {
			if !r.Removed {
				out[r.ID] = r
			}
		})
	})
	return out, err
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

// hello is how this node introduces itself to another.
func (m *members) hello() transport.Hello {
	id, epoch := m.cluster()
	h := transport.Hello{ClusterID: id, Epoch: epoch, NodeID: m.id(), InstanceID: m.n.dir.Instance, Address: m.address()}
	m.mu.Lock()
	h.Index = m.home.Index
	m.mu.Unlock()
	if r, ok := m.row(m.id()); ok && r.Instance == h.InstanceID && !r.Removed {
		h.Index = max(h.Index, r.Index)
	}
	return h
}

// check lets in only the data directories that belong to this cluster. Raft would talk to whoever comes: a directory that was wiped has
// forgotten in which terms it voted, and one that was copied votes twice; either makes two leaders of one term possible.
//
// What this node knows may be old. So a peer without a row is let in (a stranger cannot know the cluster's id: rows are committed
// before the id is told), and one that knows of a later change of its own membership is believed: were it refused, a node that
// slept through a change could make an election impossible for ever.
func (m *members) check(h transport.Hello) error {
	if m.n.cfg.hooks.trusting {
		return nil
	}
	id, epoch := m.cluster()
	switch {
	case id == "":
		return errors.New("this node has not joined a cluster yet")
	case h.ClusterID != id:
		return fmt.Errorf("node %s is in cluster %s and node %s in %q: they have nothing to say to each other; look at --join and at the addresses", m.id(), id, h.NodeID, h.ClusterID)
	case h.Epoch < epoch:
		return fmt.Errorf("the cluster was recovered or restored (epoch %d) and node %s was not part of that (epoch %d): empty its data directory and let it join again", epoch, h.NodeID, h.Epoch)
	case h.Epoch > epoch:
		return fmt.Errorf("the cluster was recovered or restored (epoch %d) and node %s was not part of that (epoch %d): empty its data directory and let it join again", h.Epoch, m.id(), epoch)
	case h.NodeID == m.id():
		return fmt.Errorf("another process speaks as node %s, from %s: its data directory was copied, or two nodes have one id; stop one of them", h.NodeID, h.Address)
	}
	r, ok := m.row(h.NodeID)
	switch {
	case !ok || h.Index > r.Index:
		return nil
	case r.Removed:
		return fmt.Errorf("node %s was removed from the cluster: stop it; to bring it back, empty its data directory and start it with --join", h.NodeID)
	case r.Instance != h.InstanceID:
		return fmt.Errorf("node %s has another data directory than the one that joined (wiped, or put back): run `carillon cluster remove %s`, empty its data directory and start it with --join", h.NodeID, h.NodeID)
	case r.Address != h.Address && m.override(h.NodeID) != h.Address:
		return fmt.Errorf("node %s is known at %s and speaks from %s: if it moved, the leader must learn that first; if its data directory was copied, stop the copy", h.NodeID, r.Address, h.Address)
	}
	return nil
}

// expect is who should answer at an address.
func (m *members) expect(address string) string {
	m.mu.Lock()
	for id, a := range m.home.Peers {
		if a == address {
			m.mu.Unlock()
			return id
		}
	}
	m.mu.Unlock()
	for _, s := range m.servers() {
		if string(s.Address) == address {
			return string(s.ID)
		}
	}
	return ""
}

// override is where `carillon cluster recover` said that a node is, until the cluster itself knows better.
func (m *members) override(id string) string {
	m.mu.Lock()
	a, at := m.home.Peers[id], m.home.PeersAt
	m.mu.Unlock()
	if a == "" {
		return ""
	}
	if r, ok := m.row(id); ok && r.Index > at {
		return ""
	}
	return a
}

// addressOf tells raft where to find a server. It is asked before every dial and answers from the rows, not from raft's configuration:
// that a node moved is then known as soon as its row is, and the address of a server that is being replicated to need not be changed,
// which raft 1.7.3 does not do without a data race (raft#681). In the configuration an address is corrected by its own server when
// that leads.
func (m *members) addressOf(id raft.ServerID) raft.ServerAddress {
	if f := m.n.cfg.hooks.where; f != nil {
		if a := f(string(id)); a != "" {
			return raft.ServerAddress(a)
		}
	}
	if a := m.where(string(id)); a != "" {
		return a
	}
	servers := m.configured()
	s, _ := findServer(servers, string(id))
	return s.Address
}

// where is the address of a member as this node knows it, "" if only raft's configuration can say.
func (m *members) where(id string) raft.ServerAddress {
	if id == m.id() {
		return raft.ServerAddress(m.address())
	}
	if a := m.override(id); a != "" {
		return raft.ServerAddress(a)
	}
	if r, ok := m.row(id); ok && !r.Removed {
		return raft.ServerAddress(r.Address)
	}
	return ""
}

// logAgain is how often one refusal is logged.
const logAgain = time.Minute

// onRefused remembers why two nodes do not talk, and says it where it is seen.
func (m *members) onRefused(e *transport.RefusedError) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := fmt.Sprint(e.Peer.NodeID, e.ByPeer)
	last := m.refused[key]
	now := time.Now()
	if last.text != e.Reason || now.Sub(last.logged) > logAgain {
		msg := "refused to talk to a node"
		if e.ByPeer {
			msg = "a node refuses to talk to this one"
		}
		m.log(msg, "node", e.Peer.NodeID, "address", e.Peer.Address, "reason", e.Reason)
		last = entry{e.Reason, now}
	}
	if len(m.refused) > 64 { // whoever makes up names must not fill the memory
		clear(m.refused)
	}
	m.refused[key] = last
	if e.ByPeer {
		m.why = fmt.Sprintf("node %s refuses this one: %s", e.Peer.NodeID, e.Reason)
	}
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
		return errNoLeader()
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
	if m.g.lead.current() == nil {
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
		c.SkewMS = new((p.seen.offset - median).Milliseconds())
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
