package executor

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func TestNew(t *testing.T) {
	good := func() Options {
		return Options{Name: "w", Slots: 1, Groups: OneGroup(newFakeLeader()), Runners: map[job.Type]Runner{job.TypeHTTP: &fakeRunner{}}}
	}
	if _, err := New(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"no name":           func(o *Options) { o.Name = "" },
		"no slots":          func(o *Options) { o.Slots = 0 },
		"negative prefetch": func(o *Options) { o.Prefetch = -1 },
		"no leader":         func(o *Options) { o.Groups = nil },
		"no runners":        func(o *Options) { o.Runners = nil },
		"nil runner":        func(o *Options) { o.Runners = map[job.Type]Runner{job.TypeHTTP: nil} },
	} {
		o := good()
		spoil(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRunReportForget(t *testing.T) {
	var seen []job.Result
	inBubble(t, func(o *Options, _ *bench) {
		o.Prefetch, o.Tags, o.Version = 2, map[string]string{"zone": "a"}, "1.2"
		o.OnAttempt = func(_ job.Assignment, r job.Result) { seen = append(seen, r) }
	}, func(b *bench) {
		reg := b.leader.log().registers[0]
		if reg.Worker != "w1" || reg.Secret != "s" || reg.Incarnation != 0 || reg.Slots != 6 || reg.Tags["zone"] != "a" ||
			!slices.Equal(reg.Types, []job.Type{job.TypeQueue}) || reg.Version != "1.2" {
			t.Fatalf("registered as %+v", reg)
		}
		b.leader.assign(work(11)...)
		b.wantStarted(11)
		b.wantBusy(1)
		start := time.Now()
		b.after(3 * time.Second)
		b.runner.finish(t, 11, job.Result{Outcome: job.OutcomeSucceeded, Output: "done", Run: job.RunKey{Job: 99}, Fence: 99})
		res := b.wantResult(11, job.OutcomeSucceeded, "")
		want := job.Result{Run: work(11)[0].Run, Fence: 11, Outcome: job.OutcomeSucceeded, Output: "done",
			StartedAt: job.At(start), FinishedAt: job.At(start.Add(3 * time.Second))}
		if res != want {
			t.Fatalf("reported %+v, want %+v", res, want)
		}
		if len(seen) != 1 || seen[0] != want {
			t.Fatalf("the hook saw %+v", seen)
		}
		b.wantBusy(0)
		b.after(7 * time.Second)
		if hb := last(b.leader.log().beats); len(hb.Held) != 0 || hb.Free != 6 || hb.Acked != 1 {
			t.Fatalf("heartbeat after the acknowledgement: %+v", hb)
		}
	})
}

func TestSessionNumbers(t *testing.T) {
	for _, c := range []struct {
		in    []uint64
		fresh []bool
		acked uint64
	}{
		{[]uint64{1, 2, 3}, []bool{true, true, true}, 3},
		{[]uint64{1, 1, 2, 1}, []bool{true, false, true, false}, 2},
		{[]uint64{2, 3}, []bool{true, true}, 0},
		{[]uint64{1, 3, 3, 4}, []bool{true, true, false, true}, 1},
		{[]uint64{1, 3, 4, 2, 4}, []bool{true, true, true, true, false}, 4},
	} {
		var s session
		for i, n := range c.in {
			if got := s.number(n); got != c.fresh[i] {
				t.Errorf("%v: number %d (at %d) new: %v", c.in, n, i, got)
			}
		}
		if s.acked != c.acked {
			t.Errorf("%v: acknowledged up to %d, want %d", c.in, s.acked, c.acked)
		}
	}
}

func TestHeartbeatAndPollCarryTheSet(t *testing.T) {
	inBubble(t, func(o *Options, _ *bench) { o.Slots, o.Prefetch = 1, 2 }, func(b *bench) {
		b.leader.assign(work(5, 6)...)
		b.wantStarted(5)
		b.after(6 * time.Second)
		hb := last(b.leader.log().beats)
		slices.SortFunc(hb.Held, func(x, y job.Held) int { return int(x.Fence) - int(y.Fence) })
		if hb.Acked != 2 || hb.Free != 1 || len(hb.Held) != 2 || hb.Held[0].Fence != 5 || hb.Held[1].Fence != 6 ||
			hb.Held[0].StartedAt == 0 || hb.Held[1].StartedAt != 0 {
			t.Fatalf("heartbeat %+v", hb)
		}
		p := last(b.leader.log().polls)
		if p.Acked != 2 || p.Free != 1 || p.Wait != job.Duration(10*time.Second) {
			t.Fatalf("poll %+v", p)
		}
	})
}

// What the leader sends again is not run again: neither under its old number nor under a new one.
func TestDoubles(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.leader.assign(work(1)...)
		b.wantStarted(1)
		b.worker.mu.Lock()
		s := b.worker.groups[0].session
		b.worker.mu.Unlock()
		a := work(1)[0]
		a.Term, a.Number = 1, 1
		if b.worker.receive(s, job.Poll{}, job.PollReply{Assignments: []job.Assignment{a}}) {
			t.Fatal("the same number is no news")
		}
		a.Number = 2
		b.worker.receive(s, job.Poll{}, job.PollReply{Assignments: []job.Assignment{a, a}})
		b.after(6 * time.Second)
		if hb := last(b.leader.log().beats); hb.Acked != 2 || len(hb.Held) != 1 {
			t.Fatalf("heartbeat %+v", hb)
		}
		b.runner.finish(t, 1, success)
		b.wantResult(1, job.OutcomeSucceeded, "")
		// Acknowledged and forgotten; still a double.
		b.worker.receive(s, job.Poll{}, job.PollReply{Assignments: []job.Assignment{a}})
		synctest.Wait()
		if n := b.runner.ran(1); n != 1 {
			t.Fatalf("fence 1 ran %d times", n)
		}
	})
}

func TestLowerTermIsRefused(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.leader.depose()
		b.after(5 * time.Second)
		old := work(1)
		old[0].Term = 1
		b.leader.assign(append(old, work(2)...)...)
		b.wantStarted(2)
		b.wantResult(1, job.OutcomeReturned, "refused: it comes from an older term")
	})
}

