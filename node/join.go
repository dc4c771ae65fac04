package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/forward"
)

func (m *members) request() client.JoinRequest {
	s := m.self()
	rq := client.JoinRequest{NodeID: s.ID, InstanceID: s.Instance, Address: s.Address, Version: s.Version, Level: s.Level, Slots: s.Slots, Tags: s.Tags}
	rq.ClusterID, rq.Epoch = m.cluster()
	return rq
}

const (
	joinTimeout   = 10 * time.Second // of one question
	announceEvery = time.Second
	// lonely is how long a node waits for a leader's word before it asks whether it is still a member.
	lonely = 3 * time.Second
)

// run gets the node into its cluster and keeps its row true.
func (m *members) run(ctx context.Context) {
	if servers := m.configured(); len(servers) == 0 && len(m.n.cfg.Join) > 0 {
		if err := m.join(ctx); err != nil {
			if ctx.Err() == nil {
				m.setWhy("%v", err)
				m.n.fail(fmt.Errorf("join: %w", err))
			}
			return
		}
	}
	m.follow(ctx)
}

// join asks until a leader takes this node in. What time can mend is tried again; a refusal is the end.
func (m *members) join(ctx context.Context) error {
	m.setWhy("nobody was asked yet")
	for tries := 0; ; tries++ {
		err := m.ask(ctx, m.n.cfg.Join)
		if err == nil || ctx.Err() != nil || permanent(err) {
			return err
		}
		m.setWhy("%v", err)
		if tries == 0 || tries%20 == 0 {
			m.log("not joined yet; trying again", "error", err)
		}
		delay := min(retryFirst<<min(tries, 10), retryLimit)
		if !pause(ctx, delay/2+rand.N(delay/2+1)) {
			return ctx.Err()
		}
	}
}

// permanent says that asking again would be answered alike.
func permanent(err error) bool {
	switch job.CodeOf(err) {
	case job.CodeState, job.CodeInvalid, job.CodeMalformed, job.CodeForbidden, job.CodeUnauthorized:
		return true
	}
	return false
}

// ask puts the question to the nodes that --join names.
func (m *members) ask(ctx context.Context, addrs []string) error {
	reply, err := m.search(ctx, addrs, m.request())
	if err != nil {
		return err
	}
	return m.joined(reply)
}

// search puts a question to each address, and to whoever is named there as the leader, until somebody decides it.
func (m *members) search(ctx context.Context, addrs []string, rq client.JoinRequest) (client.JoinReply, error) {
	var last error
	todo := slices.Clone(addrs)
	for hints := 0; len(todo) > 0; {
		addr := todo[0]
		todo = todo[1:]
		if addr == m.n.Addr() {
			continue
		}
		if who, err := m.probe(ctx, addr); err == nil && who.InstanceID == m.n.dir.Instance { // under another name
			continue
		}
		one, cancel := context.WithTimeout(ctx, joinTimeout)
		reply, hint, err := m.client(addr).Join(one, rq)
		cancel()
		if err == nil || permanent(err) || rq.Member && job.CodeOf(err) == job.CodeNotFound {
			return reply, err
		}
		last = err
		if hint != "" && hints < 3 && hint != addr {
			hints++
			todo = append([]string{hint}, todo...)
		}
	}
	if last == nil && !rq.Member {
		last = job.Invalid("--join", "name another node of the cluster, or begin one with --bootstrap", "%s is this node itself", strings.Join(addrs, ", "))
	}
	return client.JoinReply{}, cmp.Or(last, forward.ErrNoLeader())
}

// joined keeps what the leader said, before anything else may happen.
func (m *members) joined(r client.JoinReply) error {
	if id, _ := m.cluster(); id != "" && id != r.ClusterID {
		return job.Errorf(job.CodeState, "empty the data directory, or name a node of the right cluster", "the data directory belongs to cluster %s, and this is %s", id, r.ClusterID)
	}
	m.mu.Lock()
	h := m.identity
	h.ClusterID, h.Epoch, h.Index = r.ClusterID, r.Epoch, r.Index
	m.mu.Unlock()
	if err := m.n.dir.SaveCluster(h); err != nil {
		return err
	}
	m.mu.Lock()
	m.identity, m.why = h, ""
	m.mu.Unlock()
	m.n.cfg.Logger.Info("joined", "cluster", r.ClusterID, "leader", r.Leader)
	return nil
}

