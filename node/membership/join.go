package membership

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// Request is what this node says when it joins.
func (m *Members) Request() wire.JoinRequest {
	s := m.self()
	rq := wire.JoinRequest{NodeID: s.ID, InstanceID: s.Instance, Address: s.Address, Version: s.Version,
		Level: s.Level, Slots: s.Slots, Tags: s.Tags}
	c := m.Cluster()
	rq.ClusterID, rq.Epoch, rq.Recovery = c.ID, c.Epoch, c.Recovery
	return rq
}

// asking is Request with what a secure cluster wants to see of a node that is not yet a member.
func (m *Members) asking() (wire.JoinRequest, error) {
	rq := m.Request()
	if m.o.Keys == nil {
		return rq, nil
	}
	key, err := m.o.Keys.Key()
	if err != nil {
		return rq, err
	}
	if rq.CSR, err = keys.NewRequest(key); err != nil {
		return rq, err
	}
	hash, err := keys.KeyHash(key.Public())
	if err != nil {
		return rq, err
	}
	rq.JoinToken, rq.Proof = m.o.Token.ID, m.o.Token.Proof(hash, rq.NodeID, rq.InstanceID)
	return rq, nil
}

const (
	joinFirst     = 50 * time.Millisecond // the delay after the first try; it doubles up to joinLimit
	joinLimit     = 2 * time.Second
	joinTimeout   = 10 * time.Second // of one question
	announceEvery = time.Second
	// noLeaderTimeout is how long a node waits for a leader's word before it asks whether it is still a member.
	noLeaderTimeout = time.Second
)

// Run gets the node into its cluster and keeps its row true.
func (m *Members) Run(ctx context.Context) {
	enter := m.join
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { m.watchGivenUp(ctx) })
	if f := m.o.Former; f != nil {
		enter = f.Run
		watching.Go(func() { f.Watch(ctx) })
	}
	if servers := m.Configured(); len(servers) == 0 && (len(m.o.Join) > 0 || m.o.Former != nil) {
		if err := enter(ctx); err != nil {
			if ctx.Err() == nil {
				m.setWhy("%v", err)
				m.o.Fail(fmt.Errorf("join: %w", err))
			}
			return
		}
	}
	m.follow(ctx)
}

// join asks until a leader takes this node in. What time can mend is tried again; a refusal is the end.
func (m *Members) join(ctx context.Context) error {
	m.setWhy("no node was asked yet")
	for tries := 0; ; tries++ {
		err := m.ask(ctx, m.o.Join)
		if err == nil || ctx.Err() != nil || permanent(err) {
			return err
		}
		m.setWhy("%v", err)
		if tries == 0 || tries%20 == 0 {
			m.log("not joined yet; trying again", "error", err)
		}
		delay := min(joinFirst<<min(tries, 10), joinLimit)
		if !wait.For(ctx, delay/2+rand.N(delay/2+1)) {
			return ctx.Err()
		}
	}
}

// permanent says that asking again would be answered alike.
func permanent(err error) bool {
	switch job.CodeOf(err) {
	case job.CodeState, job.CodeInvalid, job.CodeMalformed, job.CodeForbidden, job.CodeUnauthenticated:
		return true
	}
	return false
}

// ask puts the question to the nodes that --join names.
func (m *Members) ask(ctx context.Context, addrs []string) error {
	rq, err := m.asking()
	if err != nil {
		return err
	}
	var reply wire.JoinReply
	err = m.search(ctx, addrs, func(ctx context.Context, addr string) (hint string, err error) {
		reply, hint, err = m.joinClient(addr).Join(ctx, rq)
		return hint, err
	})
	if errors.Is(err, errOnlySelf) {
		return job.Invalid("--join", "name another node of the cluster, or begin one with --bootstrap",
			"%s is this node itself", strings.Join(addrs, ", "))
	}
	if err != nil {
		return err
	}
	return m.joined(reply)
}

// errOnlySelf is what a search ends with that found no other node to ask.
var errOnlySelf = errors.New("no other node to ask")

