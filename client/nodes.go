package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	// defaultTimeout bounds a call, all its tries together. A node waits up to 5 s for a leader before it says that
	// there is none.
	defaultTimeout = 10 * time.Second
	// defaultGap bounds how long a stream may be silent: a chunk of a bulk create or an export may take a node that
	// long.
	defaultGap = 30 * time.Second
	// dialTimeout bounds one connection; a host that is gone does not even refuse.
	dialTimeout = 5 * time.Second
)

// nodes are the addresses of a cluster, in the order in which they were given.
type nodes struct {
	bases []string
	first atomic.Int32 // the one that answered last
}

// parseNodes reads "a,b,c".
func parseNodes(addrs, scheme string) (*nodes, error) {
	n := &nodes{}
	for addr := range strings.SplitSeq(addrs, ",") {
		addr = strings.TrimSpace(addr)
		if addr == "" && strings.Contains(addrs, ",") {
			return n, job.Invalid("addr", "separate addresses by single commas: a:7400,b:7400",
				"%q has an empty address", addrs)
		}
		base, err := baseURL(addr, scheme)
		if err != nil {
			return n, err
		}
		if !slices.Contains(n.bases, base) {
			n.bases = append(n.bases, base)
		}
	}
	return n, nil
}

// at is the i-th node to ask in a round.
func (n *nodes) at(i int) string { return n.bases[(int(n.first.Load())+i)%len(n.bases)] }

// order is one round: every node once, beginning with the one that answered last.
func (n *nodes) order() []string {
	out := make([]string, len(n.bases))
	for i := range out {
		out[i] = n.at(i)
	}
	return out
}

// answered makes a node the first to be asked from now on.
func (n *nodes) answered(base string) { n.first.Store(int32(slices.Index(n.bases, base))) }

// passOver makes the node behind this one the first, if this one is.
func (n *nodes) passOver(base string) {
	if i := int32(slices.Index(n.bases, base)); i >= 0 {
		n.first.CompareAndSwap(i, (i+1)%int32(len(n.bases)))
	}
}

// WithTimeout bounds every call, all its tries on all nodes together; 0 is no limit but that of the context. A node
// that does not answer is passed over after its share of it, so that the others have their turn. What lasts longer by
// its nature is bounded otherwise: of a stream (bulk create, export, backup) each silence, and a call that waits on the
// node has the limit on top of that wait.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout, c.gap = d, d } }

// silence is why a request was given up: there was no answer, or it stopped in the middle.
type silence struct {
	after time.Duration
	begun bool // there was the beginning of an answer
}

func (s silence) Error() string {
	if s.begun {
		return fmt.Sprintf("it was silent for %s in the middle of its answer", rounded(s.after))
	}
	return fmt.Sprintf("no answer within %s", rounded(s.after))
}

func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// watchdog gives up one try that is silent for too long.
type watchdog struct {
	timer *time.Timer
	gap   time.Duration // how long a stream may be silent; 0: the limit is for the whole answer
	begun atomic.Bool
}

// watch ends the context if the try lasts longer than the limit. A watchdog with a gap only counts silence: it is told
// what moves.
func watch(ctx context.Context, limit, gap time.Duration) (context.Context, *watchdog, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{gap: gap}
	if limit > 0 {
		w.timer = time.AfterFunc(limit, func() {
			after := limit
			if w.begun.Load() && w.gap > 0 {
				after = w.gap
			}
			cancel(silence{after: after, begun: w.begun.Load()})
		})
	}
	return ctx, w, func() {
		if w.timer != nil {
			w.timer.Stop()
		}
		cancel(nil)
	}
}

// answers notes that the answer has begun.
func (w *watchdog) answers() {
	w.begun.Store(true)
	w.moved()
}

// moved notes that something was sent or received.
func (w *watchdog) moved() {
	if w.timer != nil && w.gap > 0 {
		w.timer.Reset(w.gap)
	}
}

// reader tells the watchdog of what is read through it.
func (w *watchdog) reader(r io.Reader) io.Reader {
	if w.gap == 0 {
		return r
	}
	return readFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		if n > 0 {
			w.moved()
		}
		return n, err
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// silenced is the silence that a try was given up for, if it was.
func silenced(ctx context.Context) (s silence, ok bool) {
	return s, errors.As(context.Cause(ctx), &s)
}

// plainName refuses a path in which a name would be lost: what is between the client and the handler may take "." and
// ".." for directories, and the answer would then be about something else.
func plainName(path string) error {
	rest, ok := strings.CutPrefix(path, prefix+"/")
	if !ok {
		return nil
	}
	for part := range strings.SplitSeq(rest, "/") {
		switch name, _, _ := strings.Cut(part, ":"); name {
		case "":
			return job.Errorf(job.CodeInvalid, "give the name or the id", "the name is empty")
		case ".", "..":
			return job.Errorf(job.CodeInvalid, "give the name or the id", "%q is not a name", name)
		}
	}
	return nil
}

// alive asks from time to time whether a node that prepares a long answer still runs, and calls gone if not.
func (c *Client) alive(ctx context.Context, base string, gone func(error)) {
	for wait.For(ctx, c.timeout) {
		call, _, stop := watch(ctx, c.timeout, 0)
		hr, err := http.NewRequestWithContext(call, http.MethodGet, base+"/healthz", nil)
		if err == nil {
			var resp *http.Response
			if resp, err = c.http.Do(hr); err == nil {
				resp.Body.Close() //nolint:errcheck // it answered
			}
		}
		stop()
		if err != nil && ctx.Err() == nil {
			gone(silence{after: c.timeout})
			return
		}
	}
}
