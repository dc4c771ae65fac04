package api

import (
	"context"
	"sync"
)

// turn is that of a request which computes much: what it computed is encoded before the next one's begins.
type turn struct {
	mu   sync.Mutex
	over func()
}

type turnKey struct{}

// KeepTurn has the answer to a request encoded in the turn that it got, and returns what the caller does when it has
// computed it. Where nothing is encoded, or piece by piece, that ends the turn.
func KeepTurn(ctx context.Context, over func()) (computed func()) {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok {
		return over
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = over
	return func() {}
}

// EndTurn ends the turn that a request has, if it has one. It must be called before another one is waited for.
func EndTurn(ctx context.Context) {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		t.end()
	}
}

func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		t.over()
		t.over = nil
	}
}