// follow tells the leader when this node is not what its row says: it was started at another address or as another version.
func (m *members) follow(ctx context.Context) {
	tick := time.NewTicker(m.n.cfg.Machine.paced(min(announceEvery, 2*m.n.cfg.Members.Interval)))
	defer tick.Stop()
	heard := time.Now()
	var next, said time.Time
	for fails := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r := m.raft.Load()
		outdated := m.outdated()
		if _, leader := r.LeaderWithID(); leader == "" {
			m.whyNoLeader(ctx) // for those who cannot wait for the answer
		} else {
			heard = time.Now()
			if !outdated {
				m.mu.Lock()
				m.why, m.removed = "", false
				m.mu.Unlock()
			}
		}
		if time.Now().Before(next) || !outdated && time.Since(heard) < lonely {
			continue
		}
		err := m.announce(ctx)
		if ctx.Err() != nil {
			return
		}
		fails++
		switch code := job.CodeOf(err); {
		case err == nil:
			fails = 0
		case code == job.CodeNotFound:
			m.mu.Lock()
			m.removed = true
			m.mu.Unlock()
			if time.Since(said) > logAgain {
				said = time.Now()
				m.n.cfg.Logger.Error("this node was removed from the cluster: stop it; to bring it back, empty its data directory and start it with --join", "node", m.id())
			}
		case permanent(err):
			m.setWhy("%v", err)
			if fails == 1 || fails%60 == 0 {
				m.n.cfg.Logger.Error("the cluster does not take this node as it is", "error", err)
			}
		}
		next = time.Now().Add(min(m.n.cfg.Members.Interval<<min(fails, 6), 5*time.Second))
	}
}

// outdated says that the row or raft's configuration has this node otherwise than it is.
func (m *members) outdated() bool {
	servers := m.configured()
	if len(servers) == 0 {
		return false // nothing came yet
	}
	want := m.self()
	have, ok := m.row(want.ID)
	if !ok || have.Removed {
		return true
	}
	_, in := findServer(servers, want.ID)
	return !in || differs(have, want)
}

// announce says to the leader what this node is. CodeNotFound: it is no longer a member.
func (m *members) announce(ctx context.Context) error {
	rq := m.request()
	rq.Member = true
	if m.g.tracker.Epoch() != nil {
		ctx, cancel := context.WithTimeout(ctx, joinTimeout)
		defer cancel()
		_, err := m.Join(ctx, rq)
		return err
	}
	var todo []string
	add := func(a string) {
		if a != "" && a != m.address() && !slices.Contains(todo, a) {
			todo = append(todo, a)
		}
	}
	add(m.leaderAddress())
	rows, err := m.rows()
	if err != nil {
		return err
	}
	for id, r := range rows {
		add(m.override(id))
		add(r.Address)
	}
	for _, a := range m.n.cfg.Join {
		add(a)
	}
	_, err = m.search(ctx, todo, rq)
	return err
}

// Join implements api.Cluster: the leader's side. The row is committed first, then the server is added: a server without a row could
// not be told from a stranger.
func (m *members) Join(ctx context.Context, rq client.JoinRequest) (client.JoinReply, error) {
	var none client.JoinReply
	if rq.InstanceID == m.n.dir.Instance && !rq.Member {
		return none, job.Errorf(job.CodeState, "give --join the address of another node", "this is node %s itself", m.id())
	}
	e, err := m.leading()
	if err != nil {
		return none, err
	}
	if err := m.admissible(rq); err != nil {
		return none, err
	}
	if err := m.lock(ctx); err != nil {
		return none, err
	}
	defer m.unlock()
	old, known := m.row(rq.NodeID)
	servers := m.configured()
	_, in := findServer(servers, rq.NodeID)
	switch {
	case rq.Member && (known && (old.Removed || old.Instance != rq.InstanceID) || !known && !in):
		// A leader that was replaced without knowing it must not say this: whoever hears it stops to take part.
		if err := e.Proposer.VerifyLeader(ctx); err != nil {
			return none, forward.ErrNoLeader()
		}
		return none, job.Errorf(job.CodeNotFound, "empty its data directory and start it with --join", "node %s with this data directory is not a member of the cluster", rq.NodeID)
	case known && !old.Removed && old.Instance != rq.InstanceID && !m.n.cfg.hooks.trusting:
		// Raft would give the new directory the old one's vote (pitfalls 41).
		return none, m.duplicate(ctx, rq, old.Address)
	}
	row := m.rowOf(rq)
	if known && !old.Removed {
		row.Standby = old.Standby
		if old.Address != row.Address && rq.NodeID != m.id() {
			// It moved, or it was copied. One of the two lives where the row says.
			if info, err := m.probePatiently(ctx, old.Address); err == nil && info.NodeID == rq.NodeID && info.InstanceID == rq.InstanceID {
				return none, job.Errorf(job.CodeState, "stop one of the two; a copy never joins, give it an empty data directory and an id of its own",
					"node %s is running at %s and now speaks from %s: its data directory was copied", rq.NodeID, old.Address, rq.Address)
			}
		}
	}
	if rq.NodeID != m.id() {
		if err := m.reachable(ctx, rq); err != nil {
			return none, err
		}
	}
	if !known || old.Removed || differs(old, row) {
		if err := m.putRow(ctx, e, row); err != nil {
			return none, err
		}
		m.n.cfg.Logger.Info("member", "node", row.ID, "address", row.Address, "version", row.Version, "new", !in)
	}
	if !in {
		if err := m.add(ctx, row); err != nil {
			return none, err
		}
	}
	r := client.JoinReply{Leader: m.id()}
	r.ClusterID, r.Epoch = m.cluster()
	now, _ := m.row(rq.NodeID)
	r.Index = now.Index
	return r, nil
}

