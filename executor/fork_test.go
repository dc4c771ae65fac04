package executor

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// A worker that hears that another process has its memory stops everything, and goes on as a process of its own.
func TestForkedWorkerBecomesAnother(t *testing.T) {
	inBubble(t, oneSlot, func(b *bench) {
		b.leader.assign(work(1)...)
		b.wantStarted(1)
		told := false
		b.leader.hook(func(_ context.Context, call string) error {
			if call == "heartbeat" && !told {
				told = true
				return job.Errorf(job.CodeWorkerForked, "", "two processes")
			}
			return nil
		})
		b.after(10 * time.Second)
		b.wantBusy(0)
		if cause := b.runner.cause(1); cause != ErrLeaseLost {
			t.Errorf("stopped because of %v", cause)
		}
		first, next := b.leader.log().registers[0], last(b.leader.log().registers)
		if next.Secret == first.Secret || next.Secret == "" {
			t.Errorf("it registered again with the secret %q", next.Secret)
		}
	})
}
