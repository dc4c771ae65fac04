package propose

import (
	"sync"
	"time"
)

// Flight counts what raft has been asked and has not answered. Raft is shut down only when it is empty: a future that
// is in one of its channels at that moment is never answered.
type Flight struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{} // made by Land
}

// Enter says whether raft may be asked; Leave that it has answered.
func (f *Flight) Enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.n++
	return true
}

// Leave follows every Enter that said yes.
func (f *Flight) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	if f.n == 0 && f.closed {
		close(f.empty)
	}
}

// Busy says whether an answer is waited for.
func (f *Flight) Busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n > 0
}

// Land lets nothing more in and waits for what is out, for a while.
func (f *Flight) Land(limit time.Duration) bool {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		f.empty = make(chan struct{})
		if f.n == 0 {
			close(f.empty)
		}
	}
	f.mu.Unlock()
	select {
	case <-f.empty:
		return true
	case <-time.After(limit):
		return false
	}
}