// probePatiently asks a node that may be busy: to take one that is slow for one that is gone would let its copy in.
func (m *members) probePatiently(ctx context.Context, addr string) (s sighting, err error) {
	for range 3 {
		if s, err = m.probe(ctx, addr); err == nil || errors.Is(err, syscall.ECONNREFUSED) || ctx.Err() != nil {
			break
		}
	}
	return s, err
}

// duplicate refuses a second directory under one id, and says whether the first one lives.
func (m *members) duplicate(ctx context.Context, rq client.JoinRequest, addr string) error {
	remedy := fmt.Sprintf("if that one is gone for good, run `carillon cluster remove %s` first; otherwise choose another --node-id", rq.NodeID)
	state := "does not answer"
	if addr == rq.Address {
		state = "was" // who answers there now is the one that asks
	} else if info, err := m.probe(ctx, addr); err == nil && info.NodeID == rq.NodeID && info.InstanceID != rq.InstanceID {
		state = "is running"
	}
	return job.Errorf(job.CodeState, remedy, "the cluster has a node %s with another data directory; it %s at %s", rq.NodeID, state, addr)
}

// admissible checks what does not depend on the other members.
func (m *members) admissible(rq client.JoinRequest) error {
	id, epoch := m.cluster()
	if err := datadir.CheckNodeID(rq.NodeID); err != nil {
		return job.Invalid("node_id", "", "%v", err)
	}
	if err := datadir.CheckAddress(rq.Address); err != nil {
		return job.Invalid("address", "set --advertise NAME:PORT", "%v", err)
	}
	level := m.g.store.Info().Level
	if m.n.cfg.hooks.trusting {
		return nil
	}
	switch {
	case rq.ClusterID != "" && rq.ClusterID != id:
		return job.Errorf(job.CodeState, "name a node of the right cluster, or empty the data directory", "this is cluster %s, and the data directory of node %s belongs to cluster %s", id, rq.NodeID, rq.ClusterID)
	case rq.ClusterID != "" && rq.Epoch != epoch:
		return job.Errorf(job.CodeState, "empty the data directory and join again", "the cluster was recovered or restored and is at epoch %d; the data directory of node %s is from epoch %d", epoch, rq.NodeID, rq.Epoch)
	case rq.Level < level:
		return job.Errorf(job.CodeState, "start it with the carillon that the others run", "the cluster is at feature level %d and node %s (version %s) supports levels up to %d", level, rq.NodeID, rq.Version, rq.Level)
	}
	return nil
}

// reachable makes sure that the address leads to who it should.
func (m *members) reachable(ctx context.Context, rq client.JoinRequest) error {
	info, err := m.probe(ctx, rq.Address)
	if err != nil {
		return job.Errorf(job.CodeUnavailable, "check --advertise and the firewall", "node %s (the leader) cannot reach node %s at %s: %v", m.id(), rq.NodeID, rq.Address, err)
	}
	if info.NodeID != rq.NodeID || info.InstanceID != rq.InstanceID {
		return job.Errorf(job.CodeState, "set --advertise to an address that leads to this node and no other", "at %s the leader finds node %s and not node %s", rq.Address, info.NodeID, rq.NodeID)
	}
	return nil
}
