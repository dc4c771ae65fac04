package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

func atMostOnce(s *job.Spec) { s.Overlap, s.Delivery = job.OverlapAllow, job.DeliverAtMostOnce }

// queueJob makes a manual job of the queue q.
func (w *world) queueJob(edit func(*job.Spec)) job.ID {
	w.t.Helper()
	return w.create(job.ScheduleManual, func(s *job.Spec) {
		s.Type, s.Payload = job.TypeQueue, []byte(`{"queue":"q","data":{"n":1}}`)
		if edit != nil {
			edit(s)
		}
	})
}

// onQueue makes a poll one of a queue, as the API does; q is the usual one.
func onQueue(p job.Poll) job.Poll {
	if p.Queue.Name == "" {
		p.Queue = inDefault("q")
	}
	p.Namespace, p.Types, p.Tags = p.Queue.Namespace, []job.Type{job.TypeQueue}, map[string]string{queueTag: p.Queue.Name}
	return p
}

// pull is a poll of a queue without a secret, as a script sends it. It offers nothing beyond its answer.
func (w *world) pull(p job.Poll) job.PollReply {
	w.t.Helper()
	r, err := w.s.Poll(context.Background(), onQueue(p))
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// pullOne takes exactly one run.
func (w *world) pullOne(p job.Poll) (job.Assignment, string) {
	w.t.Helper()
	p.Free, p.Wait = max(1, p.Free), max(p.Wait, job.Duration(time.Second))
	old, _ := job.ParseSession(p.Session)
	r := w.pull(p)
	if old.Term != 0 && old.Term < w.s.o.Term { // only a session of this leader can come of that
		if len(r.Runs) > 0 {
			w.t.Fatalf("a session of an earlier leader is answered with %d runs", len(r.Runs))
		}
		p.Session = r.Session
		r = w.pull(p)
	}
	if len(r.Runs) != 1 {
		w.t.Fatalf("%d runs", len(r.Runs))
	}
	return r.Runs[0], r.Session
}

// refOf names a claim as the API does when it has read the text of one.
func refOf(r job.Assignment) job.Ref { return job.Ref{Claim: "c", Fence: r.Fence, Run: r.Run} }

// beat names claims, without a session.
func (w *world) beat(refs ...job.Ref) []job.Answer {
	w.t.Helper()
	var h job.Heartbeat
	h.Runs = append(h.Runs, refs...)
	a, err := w.s.Heartbeat(context.Background(), h)
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Runs
}

func (w *world) result(r job.Result) job.Answer {
	w.t.Helper()
	a, err := w.s.Report(context.Background(), job.Report{Results: []job.Result{r}})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Results[0]
}

func (w *world) finish(r job.Assignment) job.Answer {
	w.t.Helper()
	return w.result(job.Result{Ref: refOf(r), Outcome: job.OutcomeSucceeded})
}

func (w *world) fail(r job.Assignment, edit func(*job.Result)) job.Answer {
	w.t.Helper()
	item := job.Result{Ref: refOf(r), Outcome: job.OutcomeFailed, Error: "no"}
	if edit != nil {
		edit(&item)
	}
	return w.result(item)
}

func wantAnswer(t *testing.T, a job.Answer, status, why string) {
	t.Helper()
	if a.Status != status || !strings.Contains(a.Why, why) || why == "" && a.Why != "" {
		t.Errorf("answer %+v, want %s (%s)", a, status, why)
	}
}

func wantOK(t *testing.T, a job.Answer) {
	t.Helper()
	wantAnswer(t, a, job.StatusOK, "")
}

func TestOneRun(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(func(s *job.Spec) { s.Name, s.Timeout = "mail", job.Duration(time.Minute) })
		w.trigger(id)
		reply := w.pull(job.Poll{Worker: "w", Free: 1, Wait: job.Duration(time.Second)})
		r := reply.Runs[0]
		if p := r.QueueOf(); r.Run.Job != id || r.Run.At == 0 || r.JobName != "mail" || p.Queue != "q" ||
			string(p.Data) != `{"n":1}` || r.Attempt != 1 || r.Key == "" || r.Timeout != job.Duration(time.Minute) ||
			r.Delivery != job.DeliverAtLeastOnce || r.Traceparent == "" || reply.Lease != job.Duration(defaultTTL) {
			t.Errorf("%+v", reply)
		}
		wantOK(t, w.beat(refOf(r))[0])
		wantOK(t, w.finish(r))
		w.wantHistory(id, "succeeded")
		if rec := w.history(id)[0]; rec.Worker != "w" || rec.StartedAt == 0 {
			t.Errorf("%+v", rec)
		}
		// The answer was lost: the same again.
		if a := w.finish(r); a.Status != job.StatusOK || !a.Repeated {
			t.Errorf("repeated: %+v", a)
		}
		wantAnswer(t, w.fail(r, nil), job.StatusGone, "recorded as succeeded")
		wantAnswer(t, w.beat(refOf(r))[0], job.StatusGone, whyUnknown)
		w.wantHistory(id, "succeeded")
	})
}

