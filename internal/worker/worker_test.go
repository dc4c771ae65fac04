package worker

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func TestNew(t *testing.T) {
	for name, spoil := range map[string]func(*Options){
		"":              func(*Options) {},
		"no name":       func(o *Options) { o.Name = "" },
		"no slots":      func(o *Options) { o.Slots = 0 },
		"no leader":     func(o *Options) { o.Groups = Groups{} },
		"nothing to do": func(o *Options) { o.Do = nil },
	} {
		o := Options{Name: "w", Slots: 1, Groups: OneGroup(newFakeLeader(0)), Do: (&fakeRunner{}).run}
		spoil(&o)
		if _, err := New(o); (err != nil) != (name != "") {
			t.Errorf("%q: %v", name, err)
		}
	}
	inBubble(t, nil, func(b *bench) {
		if err := b.worker.Run(b.Context()); err == nil {
			b.Error("a second Run is not refused")
		}
	})
}

// The first poll opens the session and asks for nothing, the others ask for work with it and describe the worker.
func TestRunReportForget(t *testing.T) {
	var seen []job.Result
	opened := 0
	inBubble(t, func(o *Options, _ *bench) {
		o.Tags, o.Version, o.Where, o.Namespace = map[string]string{"zone": "a"}, "1.2", "here", "team"
		o.Ended = func(_ job.Assignment, r job.Result) { seen = append(seen, r) }
		o.Opened = func(uint32) { opened++ }
	}, func(b *bench) {
		first, p := b.leader.log().polls[0], last(b.leader.log().polls)
		if first.Session != "" || first.Worker != "w1" || first.Secret != "s" || first.Free != 0 || first.Wait != 0 {
			b.Errorf("opened with %+v", first)
		}
		if p.Session == "" || p.Worker != "w1" || p.Secret != "" || p.Free != 4 || p.Slots != 4 ||
			p.Tags["zone"] != "a" || !slices.Equal(p.Types, []job.Type{job.TypeQueue}) || p.Version != "1.2" ||
			p.Where != "here" || p.Namespace != "team" || p.Wait != job.Duration(10*time.Second) || p.Hold <= 0 ||
			p.Shared || p.Leave {
			b.Errorf("polled with %+v", p)
		}
		b.begin(11)
		b.wantBusy(1)
		if is := b.worker.Standing(); !is.Registered[0] || opened != 1 || is.Slots != 4 || is.Waiting != 0 {
			b.Errorf("%+v, opened %d times", is, opened)
		}
		start := time.Now()
		b.after(3 * time.Second)
		b.runner.end(job.Result{Ref: job.Ref{Fence: 99}, Outcome: job.OutcomeSucceeded, Output: "done"}, 11)
		want := job.Result{Ref: job.Ref{Fence: 11}, Outcome: job.OutcomeSucceeded, Output: "done",
			StartedAt: job.At(start), FinishedAt: job.At(start.Add(3 * time.Second))}
		if res := b.wantResult(11, job.OutcomeSucceeded, ""); res != want {
			b.Fatalf("reported %+v, want %+v", res, want)
		}
		if len(seen) != 1 || seen[0].StartedAt != want.StartedAt || seen[0].Output != "done" {
			b.Fatalf("the hook saw %+v", seen)
		}
		b.wantBusy(0)
		b.after(7 * time.Second)
		if log := b.leader.log(); len(log.beats) != 0 || last(log.polls).Free != 4 {
			b.Fatalf("after the acknowledgement: heartbeats %+v, poll %+v", log.beats, last(log.polls))
		}
	})
}

// A worker says that it is there as soon as it is, not when its first poll has waited in vain.
func TestOpenedAtOnce(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		if !b.worker.Standing().Registered[0] {
			b.Error("it has a session, and does not say so")
		}
	})
}

