package executor

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	tailPause   = 200 * time.Millisecond
	tailTimeout = 5 * time.Second
	// tailQuiet is how often a worker asks whether anybody still watches an attempt that writes nothing.
	tailQuiet = 2 * time.Second
)

// OutputTaker is a Leader that passes the output of running attempts on to those who watch it.
type OutputTaker interface {
	Output(context.Context, job.Output) (job.OutputReply, error)
}

type liveKey struct{}

// watchable lets the loop read along while a runner writes.
func watchable(ctx context.Context, b *tailBuffer) {
	if f, ok := ctx.Value(liveKey{}).(func(*tailBuffer)); ok {
		f(b)
	}
}

// watchLocked begins to send the output of attempts that are watched. Nothing is sent of others.
func (w *Worker) watchLocked(s *session, fences []uint64) {
	taker, ok := s.group.leader.(OutputTaker)
	if !ok {
		return
	}
	for _, f := range fences {
		if h := w.set.Held[s.key(f)]; h != nil && h.State == worker.Running && !h.Work.watched {
			h.Work.watched = true
			w.set.Attempts.Go(func() { w.sendOutput(s, taker, h) })
		}
	}
}

func (w *Worker) sendOutput(s *session, to OutputTaker, h *held) {
	defer func() {
		w.mu.Lock()
		h.Work.watched = false
		w.mu.Unlock()
	}()
	var next int64
	sent := time.Now().Add(-tailQuiet)
	for s.ctx.Err() == nil {
		w.mu.Lock()
		live, ended := h.Work.live, h.State == worker.Done
		w.mu.Unlock()
		var data []byte
		offset := next
		if live != nil {
			offset, data = live.since(next)
		}
		if len(data) > 0 || time.Since(sent) >= tailQuiet {
			ctx, stop := context.WithTimeout(s.ctx, tailTimeout)
			reply, err := to.Output(ctx, job.Output{Session: s.ref, Fence: h.Key.Fence, Offset: offset, Data: data,
				StartedAt: h.Started})
			stop()
			if err != nil || !reply.Watched {
				return // the watcher asks again
			}
			next, sent = offset+int64(len(data)), time.Now()
		}
		if ended {
			return
		}
		wait.For(s.ctx, tailPause)
	}
}
