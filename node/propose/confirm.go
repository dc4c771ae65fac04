package propose

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
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
func (p *Proposer) Confirm(ctx context.Context, age time.Duration) error {
	if p.o.Majority == nil {
		return nil
	}
	s := &p.proof
	if s.within(age) {
		return nil
	}
	return s.majority.ask(ctx, p, func() error {
		began := time.Now()
		err := p.o.Majority()
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
func (q *singleFlight) ask(ctx context.Context, p *Proposer, put func() error) error {
	q.mu.Lock()
	a := q.next
	if mutant.On(mutant.EarlyProof) && q.under != nil {
		a = q.under
	}
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

func (q *singleFlight) beginLocked(a *flightCall, p *Proposer, put func() error) {
	if p.ended.Load() || !p.o.Flight.Enter() {
		a.err = ErrEnded
		close(a.done)
		return
	}
	q.under = a
	go func() {
		defer p.o.Flight.Leave()
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
