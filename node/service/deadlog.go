package service

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// deadLogBurst bounds how many dead letters have a line of their own between two pauses; the others are counted. A
	// target that is down kills thousands of runs in a second, and the log is not where to read them all.
	deadLogBurst = 100
	deadLogPause = time.Second
)

// deadLog writes a line for each run that becomes a dead letter, on the leader.
type deadLog struct {
	b    *Service
	wake chan struct{}

	mu   sync.Mutex
	seqs []uint64
	more int // that have no line of their own
}

func newDeadLog(b *Service) *deadLog { return &deadLog{b: b, wake: make(chan struct{}, 1)} }

// run works until the leadership ends.
func (l *deadLog) run(ctx context.Context) {
	defer l.b.o.Store.Listen(l.changed)()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		l.mu.Lock()
		seqs, more := l.seqs, l.more
		l.seqs, l.more = nil, 0
		l.mu.Unlock()
		for _, seq := range seqs {
			l.say(seq)
		}
		if more > 0 {
			l.b.o.Logger.Warn("more dead letters", event.DeadLettersMore, "count", more,
				"remedy", "`carillon dead` lists them")
		}
		if len(seqs) == deadLogBurst && !wait.For(ctx, deadLogPause) {
			return
		}
	}
}

// changed never blocks: commits wait for it.
func (l *deadLog) changed(c *store.Changes) {
	if len(c.Dead) == 0 {
		return
	}
	l.mu.Lock()
	room := min(deadLogBurst-len(l.seqs), len(c.Dead))
	l.seqs = append(l.seqs, c.Dead[:room]...)
	l.more += len(c.Dead) - room
	l.mu.Unlock()
	wait.Wake(l.wake)
}

func (l *deadLog) say(seq uint64) {
	var d job.DeadLetter
	found := false
	err := l.b.o.Store.View(func(v *store.View) error {
		letter, ok, err := v.Dead(seq)
		if err != nil || !ok {
			return err
		}
		found = true
		d, err = l.b.src.Reader(v).Letter(seq, &letter)
		return err
	})
	if err != nil || !found { // purged or redriven meanwhile
		return
	}
	l.b.o.Logger.Warn("dead letter", event.DeadLetter, "namespace", d.Namespace, "job", d.JobName,
		"job_id", d.JobID.String(), "run", d.RunID, "dead_id", seq, "attempt", d.Attempt,
		"reason", d.Reason.String(), "error", d.Error)
}