// Heartbeats come five times a lease, with all that is held.
func TestHeartbeats(t *testing.T) {
	for _, ttl := range []time.Duration{30 * time.Second, 6 * time.Second} {
		inBubble(t, func(o *Options, b *bench) { o.Slots, b.leader.ttl = 3, ttl }, func(b *bench) {
			b.leader.hook(failing("report", errNet))
			b.leader.assign(work(5, 6, 7)...)
			b.wantStarted(5, 6, 7)
			b.runner.end(success, 6)
			b.after(3 * ttl)
			log := b.leader.log()
			for i := 1; i < len(log.beatAt); i++ {
				if gap := log.beatAt[i].Sub(log.beatAt[i-1]); gap != ttl/5 {
					b.Fatalf("heartbeats %s apart", gap)
				}
			}
			first := log.beats[0].Runs
			if len(log.beats) < 14 || len(first) != 3 {
				b.Fatalf("%d heartbeats, the first with %+v", len(log.beats), first)
			}
		})
	}
}

// An answer that is lost is in the answer to the next poll, which has the same session; what came twice, in one answer
// or in two, is started once.
func TestLostAnswer(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		before := b.leader.log().polls
		b.leader.lose(losing("poll", errNet))
		b.leader.assign(work(1, 2)...)
		b.wantStarted()
		b.leader.lose(nil)
		b.after(time.Second)
		b.wantStarted(1, 2)
		polls, session := b.leader.log().polls, last(before).Session
		if polls[len(before)].Session != session || last(polls).Session == session {
			b.Error("the session did not go on from the last answer that came")
		}
	})
	twice := func(r *job.PollReply) { r.Runs = append(r.Runs, r.Runs...) }
	inBubble(t, func(o *Options, b *bench) { o.Groups = OneGroup(altered{b.leader, nil, twice}) }, func(b *bench) {
		b.begin(1, 2)
	})
}

// The answer to a poll that was given up is thrown away when it comes, and is in the answer to the next one.
func TestLateAnswer(t *testing.T) {
	inBubble(t, func(o *Options, b *bench) { o.Slots, o.Groups = 1, OneGroup(deaf{b.leader}) }, func(b *bench) {
		b.begin(1)
		b.after(time.Second) // it polls without room
		b.runner.end(success, 1)
		b.wantResult(1, job.OutcomeSucceeded, "")
		b.leader.assign(work(2)...)
		b.after(time.Second)
		b.wantStarted(1, 2)
	})
}

// deaf is a leader that does not hear that its polls are given up.
type deaf struct{ *fakeLeader }

func (l deaf) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	return l.fakeLeader.Poll(context.WithoutCancel(ctx), p)
}

// A new leader is told the session of the old one. Nothing is stopped, repeated or lost.
func TestNewLeader(t *testing.T) {
	inBubble(t, slots(2), func(b *bench) {
		b.leader.assign(work(1, 2, 3)...)
		b.wantStarted(1, 2)
		noLeader := failing("", job.Errorf(job.CodeNoLeader, "", "an election is under way"))
		b.leader.hook(noLeader)
		b.leader.depose()
		b.runner.end(success, 1)
		b.after(4 * time.Second)
		b.wantNoResult(1)
		b.leader.hook(nil)
		b.after(3 * time.Second)
		b.wantResult(1, job.OutcomeSucceeded, "")
		b.wantStarted(1, 2, 3)
		b.runner.end(success, 2, 3)
		b.wantResult(2, job.OutcomeSucceeded, "")
		b.wantResult(3, job.OutcomeSucceeded, "")
		b.leader.assign(work(4)...)
		b.wantStarted(1, 2, 3, 4)
		if n := len(opened(b.leader)); n != 1 {
			b.Errorf("%d sessions were opened", n)
		}
	})
}

// A session that the leader does not know is opened anew, which stops nothing.
func TestSessionUnknown(t *testing.T) {
	inBubble(t, slots(1), func(b *bench) {
		b.leader.assign(work(1, 2)...)
		b.wantStarted(1)
		b.leader.hook(failing("poll", job.Errorf(job.CodeSessionUnknown, "", "no")))
		b.after(11 * time.Second) // until after the next poll
		b.leader.hook(nil)
		b.after(3 * time.Second)
		if n := len(opened(b.leader)); n < 2 {
			b.Errorf("%d sessions were opened", n)
		}
		b.wantBusy(1)
	})
}

