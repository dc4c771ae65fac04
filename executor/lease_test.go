package executor

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

func unreachable(context.Context, string) error { return errNet }

func oneSlot(o *Options, _ *bench) { o.Slots, o.Prefetch = 1, 3 }

func TestLeaseRunsOut(t *testing.T) {
	inBubble(t, oneSlot, func(b *bench) {
		b.leader.assign(work(1, 2)...)
		b.wantStarted(1)
		b.after(13 * time.Second) // heartbeats at 6 s and 12 s
		b.leader.hook(unreachable)
		b.after(12*time.Second + 20*time.Second - 13*time.Second - time.Millisecond)
		b.wantBusy(1)
		b.after(time.Millisecond)
		b.wantBusy(0)
		if cause := b.runner.cause(1); cause != ErrLeaseLost {
			t.Fatalf("stopped because of %v", cause)
		}
		b.after(10 * time.Second)
		b.wantStarted(1) // and not 2, although there is a slot
		b.leader.hook(nil)
		b.after(3 * time.Second)
		log := b.leader.log()
		reg := last(log.registers)
		if reg.Incarnation != 1 || len(reg.Held) != 2 {
			t.Fatalf("registered again as %+v", reg)
		}
		res := b.wantResult(1, job.OutcomeFailed, "lease lost")
		if res.Permanent || res.TimedOut || res.StartedAt == 0 {
			t.Fatalf("%+v", res)
		}
		if res := b.wantResult(2, job.OutcomeReturned, ""); res.StartedAt != 0 {
			t.Fatalf("%+v", res)
		}
		b.wantStarted(1)
		b.leader.assign(work(3)...)
		b.wantStarted(1, 3)
	})
}

func TestLeaseCountsFromWhenTheHeartbeatWasSent(t *testing.T) {
	inBubble(t, oneSlot, func(b *bench) {
		b.leader.assign(work(1)...)
		b.wantStarted(1)
		answered := 0
		b.leader.hook(func(ctx context.Context, call string) error {
			if call == "heartbeat" && answered == 0 {
				answered++
				time.Sleep(4 * time.Second)
				return nil
			}
			return errNet
		})
		b.after(26*time.Second - time.Millisecond) // sent at 6 s, answered at 10 s
		b.wantBusy(1)
		b.after(time.Millisecond)
		b.wantBusy(0)
	})
}

func TestLeaseCountsFromWhenTheRegistrationWasSent(t *testing.T) {
	inBubble(t, func(o *Options, b *bench) {
		b.leader.before = func(_ context.Context, call string) error {
			switch call {
			case "register":
				time.Sleep(5 * time.Second)
				return nil
			case "heartbeat":
				return errNet
			}
			return nil
		}
	}, func(b *bench) {
		b.leader.assign(work(1)...)
		b.after(20*time.Second - time.Millisecond)
		b.wantBusy(1)
		b.after(time.Millisecond)
		b.wantBusy(0)
	})
}

