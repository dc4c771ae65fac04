package ratelimit

import (
	"context"
	"errors"
	"sync"
)

// ErrCrowded says that too many wait for a turn under one key.
var ErrCrowded = errors.New("too many wait for a turn")

// Turns bounds how many do something at once, in all and under each key. The keys that wait take turns: who asks a
// hundred times holds up others by one turn.
type Turns[K comparable] struct {
	all, each, waiting int

	mu      sync.Mutex
	busy    int
	running map[K]int
	queues  map[K][]chan struct{}
	order   []K // of those that wait
}

// NewTurns lets all at once, and each under one key. So many wait under a key, and more are refused.
func NewTurns[K comparable](all, each, waiting int) *Turns[K] {
	return &Turns[K]{all: all, each: each, waiting: waiting, running: map[K]int{}, queues: map[K][]chan struct{}{}}
}

// Take waits for a turn, and returns how to end it.
func (t *Turns[K]) Take(ctx context.Context, key K) (end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	if len(t.queues[key]) == 0 && t.free(key) {
		t.begin(key)
		t.mu.Unlock()
		return func() { t.end(key) }, nil
	}
	if len(t.queues[key]) >= t.waiting {
		t.mu.Unlock()
		return nil, ErrCrowded
	}
	if len(t.queues[key]) == 0 {
		t.order = append(t.order, key)
	}
	turn := make(chan struct{})
	t.queues[key] = append(t.queues[key], turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return func() { t.end(key) }, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	left := t.leave(key, turn)
	t.mu.Unlock()
	if !left { // its turn came meanwhile
		t.end(key)
	}
	return nil, ctx.Err()
}

func (t *Turns[K]) free(key K) bool { return t.busy < t.all && t.running[key] < t.each }

func (t *Turns[K]) begin(key K) {
	t.busy++
	t.running[key]++
}

func (t *Turns[K]) end(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	if t.running[key]--; t.running[key] == 0 {
		delete(t.running, key)
	}
	for i := 0; i < len(t.order) && t.busy < t.all; {
		next := t.order[i]
		if !t.free(next) {
			i++
			continue
		}
		turn := t.queues[next][0]
		t.begin(next)
		t.leave(next, turn)
		close(turn)
		if n := len(t.order); n > 0 && i < n && t.order[i] == next { // it waits for more: behind the others
			t.order = append(append(t.order[:i:i], t.order[i+1:]...), next)
		}
	}
}

// leave takes a turn out of its queue, if it is still there.
func (t *Turns[K]) leave(key K, turn chan struct{}) bool {
	for i, w := range t.queues[key] {
		if w != turn {
			continue
		}
		q := append(t.queues[key][:i:i], t.queues[key][i+1:]...)
		if t.queues[key] = q; len(q) == 0 {
			delete(t.queues, key)
			for j, k := range t.order {
				if k == key {
					t.order = append(t.order[:j:j], t.order[j+1:]...)
					break
				}
			}
		}
		return true
	}
	return false
}
