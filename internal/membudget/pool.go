package membudget

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// pool is a semaphore of bytes. Requests that wait are let in by turn, except those of tokens that have their share
// already: they wait for their own requests, and are passed by.
type pool struct {
	size int64

	mu      sync.Mutex
	used    int64
	peak    int64
	shares  map[string]int64
	waiting list.List // of *waiter
}

type waiter struct {
	h  *Held
	in chan struct{} // closed when it is let in
}

func newPool(size int64) *pool { return &pool{size: size, shares: map[string]int64{}} }

func (p *pool) use() Use {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Use{Held: p.used, Most: p.peak, Waiting: p.waiting.Len()}
}

// most is what one holder can get.
func (p *pool) most(h *Held) int64 {
	if h.who != "" {
		return p.size / tokenShare
	}
	return p.size
}

// shared says that there is room in the share of a token.
func (p *pool) shared(h *Held, n int64) bool {
	return h.who == "" || p.shares[h.who]+n <= p.size/tokenShare
}

func (p *pool) enter(h *Held, n int64) {
	p.used += n
	p.peak = max(p.peak, p.used)
	if h.who != "" {
		p.shares[h.who] += n
	}
}

// force lets one in that must not wait.
func (p *pool) force(h *Held) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enter(h, h.n)
}

func (p *pool) grow(h *Held, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used+n > p.size || !p.shared(h, n) {
		return false
	}
	h.n += n
	p.enter(h, n)
	return true
}

// fit makes what one holds n bytes.
func (p *pool) fit(h *Held, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	more := n - h.n
	switch {
	case more <= 0:
		p.giveBack(h, n)
		return true
	case h.forced, p.used == h.n: // one that is larger than all gets in when there is nothing else
	case p.used+more > p.size, !p.shared(h, more) && p.shares[h.who] > h.n:
		return false
	}
	h.n = n
	p.enter(h, more)
	return true
}

// acquire waits until there is room, ctx ends, or wait is over if that is not 0.
func (p *pool) acquire(ctx context.Context, wait time.Duration, h *Held) bool {
	p.mu.Lock()
	if p.waiting.Len() == 0 && p.shared(h, h.n) && p.used+h.n <= p.size {
		p.enter(h, h.n)
		p.mu.Unlock()
		return true
	}
	w := &waiter{h: h, in: make(chan struct{})}
	at := p.waiting.PushBack(w)
	p.admit()
	p.mu.Unlock()
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	select {
	case <-w.in:
		return true
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.in:
		return true
	default:
	}
	p.waiting.Remove(at)
	p.admit() // it may have been in the way of smaller ones
	return false
}

// admit lets in who is next. The lock is held.
func (p *pool) admit() {
	for at := p.waiting.Front(); at != nil; {
		w, next := at.Value.(*waiter), at.Next()
		if p.shared(w.h, w.h.n) {
			if p.used+w.h.n > p.size {
				return
			}
			p.enter(w.h, w.h.n)
			p.waiting.Remove(at)
			close(w.in)
		}
		at = next
	}
}

// keep gives back all but n bytes.
func (p *pool) keep(h *Held, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveBack(h, n)
}

// giveBack is keep. The lock is held.
func (p *pool) giveBack(h *Held, n int64) {
	back := h.n - n
	if back <= 0 {
		return
	}
	h.n = n
	p.used -= back
	if h.who != "" {
		if p.shares[h.who] -= back; p.shares[h.who] == 0 {
			delete(p.shares, h.who)
		}
	}
	p.admit()
}