// A worker that does not poll is busy only with what it has in hand.
func TestWaitReasonsOfAQueue(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		id := w.queueJob(func(s *job.Spec) { s.Overlap = job.OverlapAllow })
		why := func(want string) {
			t.Helper()
			if got := s.WaitReason(id); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		w.trigger(id)
		why("no worker takes queue q")
		r, session := w.pullOne(job.Poll{Worker: "w"})
		w.trigger(id)
		why("all matching slots are busy")
		w.finish(r)
		why("no worker polls queue q at the moment")
		r, _ = w.pullOne(job.Poll{Session: session})
		w.finish(r)
		why("")
	})
}

func TestAnswersSayWhy(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(nil)
		w.trigger(id)
		r, _ := w.pullOne(job.Poll{Worker: "w"})
		other, gone, none := refOf(r), refOf(r), refOf(r)
		other.Fence += 7
		gone.Run = job.RunKey{Job: 99, At: 5, Origin: job.OriginManual}
		none.Claim = ""
		a := w.beat(other, gone, none, refOf(r))
		wantAnswer(t, a[0], job.StatusGone, whyUnknown)
		wantAnswer(t, a[1], job.StatusGone, whyUnknown)
		wantAnswer(t, a[2], job.StatusInvalid, "send the claim")
		wantOK(t, a[3])

		// By its fence only its own session can name it: nobody else can rob its worker by a guess.
		h := w.hand("x", 1)
		wantAnswer(t, h.names(r.Fence)[0], job.StatusGone, "another worker holds this run")
		if b, err := h.report(&r, job.OutcomeSucceeded); err != nil {
			t.Error(err)
		} else {
			wantAnswer(t, b, job.StatusGone, "another worker holds this run")
		}
		wantAnswer(t, w.fail(r, func(x *job.Result) { x.Outcome = 0 }), job.StatusInvalid, "the outcome is")
		w.finish(r)
		w.wantHistory(id, "succeeded")
		_, err := w.s.Poll(t.Context(), onQueue(job.Poll{Queue: inDefault("nope"), Free: 1}))
		wantCode(t, err, job.CodeUnknownQueue)
	})
}

func TestLeasesArePerRun(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		ids := []job.ID{w.queueJob(nil), w.queueJob(nil), w.queueJob(atMostOnce)}
		for _, id := range ids {
			w.trigger(id)
		}
		r := w.pull(job.Poll{Free: 10, Wait: job.Duration(time.Second)})
		if len(r.Runs) != 3 {
			t.Fatalf("%d runs", len(r.Runs))
		}
		by := map[job.ID]job.Assignment{}
		for _, x := range r.Runs {
			by[x.Run.Job] = x
		}
		for range 6 {
			time.Sleep(10 * time.Second)
			wantOK(t, w.beat(refOf(by[ids[0]]))[0])
		}
		// One was named all the time; the others were not, for a lease.
		w.wantHistory(ids[1], "failed(worker_lost)")
		w.wantHistory(ids[2], "lost(worker_lost)")
		wantOK(t, w.finish(by[ids[0]]))
		wantAnswer(t, w.finish(by[ids[2]]), job.StatusGone, "worker_lost")
		again, _ := w.pullOne(job.Poll{Free: 9, Wait: job.Duration(10 * time.Second)}) // that one only
		was := by[ids[1]]
		if again.Run != was.Run || again.Fence <= was.Fence || again.Key != was.Key || again.Attempt != 2 {
			t.Errorf("again: %+v", again)
		}
		wantAnswer(t, w.finish(was), job.StatusGone, "worker_lost")
		wantOK(t, w.finish(again))
		w.wantHistory(ids[1], "failed(worker_lost)", "succeeded")
	})
}