// A heartbeat that hangs is given up early enough for another one.
func TestHungHeartbeat(t *testing.T) {
	inBubble(t, oneSlot, func(b *bench) {
		b.leader.assign(work(1)...)
		b.wantStarted(1)
		hung := 0
		b.leader.hook(func(ctx context.Context, call string) error {
			if call == "heartbeat" && hung == 0 {
				hung++
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		b.after(time.Minute)
		b.wantBusy(1)
	})
}

// While the machine is suspended timers stand still; boot time tells.
func TestSuspendedMachine(t *testing.T) {
	inBubble(t, oneSlot, func(b *bench) {
		b.leader.assign(work(1, 2)...)
		b.wantStarted(1)
		b.leader.hook(unreachable)
		b.after(time.Second)
		b.clock.suspend(19 * time.Second)
		b.after(worker.LeaseTick)
		b.wantBusy(0)
		if cause := b.runner.cause(1); cause != ErrLeaseLost {
			t.Fatalf("stopped because of %v", cause)
		}
	})
}

// The lease is looked at immediately before a start, not only by the watch.
func TestLeaseIsCheckedBeforeEachStart(t *testing.T) {
	inBubble(t, oneSlot, func(b *bench) {
		b.leader.assign(work(1, 2)...)
		b.wantStarted(1)
		b.after(100 * time.Millisecond) // off the tick of the watch
		b.clock.suspend(time.Minute)
		b.runner.finish(t, 1, success)
		b.wantStarted(1)
		b.after(2 * time.Second)
		b.wantResult(1, job.OutcomeSucceeded, "")
		b.wantResult(2, job.OutcomeReturned, "")
		b.wantStarted(1)
	})
}

// The machine is suspended between two sessions, and the registration is answered before anything looks at the lease: what
// was queued under it is returned, because the leader may have claimed it for another worker meanwhile.
func TestLeaseEndsUnnoticedBeforeTheNextSession(t *testing.T) {
	inBubble(t, oneSlot, func(b *bench) {
		b.leader.assign(work(1, 2)...)
		b.wantStarted(1)
		b.after(100 * time.Millisecond) // off the tick of the watch
		b.leader.hook(func(_ context.Context, call string) error {
			if call == "register" {
				return errNet
			}
			return nil
		})
		b.leader.depose()
		synctest.Wait()
		b.clock.suspend(time.Minute)
		b.leader.hook(nil)
		b.after(300 * time.Millisecond)
		if cause := b.runner.cause(1); cause != ErrLeaseLost {
			t.Fatalf("stopped because of %v", cause)
		}
		b.after(3 * time.Second)
		b.wantStarted(1)
		b.wantResult(2, job.OutcomeReturned, "")
	})
}

// Between the end of a session and the next registration nothing starts, and what runs goes on.
func TestNoStartWithoutSession(t *testing.T) {
	inBubble(t, oneSlot, func(b *bench) {
		b.leader.assign(work(1, 2)...)
		b.wantStarted(1)
		b.leader.hook(func(_ context.Context, call string) error {
			if call == "register" {
				return errNet
			}
			return nil
		})
		b.leader.depose()
		b.after(time.Second)
		b.runner.finish(t, 1, success)
		b.wantStarted(1)
		b.after(5 * time.Second)
		b.wantStarted(1)
		b.leader.hook(nil)
		b.after(3 * time.Second)
		b.wantStarted(1, 2)
		b.wantResult(1, job.OutcomeSucceeded, "")
	})
}

// Another process registered under this name: what this process holds was released.
func TestSuperseded(t *testing.T) {
	for name, c := range map[string]struct {
		refuse error
		asked  []uint64
	}{
		"told stale":                {job.Errorf(job.CodeStale, "", "an older incarnation"), []uint64{0, 1, 0}},
		"given another incarnation": {nil, []uint64{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var again *reissuer
			inBubble(t, func(o *Options, b *bench) {
				oneSlot(o, b)
				again = &reissuer{fakeLeader: b.leader, refuse: c.refuse}
				o.Groups = OneGroup(again)
			}, func(b *bench) {
				b.leader.assign(work(1, 2)...)
				b.wantStarted(1)
				b.leader.depose()
				b.after(5 * time.Second)
				b.wantBusy(0)
				if cause := b.runner.cause(1); cause != ErrLeaseLost {
					t.Fatalf("stopped because of %v", cause)
				}
				b.wantResult(1, job.OutcomeFailed, "lease lost")
				b.wantResult(2, job.OutcomeReturned, "")
				b.wantStarted(1)
				b.leader.assign(work(3)...)
				b.wantStarted(1, 3)
				if !slices.Equal(again.asked, c.asked) {
					t.Fatalf("registered as %v", again.asked)
				}
			})
		})
	}
}

// reissuer refuses a registration that names an incarnation, or treats it as one without.
type reissuer struct {
	*fakeLeader
	refuse error
	asked  []uint64
}

func (l *reissuer) Register(ctx context.Context, r job.Register) (job.Session, error) {
	l.mu.Lock()
	l.asked = append(l.asked, r.Incarnation)
	l.mu.Unlock()
	if r.Incarnation != 0 && l.refuse != nil {
		return job.Session{}, l.refuse
	}
	r.Incarnation = 0
	return l.fakeLeader.Register(ctx, r)
}

// A leader that was deposed and does not know it yet answers a registration.
func TestRegistrationWithALowerTerm(t *testing.T) {
	inBubble(t, oneSlot, func(b *bench) {
		b.leader.depose()
		b.after(3 * time.Second)
		b.leader.assign(work(1, 2)...)
		b.wantStarted(1)
		b.leader.mu.Lock()
		b.leader.term, b.leader.known = 1, job.SessionRef{}
		b.leader.changed()
		b.leader.mu.Unlock()
		b.after(5 * time.Second)
		b.worker.mu.Lock()
		registered := b.worker.groups[0].session != nil
		b.worker.mu.Unlock()
		if registered {
			t.Fatal("went back to a lower term while the lease of the higher one holds")
		}
		b.wantBusy(1)
		// No leader of the higher term was heard of for a whole lease: the cluster was restored.
		b.after(20 * time.Second)
		b.wantResult(1, job.OutcomeFailed, "lease lost")
	})
}

func TestDrain(t *testing.T) {
	inBubble(t, func(o *Options, b *bench) { oneSlot(o, b); o.DrainTimeout = time.Minute }, func(b *bench) {
		b.leader.assign(work(1, 2, 3)...)
		b.wantStarted(1)
		polls := len(b.leader.log().polls)
		b.stop()
		b.wantResult(2, job.OutcomeReturned, "")
		b.wantResult(3, job.OutcomeReturned, "")
		b.leader.assign(work(4)...)
		b.after(45 * time.Second) // longer than the lease: heartbeats go on
		b.wantBusy(1)
		log := b.leader.log()
		for _, p := range log.polls[polls:] {
			if p.Free != 0 || p.Wait != 0 {
				t.Fatalf("a draining worker polls for work: %+v", p)
			}
		}
		if n := len(log.polls) - polls; n != 1 {
			t.Fatalf("%d polls after the stop, want the last one", n)
		}
		if hb := last(log.beats); hb.Free != 0 {
			t.Fatalf("a draining worker has %d free", hb.Free)
		}
		b.runner.finish(t, 1, success)
		if err := <-b.ended; err != nil {
			t.Fatal(err)
		}
		b.wantResult(1, job.OutcomeSucceeded, "")
		b.wantStarted(1)
	})
}

func TestDrainStopsWhatTakesTooLong(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.leader.assign(work(1)...)
		b.wantStarted(1)
		began := time.Now()
		b.stop()
		if err := <-b.ended; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Fatalf("took %v", took)
		}
		if b.runner.cause(1) != ErrStopping {
			t.Fatalf("cause %v", b.runner.cause(1))
		}
		b.wantResult(1, job.OutcomeFailed, "worker stopping: stopped")
	})
}

