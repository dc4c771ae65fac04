package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// A worker that stops finishes what runs and reports it. It keeps its leases, and leaves with its last poll.
func TestDrain(t *testing.T) {
	inBubble(t, func(o *Options, _ *bench) { o.Slots, o.DrainTimeout = 1, time.Minute }, func(b *bench) {
		b.leader.assign(work(1, 2, 3)...)
		b.wantStarted(1)
		polls := len(b.leader.log().polls)
		b.stop()
		b.leader.assign(work(4)...)
		b.after(45 * time.Second) // longer than the lease
		b.wantBusy(1)
		b.leader.depose()
		b.runner.end(success, 1)
		b.wantEnd()
		b.wantResult(1, job.OutcomeSucceeded, "")
		b.wantStarted(1)
		if n := b.leader.log().polls[polls:]; len(n) != 1 || !n[0].Leave || n[0].Free != 0 || n[0].Wait != 0 {
			b.Errorf("polls after the stop: %+v", n)
		}
	})
}

func TestDrainStopsWhatTakesTooLong(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.begin(1)
		began := time.Now()
		b.stop()
		b.wantEnd()
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			b.Errorf("took %v", took)
		}
		b.wantStopped(1, ErrStopping)
		b.wantResult(1, job.OutcomeFailed, "worker stopping: stopped")
	})
}

// What is in an answer that the worker did not get is collected and returned, so that no run has to wait for a lease to
// end: from the same leader, or from the next one if it died before it could tell.
func TestDrainReturnsWhatWasOnItsWay(t *testing.T) {
	noLeader := job.Errorf(job.CodeNoLeader, "", "an election is under way")
	for name, err := range map[string]error{"same leader": nil, "no connection": errNet, "no leader": noLeader} {
		t.Run(name, func(t *testing.T) {
			if err != nil {
			}
			inBubble(t, nil, func(b *bench) {
				b.leader.lose(losing("poll", errNet))
				b.leader.assign(work(1)...)
				synctest.Wait()
				b.leader.hook(failing("poll", err))
				b.leader.lose(nil)
				b.stop()
				if err != nil {
					b.after(collectTimeout / 2)
					b.leader.depose()
					b.leader.hook(nil)
				}
				b.wantEnd()
				b.wantResult(1, job.OutcomeReturned, "")
				b.wantStarted()
			})
		})
	}
}

// A leader whose log is slow has claims for the worker that it cannot tell of yet, and says so for longer than a change
// of leaders takes. The worker stays until it knows them; not beyond the time that what runs would have.
func TestDrainWaitsForWhatIsOnItsWay(t *testing.T) {
	more := job.Errorf(job.CodeNotReady, "poll again", "runs for the worker are on their way")
	for name, slow := range map[string]time.Duration{"slow": 5 * collectTimeout, "for good": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(o *Options, _ *bench) { o.DrainTimeout = 30 * time.Second }, func(b *bench) {
				b.leader.lose(losing("poll", more))
				b.leader.assign(work(1)...)
				synctest.Wait()
				began := time.Now()
				b.stop()
				if slow > 0 {
					b.after(slow)
					b.leader.lose(nil)
				}
				b.wantEnd()
				took := time.Since(began)
				if slow > 0 {
					b.wantResult(1, job.OutcomeReturned, "")
				} else if took < 30*time.Second || took > 45*time.Second {
					b.Errorf("took %v", took)
				}
				b.wantStarted()
			})
		})
	}
}

// Without a leader, a worker with nothing in hand does not stay for long, and one that has results says that they are
// lost.
func TestDrainWithoutLeader(t *testing.T) {
	for name, c := range map[string]struct {
		runs []uint64
		most time.Duration
	}{"idle": {nil, collectTimeout}, "busy": {[]uint64{1}, 15 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bench) {
				b.begin(c.runs...)
				b.leader.hook(failing("", errNet))
				began := time.Now()
				b.stop()
				err := <-b.ended
				if took := time.Since(began); (err != nil) != (len(c.runs) > 0) || took > c.most {
					b.Errorf("%v after %v", err, took)
				}
			})
		})
	}
	hang := func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
	inBubble(t, func(_ *Options, b *bench) { b.leader.before = hang }, func(b *bench) {
		began := time.Now()
		b.stop()
		if b.wantEnd(); time.Since(began) != 0 {
			b.Errorf("without a session it took %v", time.Since(began))
		}
	})
}

// A worker that is killed ends as a process does: its leader hears nothing more of it.
func TestKill(t *testing.T) {
	inBubble(t, func(o *Options, b *bench) {
		o.Slots = 1
		o.Do = func(ctx context.Context, a job.Assignment) job.Result {
			defer time.Sleep(time.Second) // in which something could be reported
			return b.runner.run(ctx, a)
		}
	}, func(b *bench) {
		b.begin(1)
		b.runner.end(success, 1)
		b.after(time.Second)
		b.wantResult(1, job.OutcomeSucceeded, "")
		b.leader.assign(work(2, 3)...)
		b.wantStarted(1, 2)
		b.worker.Kill()
		if err := <-b.ended; err == nil {
			b.Error("it says that all was handed in")
		}
		b.wantStopped(2, ErrStopping)
		b.wantNoResult(2, 3)
		b.wantStarted(1, 2)
	})
}