func TestRegisterAgain(t *testing.T) {
	for _, code := range []job.Code{job.CodeSessionUnknown, job.CodeStale, job.CodeNotLeader, job.CodeNoLeader} {
		for _, at := range []string{"poll", "heartbeat", "report"} {
			t.Run(string(code)+" in "+at, func(t *testing.T) {
				inBubble(t, func(o *Options, _ *bench) { o.Slots, o.Prefetch = 2, 1 }, func(b *bench) {
					b.leader.assign(work(1, 2, 3)...)
					b.wantStarted(1, 2)
					said := false
					b.leader.hook(func(_ context.Context, call string) error {
						if call == at && !said {
							said = true
							return job.Errorf(code, "", "no")
						}
						return nil
					})
					b.runner.finish(t, 1, success)
					b.after(15 * time.Second)
					if len(b.leader.log().registers) != 2 {
						t.Fatalf("registered %d times", len(b.leader.log().registers))
					}
					again := b.leader.log().registers[1]
					if again.Incarnation != 1 {
						t.Fatalf("registered as incarnation %d", again.Incarnation)
					}
					held := map[uint64]bool{}
					for _, h := range again.Held {
						held[h.Fence] = h.StartedAt != 0
					}
					if started, ok := held[2]; !ok || !started {
						t.Fatalf("did not name the attempt that runs: %+v", again.Held)
					}
					if at == "report" && !held[1] {
						t.Fatalf("did not name the attempt whose result was not acknowledged: %+v", again.Held)
					}
					// Nothing was stopped, repeated or lost by the move.
					b.runner.finish(t, 2, success)
					b.wantStarted(1, 2, 3)
					b.runner.finish(t, 3, success)
					b.after(5 * time.Second)
					for f := uint64(1); f <= 3; f++ {
						b.wantResult(f, job.OutcomeSucceeded, "")
					}
				})
			})
		}
	}
}

