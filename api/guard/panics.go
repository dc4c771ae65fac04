package guard

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/carillon-scheduler/carillon/internal/ratelimit"
)

// Panics logs those of requests with their stacks: ten at once, then one a second. Who can cause one can cause many.
type Panics struct {
	log   *slog.Logger
	limit *ratelimit.Limiter[struct{}]
}

// NewPanics makes one. All that a handler recovers from goes through the same.
func NewPanics(log *slog.Logger) *Panics {
	return &Panics{log, ratelimit.New[struct{}](1, 10, 1)}
}

// Log is called in the deferred function that recovered from the panic, so that the stack is the one that led there.
func (p *Panics) Log(r *http.Request, panicked any, more ...any) {
	if p.limit.Take(struct{}{}) > 0 {
		return
	}
	p.log.With(more...).Error("panic in a request", "method", r.Method, "path", r.URL.Path,
		"panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
}
