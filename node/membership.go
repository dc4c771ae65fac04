package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// This file is the leader's part: looking after the members, and changing who they are.

// leading is the current leadership. Nobody waits here: who asks for a change of the membership can ask again.
func (m *members) leading() (*epoch, error) {
	if e := m.g.lead.current(); e != nil {
		return e, nil
	}
	return nil, errNoLeader()
}

func (m *members) rowOf(rq client.JoinRequest) store.Node {
	return store.Node{ID: rq.NodeID, Instance: rq.InstanceID, Address: rq.Address, Version: rq.Version, Level: rq.Level, Slots: rq.Slots, Tags: rq.Tags}
}

// differs says whether a row is not what a node says of itself.
func differs(have, want store.Node) bool {
	return have.Instance != want.Instance || have.Address != want.Address || have.Version != want.Version || have.Level != want.Level || have.Slots != want.Slots || !maps.Equal(have.Tags, want.Tags)
}

// probe asks a node who it is.
func (m *members) probe(ctx context.Context, addr string) (client.NodeInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, whoTimeout)
	defer cancel()
	return m.client(addr).Node(ctx)
}

// lead looks after the members for as long as this node leads.
func (m *members) lead(ctx context.Context, e *epoch) {
	m.mu.Lock()
	clear(m.peers)
	m.mu.Unlock()
	tick := time.NewTicker(m.n.cfg.Members.Interval)
	defer tick.Stop()
	for {
		m.probeAll(ctx)
		if m.lock(ctx) == nil {
			err := m.settle(ctx, e)
			m.unlock()
			if err != nil && ctx.Err() == nil {
				m.log("the membership could not be put in order; trying again", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// probeAll asks every other member who and how far it is.
func (m *members) probeAll(ctx context.Context) {
	servers := m.servers()
	rows, err := m.rows()
	if err != nil {
		return
	}
	mine := m.g.store.Counters().Index // before the answers: who has this much keeps up
	var wg sync.WaitGroup
	for _, s := range servers {
		id := string(s.ID)
		if id == m.id() {
			continue
		}
		wg.Go(func() {
			info, err := m.probe(ctx, string(s.Address))
			r, ok := rows[id]
			switch {
			case err != nil:
			case info.NodeID != id:
				err = fmt.Errorf("node %s answers at its address", info.NodeID)
			case ok && info.InstanceID != r.Instance:
				err = errors.New("it has another data directory than the one that joined")
			}
			if ctx.Err() == nil {
				m.note(id, info, err, mine)
			}
		})
	}
	wg.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.peers, func(id string, _ *peer) bool {
		_, in := findServer(servers, id)
		return !in
	})
}

func (m *members) note(id string, info client.NodeInfo, err error, mine uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	p := m.peers[id]
	if p == nil {
		p = &peer{heard: now}
		m.peers[id] = p
	}
	if err != nil {
		p.problem, p.close = err.Error(), time.Time{}
		return
	}
	p.heard, p.info, p.problem = now, info, ""
	switch {
	case info.Applied+promoteLag < mine || mine > 0 && info.Applied == 0:
		p.close = time.Time{}
	case p.close.IsZero():
		p.close = now
	}
}

// settle makes one step towards how the membership should be. Every step may be repeated, by this leader or the next.
func (m *members) settle(ctx context.Context, e *epoch) error {
	rows, err := m.rows()
	if err != nil {
		return err
	}
	servers := m.configured()
	// The rows come first in every change, so what a crash left undone is always raft's part.
	for id, r := range rows {
		if _, in := findServer(servers, id); !in {
			return m.add(ctx, r)
		}
	}
	level := 0
	for _, s := range servers {
		id := string(s.ID)
		r, ok := rows[id]
		if !ok {
			if gone, ok := m.row(id); ok && gone.Removed && id != m.id() {
				return m.drop(ctx, e, id)
			}
			level = -1
			continue // it will announce itself
		}
		if level >= 0 && (level == 0 || r.Level < level) {
			level = r.Level
		}
		if id == m.id() && string(s.Address) != r.Address {
			return m.reconfigure(ctx, func(rf *raft.Raft) raft.Future {
				return rf.AddVoter(s.ID, raft.ServerAddress(r.Address), 0, m.g.cfg.Raft.ApplyTimeout)
			})
		}
		if s.Suffrage != raft.Voter && !r.Standby && m.keepsUp(id) {
			m.n.cfg.Logger.Info("a node has caught up and may vote from now on", "node", id)
			return m.reconfigure(ctx, func(rf *raft.Raft) raft.Future {
				return rf.AddVoter(s.ID, s.Address, 0, m.g.cfg.Raft.ApplyTimeout)
			})
		}
		if s.Suffrage == raft.Voter && r.Standby && id != m.id() && m.quorumWithout(servers, id) == nil {
			return m.demote(ctx, s)
		}
	}
	if level > m.g.store.Info().Level {
		m.n.cfg.Logger.Info("every member supports a higher feature level", "level", level)
		_, err := m.propose(ctx, e, &fsm.SetLevel{Head: m.head(e), Level: level})
		return err
	}
	return m.bury(ctx, e, servers)
}

// keepsUp says that a node has been close to the leader for long enough.
func (m *members) keepsUp(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[id]
	return p != nil && !p.close.IsZero() && time.Since(p.close) >= m.n.cfg.Members.StableFor
}

// bury removes a member that has been silent for too long: one at a time, and only if those who live are a majority of those who are
// left.
func (m *members) bury(ctx context.Context, e *epoch, servers []raft.Server) error {
	limit := m.n.cfg.Members.RemoveDeadAfter
	if limit <= 0 {
		return nil
	}
	for _, s := range servers {
		id := string(s.ID)
		m.mu.Lock()
		p := m.peers[id]
		dead := p != nil && p.problem != "" && time.Since(p.heard) > limit
		m.mu.Unlock()
		if id == m.id() || !dead || m.quorumWithout(servers, id) != nil {
			continue
		}
		m.log("removing a member that has been silent for too long", "node", id, "limit", limit)
		return m.drop(ctx, e, id)
	}
	return nil
}

// quorumWithout says whether the voters would have a living majority if one of them were none.
func (m *members) quorumWithout(servers []raft.Server, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	voters, living := 0, 0
	was := false
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		if string(s.ID) == id {
			was = true
			continue
		}
		voters++
		p := m.peers[string(s.ID)]
		if string(s.ID) == m.id() || p != nil && p.problem == "" {
			living++
		}
	}
	switch {
	case !was:
		return nil
	case voters == 0:
		return job.Errorf(job.CodeState, "let another node join and vote first; to end the cluster, stop the node", "node %s is the last voter", id)
	case living*2 <= voters:
		return job.Errorf(job.CodeState, "bring the others back first, or remove one that does not answer", "without node %s only %d of %d voters would be alive, and the cluster would stop", id, living, voters)
	}
	return nil
}

// enlist writes the leader's own row before anything else of its term: it is there from the cluster's first moment.
func (m *members) enlist(prop *proposer, term uint64) error {
	row := m.self()
	old, known := m.row(row.ID)
	if known && !old.Removed && !differs(old, row) {
		return nil
	}
	row.Standby = known && old.Standby
	// The stamp must not move the mark: nobody has looked at this node's clock yet.
	now := m.g.store.Counters().Mark
	if now == 0 {
		now = m.g.now()
	}
	reply, err := prop.Propose(&fsm.PutNode{Head: fsm.Head{Now: now, Term: term}, Node: row}).Wait()
	if err != nil {
		return fmt.Errorf("write this node's row: %w", err)
	}
	if o := reply.Items[0]; o.Code != fsm.CodeOK {
		m.log("this node leads, but its row was refused", "reason", o.Text)
	}
	return nil
}

// head is the stamp of a command about members. It is the scheduler's if that trusts its clock; otherwise it does not move the mark.
func (m *members) head(e *epoch) fsm.Head {
	now, err := e.sched.Stamp()
	if err != nil {
		now = m.g.store.Counters().Mark
	}
	return fsm.Head{Now: now, Term: e.term}
}

// propose enters a command about one member. A leader with a clock that it does not trust may do this.
func (m *members) propose(ctx context.Context, e *epoch, cmd any) (fsm.Outcome, error) {
	f := e.prop.Propose(cmd)
	type answer struct {
		reply *fsm.Reply
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		r, err := f.Wait()
		done <- answer{r, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			return fsm.Outcome{}, explain(a.err)
		}
		return a.reply.Items[0], nil
	case <-ctx.Done():
		return fsm.Outcome{}, job.Errorf(job.CodeOutcomeUnknown, "repeat it", "it may or may not have been done: %v", ctx.Err())
	}
}

func (m *members) putRow(ctx context.Context, e *epoch, row store.Node) error {
	o, err := m.propose(ctx, e, &fsm.PutNode{Head: m.head(e), Node: row})
	if err != nil {
		return err
	}
	return outcomeError(o, row.ID)
}

// reconfigure changes raft's configuration. Raft could be told which one was looked at, but does not tell its index; so this relies on
// the lock, and on settle for what another leader did in between.
func (m *members) reconfigure(ctx context.Context, do func(r *raft.Raft) raft.Future) error {
	err := m.await(ctx, func(r *raft.Raft) error { return do(r).Error() })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrRaftShutdown):
		return errNoLeader()
	}
	return job.Errorf(job.CodeOutcomeUnknown, "look at the members, and repeat it if it was not done", "the membership may or may not have changed: %v", err)
}

// await asks raft for something that cannot be given up, and waits for the answer for as long as ctx allows.
func (m *members) await(ctx context.Context, ask func(*raft.Raft) error) error {
	if !m.g.flight.enter() {
		return raft.ErrRaftShutdown
	}
	done := make(chan error, 1)
	go func() {
		defer m.g.flight.leave()
		done <- ask(m.raft.Load())
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// add makes a server a non-voter. It must not be there yet: raft would leave a voter one and give it the new address (pitfalls 41).
func (m *members) add(ctx context.Context, row store.Node) error {
	return m.reconfigure(ctx, func(r *raft.Raft) raft.Future {
		return r.AddNonvoter(raft.ServerID(row.ID), raft.ServerAddress(row.Address), 0, m.g.cfg.Raft.ApplyTimeout)
	})
}

func (m *members) demote(ctx context.Context, s raft.Server) error {
	return m.reconfigure(ctx, func(r *raft.Raft) raft.Future {
		return r.DemoteVoter(s.ID, 0, m.g.cfg.Raft.ApplyTimeout)
	})
}

// drop marks a member's row and takes its server out.
func (m *members) drop(ctx context.Context, e *epoch, id string) error {
	if r, ok := m.row(id); ok && !r.Removed {
		if _, err := m.propose(ctx, e, &fsm.RemoveNode{Head: m.head(e), ID: id, Instance: r.Instance}); err != nil {
			return err
		}
	}
	servers := m.configured()
	if _, in := findServer(servers, id); !in {
		return nil
	}
	return m.reconfigure(ctx, func(r *raft.Raft) raft.Future {
		return r.RemoveServer(raft.ServerID(id), 0, m.g.cfg.Raft.ApplyTimeout)
	})
}

func noNode(id string) error {
	return job.Errorf(job.CodeNotFound, "`carillon cluster members` lists them", "the cluster has no node %q", id)
}

// known is a member by id, for an operation on it; what the others are doing was just asked.
func (m *members) known(ctx context.Context, id string) (raft.Server, []raft.Server, error) {
	servers := m.configured()
	s, in := findServer(servers, id)
	if !in {
		return s, servers, noNode(id)
	}
	m.probeAll(ctx)
	return s, servers, nil
}

// Remove implements api.Cluster.
func (m *members) Remove(ctx context.Context, id string) error {
	e, err := m.leading()
	if err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	_, servers, err := m.known(ctx, id)
	if err == nil {
		err = m.quorumWithout(servers, id)
	} else if r, ok := m.row(id); ok && r.Removed {
		return nil // done before
	}
	if err != nil {
		return err
	}
	if id == m.id() {
		return m.handOver(ctx, func(c *client.Client) error { return c.RemoveNode(ctx, id) })
	}
	m.n.cfg.Logger.Info("removing a member, as asked", "node", id)
	return m.drop(ctx, e, id)
}

// Promote implements api.Cluster.
func (m *members) Promote(ctx context.Context, id string) error {
	e, err := m.leading()
	if err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	s, _, err := m.known(ctx, id)
	if err != nil {
		return err
	}
	row, ok := m.row(id)
	if !ok || row.Removed {
		return job.Errorf(job.CodeState, "wait until it has announced itself", "node %s has no row yet", id)
	}
	if s.Suffrage != raft.Voter {
		m.mu.Lock()
		p := m.peers[id]
		behind := p == nil || p.close.IsZero()
		problem := ""
		if p != nil {
			problem = p.problem
		}
		m.mu.Unlock()
		if problem != "" {
			return job.Errorf(job.CodeState, "bring it back first", "node %s does not answer: %s", id, problem)
		}
		if behind { // a voter that is far behind holds up every commit that needs it
			return job.Errorf(job.CodeState, "wait until it has caught up", "node %s is too far behind to vote", id)
		}
	}
	if row.Standby {
		row.Standby = false
		if err := m.putRow(ctx, e, row); err != nil {
			return err
		}
	}
	if s.Suffrage == raft.Voter {
		return nil
	}
	return m.reconfigure(ctx, func(r *raft.Raft) raft.Future {
		return r.AddVoter(s.ID, s.Address, 0, m.g.cfg.Raft.ApplyTimeout)
	})
}

// Demote implements api.Cluster. The row keeps the wish: otherwise the leader would promote it again at once.
func (m *members) Demote(ctx context.Context, id string) error {
	e, err := m.leading()
	if err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	s, servers, err := m.known(ctx, id)
	if err == nil {
		err = m.quorumWithout(servers, id)
	}
	if err != nil {
		return err
	}
	if id == m.id() {
		return m.handOver(ctx, func(c *client.Client) error { return c.DemoteNode(ctx, id) })
	}
	row, ok := m.row(id)
	if !ok || row.Removed {
		return job.Errorf(job.CodeState, "wait until it has announced itself", "node %s has no row yet", id)
	}
	if !row.Standby {
		row.Standby = true
		if err := m.putRow(ctx, e, row); err != nil {
			return err
		}
	}
	if s.Suffrage != raft.Voter {
		return nil
	}
	return m.demote(ctx, s)
}

// Transfer implements api.Cluster.
func (m *members) Transfer(ctx context.Context, id string) error {
	if _, err := m.leading(); err != nil {
		return err
	}
	if id == m.id() {
		return nil
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	servers := m.configured()
	if id != "" {
		s, _, err := m.known(ctx, id)
		if err != nil {
			return err
		}
		m.mu.Lock()
		p := m.peers[id]
		silent := p == nil || p.problem != ""
		m.mu.Unlock()
		switch {
		case s.Suffrage != raft.Voter:
			return job.Errorf(job.CodeState, "promote it first", "node %s has no vote and cannot lead", id)
		case silent:
			return job.Errorf(job.CodeState, "choose another", "node %s does not answer", id)
		}
	} else if len(servers) < 2 {
		return job.Errorf(job.CodeState, "let another node join first", "there is nobody to hand the leadership to")
	}
	return m.transfer(ctx, id)
}

// transferTries is how often a transfer is tried: raft gives each no longer than an election timeout.
const transferTries = 5

// transfer hands the leadership on and waits until somebody else has it.
func (m *members) transfer(ctx context.Context, id string) error {
	var err error
	for range transferTries {
		err = m.await(ctx, func(r *raft.Raft) error {
			if id == "" {
				return r.LeadershipTransfer().Error()
			}
			servers := m.configured()
			s, _ := findServer(servers, id)
			return r.LeadershipTransferToServer(s.ID, s.Address).Error()
		})
		if err == nil || ctx.Err() != nil || m.raft.Load().State() != raft.Leader {
			break
		}
	}
	if err != nil && m.raft.Load().State() == raft.Leader {
		return job.Errorf(job.CodeUnavailable, "try again", "the leadership was not handed over: %v", err)
	}
	for m.leaderAddress() == "" {
		if !pause(ctx, 10*time.Millisecond) {
			return errNoLeader()
		}
	}
	return nil
}

// handOver has the next leader do to this node what a leader cannot do to itself.
func (m *members) handOver(ctx context.Context, do func(*client.Client) error) error {
	m.n.cfg.Logger.Info("handing over the leadership first")
	if err := m.transfer(ctx, ""); err != nil {
		return err
	}
	for {
		addr := m.leaderAddress()
		if addr == "" && m.g.lead.current() != nil {
			return errNoLeader() // it came back to us; whoever asked may ask again
		}
		if addr != "" {
			switch err := do(m.client(addr)); job.CodeOf(err) {
			case job.CodeNoLeader, job.CodeNotLeader, job.CodeNotReady, job.CodeUnavailable: // not yet, or no longer
			default:
				return err
			}
		}
		if !pause(ctx, 50*time.Millisecond) {
			return errNoLeader()
		}
	}
}
