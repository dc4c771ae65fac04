package node

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

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
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(q.id),
				Addr: q.trans.EncodePeer(q.id, q.trans.LocalAddr())}}
		var resp raft.RequestPreVoteResponse
		err := trans.RequestPreVote(s.ID, s.Address, req, &resp)
		q.mu.Lock()
		delete(q.busy, s.ID)
		q.mu.Unlock()
		answers <- err == nil && resp.Term <= term
	}()
	return true
}