// The same session gets the same runs again, under the same fences, until it has them, and its slots are offered once.
func TestSameSessionSameRuns(t *testing.T) {
	for _, hold := range []time.Duration{0, maxHold} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			h := w.hand("w1", 4)
			for range 4 {
				w.trigger(w.create("@manual", atMostOnce))
			}
			ask := job.Poll{Session: h.is.Session, Free: 2, Wait: job.Duration(time.Second), Hold: job.Duration(hold)}
			asks := func(want ...uint64) {
				t.Helper()
				var got []uint64
				for _, a := range h.poll(ask).Runs {
					got = append(got, a.Fence)
				}
				if !slices.Equal(got, want) {
					t.Errorf("fences %v, want %v", got, want)
				}
			}
			time.Sleep(time.Second)
			for h.poll(ask); w.st.Counters().Fence < 2; h.poll(ask) { // both are in an answer
			}
			for range 10 { // none of which came, for longer than a lease
				asks(1, 2)
				time.Sleep(5 * time.Second)
			}
			if n := w.st.Counters().Fence; n != 2 {
				t.Errorf("%d claims for two slots", n)
			}
			// What was named was received, whatever session a poll has.
			wantOK(t, h.names(1)[0])
			ask.Free = 1
			asks(2)
			if n := len(applied[fsm.Expire](w)) + len(applied[fsm.Complete](w)); n != 0 {
				t.Errorf("%d runs were taken back", n)
			}
		})
	}
}

// The fences of a session only grow, and what an earlier leader claimed for it comes first: by the highest fence of an
// answer its worker says what it has.
func TestFencesOnlyGrow(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 16)
		claim := func() {
			for range 4 {
				w.trigger(w.create("@manual", atMostOnce))
			}
			time.Sleep(time.Second)
		}
		h.offer(4)
		claim()
		w.lead() // before it was told of any
		claim()
		if err := h.enter(); err != nil {
			t.Fatal(err)
		}
		inherited := len(h.got)
		h.wants(8 - inherited)
		claim()
		h.wants(4)
		top := uint64(0)
		for _, a := range h.got {
			if a.Fence <= top {
				t.Errorf("fence %d after %d", a.Fence, top)
			}
			top = a.Fence
		}
		if inherited != 4 || top != 12 {
			t.Errorf("%d runs were inherited, and %d are out", inherited, top)
		}
	})
}

// An answer is bounded; what does not fit into it is in the next one.
func TestALongAnswerComesInParts(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 64)
		h.offer(64)
		const runs = 40
		for range runs {
			w.trigger(w.create("@manual", func(s *job.Spec) {
				s.Payload = fmt.Appendf(nil, `{"command":"true","env":{"A":%q}}`, strings.Repeat("a", 50<<10))
			}))
		}
		time.Sleep(time.Second)
		for answers := 1; len(h.got) < runs && answers < 5; answers++ {
			size := 0
			for _, a := range h.offer(64 - len(h.got)).Runs {
				size += len(a.Payload)
			}
			if size == 0 || size > maxPollBytes {
				t.Errorf("answer %d has %d bytes", answers, size)
			}
		}
		for i, a := range h.got {
			if a.Fence != uint64(i+1) {
				t.Errorf("run %d has the fence %d", i, a.Fence)
			}
		}
		if len(h.got) != runs {
			t.Errorf("%d runs", len(h.got))
		}
	})
}

// A worker whose token allows it so many runs has no more of them in hand, whatever it offers.
func TestATokenBoundsTheRunsOfAWorker(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 8, func(p *job.Poll) { p.Most = 2 })
		w.triggers(5)
		for range 3 {
			h.offer(8)
			time.Sleep(time.Second)
		}
		if len(h.got) != 2 {
			t.Errorf("%d runs", len(h.got))
		}
		h.succeeds(&h.got[0])
		h.wants(1)
	})
}

// A client that hangs up is given nothing, and what was being claimed for it goes back without having used up an
// attempt.
func TestHangUp(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.log.latency = 50 * time.Millisecond
		id := w.queueJob(atMostOnce)
		ctx, hangUp := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := w.s.Poll(ctx, onQueue(job.Poll{Free: 5, Wait: job.Duration(10 * time.Second)}))
			done <- err
		}()
		time.Sleep(time.Second)
		w.trigger(id)
		time.Sleep(10 * time.Millisecond) // the claim is in the log, not yet committed
		hangUp()
		if err := <-done; err == nil {
			t.Error("answered")
		}
		time.Sleep(time.Second)
		if n := len(applied[fsm.Claim](w)); n != 1 {
			t.Fatalf("%d claims: the test is about one that is under way", n)
		}
		w.wantHistory(id)
		r, _ := w.pullOne(job.Poll{})
		if r.Attempt != 1 {
			t.Errorf("attempt %d", r.Attempt)
		}
		wantOK(t, w.finish(r))
		w.wantHistory(id, "succeeded")
		time.Sleep(time.Minute)
		if n := len(w.s.Workers()); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

