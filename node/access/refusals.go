package access

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
)

// Refusals counts the requests that were refused before anything was proposed, and logs some of them. They leave no
// audit record: a stranger who knocks could push out those of what was done.
type Refusals struct {
	Log   *slog.Logger
	Count func(job.Code)

	mu   sync.Mutex
	last time.Time
	left int // that were not logged since
}

// refusalPause is how long nothing is logged after a refusal that was.
const refusalPause = time.Second

// Add is told of a request that was refused.
func (f *Refusals) Add(r *http.Request, err error) {
	var e *job.Error
	if !errors.As(err, &e) {
		return
	}
	f.Count(e.Code)
	f.mu.Lock()
	now := time.Now()
	if now.Sub(f.last) < refusalPause {
		f.left++
		f.mu.Unlock()
		return
	}
	more := f.left
	f.last, f.left = now, 0
	f.mu.Unlock()
	who := ""
	if id := api.IdentityOf(r.Context()); id != nil {
		who = id.Name
	}
	f.Log.Info("request refused", "code", e.Code, "method", logged(r.Method), "path", logged(r.URL.Path),
		"address", api.AddressOf(r), "name", who, "error", logged(e.Message), "not_logged_before", more)
}

// maxLogged bounds what a refused request has of a line in the log: a path may be much longer, and a stranger wrote it.
const maxLogged = 256

func logged(s string) string {
	if len(s) <= maxLogged {
		return s
	}
	return strings.ToValidUTF8(s[:maxLogged], "") + "…"
}