// The answer to the last poll was lost on the way: what was in it is collected and returned, so that no run has to wait for a lease to
// end.
func TestDrainReturnsWhatWasOnItsWay(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.leader.mu.Lock()
		b.leader.after = func(call string) error {
			if call == "poll" {
				return errNet
			}
			return nil
		}
		b.leader.mu.Unlock()
		b.leader.assign(work(1)...)
		synctest.Wait()
		b.leader.mu.Lock()
		b.leader.after = nil
		b.leader.mu.Unlock()
		b.stop()
		if err := <-b.ended; err != nil {
			t.Fatal(err)
		}
		b.wantResult(1, job.OutcomeReturned, "")
		b.wantStarted()
	})
}

// A leader claimed something for the worker and died before it could tell. A worker that stops meanwhile learns of it from the next one, and returns it.
func TestDrainCollectsFromTheNextLeader(t *testing.T) {
	for _, err := range []error{errNet, job.Errorf(job.CodeNoLeader, "", "an election is under way")} {
		t.Run(err.Error(), func(t *testing.T) {
			inBubble(t, nil, func(b *bench) {
				b.leader.mu.Lock()
				b.leader.after = func(call string) error {
					if call == "poll" {
						return err
					}
					return nil
				}
				b.leader.mu.Unlock()
				b.leader.hook(func(_ context.Context, call string) error {
					if len(b.leader.log().polls) > 1 || call != "poll" {
						return err
					}
					return nil
				})
				b.leader.assign(work(1)...)
				synctest.Wait()
				b.leader.mu.Lock()
				b.leader.after = nil
				b.leader.mu.Unlock()
				b.stop()
				b.after(worker.CollectTimeout / 2)
				b.leader.hook(nil)
				b.leader.depose()
				if err := <-b.ended; err != nil {
					t.Fatal(err)
				}
				b.wantResult(1, job.OutcomeReturned, "")
				b.wantStarted()
			})
		})
	}
}

