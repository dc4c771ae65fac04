package node

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/wait"
)

// leaderProof is what is known of a leadership without asking raft. Raft gives a leadership up soon after it has lost
// its majority, but its main loop does that, and the same loop writes the log: while a disk hangs, a leader that was
// replaced long ago goes on believing. No worker may have a lease extended by such a one, because the next leader,
// which hears nothing of that, gives the run to another worker.
type leaderProof struct {
	mu   sync.Mutex
	line []*proposal // on their way, oldest first; some may have come back
	sure time.Time   // when the last question was put that a majority answered with yes

	majority singleFlight
}

// track notes a command on its way.
func (s *leaderProof) track(p *proposal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldestLocked()
	s.line = append(s.line, p)
}

// oldestLocked is the one that has been on its way for the longest time; nil if there is none.
func (s *leaderProof) oldestLocked() *proposal {
	for len(s.line) > 0 && wait.Closed(s.line[0].done) {
		s.line[0] = nil
		s.line = s.line[1:]
	}
	if len(s.line) == 0 {
		return nil
	}
	return s.line[0]
}

// Confirm says whether this leadership was sound at a moment not longer ago than age. It was when the oldest command
// that is on its way was proposed: raft's loop, which has not come back to it, was not held up by anything before. If
// that is too long ago, a majority is asked for its term, past raft's loop.
func (p *proposer) Confirm(ctx context.Context, age time.Duration) error {
	if p.majority == nil {
		return nil
	}
	s := &p.proof
	if s.within(age) {
		return nil
	}
	return s.majority.ask(ctx, p, func() error {
		began := time.Now()
		err := p.majority()
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sure = began
		}
		return err
	})
}

// within says that the leadership is known to have been sound not longer ago than age.
func (s *leaderProof) within(age time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, oldest := time.Now(), s.oldestLocked()
	return oldest == nil || now.Sub(oldest.began) <= age || now.Sub(s.sure) <= age
}

// quorum asks the other voters which term they are in. Raft's VerifyLeader is not enough for a read: it counts every
// answer that comes in after it was called, also one to a message that was sent before. A leader that stood still finds
// such answers in its sockets when it wakes up, believes that it still leads, and would read a state that others have
// left behind. (The test of linearizability found it.)
//
// A majority that is still in our term now has elected no leader in a later one. The question is a request for a
// pre-vote, which changes nothing whatever the answer.
type quorum struct {
	raft  *raft.Raft
	trans raft.Transport
	id    raft.ServerID
	wait  time.Duration

	mu   sync.Mutex
	busy map[raft.ServerID]bool // asked and not answered: one that hangs is not asked again
}

var errNoMajority = errors.New("a majority did not confirm in time that this node leads")

// confirm asks, and returns when a majority is in this term or cannot be.
func (q *quorum) confirm(term uint64) error {
	trans, ok := q.trans.(raft.WithPreVote)
	if !ok {
		return nil
	}
	conf := q.raft.GetConfiguration()
	if err := conf.Error(); err != nil {
		return err
	}
	votes, voters, asked := 0, 0, 0
	answers := make(chan bool, len(conf.Configuration().Servers))
	for _, s := range conf.Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if s.ID == q.id {
			votes++
		} else if q.ask(trans, s, term, answers) {
			asked++
		}
	}
	late := time.NewTimer(q.wait)
	defer late.Stop()
	for need := voters/2 + 1; votes < need; asked-- {
		if votes+asked < need {
			return errNoMajority
		}
		select {
		case yes := <-answers:
			if yes {
				votes++
			}
		case <-late.C:
			return errNoMajority
		}
	}
	if q.raft.CurrentTerm() != term {
		return raft.ErrNotLeader
	}
	return nil
}

// ask puts the question to one server, unless an earlier one is still open there.
func (q *quorum) ask(trans raft.WithPreVote, s raft.Server, term uint64, answers chan<- bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy[s.ID] {
		return false
	}
	q.busy[s.ID] = true
	go func() {
		// The index is so high that a follower which has just received more than we know of does not complain in its
		// log.
		req := &raft.RequestPreVoteRequest{Term: term, LastLogTerm: term, LastLogIndex: math.MaxUint64,
			RPCHeader: q.header()}
		var resp raft.RequestPreVoteResponse
		err := trans.RequestPreVote(s.ID, s.Address, req, &resp)
		q.mu.Lock()
		delete(q.busy, s.ID)
		q.mu.Unlock()
		answers <- err == nil && resp.Term <= term
	}()
	return true
}

// standNow asks a voter to stand for election at once, as raft does at the end of a transfer.
func (q *quorum) standNow(s raft.Server) error {
	return q.trans.TimeoutNow(s.ID, s.Address, &raft.TimeoutNowRequest{RPCHeader: q.header()},
		&raft.TimeoutNowResponse{})
}

func (q *quorum) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(q.id),
		Addr: q.trans.EncodePeer(q.id, q.trans.LocalAddr())}
}

// singleFlight is a question that is put to others on behalf of everybody who wants to know. It may take as long as the
// trouble lasts, so callers share: at most one is on its way and one waits for that, and no caller is given the answer
// to what was asked before it came.
type singleFlight struct {
	mu    sync.Mutex
	under *flightCall // on its way
	next  *flightCall // callers that come now are answered by it
}

type flightCall struct {
	done chan struct{}
	err  error
}

// ask puts the question for a leadership and waits for the answer, or until ctx ends; the question goes on then.
func (q *singleFlight) ask(ctx context.Context, p *proposer, put func() error) error {
	q.mu.Lock()
	a := q.next
	if a == nil {
		a = &flightCall{done: make(chan struct{})}
		if q.under == nil {
			q.beginLocked(a, p, put)
		} else {
			q.next = a
		}
	}
	q.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *singleFlight) beginLocked(a *flightCall, p *proposer, put func() error) {
	if p.ended.Load() || !p.flight.Enter() {
		a.err = errEnded
		close(a.done)
		return
	}
	q.under = a
	go func() {
		defer p.flight.Leave()
		a.err = put()
		close(a.done)
		q.mu.Lock()
		defer q.mu.Unlock()
		next := q.next
		if q.under, q.next = nil, nil; next != nil {
			q.beginLocked(next, p, put)
		}
	}()
}