// The worker of a node that has no part in the cluster any more gives up what it has at once, and reports nothing of it.
func TestStoppedNode(t *testing.T) {
	inBubble(t, slots(1), func(b *bench) {
		b.leader.assign(work(1)...)
		b.wantStarted(1)
		b.leader.hook(failing("poll", job.Errorf(job.CodeStale, "", "the node stopped")))
		b.after(11 * time.Second) // until after the next poll
		b.wantStopped(1, ErrLeaseLost)
		b.wantNoResult(1)
	})
}

// A worker that hears that another process has its memory stops everything and reports nothing of it, because that one
// has it too, and goes on as a process of its own.
func TestForked(t *testing.T) {
	inBubble(t, slots(3), func(b *bench) {
		b.leader.hook(failing("report", errNet))
		b.leader.assign(work(1, 2, 3)...)
		b.wantStarted(1, 2, 3)
		b.runner.end(success, 1) // not reported yet
		b.leader.fork()
		b.after(11 * time.Second)
		b.wantStopped(2, ErrLeaseLost)
		b.leader.hook(nil)
		b.after(20 * time.Second)
		b.wantNoResult(1, 2, 3)
		if by := opened(b.leader); len(by) < 2 || by[1].Secret == "s" || by[1].Secret == "" {
			b.Errorf("opened with %+v", by)
		}
		b.leader.do(func() { clear(b.leader.claims) }) // their leases end, and with them the other process
		b.after(3 * time.Second)
		b.leader.assign(work(4)...)
		b.wantStarted(1, 2, 3, 4)
	})
}

// What the leader wants to end is stopped, with its reason, whichever answer says so.
func TestStop(t *testing.T) {
	for why, want := range map[string]struct {
		cause   error
		outcome job.Outcome
		text    string
	}{
		job.StopCanceled: {ErrCanceled, job.OutcomeCanceled, "canceled: stopped"},
		job.StopTimeout:  {ErrTimeout, job.OutcomeFailed, "timed out after 1h0m0s: stopped"},
	} {
		for _, quiet := range []bool{false, true} {
			t.Run(fmt.Sprint(why, quiet), func(t *testing.T) {
				change := func(o *Options, b *bench) { o.Slots, b.leader.quiet = 2, quiet }
				inBubble(t, change, func(b *bench) {
					b.leader.assign(work(1, 2)...)
					b.wantStarted(1, 2)
					b.after(time.Second) // it polls for what is to stop
					b.leader.stop(why, 1)
					if quiet { // the next heartbeat says so
						b.after(6 * time.Second)
					}
					b.wantStopped(1, want.cause)
					r := b.wantResult(1, want.outcome, want.text)
					if r.Permanent || r.TimedOut != (why == job.StopTimeout) {
						b.Errorf("%+v", r)
					}
					b.wantStarted(1, 2)
					b.wantBusy(1)
				})
			})
		}
	}
	t.Run("with the run itself", func(t *testing.T) {
		too := func(r *job.PollReply) {
			for _, a := range r.Runs {
				r.Stop = append(r.Stop, job.Stop{Ref: job.Ref{Fence: a.Fence}, Why: job.StopCanceled})
			}
		}
		inBubble(t, func(o *Options, b *bench) { o.Groups = OneGroup(altered{b.leader, nil, too}) }, func(b *bench) {
			b.leader.assign(work(1)...)
			b.wantStarted()
			b.wantResult(1, job.OutcomeCanceled, "canceled before it started")
		})
	})
	// Polls are not sent in a tight loop while it goes on, and a success that comes late is one.
	t.Run("of one that goes on", func(t *testing.T) {
		inBubble(t, func(o *Options, _ *bench) {
			o.Do = func(ctx context.Context, _ job.Assignment) job.Result {
				<-ctx.Done()
				time.Sleep(20 * time.Second)
				return success
			}
		}, func(b *bench) {
			b.leader.assign(work(1)...)
			synctest.Wait()
			b.leader.stop(job.StopCanceled, 1)
			b.after(19 * time.Second)
			if log := b.leader.log(); len(log.polls) > 6 || len(log.beats) > 4 {
				b.Errorf("%d polls and %d heartbeats", len(log.polls), len(log.beats))
			}
			b.wantBusy(1)
			b.after(time.Second)
			b.wantResult(1, job.OutcomeSucceeded, "")
		})
	})
}