func TestClaimsOverALeaderChange(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(atMostOnce)
		w.trigger(id)
		first, s1 := w.pullOne(job.Poll{Worker: "w"})
		w.trigger(id)
		second, _ := w.pullOne(job.Poll{Session: s1}) // this answer is lost
		w.lead()
		again, _ := w.pullOne(job.Poll{Session: s1})
		if again.Run != second.Run || again.Fence != second.Fence {
			t.Errorf("%+v after %+v", again, second)
		}
		w.lead()
		// A worker that knows no more than its claim goes on; what it does not name keeps a full lease.
		time.Sleep(20 * time.Second)
		wantOK(t, w.beat(refOf(first))[0])
		time.Sleep(20 * time.Second)
		wantOK(t, w.finish(first))
		w.wantHistory(id, "lost(worker_lost)", "succeeded")
		wantAnswer(t, w.finish(again), job.StatusGone, "worker_lost")

		w.trigger(id)
		third, s3 := w.pullOne(job.Poll{Worker: "w"})
		w.lead()
		for range 2 {
			r := w.pull(job.Poll{Session: s3, Free: 1})
			if s3 = r.Session; len(r.Runs) != 0 {
				t.Errorf("what it holds was delivered again: %+v", r.Runs)
			}
		}
		wantOK(t, w.finish(third))
	})
}

func TestTimeout(t *testing.T) {
	for _, tt := range []struct {
		name string
		act  func(w *world, r job.Assignment)
		want string
	}{
		{"it stops when told", func(w *world, r job.Assignment) { w.fail(r, nil) }, "failed(timeout)"},
		{"it was just done", func(w *world, r job.Assignment) { w.finish(r) }, "succeeded"},
		{"it does not listen", func(w *world, r job.Assignment) {
			for range 8 {
				time.Sleep(5 * time.Second)
				w.beat(refOf(r))
			}
			wantAnswer(w.t, w.finish(r), job.StatusGone, "timeout")
		}, "failed(timeout)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				id := w.queueJob(func(s *job.Spec) { s.Timeout = job.Duration(40 * time.Second) })
				w.trigger(id)
				r, _ := w.pullOne(job.Poll{})
				for range 3 {
					time.Sleep(10 * time.Second)
					wantOK(t, w.beat(refOf(r))[0])
				}
				if tt.name == "it was just done" { // under the next leader it counts anew
					w.lead()
					for range 3 {
						time.Sleep(10 * time.Second)
						wantOK(t, w.beat(refOf(r))[0])
					}
				}
				time.Sleep(11 * time.Second)
				wantAnswer(t, w.beat(refOf(r))[0], job.StatusStop, job.StopTimeout)
				tt.act(w, r)
				if got := w.summary(id)[0]; got != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestCancelAndReplace(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(func(s *job.Spec) { s.Overlap = job.OverlapReplace })
		w.trigger(id)
		r, session := w.pullOne(job.Poll{})
		w.trigger(id)
		said := w.pull(job.Poll{Session: session})
		if len(said.Stop) != 1 || said.Stop[0].Fence != r.Fence || said.Stop[0].Why != job.StopCanceled {
			t.Errorf("%+v", said.Stop)
		}
		if again := w.pull(job.Poll{Session: said.Session}).Stop; len(again) != 0 { // a poll would never wait again
			t.Errorf("said twice: %+v", again)
		}
		wantAnswer(t, w.beat(refOf(r))[0], job.StatusStop, job.StopCanceled)
		wantOK(t, w.fail(r, nil))
		next, _ := w.pullOne(job.Poll{})
		w.do(&fsm.Cancel{Head: w.head(), Job: uint64(id), All: true})
		wantAnswer(t, w.beat(refOf(next))[0], job.StatusStop, job.StopCanceled)
		// It was done by then: a late success is a success.
		wantOK(t, w.finish(next))
		w.wantHistory(id, "canceled(replaced)", "succeeded")

		// The worker does not confirm: it closes when the lease ends.
		w.trigger(id)
		w.pullOne(job.Poll{})
		w.do(&fsm.Cancel{Head: w.head(), Job: uint64(id), All: true})
		time.Sleep(time.Minute)
		if got := w.summary(id)[2]; got != "canceled(canceled)" {
			t.Errorf("%q", got)
		}
	})
}

func TestFailures(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(nil)
		w.trigger(id)
		r, _ := w.pullOne(job.Poll{})
		began := time.Now()
		wantOK(t, w.fail(r, func(x *job.Result) { x.RetryAfter = job.Duration(8 * time.Second) }))
		if a := w.fail(r, nil); a.Status != job.StatusOK || !a.Repeated {
			t.Errorf("%+v", a)
		}
		r, _ = w.pullOne(job.Poll{Wait: job.Duration(10 * time.Second)})
		if d := time.Since(began); d < 8*time.Second || r.Attempt != 2 {
			t.Errorf("attempt %d came after %s", r.Attempt, d)
		}
		wantOK(t, w.fail(r, func(x *job.Result) { x.Outcome, x.Error = job.OutcomeReturned, "" }))
		r, _ = w.pullOne(job.Poll{Wait: job.Duration(10 * time.Second)})
		wantOK(t, w.fail(r, func(x *job.Result) { x.Permanent = true }))
		w.wantHistory(id, "failed", "dead(permanent_failure)")
	})
}

