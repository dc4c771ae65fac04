package node

import (
	"context"
	"sync"
)

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