// A leader that wants to be named in a registration says who it is; each message is told from the one before.
func TestRegistrationsAreCounted(t *testing.T) {
	inBubble(t, func(o *Options, b *bench) { oneSlot(o, b); b.leader.counts = true }, func(b *bench) {
		b.leader.assign(work(1)...)
		b.wantStarted(1)
		b.leader.depose()
		b.after(3 * time.Second)
		b.runner.finish(t, 1, success)
		b.wantResult(1, job.OutcomeSucceeded, "")
		b.leader.assign(work(2)...)
		b.wantStarted(1, 2)
		var incarnation, term, number uint64
		for i, r := range b.leader.log().registers {
			if r.Registration <= number {
				t.Errorf("registration %d after %d", r.Registration, number)
			}
			if r.Incarnation != incarnation || r.Term != term {
				t.Errorf("message %d is of incarnation %d for term %d, want %d and %d", i, r.Incarnation, r.Term, incarnation, term)
			}
			if held := len(r.Held); held != 0 != (i >= 2) {
				t.Errorf("message %d names %d assignments", i, held)
			}
			number, incarnation = r.Registration, 1
			if term = 1; i >= 2 {
				term = 2
			}
		}
		if n := len(b.leader.log().registers); n != 4 {
			t.Errorf("%d registrations", n)
		}
	})
}

// A poll that does not notice the end of its session: the next registration waits for it, and what it brings is not taken.
func TestOldPollsAnswerIsDiscarded(t *testing.T) {
	slow := &slowPoll{}
	inBubble(t, func(o *Options, b *bench) {
		slow.fakeLeader, slow.answer = b.leader, make(chan job.PollReply) // of the bubble
		o.Groups = OneGroup(slow)
	}, func(b *bench) {
		b.leader.depose()
		b.after(10 * time.Second)
		if n := len(b.leader.log().registers); n != 1 {
			t.Fatalf("registered %d times while the old poll was out", n)
		}
		a := work(1)[0]
		a.Number, a.Term = 1, 1
		slow.answer <- job.PollReply{Assignments: []job.Assignment{a}}
		b.after(time.Second)
		b.wantStarted()
		if regs := b.leader.log().registers; len(regs) != 2 || len(regs[1].Held) != 0 {
			t.Fatalf("registrations %+v", regs)
		}
	})
}

// slowPoll answers the polls of the first term when told to.
type slowPoll struct {
	*fakeLeader
	answer chan job.PollReply
}

func (l *slowPoll) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	if p.Session.Term == 1 {
		return <-l.answer, nil
	}
	return l.fakeLeader.Poll(ctx, p)
}

func TestLateAnswerOfAnEndedSession(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.worker.mu.Lock()
		old := b.worker.groups[0].session
		b.worker.mu.Unlock()
		b.leader.depose()
		b.after(5 * time.Second)
		a := work(1)[0]
		a.Number, a.Term = 1, 1
		b.worker.receive(old, job.Poll{}, job.PollReply{Assignments: []job.Assignment{a}})
		b.wantStarted()
	})
}

func TestTransportErrorsAreRetried(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.leader.assign(work(1)...)
		b.wantStarted(1)
		var at []time.Time
		b.leader.hook(func(_ context.Context, call string) error {
			if call == "report" {
				at = append(at, time.Now())
			}
			return errNet
		})
		b.runner.finish(t, 1, success)
		b.after(10 * time.Second)
		b.leader.hook(nil)
		b.after(3 * time.Second)
		b.wantResult(1, job.OutcomeSucceeded, "")
		if len(b.leader.log().registers) != 1 {
			t.Fatalf("registered again because of transport errors")
		}
		if len(at) < 8 {
			t.Fatalf("only %d tries in 10 s", len(at))
		}
		for i := 1; i < len(at); i++ {
			gap := at[i].Sub(at[i-1])
			if gap < 50*time.Millisecond || gap > 2*time.Second {
				t.Errorf("try %d came %v after the one before", i, gap)
			}
		}
		if gap := last(at).Sub(at[len(at)-2]); gap < time.Second {
			t.Errorf("did not back off: the last gap is %v", gap)
		}
	})
}