// altered is a leader whose polls and answers are other ones on their way.
type altered struct {
	*fakeLeader
	poll  func(*job.Poll)
	reply func(*job.PollReply)
}

func (l altered) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	if l.poll != nil {
		l.poll(&p)
	}
	r, err := l.fakeLeader.Poll(ctx, p)
	if l.reply != nil {
		l.reply(&r)
	}
	return r, err
}

// What is another's by now ends, and nothing of it is reported.
func TestGone(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.begin(1, 2)
		b.leader.do(func() { delete(b.leader.claims, 1) })
		b.after(6 * time.Second)
		b.wantStopped(1, ErrLeaseLost)
		b.wantStopped(2, nil)
		b.after(time.Minute)
		for _, r := range b.leader.log().reports {
			b.Errorf("reported %+v", r)
		}
	})
}

// Every call is tried again, with pauses that grow, and the session stays the same.
func TestTransportErrors(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.begin(1)
		var at []time.Time
		b.leader.hook(func(_ context.Context, call string) error {
			if call == "report" {
				at = append(at, time.Now())
			}
			return errNet
		})
		b.runner.end(success, 1)
		b.after(10 * time.Second)
		b.leader.hook(nil)
		b.after(3 * time.Second)
		b.wantResult(1, job.OutcomeSucceeded, "")
		if len(at) < 8 || len(at) > 20 {
			b.Fatalf("%d tries in 10 s", len(at))
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap < 50*time.Millisecond || gap > 2*time.Second {
				b.Errorf("try %d came %v after the one before", i, gap)
			}
		}
		if gap := last(at).Sub(at[len(at)-2]); gap < time.Second {
			b.Errorf("the last gap is %v", gap)
		}
		if n := len(opened(b.leader)); n != 1 {
			b.Errorf("%d sessions were opened", n)
		}
	})
}

// A result that is not named in the answer is reported until it is, to the next leader too, and holds up no other.
func TestUnnamedResults(t *testing.T) {
	const many = maxReportResults
	inBubble(t, slots(many+2), func(b *bench) {
		all := upTo(1, many+2)
		refuse := true
		b.leader.do(func() { b.leader.ack = func(r job.Result) bool { return r.Fence > many || !refuse } })
		b.begin(all...)
		b.runner.end(success, all[:many]...)
		synctest.Wait()
		b.runner.end(success, all[many:]...)
		b.after(3 * time.Second)
		b.wantResult(many+1, job.OutcomeSucceeded, "")
		b.wantResult(many+2, job.OutcomeSucceeded, "")
		b.wantNoResult(all[:many]...)
		if n := len(b.leader.log().reports); n > 20 {
			b.Fatalf("%d reports in 3 s", n)
		}
		b.leader.depose()
		b.after(3 * time.Second)
		b.wantNoResult(1)
		b.leader.do(func() { refuse = false })
		b.after(3 * time.Second)
		if n := len(b.leader.log().results); n != len(all) {
			b.Errorf("%d results", n)
		}
	})
}

// A batch that is refused because of one result is taken apart, and that one alone is dropped.
func TestInvalidResult(t *testing.T) {
	for _, code := range []job.Code{job.CodeInvalid, job.CodeMalformed, job.CodeTooLarge} {
		inBubble(t, slots(10), func(b *bench) {
			b.leader.hook(func(_ context.Context, call string) error {
				b.leader.mu.Lock()
				defer b.leader.mu.Unlock()
				bad := func(r job.Result) bool { return r.Fence == 5 }
				if call == "report" && slices.ContainsFunc(last(b.leader.reports).Results, bad) {
					return job.Errorf(code, "", "no")
				}
				return nil
			})
			b.begin(upTo(1, 10)...)
			b.runner.end(success, upTo(1, 10)...)
			b.after(10 * time.Second)
			if n := len(b.leader.log().results); n != 9 || b.worker.Standing().Waiting != 0 {
				b.Errorf("%s: %d results are taken, and %d wait", code, n, b.worker.Standing().Waiting)
			}
			b.wantNoResult(5)
		})
	}
}

