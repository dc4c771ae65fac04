package membership

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
)

// Every transfer of the leadership goes through here, because raft must not be asked twice for one that it cannot make.
//
// Raft has the server that is to lead brought up to date first, by a request to the goroutine that replicates to it, of
// which one can wait. A transfer that times out leaves its request behind if that goroutine hangs (a disk that does not
// answer, a peer that is away). The next one to the same server waits for the place, and if the leadership is lost
// meanwhile it waits for ever: raft then counts a transfer as going on, and when this node leads again it refuses every
// proposal, until the process is started again (hashicorp/raft#696). That the server has the whole log by then does not
// help: the goroutine may still be waiting for the answer. So raft is asked once for each server and term; after that
// the server is told to stand for election as raft would tell it, without a request that could be left behind.

const (
	// transferTries is how often a transfer is tried: raft gives each no longer than an election timeout.
	transferTries = 5
	// lookEvery is how often a voter is asked whether its log has caught up, before it is tried again.
	lookEvery = 20 * time.Millisecond
)

// transferTo tries once to hand the leadership to a voter. One that it was tried with before must have caught up first.
func (m *Members) transferTo(ctx context.Context, s raft.Server) error {
	r := m.raft.Load()
	term := r.CurrentTerm()
	if m.tried.Begin(s.ID, term) > 0 {
		if err := m.caughtUp(ctx, s, r.LastIndex()); err != nil {
			return err
		}
		return m.await(ctx, func(r *raft.Raft) error { return m.standNow(r, s, term) })
	}
	return m.await(ctx, func(r *raft.Raft) error {
		if r.CurrentTerm() != term {
			return raft.ErrNotLeader
		}
		return r.LeadershipTransferToServer(s.ID, s.Address).Error()
	})
}

// standNow has a voter stand for election and waits until this node no longer leads, for as long as raft would. It may
// lack what was proposed meanwhile, and not be elected: then another voter is.
func (m *Members) standNow(r *raft.Raft, s raft.Server, term uint64) error {
	if r.CurrentTerm() != term {
		return raft.ErrNotLeader
	}
	if err := m.o.StandNow(s); err != nil {
		return err
	}
	for until := time.Now().Add(4 * m.o.Turn); time.Now().Before(until); time.Sleep(lookEvery) {
		if r.CurrentTerm() != term || r.State() != raft.Leader {
			return nil
		}
	}
	return fmt.Errorf("node %s was told to stand for election, but this node still leads", replica.Node(s.ID))
}

// caughtUp waits until the log of a server has an entry.
func (m *Members) caughtUp(ctx context.Context, s raft.Server, want uint64) error {
	ctx, cancel := context.WithTimeout(ctx, whoTimeout)
	defer cancel()
	for {
		p, err := m.Probe(ctx, string(s.Address))
		if err == nil && p.Log >= want {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("its log ends at entry %d, not at %d", p.Log, want)
		}
		if m.raft.Load().State() != raft.Leader {
			return raft.ErrNotLeader
		}
		if !wait.For(ctx, lookEvery) {
			return fmt.Errorf("node %s has not caught up since the last try: %w", replica.Node(s.ID), err)
		}
	}
}

// heir is the voter to hand the leadership to if none is named: one whose clock and disk are known to be fit, or else
// the one with the most of the log. One that was tried in this term and does not lead comes last.
func (m *Members) heir() (raft.Server, bool) {
	servers := m.Servers()
	term := m.raft.Load().CurrentTerm()
	if s, ok := FindServer(servers, m.successor()); ok && m.tried.Times(s.ID, term) == 0 {
		return s, true
	}
	servers = slices.DeleteFunc(servers, func(s raft.Server) bool {
		return s.Suffrage != raft.Voter || replica.Node(s.ID) == m.id()
	})
	if len(servers) == 0 {
		return raft.Server{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	applied := func(s raft.Server) uint64 {
		if p := m.peers[replica.Node(s.ID)]; p != nil && p.problem == "" {
			return p.seen.Applied
		}
		return 0
	}
	return slices.MinFunc(servers, func(a, b raft.Server) int {
		return cmp.Or(cmp.Compare(m.tried.Times(a.ID, term), m.tried.Times(b.ID, term)),
			-cmp.Compare(applied(a), applied(b)), cmp.Compare(a.ID, b.ID))
	}), true
}

// PassOn hands the leadership to the voter that suits best, without waiting to hear that it leads.
func (m *Members) PassOn(ctx context.Context, tries int) error { return m.passOn(ctx, "", tries) }

// passOn hands the leadership to a voter; "": to the one that suits best.
func (m *Members) passOn(ctx context.Context, id string, tries int) error {
	err := raft.ErrNotLeader
	for range tries {
		if ctx.Err() != nil || m.raft.Load().State() != raft.Leader {
			break
		}
		s, ok := FindServer(m.Servers(), id)
		if id == "" {
			s, ok = m.heir()
		}
		if !ok {
			return job.Errorf(job.CodeState, "", "there is no other voter to hand the leadership to")
		}
		if err = m.transferTo(ctx, s); err == nil {
			break
		}
	}
	return err
}

// transfer hands the leadership on and waits until another node has it.
func (m *Members) transfer(ctx context.Context, id string, tries int) error {
	err := m.passOn(ctx, id, tries)
	if err != nil && m.raft.Load().State() == raft.Leader {
		return job.Errorf(job.CodeUnavailable, "try again", "the leadership was not handed over: %v", err)
	}
	if _, other := m.o.Tracker.Wait(ctx, time.Time{}, forward.Leader.Elsewhere); !other {
		return forward.ErrNoLeader()
	}
	return nil
}
