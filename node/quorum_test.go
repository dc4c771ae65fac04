package node

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/node/propose"
)

// askTransport is the way from one server to the others, on which a test says what becomes of a question.
type askTransport struct {
	raft.Transport
	asked atomic.Int64
	ask   func(id raft.ServerID, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error
}

func (t *askTransport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestPreVoteRequest,
	r *raft.RequestPreVoteResponse) error {
	t.asked.Add(1)
	if t.ask != nil {
		return t.ask(id, q, r)
	}
	return t.Transport.(raft.WithPreVote).RequestPreVote(id, to, q, r)
}

// deafTransport has no question that changes nothing.
type deafTransport struct{ raft.Transport }

// TestQuorum asks a cluster of three in which term it is: over its own wires, and with answers of the test's choice.
func TestQuorum(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	leader := c.leader()
	g := leader.group
	term := g.raft.CurrentTerm()
	over := func(ask func(id raft.ServerID, q *raft.RequestPreVoteRequest,
		r *raft.RequestPreVoteResponse) error) (*propose.Quorum, *askTransport) {
		trans := &askTransport{Transport: g.quorum.Transport, ask: ask}
		return &propose.Quorum{Raft: g.raft, Transport: trans, ID: g.quorum.ID, Wait: 10 * time.Second}, trans
	}
	others := c.others(leader)
	near, far := replica.ID(others[0].id(), replica.First), replica.ID(others[1].id(), replica.First)
	yes := func(_ raft.ServerID, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
		r.Term = q.Term
		return nil
	}

	t.Run("the term in which it leads", func(t *testing.T) {
		q, trans := over(nil)
		for range 3 { // a server that answered is asked again
			if err := q.Confirm(term); err != nil {
				t.Error(err)
			}
		}
		// One that has not answered yet is not asked again, and may not have been counted yet; three questions to two
		// others are more than one to each.
		if n := trans.asked.Load(); n < 3 {
			t.Errorf("%d questions in three rounds", n)
		}
		if err := g.quorum.Confirm(term); err != nil {
			t.Error(err)
		}
	})
	t.Run("a lower term", func(t *testing.T) {
		q, _ := over(nil)
		if err := q.Confirm(term - 1); !errors.Is(err, propose.ErrNoMajority) {
			t.Errorf("the others are in term %d, and term %d is confirmed: %v", term, term-1, err)
		}
	})
	t.Run("a higher term than its own", func(t *testing.T) {
		q, _ := over(yes)
		if err := q.Confirm(term + 1); !errors.Is(err, raft.ErrNotLeader) {
			t.Errorf("it is in term %d, and term %d is confirmed: %v", term, term+1, err)
		}
	})
	t.Run("the question", func(t *testing.T) {
		q, _ := over(func(id raft.ServerID, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
			if q.Term != term || replica.Node(raft.ServerID(q.ID)) != leader.id() || id == replica.ID(leader.id(), replica.First) {
				return fmt.Errorf("%s was asked about term %d for %s", id, q.Term, q.ID)
			}
			return yes(id, q, r)
		})
		if err := q.Confirm(term); err != nil {
			t.Error(err)
		}
	})
	t.Run("one has left for a later term", func(t *testing.T) {
		q, _ := over(func(id raft.ServerID, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
			if r.Term = q.Term; id == far {
				r.Term++
			}
			return nil
		})
		if err := q.Confirm(term); err != nil {
			t.Errorf("two of three are in the term: %v", err)
		}
	})
	t.Run("a majority has left for a later term", func(t *testing.T) {
		q, _ := over(func(_ raft.ServerID, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
			r.Term = q.Term + 1
			return nil
		})
		if err := q.Confirm(term); !errors.Is(err, propose.ErrNoMajority) {
			t.Errorf("both others are in a later term: %v", err)
		}
	})
	t.Run("one cannot be reached", func(t *testing.T) {
		q, _ := over(func(id raft.ServerID, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
			if id == near {
				return errCut
			}
			return yes(id, q, r)
		})
		if err := q.Confirm(term); err != nil {
			t.Errorf("two of three are in the term: %v", err)
		}
	})
	t.Run("a majority cannot be reached", func(t *testing.T) {
		// An answer that did not come says nothing, whatever is in it.
		q, _ := over(func(_ raft.ServerID, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
			r.Term = q.Term
			return errCut
		})
		if err := q.Confirm(term); !errors.Is(err, propose.ErrNoMajority) {
			t.Errorf("no node answered: %v", err)
		}
	})
	t.Run("a majority hangs", func(t *testing.T) {
		free := make(chan struct{})
		q, trans := over(func(id raft.ServerID, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
			<-free
			return yes(id, q, r)
		})
		q.Wait = 20 * time.Millisecond
		for range 3 {
			if err := q.Confirm(term); !errors.Is(err, propose.ErrNoMajority) {
				t.Errorf("no node answered: %v", err)
			}
		}
		if n := trans.asked.Load(); n != 2 {
			t.Errorf("two hang, and there are %d questions", n)
		}
		close(free) // the late answers do not count; after them they are asked again
		q.Wait = 10 * time.Second
		leader.eventually("it is confirmed again", func() bool { return q.Confirm(term) == nil })
	})
	t.Run("a transport that cannot ask", func(t *testing.T) {
		q := &propose.Quorum{Raft: g.raft, Transport: deafTransport{g.quorum.Transport}, ID: g.quorum.ID,
			Wait: time.Second}
		if err := q.Confirm(term); err != nil {
			t.Errorf("raft's own word is all there is then: %v", err)
		}
	})
}

// TestQuorumOfACutOffLeader cuts the leader off for good: it confirms nothing, and after the cut its old term has
// no leader.
func TestQuorumOfACutOffLeader(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	var old *member
	var term uint64
	c.leader().eventually("a leader is confirmed", func() bool { // one that waits for a processor loses its place
		old = c.leader()
		term = old.group.raft.CurrentTerm()
		return old.group.quorum.Confirm(term) == nil
	})
	c.partition([]*member{old}, c.others(old))
	if err := old.group.quorum.Confirm(term); !errors.Is(err, propose.ErrNoMajority) {
		t.Errorf("it is cut off: %v", err)
	}
	old.eventually("another leads", func() bool {
		for _, m := range c.others(old) {
			if m.tracker.Epoch() != nil {
				return true
			}
		}
		return false
	})
	c.heal()
	old.eventually("it follows", func() bool { return old.service.Ready() == nil && old.tracker.Epoch() == nil })
	if err := old.group.quorum.Confirm(term); err == nil {
		t.Errorf("term %d is over, and it is confirmed", term)
	}
	if next := c.leader(); next.group.quorum.Confirm(next.group.raft.CurrentTerm()) != nil {
		t.Error("the new leader is not confirmed")
	}
}