// A later poll ends the one that waits, which its worker gave up: that one gets a session and nothing else.
func TestOnePollAtATime(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 1)
		poll := func(free int) chan job.PollReply {
			out := make(chan job.PollReply, 1)
			go func() {
				r, err := h.ask(job.Poll{Free: free, Wait: job.Duration(10 * time.Second), Hold: job.Duration(maxHold)})
				if err != nil {
					t.Error(err)
				}
				out <- r
			}()
			time.Sleep(time.Second)
			return out
		}
		old := poll(1)
		young := poll(1)
		if r := <-old; r.Session == "" || len(r.Runs) != 0 {
			t.Errorf("%+v", r)
		}
		w.trigger(w.create("@manual", nil))
		// Its lease counts from the answer, and its worker hears how long that is after the poll came.
		if r := <-young; len(r.Runs) != 1 || r.Waited < job.Duration(time.Second) || r.Waited > job.Duration(2*time.Second) {
			t.Errorf("%+v", r)
		}
	})
}

// A session is with the leaders of one group, of this cluster's history, and of one worker.
func TestForeignSessions(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		h := w.hand("w1", 1)
		with := func(edit func(*job.Session)) job.Poll {
			x, err := job.ParseSession(h.is.Session)
			if err != nil {
				t.Fatal(err)
			}
			edit(&x)
			return job.Poll{Session: x.String(), Free: 1}
		}
		for _, tt := range []struct {
			p    job.Poll
			want job.Code
		}{
			{with(func(x *job.Session) { x.Group = 1 }), job.CodeSessionUnknown},
			{with(func(x *job.Session) { x.Owner += ownerFlags + 1 }), job.CodeSessionUnknown},
			{with(func(x *job.Session) { x.Fence = 1 << 60 }), job.CodeSessionUnknown}, // it would hold up every delivery
			{with(func(x *job.Session) { x.Term++ }), job.CodeNoLeader},
			{job.Poll{Session: h.is.Session, Worker: "w2"}, job.CodeInvalid},
			{job.Poll{Session: "s1.!"}, job.CodeInvalid},
			{job.Poll{Session: "1.2.3"}, job.CodeInvalid},
		} {
			_, err := s.Poll(t.Context(), tt.p)
			wantCode(t, err, tt.want)
			if tt.want == job.CodeNoLeader || strings.Contains(err.Error(), "another group") {
				_, err = s.Heartbeat(t.Context(), job.Heartbeat{Session: tt.p.Session})
				wantCode(t, err, tt.want)
				_, err = s.Report(t.Context(), job.Report{Session: tt.p.Session})
				wantCode(t, err, tt.want)
			}
		}
		h.one(nil) // none of that was the session's
	})
}

// An outcome that is not known is not given as one, and the repetition finds out.
func TestOutcomeUnknown(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(nil)
		w.trigger(id)
		r, _ := w.pullOne(job.Poll{})
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Complete); ok {
				return errAmbiguous, true
			}
			return nil, true
		})
		_, err := w.s.Report(t.Context(), job.Report{
			Results: []job.Result{{Ref: refOf(r), Outcome: job.OutcomeSucceeded}}})
		wantCode(t, err, job.CodeOutcomeUnknown)
		w.setFault(nil)
		if a := w.finish(r); a.Status != job.StatusOK || !a.Repeated {
			t.Errorf("%+v", a)
		}
		w.wantHistory(id, "succeeded")
	})
}

