package propose

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Quorum asks the other voters which term they are in. Raft's VerifyLeader is not enough for a read: it counts every
// answer that comes in after it was called, also one to a message that was sent before. A leader that stood still finds
// such answers in its sockets when it wakes up, believes that it still leads, and would read a state that others have
// left behind. (The test of linearizability found it.)
//
// A majority that is still in our term now has elected no leader in a later one. The question is a request for a
// pre-vote, which changes nothing whatever the answer.
type Quorum struct {
	Raft      *raft.Raft
	Transport raft.Transport
	ID        raft.ServerID
	Wait      time.Duration

	mu   sync.Mutex
	busy map[raft.ServerID]bool // asked and not answered: one that hangs is not asked again
}

// ErrNoMajority is what Confirm says when too few answer.
var ErrNoMajority = errors.New("a majority did not confirm in time that this node leads")

// Confirm asks, and returns when a majority is in this term or cannot be.
func (q *Quorum) Confirm(term uint64) error {
	trans, ok := q.Transport.(raft.WithPreVote)
	if !ok {
		return nil
	}
	conf := q.Raft.GetConfiguration()
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
		if s.ID == q.ID {
			votes++
		} else if q.ask(trans, s, term, answers) {
			asked++
		}
	}
	late := time.NewTimer(q.Wait)
	defer late.Stop()
	for need := voters/2 + 1; votes < need; asked-- {
		if votes+asked < need {
			return ErrNoMajority
		}
		select {
		case yes := <-answers:
			if yes {
				votes++
			}
		case <-late.C:
			return ErrNoMajority
		}
	}
	if q.Raft.CurrentTerm() != term {
		return raft.ErrNotLeader
	}
	return nil
}

// ask puts the question to one server, unless an earlier one is still open there.
func (q *Quorum) ask(trans raft.WithPreVote, s raft.Server, term uint64, answers chan<- bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy[s.ID] {
		return false
	}
	if q.busy == nil {
		q.busy = map[raft.ServerID]bool{}
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

// StandNow asks a voter to stand for election at once, as raft does at the end of a transfer.
func (q *Quorum) StandNow(s raft.Server) error {
	return q.Transport.TimeoutNow(s.ID, s.Address, &raft.TimeoutNowRequest{RPCHeader: q.header()},
		&raft.TimeoutNowResponse{})
}

func (q *Quorum) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(q.ID),
		Addr: q.Transport.EncodePeer(q.ID, q.Transport.LocalAddr())}
}