func TestReportsAreBounded(t *testing.T) {
	const n = 2500
	for _, output := range []string{"", strings.Repeat("x", job.MaxOutputBytes)} {
		inBubble(t, slots(n), func(b *bench) {
			b.leader.assign(work(upTo(1, n)...)...)
			synctest.Wait()
			b.leader.hook(func(context.Context, string) error { time.Sleep(time.Second); return nil })
			b.runner.end(job.Result{Outcome: job.OutcomeSucceeded, Output: output}, upTo(1, n)...)
			b.after(time.Minute)
			log := b.leader.log()
			for i, r := range log.reports {
				size := len(r.Results) * len(output)
				whole := i > 0 && i < len(log.reports)-1
				if len(r.Results) > maxReportResults || size > maxReportBytes ||
					whole && len(r.Results) < maxReportResults && size < maxReportBytes*3/4 {
					b.Errorf("report %d has %d results with %d bytes", i, len(r.Results), size)
				}
			}
			if len(log.results) != n || log.most["report"] != 1 {
				b.Errorf("%d results, %d reports at a time", len(log.results), log.most["report"])
			}
		})
	}
}

// A full worker polls without room, for what is to stop, and gives that poll up when there is room: what comes next
// comes at once.
func TestPollsFollowCapacity(t *testing.T) {
	inBubble(t, slots(2), func(b *bench) {
		before := len(b.leader.log().polls)
		b.leader.assign(work(upTo(1, 5)...)...)
		b.wantStarted(1, 2)
		if n := len(b.leader.log().polls); n != before {
			b.Fatalf("%d polls of a worker that is full", n-before)
		}
		b.after(time.Second)
		if p := last(b.leader.log().polls); p.Free != 0 || p.Wait <= 0 {
			b.Fatalf("poll %+v", p)
		}
		b.leader.stop(job.StopCanceled, 2)
		b.wantResult(2, job.OutcomeCanceled, "canceled: stopped")
		b.wantStarted(1, 2, 3)
		b.after(time.Second)
		b.runner.end(success, 1)
		b.wantStarted(1, 2, 3, 4)
		log := b.leader.log()
		if log.sent != 4 || log.most["poll"] != 1 {
			b.Fatalf("%d assignments, %d polls at a time", log.sent, log.most["poll"])
		}
		b.after(time.Second)
		b.runner.end(success, 3, 4)
		b.wantStarted(upTo(1, 5)...)
		if p := last(b.leader.log().polls); p.Free != 1 {
			b.Fatalf("poll %+v of a worker that has room", p)
		}
		for i, p := range log.polls {
			if p.Free < 0 || p.Free > 2 {
				b.Fatalf("poll %d: %+v", i, p)
			}
		}
	})
}

// A leader that answers empty polls at once is not asked in a tight loop.
func TestEmptyAnswers(t *testing.T) {
	atOnce := func(p *job.Poll) { p.Wait = 0 }
	inBubble(t, func(o *Options, b *bench) { o.Groups = OneGroup(altered{b.leader, atOnce, nil}) }, func(b *bench) {
		b.after(19 * time.Second)
		if got := len(b.leader.log().polls); got < 100 || got > 410 {
			b.Errorf("%d polls in 20 s", got)
		}
	})
}

// A leader that opens sessions and denies them is asked with pauses that grow.
func TestDeniedSessions(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.leader.hook(func(context.Context, string) error {
			b.leader.mu.Lock()
			defer b.leader.mu.Unlock()
			if last(b.leader.polls).Session != "" {
				return job.Errorf(job.CodeSessionUnknown, "", "no")
			}
			return nil
		})
		b.after(10 * time.Second)
		before := len(b.leader.log().polls)
		b.after(20 * time.Second)
		if got := len(b.leader.log().polls) - before; got > 100 {
			b.Errorf("%d polls in 20 s of a worker whose sessions are denied", got)
		}
	})
}