// Many runs and polls at the same time: every run is delivered to one poll, and no poll gets more than it has room for.
func TestPollsShare(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(func(s *job.Spec) { s.Overlap = job.OverlapAllow })
		const runs, polls = 60, 7
		for range runs {
			w.trigger(id)
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		all := map[uint64]bool{}
		for i := range polls {
			wg.Go(func() {
				p := onQueue(job.Poll{Free: 1 + i, Wait: job.Duration(2 * time.Second)})
				for {
					r, err := w.s.Poll(context.Background(), p)
					if err != nil || len(r.Runs) > 1+i {
						t.Errorf("%d runs for %d slots: %v", len(r.Runs), 1+i, err)
					}
					p.Session = r.Session
					for _, a := range r.Runs {
						mu.Lock()
						if all[a.Fence] {
							t.Errorf("%s was delivered twice", a.Run)
						}
						all[a.Fence] = true
						mu.Unlock()
						wantOK(t, w.finish(a))
					}
					if len(r.Runs) == 0 {
						return
					}
				}
			})
		}
		wg.Wait()
		if len(all) != runs || len(w.history(id)) != runs {
			t.Errorf("%d runs were delivered, %d records", len(all), len(w.history(id)))
		}
	})
}

// A poll is answered with as much of a job's backlog as it has room for, though of a job's occurrences each is due only
// when the one before is claimed; and it waits for nothing when there is no more.
func TestABacklogOfOneJob(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.queueJob(func(s *job.Spec) { s.Schedule, s.Overlap = "* * * * * *", job.OverlapAllow })
		time.Sleep(60*time.Second + 300*time.Millisecond)
		for _, tt := range []struct{ most, want int }{{7, 7}, {50, 50}, {50, 3}} {
			began := time.Now()
			r := w.pull(job.Poll{Worker: "w", Free: tt.most, Wait: job.Duration(10 * time.Second)})
			if n, took := len(r.Runs), time.Since(began); n != tt.want || took > 300*time.Millisecond {
				t.Errorf("%d runs of at most %d after %s, want %d", n, tt.most, took, tt.want)
			}
		}
	})
}

// A poll that was given up may reach the next leader late: after its worker's heartbeats, or before. Its session is
// older than the answer that the worker has, so it says less than the worker knows: what was handed out since is in
// hand, and does not go back. At most once is at stake.
func TestLateOlderPollAfterAnElection(t *testing.T) {
	for _, beats := range []bool{true, false} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			id := w.queueJob(atMostOnce)
			older := w.pull(job.Poll{Worker: "w"}).Session
			w.trigger(id)
			r, _ := w.pullOne(job.Poll{Session: older})
			w.edit(id, func(s *job.Spec) { s.Priority = "high" })
			w.lead()
			if beats {
				wantOK(t, w.beat(refOf(r))[0])
			}
			w.pull(job.Poll{Session: older})
			other := w.pull(job.Poll{Worker: "other", Free: 1, Wait: job.Duration(time.Second)})
			if len(other.Runs) != 0 {
				t.Errorf("a second worker has the run: %+v", other.Runs)
			}
			wantOK(t, w.beat(refOf(r))[0])
			wantOK(t, w.finish(r))
			w.wantHistory(id, "succeeded")
		})
	}
}

// A poll arrives once more when its answer was taken already, and the run in that answer was canceled since: it is not
// known that its worker does not have it.
func TestALatePollClosesNothing(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 4)
		late := h.is.Session
		id, a := h.one(nil)
		w.do(&fsm.Cancel{Head: w.head(), Job: uint64(id), All: true})
		if _, err := h.ask(job.Poll{Session: late, Free: 4}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.wantHistory(id) // it runs
		wantAnswer(t, h.names(a.Fence)[0], job.StatusStop, job.StopCanceled)
	})
}

// The poll that opens a session decides nothing: it may arrive twice, or long after its process ended.
func TestLateOpeningReleasesNothing(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 2)
		id, a := h.one(atMostOnce)
		for range 3 {
			late := h.is
			late.Session = ""
			r, err := w.s.Poll(t.Context(), late)
			if x, _ := job.ParseSession(r.Session); err != nil || len(r.Runs) != 0 || x.Incarnation == h.incarnation() {
				t.Fatalf("%+v %v", r, err)
			}
			time.Sleep(time.Second)
		}
		wantOK(t, h.names(a.Fence)[0])
		h.succeeds(&a)
		w.wantHistory(id, "succeeded")
	})
}
