package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

const probeAgain = 250 * time.Millisecond

// Begin prepares a leadership of this node before anything else of its term: its own row, which is there from the
// cluster's first moment, and the feature level. It drops what was known of the others under an earlier leadership, and
// perhaps by a clock that was set since.
func (m *Members) Begin(prop forward.Proposer, term uint64) error {
	if m.o.Of == nil {
		if err := m.putFounders(prop, term); err != nil {
			return err
		}
		if err := m.putOwnRow(prop, term); err != nil {
			return err
		}
	}
	if err := m.raise(prop, term); err != nil {
		return err
	}
	if m.o.Of == nil {
		if err := m.makeSecure(prop, term); err != nil {
			return err
		}
		m.completeKeys()
	}
	handed := m.succession(term)
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.peers)
	m.handover = handover{handed: handed}
	return nil
}

// Lead looks after the members for as long as this node leads.
func (m *Members) Lead(e *forward.Epoch) func(context.Context) {
	return func(ctx context.Context) { m.lead(ctx, e) }
}

// lead looks after the members for as long as this node leads: whether they answer, how far they are and what time they
// have. A change that takes its time must not keep it from looking: the leader stamps by what it knows of the others'
// clocks.
func (m *Members) lead(ctx context.Context, e *forward.Epoch) {
	var settling sync.WaitGroup
	defer settling.Wait()
	tick := time.NewTimer(m.o.Interval)
	defer tick.Stop()
	for {
		m.probeAll(ctx, e)
		wait := m.o.Interval
		if _, known := m.Skew(); !known {
			wait = min(wait, probeAgain) // a new leader stamps nothing before it knows the others' clocks
		}
		target, why, again := m.review(e)
		if again {
			wait = min(wait, probeAgain)
		}
		tick.Reset(wait)
		select {
		case <-m.changing:
			settling.Go(func() {
				defer m.unlock()
				if target != "" {
					m.handTo(ctx, e, target, why)
					return
				}
				if m.anyDiffers() {
					// The member compares when it applies the stamp: it goes by what is committed, and not by what
					// somebody says who may be no leader. A regular stamp may be ten seconds away.
					if err := e.Scheduler.CommitStamp(ctx); err != nil && ctx.Err() == nil {
						m.log("a member's state differs and could not be told; retrying", "error", err)
					}
				}
				if err := m.settle(ctx, e); err != nil && ctx.Err() == nil {
					m.log("membership change failed; retrying", "error", err)
				}
				if m.o.Of != nil {
					return
				}
				if err := m.settleRotation(ctx, e); err != nil && ctx.Err() == nil {
					m.log("rotation of the CA not finished; retrying", "error", err)
				}
			})
		default: // a change is being made; what is left to do will be seen after it
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// probeAll asks every other member who and how far it is.
func (m *Members) probeAll(ctx context.Context, e *forward.Epoch) {
	msg := m.noticeFor(e)
	servers := m.Servers()
	rows, err := m.Rows()
	if err != nil {
		return
	}
	mine := m.o.Store.Counters().Index // before the answers: who has this much keeps up
	var wg sync.WaitGroup
	if in, _ := m.judges(); in != m {
		wg.Go(func() { in.askClocks(ctx) })
	}
	for _, s := range servers {
		id := replica.Node(s.ID)
		if id == m.id() {
			continue
		}
		wg.Go(func() {
			seen, err := m.probeAs(ctx, string(s.Address), e.Term, msg)
			r, ok := rows[id]
			switch number := replica.Number(s.ID); {
			case err != nil:
				err = fmt.Errorf("does not answer: %w", err)
			case seen.NodeID != id:
				err = fmt.Errorf("node %s answers at its address", seen.NodeID)
			case ok && seen.InstanceID != r.Instance && !m.o.Trusting:
				err = errors.New("it has another data directory than when it joined")
			case m.o.Of != nil && seen.Replica != number: // the one before it, which is about to go
				err = fmt.Errorf("it has replica %d, not %d yet", seen.Replica, number)
			}
			if ctx.Err() == nil {
				m.note(id, seen, err, mine, m.differs(&seen, r, rows[m.id()]))
			}
		})
	}
	wg.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.peers, func(id string, _ *peer) bool {
		_, in := FindServer(servers, id)
		return !in
	})
}

func (m *Members) note(id string, seen probeReply, err error, mine uint64, odd string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	p := m.peers[id]
	if p == nil {
		p = &peer{heard: now}
		m.peers[id] = p
	}
	if err != nil {
		p.problem, p.close = err.Error(), time.Time{} // what it said last stays, with its age
		return
	}
	p.heard, p.seen, p.problem = now, seen, ""
	if odd != p.odd {
		if p.odd = odd; odd != "" {
			m.log("member skipped different log entries", "node", id, "problem", odd)
		}
	}
	switch {
	case seen.Applied+PromoteLag < mine || mine > 0 && seen.Applied == 0:
		p.close = time.Time{}
	case p.close.IsZero():
		p.close = now
	}
}

// settle makes one step towards how the membership should be. Every step may be repeated, by this leader or the next.
func (m *Members) settle(ctx context.Context, e *forward.Epoch) error {
	for m.o.Of != nil {
		if more, err := m.settleGroup(ctx, e); !more || err != nil {
			return err
		}
	}
	rows, err := m.Rows()
	if err != nil {
		return err
	}
	servers := m.Configured()
	// The rows come first in every change, so what a crash left undone is always raft's part.
	for id, r := range rows {
		if _, in := FindServer(servers, id); !in {
			return m.add(ctx, replica.ID(id, replica.First), r.Address)
		}
	}
	var noKeys error // of a node that cannot take them, which keeps nothing else from being done
	for _, s := range servers {
		id := replica.Node(s.ID)
		r, ok := rows[id]
		if !ok {
			if gone, ok := m.Row(id); ok && gone.Removed && id != m.id() {
				return m.drop(ctx, e, id)
			}
			continue // it will announce itself
		}
		if id == m.id() && string(s.Address) != r.Address {
			return m.reconfigure(ctx, func(rf *raft.Raft) raft.Future {
				return rf.AddVoter(s.ID, raft.ServerAddress(r.Address), 0, m.o.ApplyTimeout)
			})
		}
		if s.Suffrage != raft.Voter && !r.Standby && m.keepsUp(id) {
			if err := m.handKeys(ctx, r); err != nil {
				noKeys = cmp.Or(noKeys, err)
				continue
			}
			m.o.Logger.Info("node caught up; it votes from now on", event.MemberVotes, "node", id)
			return m.reconfigure(ctx, func(rf *raft.Raft) raft.Future {
				return rf.AddVoter(s.ID, s.Address, 0, m.o.ApplyTimeout)
			})
		}
		if s.Suffrage == raft.Voter && r.Standby && id != m.id() && m.quorumWithout(servers, id) == nil {
			return m.demote(ctx, s)
		}
	}
	if err := m.raiseLevel(ctx, e, servers); err != nil {
		return err
	}
	if done, err := m.removeLeaving(ctx, e, rows, servers); done || err != nil {
		return err
	}
	return cmp.Or(m.removeDead(ctx, e, servers), noKeys)
}

// raiseLevel commits the feature level that every member supports.
func (m *Members) raiseLevel(ctx context.Context, e *forward.Epoch, servers []raft.Server) error {
	rows, err := m.Rows()
	level := common(rows, servers)
	if err != nil || level <= m.o.Store.Info().Level {
		return err
	}
	if _, err = m.propose(ctx, e, &fsm.SetLevel{Head: m.head(e), Level: level}); err == nil {
		m.o.Logger.Info("feature level raised: every member supports it", event.LevelRaised, "level", level)
	}
	return err
}

// keepsUp says that a node has been close to the leader for long enough.
func (m *Members) keepsUp(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[id]
	return p != nil && !p.close.IsZero() && time.Since(p.close) >= m.o.StableFor
}

// removeDead removes a member that has been silent for too long: one at a time, and only if those who live are a
// majority of those who are left.
func (m *Members) removeDead(ctx context.Context, e *forward.Epoch, servers []raft.Server) error {
	limit := m.o.RemoveDeadAfter
	if limit <= 0 {
		return nil
	}
	for _, s := range servers {
		id := replica.Node(s.ID)
		m.mu.Lock()
		p := m.peers[id]
		dead := p != nil && p.problem != "" && time.Since(p.heard) > limit
		m.mu.Unlock()
		if id == m.id() || !dead || m.quorumWithout(servers, id) != nil {
			continue
		}
		r, known := m.Row(id)
		if has, err := m.replicasOf(id); err != nil || len(has) > 0 && r.Leaving || !known && len(has) > 0 {
			continue
		} else if len(has) > 0 {
			if m.canLeave(id, has) != nil {
				continue
			}
			m.log("a member that has been silent for too long must leave", event.MemberLeaving, "node", id,
				"limit", limit)
			return m.setLeaving(ctx, e, m.head(e), r)
		}
		m.log("removing a member that has been silent for too long", "node", id, "limit", limit)
		return m.drop(ctx, e, id)
	}
	return nil
}

// quorumWithout says whether the voters would have a living majority if one of them were none.
func (m *Members) quorumWithout(servers []raft.Server, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	voters, living := 0, 0
	was := false
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		if replica.Node(s.ID) == id {
			was = true
			continue
		}
		voters++
		p := m.peers[replica.Node(s.ID)]
		if replica.Node(s.ID) == m.id() || p != nil && p.problem == "" {
			living++
		}
	}
	switch {
	case !was:
		return nil
	case voters == 0:
		return job.Errorf(job.CodeState, "let another node join and vote first; to end the cluster, stop the node",
			"node %s is the last voter", id)
	case living*2 <= voters:
		return job.Errorf(job.CodeState, "bring the others back first, or remove one that does not answer",
			"without node %s only %d of %d voters would be alive, and the cluster would stop", id, living, voters)
	}
	return nil
}

// putOwnRow writes the leader's own row.
func (m *Members) putOwnRow(prop forward.Proposer, term uint64) error {
	row := m.self()
	old, known := m.Row(row.ID)
	if known && !old.Removed && !differs(old, row) {
		return nil
	}
	row.Standby = known && old.Standby
	reply, err := prop.Propose(&fsm.PutNode{Head: m.headBeforeStamp(term), Node: row}).Wait()
	if err != nil {
		return fmt.Errorf("write this node's row: %w", err)
	}
	if o := reply.Items[0]; o.Code != fsm.CodeOK {
		m.log("row of the leader refused", "reason", o.Text)
	}
	return nil
}

// headBeforeStamp is the head of a command before anything else of a term. It must not move the mark: this node's
// clock was not looked at yet.
func (m *Members) headBeforeStamp(term uint64) fsm.Head {
	now := m.o.Store.Counters().Mark
	if now == 0 && m.o.Of != nil { // no other node can tell yet whether the clock of the one that begins it is right
		now = m.o.Of.Control.o.Store.Counters().Mark
	}
	if now == 0 {
		now = m.now()
	}
	return fsm.Head{Now: now, Term: term}
}

// differs says how a member is not like this node in what must be the same everywhere: the entries that both have got
// to and only one passed over. One that joined after the other was told got the state as a whole, without the entry.
func (m *Members) differs(o *probeReply, its, own store.Node) string {
	got := min(m.o.Store.Counters().Index, o.Applied)
	lacks := func(told, other []datadir.SkippedEntry, joined int64) (uint64, bool) {
		for _, s := range told {
			if s.Index <= got && joined <= int64(s.At) && !slices.ContainsFunc(other,
				func(x datadir.SkippedEntry) bool { return x.Index == s.Index }) {
				return s.Index, true
			}
		}
		return 0, false
	}
	if i, yes := lacks(m.o.Skips, o.Skips, its.JoinedAt); yes {
		return fmt.Sprintf("it was not told to skip entry %d as this node was, so their states differ: empty its "+
			"data directory and let it rejoin", i)
	}
	if i, yes := lacks(o.Skips, m.o.Skips, own.JoinedAt); yes {
		return fmt.Sprintf("it skipped entry %d and this node did not, so their states differ: empty the data "+
			"directory of one and let it rejoin", i)
	}
	return ""
}
