package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
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
		r *raft.RequestPreVoteResponse) error) (*quorum, *askTransport) {
		trans := &askTransport{Transport: g.quorum.trans, ask: ask}
		return &quorum{raft: g.raft, trans: trans, id: g.quorum.id, wait: 10 * time.Second,
			busy: map[raft.ServerID]bool{}}, trans
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
			if err := q.confirm(term); err != nil {
				t.Error(err)
			}
		}
		// One that has not answered yet is not asked again, and may not have been counted yet; three questions to two
		// others are more than one to each.
		if n := trans.asked.Load(); n < 3 {
			t.Errorf("%d questions in three rounds", n)
		}
		if err := g.quorum.confirm(term); err != nil {
			t.Error(err)
		}
	})
	t.Run("a lower term", func(t *testing.T) {
		q, _ := over(nil)
		if err := q.confirm(term - 1); !errors.Is(err, errNoMajority) {
			t.Errorf("the others are in term %d, and term %d is confirmed: %v", term, term-1, err)
		}
	})
	t.Run("a higher term than its own", func(t *testing.T) {
		q, _ := over(yes)
		if err := q.confirm(term + 1); !errors.Is(err, raft.ErrNotLeader) {
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
		if err := q.confirm(term); err != nil {
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
		if err := q.confirm(term); err != nil {
			t.Errorf("two of three are in the term: %v", err)
		}
	})
	t.Run("a majority has left for a later term", func(t *testing.T) {
		q, _ := over(func(_ raft.ServerID, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
			r.Term = q.Term + 1
			return nil
		})
		if err := q.confirm(term); !errors.Is(err, errNoMajority) {
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
		if err := q.confirm(term); err != nil {
			t.Errorf("two of three are in the term: %v", err)
		}
	})
	t.Run("a majority cannot be reached", func(t *testing.T) {
		// An answer that did not come says nothing, whatever is in it.
		q, _ := over(func(_ raft.ServerID, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
			r.Term = q.Term
			return errCut
		})
		if err := q.confirm(term); !errors.Is(err, errNoMajority) {
			t.Errorf("no node answered: %v", err)
		}
	})
	t.Run("a majority hangs", func(t *testing.T) {
		free := make(chan struct{})
		q, trans := over(func(id raft.ServerID, q *raft.RequestPreVoteRequest, r *raft.RequestPreVoteResponse) error {
			<-free
			return yes(id, q, r)
		})
		q.wait = 20 * time.Millisecond
		for range 3 {
			if err := q.confirm(term); !errors.Is(err, errNoMajority) {
				t.Errorf("no node answered: %v", err)
			}
		}
		if n := trans.asked.Load(); n != 2 {
			t.Errorf("two hang, and there are %d questions", n)
		}
		close(free) // the late answers do not count; after them they are asked again
		q.wait = 10 * time.Second
		leader.eventually("it is confirmed again", func() bool { return q.confirm(term) == nil })
	})
	t.Run("a transport that cannot ask", func(t *testing.T) {
		q := &quorum{raft: g.raft, trans: deafTransport{g.quorum.trans}, id: g.quorum.id, wait: time.Second,
			busy: map[raft.ServerID]bool{}}
		if err := q.confirm(term); err != nil {
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
	old := c.leader()
	term := old.group.raft.CurrentTerm()
	if err := old.group.quorum.confirm(term); err != nil {
		t.Fatal(err)
	}
	c.partition([]*member{old}, c.others(old))
	if err := old.group.quorum.confirm(term); !errors.Is(err, errNoMajority) {
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
	if err := old.group.quorum.confirm(term); err == nil {
		t.Errorf("term %d is over, and it is confirmed", term)
	}
	if next := c.leader(); next.group.quorum.confirm(next.group.raft.CurrentTerm()) != nil {
		t.Error("the new leader is not confirmed")
	}
}

// TestVerifyLeaderEndsWithItsCaller: the question goes on without a caller who gave up, and those who came meanwhile
// get an answer of their own.
func TestVerifyLeaderEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	asked, free := make(chan struct{}, 10), make(chan error)
	own := n.prop()
	p := &proposer{raft: own.raft, flight: own.flight, confirm: func() error {
		asked <- struct{}{}
		return <-free
	}}
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() { first <- p.VerifyLeader(ctx) }()
	<-asked
	second := make(chan error, 1)
	go func() { second <- p.VerifyLeader(context.Background()) }()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("its caller gave up: %v", err)
	}
	n.eventually("the second waits", func() bool {
		p.verify.mu.Lock()
		defer p.verify.mu.Unlock()
		return p.verify.next != nil
	})
	free <- errNoMajority // to the first question: the second was asked after it
	<-asked
	free <- nil
	if err := <-second; err != nil {
		t.Errorf("the second got the first one's answer: %v", err)
	}
}
