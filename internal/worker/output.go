package worker

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	outputPause   = 200 * time.Millisecond
	outputTimeout = 5 * time.Second
	// outputQuiet is how often a worker asks whether anybody still watches an attempt that writes nothing.
	outputQuiet = 2 * time.Second
)

type liveKey struct{}

// Show lets others read along while an attempt writes: since returns what it wrote from an offset on, as far as that is
// kept, and where that begins. ctx is that of Options.Do.
func Show(ctx context.Context, since func(from int64) (int64, []byte)) {
	if f, ok := ctx.Value(liveKey{}).(func(func(int64) (int64, []byte))); ok {
		f(since)
	}
}

func (a *attempt) show(w *Worker) func(func(int64) (int64, []byte)) {
	return func(since func(int64) (int64, []byte)) {
		w.mu.Lock()
		a.live = since
		w.mu.Unlock()
	}
}

// watchLocked begins to send the output of attempts that are watched. Nothing is sent of others.
func (w *Worker) watchLocked(g *group, refs []job.Ref) {
	for _, r := range refs {
		if a := g.held[r.Fence]; a != nil && a.state == running && !a.watched {
			a.watched = true
			w.attempts.Go(func() { w.sendOutput(g, a) })
		}
	}
}

func (w *Worker) sendOutput(g *group, a *attempt) {
	defer func() {
		w.mu.Lock()
		a.watched = false
		w.mu.Unlock()
	}()
	var next int64
	sent := time.Now().Add(-outputQuiet)
	for {
		w.mu.Lock()
		live, session, ended := a.live, g.session, a.state == done
		w.mu.Unlock()
		var data []byte
		offset := next
		if live != nil {
			offset, data = live(next)
		}
		if len(data) > 0 || time.Since(sent) >= outputQuiet {
			call, stop := context.WithTimeout(w.base, outputTimeout)
			reply, err := g.leader.Output(call, job.Output{Session: session, Ref: job.Ref{Fence: a.Fence},
				Offset: offset, Data: data})
			stop()
			if err != nil || !reply.Watched {
				return // the watcher asks again
			}
			next, sent = offset+int64(len(data)), time.Now()
		}
		if ended {
			return
		}
		wait.For(w.base, outputPause)
	}
}