// search puts a question to each address, and to the node that is named there as the leader, until one decides it.
func (m *Members) search(ctx context.Context, addrs []string,
	ask func(ctx context.Context, addr string) (hint string, err error)) error {
	last := errOnlySelf
	todo := slices.Clone(addrs)
	for hints := 0; len(todo) > 0; {
		addr := todo[0]
		todo = todo[1:]
		if addr == m.o.Listen {
			continue
		}
		if who, err := m.Probe(ctx, addr); err == nil && who.InstanceID == m.o.Instance { // under another name
			continue
		}
		one, cancel := context.WithTimeout(ctx, joinTimeout)
		hint, err := ask(one, addr)
		cancel()
		if err == nil || permanent(err) || errors.Is(err, errNoMember) {
			return err
		}
		last = err
		if hint != "" && hints < 3 && hint != addr {
			hints++
			todo = append([]string{hint}, todo...)
		}
	}
	return last
}

// joined keeps what the leader said, before anything else may happen.
func (m *Members) joined(r wire.JoinReply) error {
	if id := m.Cluster().ID; id != "" && id != r.ClusterID {
		return job.Errorf(job.CodeState, "empty the data directory, or name a node of the right cluster",
			"the data directory belongs to cluster %s, but this is cluster %s", id, r.ClusterID)
	}
	if m.o.Keys != nil {
		if err := m.enrolled(r); err != nil {
			return err
		}
	}
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	h := m.identity
	h.ClusterID, h.Epoch, h.Recovery, h.Index = r.ClusterID, r.Epoch, r.Recovery, r.Index
	if m.o.Keys != nil {
		h.CA = m.o.Keys.CAHash().String()
	}
	m.mu.Unlock()
	if err := m.o.Save(h); err != nil {
		return err
	}
	m.mu.Lock()
	m.identity, m.why = h, ""
	m.mu.Unlock()
	m.o.Logger.Info("joined", event.Joined, "cluster", r.ClusterID, "leader", r.Leader)
	return nil
}

// follow tells the leader when this node is not what its row says: it was started at another address or as another
// version.
func (m *Members) follow(ctx context.Context) {
	tick := time.NewTicker(m.o.Pace(min(announceEvery, 2*m.o.Interval)))
	defer tick.Stop()
	heard := time.Now()
	var next, said time.Time
	for fails := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if m.Stopped() != nil {
			continue // whoever leads has nothing for it
		}
		m.tend(ctx)
		r := m.raft.Load()
		outdated := m.outdated()
		if _, leader := r.LeaderWithID(); leader == "" {
			m.WhyNoLeader(ctx) // for those who cannot wait for the answer
		} else {
			heard = time.Now()
			if !outdated {
				m.mu.Lock()
				m.why, m.removed = "", false
				m.mu.Unlock()
			}
		}
		if time.Now().Before(next) || !outdated && time.Since(heard) < noLeaderTimeout {
			continue
		}
		err := m.announce(ctx)
		if ctx.Err() != nil {
			return
		}
		fails++
		switch {
		case err == nil:
			fails = 0
		case errors.Is(err, errNoMember):
			m.mu.Lock()
			m.removed = true
			m.mu.Unlock()
			if time.Since(said) > logAgain {
				said = time.Now()
				m.o.Logger.Error("this node was removed from the cluster: stop it; to bring it back, empty its data "+
					"directory and start it with --join", event.Removed, "node", m.id())
			}
		case permanent(err):
			m.setWhy("%v", err)
			if fails == 1 || fails%60 == 0 {
				m.o.Logger.Error("join refused", "error", err)
			}
		}
		next = time.Now().Add(min(m.o.Interval<<min(fails, 6), 5*time.Second))
	}
}

// outdated says that the row or raft's configuration has this node otherwise than it is.
func (m *Members) outdated() bool {
	servers := m.Configured()
	if len(servers) == 0 {
		return false // nothing came yet
	}
	want := m.self()
	have, ok := m.Row(want.ID)
	if !ok || have.Removed {
		return true
	}
	_, in := FindServer(servers, want.ID)
	return !in || differs(have, want)
}