// A leader whose log is slow has claims for the worker that it cannot tell of yet, and says so for longer than a change of leaders takes. The worker stays until it
// knows them, and returns them; not beyond the time that what runs would have.
func TestDrainWaitsForWhatIsOnItsWay(t *testing.T) {
	more := job.Errorf(job.CodeUnavailable, "poll again", "runs for the worker are on their way")
	for name, tc := range map[string]struct {
		slow   time.Duration
		learns bool
	}{"slow": {5 * worker.CollectTimeout, true}, "for good": {0, false}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(o *Options, _ *bench) { o.DrainTimeout = 30 * time.Second }, func(b *bench) {
				b.leader.mu.Lock()
				b.leader.after = func(call string) error { // what was assigned is not told
					if call == "poll" {
						return more
					}
					return nil
				}
				b.leader.mu.Unlock()
				b.leader.assign(work(1)...)
				synctest.Wait()
				began := time.Now()
				b.stop()
				if tc.learns {
					b.after(tc.slow)
					b.leader.mu.Lock()
					b.leader.after = nil
					b.leader.mu.Unlock()
				}
				if err := <-b.ended; err != nil {
					t.Fatal(err)
				}
				if tc.learns {
					b.wantResult(1, job.OutcomeReturned, "")
				} else if took := time.Since(began); took < 30*time.Second || took > 45*time.Second { // the bubble's time
					t.Errorf("took %v", took)
				}
				b.wantStarted()
			})
		})
	}
}

// A worker with nothing in hand does not wait for long where there is no leader.
func TestDrainIdleWithoutLeader(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		synctest.Wait()
		b.leader.hook(unreachable)
		began := time.Now()
		b.stop()
		if err := <-b.ended; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > worker.CollectTimeout {
			t.Fatalf("took %v", took)
		}
	})
}

func TestDrainMovesToTheNextLeader(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.leader.assign(work(1)...)
		b.wantStarted(1)
		b.stop()
		b.after(time.Second)
		b.leader.depose()
		b.runner.finish(t, 1, success)
		if err := <-b.ended; err != nil {
			t.Fatal(err)
		}
		b.wantResult(1, job.OutcomeSucceeded, "")
	})
}

func TestDrainWithoutLeader(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.leader.assign(work(1)...)
		b.wantStarted(1)
		b.leader.hook(unreachable)
		began := time.Now()
		b.stop()
		if err := <-b.ended; err == nil {
			t.Fatal("a result was lost without an error")
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

// A worker that is killed ends as a process does: its leader hears nothing more of it.
func TestKill(t *testing.T) {
	inBubble(t, oneSlot, func(b *bench) {
		b.leader.assign(work(1, 2)...)
		b.wantStarted(1)
		b.worker.Kill()
		if err := <-b.ended; err == nil {
			t.Error("it says that all was handed in")
		}
		if cause := b.runner.cause(1); cause != ErrStopping {
			t.Errorf("stopped because of %v", cause)
		}
		b.wantNoResult(1)
		b.wantNoResult(2)
		b.wantStarted(1)
	})
}

func TestStopBeforeRegistered(t *testing.T) {
	inBubble(t, func(o *Options, b *bench) {
		b.leader.before = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
	}, func(b *bench) {
		began := time.Now()
		b.stop()
		if err := <-b.ended; err != nil || time.Since(began) != 0 {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
	})
}