// What goes wrong in what a worker does is a failed attempt, and what it leaves is fit for the log.
func TestBadAttempts(t *testing.T) {
	const ended, returned = "the attempt ended its goroutine", "the runner returned the outcome "
	type todo = func(context.Context, job.Assignment) job.Result
	for name, c := range map[string]struct {
		do      todo
		outcome job.Outcome
		text    string
	}{
		"panic": {func(context.Context, job.Assignment) job.Result { panic("boom") }, job.OutcomeFailed, "panic: boom"},
		"goexit": {func(context.Context, job.Assignment) job.Result { runtime.Goexit(); return success },
			job.OutcomeFailed, ended},
		"nothing":  {returns(job.Result{}), job.OutcomeFailed, returned + "0"},
		"returned": {returns(job.Result{Outcome: job.OutcomeReturned}), job.OutcomeFailed, returned + "4"},
		"timeout": {func(ctx context.Context, _ job.Assignment) job.Result {
			<-ctx.Done()
			return job.Result{Outcome: job.OutcomeFailed, Error: "killed by SIGTERM", Permanent: true}
		}, job.OutcomeFailed, "timed out after 3s: killed by SIGTERM"},
		"long": {returns(job.Result{Outcome: job.OutcomeSucceeded, RetryAfter: -1,
			Output: strings.Repeat("ü", job.MaxOutputBytes) + "\xff"}), job.OutcomeSucceeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(o *Options, _ *bench) { o.Do = c.do }, func(b *bench) {
				a := work(1)
				a[0].Timeout = job.Duration(3 * time.Second)
				b.leader.assign(a...)
				b.after(4 * time.Second)
				res := b.wantResult(1, c.outcome, c.text)
				if res.TimedOut != (name == "timeout") || res.Permanent || len(res.Output) > job.MaxOutputBytes ||
					strings.ToValidUTF8(res.Output, "") != res.Output || res.RetryAfter != 0 {
					b.Errorf("%+v", res)
				}
				b.wantBusy(0)
			})
		})
	}
}

func returns(r job.Result) func(context.Context, job.Assignment) job.Result {
	return func(context.Context, job.Assignment) job.Result { return r }
}

// What an attempt writes is sent while it is watched, from where it is kept, to its end; of others nothing is sent.
func TestOutput(t *testing.T) {
	var text atomic.Value
	text.Store("0123456789")
	inBubble(t, func(o *Options, b *bench) {
		o.Do = func(ctx context.Context, a job.Assignment) job.Result {
			Show(ctx, func(from int64) (int64, []byte) {
				from = max(from, 2)
				return from, []byte(text.Load().(string)[from:])
			})
			return b.runner.run(ctx, a)
		}
	}, func(b *bench) {
		b.begin(1, 2)
		b.after(time.Second)
		if n := len(b.leader.log().outputs); n != 0 {
			b.Fatalf("%d parts that nobody watches", n)
		}
		b.leader.do(func() { b.leader.watch = []job.Ref{{Fence: 1}, {Fence: 77}} })
		b.after(time.Second)
		text.Store("0123456789abc")
		b.after(10 * time.Second)
		text.Store("0123456789abcend")
		b.runner.end(success, 1)
		b.after(time.Second)
		var got strings.Builder
		quiet := 0
		for _, o := range b.leader.log().outputs {
			if o.Fence != 1 || o.Offset != int64(2+got.Len()) || o.Session == "" {
				b.Errorf("%+v", o)
			}
			if got.Write(o.Data); len(o.Data) == 0 {
				quiet++
			}
		}
		if got.String() != "23456789abcend" || quiet < 2 || quiet > 5 {
			b.Errorf("sent %q, and asked %d times who watches", got.String(), quiet)
		}
		b.leader.do(func() { b.leader.watch, b.leader.unwatched = []job.Ref{{Fence: 2}}, true })
		before := len(b.leader.log().outputs)
		b.after(10 * time.Second)
		if n := len(b.leader.log().outputs) - before; n > 1 {
			b.Errorf("%d parts after nobody watches any more", n)
		}
	})
}
