package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// An attempt is stopped two thirds of a lease after the last call that extended it was sent, and reported as soon as
// there is a leader again.
func TestLeaseRunsOut(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.leader.assign(work(1)...)
		b.wantStarted(1)
		b.after(12 * time.Second) // heartbeats at 6 s and 12 s
		b.leader.hook(failing("", errNet))
		b.after(12*time.Second + 20*time.Second - 13*time.Second - time.Millisecond)
		b.wantBusy(1)
		b.after(time.Millisecond)
		b.wantBusy(0)
		b.wantStopped(1, ErrLeaseLost)
		b.after(10 * time.Second)
		b.leader.hook(nil)
		b.after(3 * time.Second)
		if r := b.wantResult(1, job.OutcomeFailed, "lease lost"); r.Permanent || r.TimedOut || r.StartedAt == 0 {
			b.Errorf("%+v", r)
		}
		if n := len(opened(b.leader)); n != 1 {
			b.Errorf("%d sessions were opened", n)
		}
		b.wantStarted(1)
		b.leader.assign(work(3)...)
		b.wantStarted(1, 3)
	})
}

// The lease counts from when a call was sent, and not from when it was answered. Of a poll the leader says how long it
// waited for runs: that long nobody had them.
func TestLeaseCountsFromWhenItWasAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		slow   string        // the call that is 4 s on its way
		assign time.Duration // when the run is, from the first second on
		asked  time.Duration // when it was asked for
	}{
		"slow poll":      {"poll", 0, 4 * time.Second},
		"poll":           {"", 7 * time.Second, 8 * time.Second},
		"slow heartbeat": {"heartbeat", 0, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(_ *Options, b *bench) {
				beats := 0
				b.leader.before = func(_ context.Context, call string) error {
					if call == c.slow {
						time.Sleep(4 * time.Second)
					}
					if call != "heartbeat" {
						return nil
					}
					if beats++; c.slow == call && beats == 1 {
						return nil
					}
					return errNet
				}
			}, func(b *bench) {
				b.after(c.assign)
				b.leader.assign(work(1)...)
				b.after(c.asked + 20*time.Second - time.Second - c.assign - time.Millisecond)
				b.wantBusy(1)
				b.after(time.Millisecond)
				b.wantBusy(0)
			})
		})
	}
}

// A heartbeat that hangs is given up early enough for another one.
func TestHungHeartbeat(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.begin(1)
		hung := false
		b.leader.hook(func(ctx context.Context, call string) error {
			if call == "heartbeat" && !hung {
				hung = true
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		b.after(time.Minute)
		b.wantBusy(1)
	})
}

// A run that is over its timeout has until the end of its lease to be stopped: it is not extended for that.
func TestNoExtensionAfterTheTimeout(t *testing.T) {
	inBubble(t, func(o *Options, b *bench) {
		b.leader.quiet = true
		o.Do = func(ctx context.Context, _ job.Assignment) job.Result { time.Sleep(time.Hour); return success }
	}, func(b *bench) {
		b.leader.assign(work(1)...)
		synctest.Wait()
		b.leader.stop(job.StopTimeout, 1)
		b.after(25 * time.Second)
		b.worker.mu.Lock()
		defer b.worker.mu.Unlock()
		for _, a := range b.worker.groups[0].held {
			if !a.lost {
				b.Errorf("its lease ends at %s", a.lease)
			}
		}
	})
}

// While the machine is suspended timers stand still; boot time tells.
func TestSuspendedMachine(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.begin(1)
		b.leader.hook(failing("", errNet))
		b.after(time.Second)
		b.clock.suspend(19 * time.Second)
		b.after(leaseTick)
		b.wantStopped(1, ErrLeaseLost)
	})
}

// What comes when its lease has ended is not started: the machine was suspended while the answer was on its way.
func TestLeaseIsCheckedBeforeEachStart(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.leader.lose(func(call string) error {
			if call == "poll" {
				b.clock.suspend(time.Minute)
			}
			return nil
		})
		b.leader.assign(work(1)...)
		b.wantResult(1, job.OutcomeReturned, "")
		b.wantStarted()
	})
}

// A result is handed in as soon as there is a leader again, however long there was none: the next leader gives every
// claim a full lease.
func TestResultOfALongOutage(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.begin(1)
		b.leader.hook(failing("", errNet))
		b.after(15 * time.Second)
		b.runner.end(success, 1)
		b.after(time.Minute)
		b.leader.depose()
		b.leader.hook(nil)
		b.after(5 * time.Second)
		b.wantResult(1, job.OutcomeSucceeded, "")
	})
}

// A result waits no longer than for a session: not the first one, and not one of a worker that had to open another.
func TestResultsDoNotWait(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.begin(1, 2)
		b.runner.end(success, 1)
		if n := len(b.leader.log().results); n != 1 {
			b.Error("the first result of a worker is not reported at once")
		}
		b.leader.hook(failing("poll", job.Errorf(job.CodeSessionUnknown, "", "no")))
		b.after(11 * time.Second)
		b.runner.end(success, 2)
		b.after(time.Second)
		b.leader.hook(nil)
		before := len(b.leader.log().reports)
		b.after(5 * time.Second)
		if n := len(b.leader.log().reports); n == before {
			b.Error("it is not reported, although there is a session")
		}
	})
}

// A worker whose token was revoked says so once, stops what it runs, and ends with that reason. Refusals of other kinds
// in between begin the count again, and a node's own worker never gives up.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		most, other int // refusals that are too many, and how often there is another error
	}{"revoked": {10, 0}, "with another error in between": {3, 3}, "without a bound": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			var said logged
			inBubble(t, func(o *Options, _ *bench) { o.MaxRefusals, o.Logger = c.most, said.logger() }, func(b *bench) {
				b.begin(1)
				calls := 0
				no := job.Errorf(job.CodeUnauthenticated, "use another token", "the token t1 (w) was revoked")
				b.leader.hook(func(_ context.Context, call string) error {
					b.leader.mu.Lock()
					defer b.leader.mu.Unlock()
					if call != "poll" {
						return no
					}
					if calls++; c.other > 0 && calls%c.other == 0 {
						return errNet
					}
					return no
				})
				began := time.Now()
				if name != "revoked" {
					b.after(time.Hour)
					select {
					case err := <-b.ended:
						b.Errorf("it gave up: %v", err)
					default:
					}
					return
				}
				err := <-b.ended
				e, ok := err.(*job.Error) //nolint:errorlint // it is not wrapped
				const text = "the cluster refused this worker 10 times: the token t1 (w) was revoked"
				if !ok || e.Code != job.CodeUnauthenticated || e.Remedy != "use another token" || e.Message != text {
					b.Errorf("%v", err)
				}
				if took := time.Since(began); calls != 10 || took > pollWait+5*time.Second {
					b.Errorf("it asked %d times in %s", calls, took)
				}
				if n := said.count("registration refused"); n != 1 {
					b.Errorf("said %d times", n)
				}
				b.wantStopped(1, ErrStopping)
				b.wantNoResult(1)
				b.worker.Kill() // by who stops the process meanwhile
			})
		})
	}
}