func TestUnnamedResultsAreReportedAgain(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		refuse := true
		b.leader.mu.Lock()
		b.leader.ack = func(r job.Result) bool { return r.Fence != 1 || !refuse }
		b.leader.mu.Unlock()
		b.leader.assign(work(1, 2)...)
		b.wantStarted(1, 2)
		b.runner.finish(t, 1, success)
		synctest.Wait()
		b.runner.finish(t, 2, success)
		b.after(3 * time.Second)
		b.wantResult(2, job.OutcomeSucceeded, "") // not held up by 1
		b.wantNoResult(1)
		if n := len(b.leader.log().reports); n > 20 {
			t.Fatalf("%d reports in 3 s", n)
		}
		// The next leader gets it too.
		b.leader.depose()
		b.after(3 * time.Second)
		b.wantNoResult(1)
		b.leader.mu.Lock()
		refuse = false
		b.leader.mu.Unlock()
		b.after(3 * time.Second)
		b.wantResult(1, job.OutcomeSucceeded, "")
		if r := last(b.leader.log().reports); r.Session.Term != 2 {
			t.Fatalf("reported on a session of term %d", r.Session.Term)
		}
	})
}

func TestCancel(t *testing.T) {
	inBubble(t, func(o *Options, _ *bench) { o.Slots, o.Prefetch = 2, 4 }, func(b *bench) {
		b.leader.assign(work(1, 2, 3)...)
		b.wantStarted(1, 2)
		beats := len(b.leader.log().beats)
		b.leader.cancel(1, 3, 77)
		b.wantResult(1, job.OutcomeCanceled, "canceled: stopped")
		b.wantResult(3, job.OutcomeCanceled, "canceled before it started")
		if b.runner.cause(1) != ErrCanceled {
			t.Fatalf("cause %v", b.runner.cause(1))
		}
		if len(b.leader.log().beats) != beats+1 {
			t.Fatalf("%d heartbeats at once after the cancel, want 1", len(b.leader.log().beats)-beats)
		}
		b.wantBusy(1)
		if res := b.leader.log().results[1]; res.Permanent {
			t.Fatal("a canceled attempt is not a permanent failure")
		}
	})
}

func TestCancelInTheSameAnswer(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.worker.mu.Lock()
		s := b.worker.groups[0].session
		b.worker.mu.Unlock()
		a := work(1)[0]
		a.Number, a.Term = 1, 1
		b.worker.receive(s, job.Poll{}, job.PollReply{Assignments: []job.Assignment{a}, Cancel: []uint64{1}})
		b.wantStarted()
		b.wantResult(1, job.OutcomeCanceled, "canceled before it started")
	})
}

// Cancels that come by heartbeat are repeated by the leader until they are confirmed; that must not heartbeat in a tight loop. And a
// success that comes late is a success.
func TestCancelByHeartbeatOfAnAttemptThatGoesOn(t *testing.T) {
	stubborn := runnerFunc(func(ctx context.Context, _ job.Assignment) job.Result {
		<-ctx.Done()
		time.Sleep(4 * time.Second)
		return success
	})
	inBubble(t, func(o *Options, _ *bench) { o.Runners[job.TypeQueue] = stubborn }, func(b *bench) {
		b.leader.assign(work(1)...)
		b.leader.mu.Lock()
		b.leader.cancels, b.leader.told = []uint64{1}, 1 // polls do not say it
		b.leader.mu.Unlock()
		b.after(6 * time.Second)
		b.wantBusy(1)
		b.after(3 * time.Second)
		if n := len(b.leader.log().beats); n != 2 {
			t.Fatalf("%d heartbeats in 9 s, want the one that told and the one at once after it", n)
		}
		b.after(2 * time.Second)
		b.wantResult(1, job.OutcomeSucceeded, "")
	})
}

func TestHeartbeatInterval(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.after(time.Minute)
		at := b.leader.log().beatTimes
		if len(at) != 10 {
			t.Fatalf("%d heartbeats in a minute", len(at))
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap != 6*time.Second {
				t.Fatalf("heartbeats %v apart", gap)
			}
		}
	})
}

type runnerFunc func(context.Context, job.Assignment) job.Result

func (f runnerFunc) Run(ctx context.Context, a job.Assignment) job.Result { return f(ctx, a) }

func TestUnknownType(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		a := work(1)
		a[0].Type = job.TypeShell
		b.leader.assign(a...)
		b.wantResult(1, job.OutcomeFailed, `this worker cannot run jobs of type "shell"`)
	})
}

func TestRunTwice(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		if err := b.worker.Run(context.Background()); err == nil {
			t.Fatal("a second Run is refused")
		}
	})
}
