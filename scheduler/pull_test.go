package scheduler

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

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

func (w *world) pull(q job.PullPoll) job.PullReply {
	w.t.Helper()
	r, err := w.s.PullPoll(context.Background(), onQueue(q))
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func onQueue(q job.PullPoll) job.PullPoll {
	if q.Queue.Name == "" {
		q.Queue = inDefault("q")
	}
	return q
}

// pullOne takes exactly one run.
func (w *world) pullOne(q job.PullPoll) (job.PullRun, string) {
	w.t.Helper()
	q.Max = max(1, q.Max)
	q.Wait = max(q.Wait, job.Duration(time.Second))
	r := w.pull(q)
	if len(r.Runs) != 1 {
		w.t.Fatalf("%d runs", len(r.Runs))
	}
	return r.Runs[0], r.Session
}

func refOf(r job.PullRun) job.PullRef { return job.PullRef{RunID: r.RunID, Fence: r.Fence} }

func (w *world) beat(refs ...job.PullRef) []job.PullAnswer {
	w.t.Helper()
	a, err := w.s.PullHeartbeat(context.Background(), job.PullBeat{Queue: inDefault("q"), Runs: refs})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Runs
}

func (w *world) result(failed bool, items ...job.PullResult) []job.PullAnswer {
	w.t.Helper()
	a, err := w.s.PullReport(context.Background(), job.PullReport{Queue: inDefault("q"), Failed: failed, Runs: items})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Runs
}

func (w *world) finish(r job.PullRun) job.PullAnswer {
	w.t.Helper()
	return w.result(false, job.PullResult{PullRef: refOf(r)})[0]
}

func (w *world) fail(r job.PullRun, edit func(*job.PullResult)) job.PullAnswer {
	w.t.Helper()
	item := job.PullResult{PullRef: refOf(r), Error: "no"}
	if edit != nil {
		edit(&item)
	}
	return w.result(true, item)[0]
}

func wantAnswer(t *testing.T, a job.PullAnswer, status, why string) {
	t.Helper()
	if a.Status != status || !strings.Contains(a.Why, why) || why == "" && a.Why != "" {
		t.Errorf("answer %+v, want %s (%s)", a, status, why)
	}
}

func TestPullOneRun(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(func(s *job.Spec) { s.Name, s.Timeout = "mail", job.Duration(time.Minute) })
		w.trigger(id)
		r, _ := w.pullOne(job.PullPoll{Worker: "w"})
		if r.JobID != id || r.JobName != "mail" || r.Queue != "q" || string(r.Data) != `{"n":1}` || r.Attempt != 1 || r.Key == "" ||
			r.Timeout != job.Duration(time.Minute) || r.Delivery != job.DeliverAtLeastOnce || r.Lease != job.Duration(defaultTTL) || r.Traceparent == "" || r.ScheduledAt == 0 {
			t.Errorf("%+v", r)
		}
		wantAnswer(t, w.beat(refOf(r))[0], job.PullOK, "")
		wantAnswer(t, w.finish(r), job.PullOK, "")
		w.wantHistory(id, "succeeded")
		if rec := w.history(id)[0]; rec.Worker != "w" || rec.StartedAt == 0 {
			t.Errorf("%+v", rec)
		}
		// The answer was lost: the same again.
		if a := w.finish(r); a.Status != job.PullOK || !a.Repeated {
			t.Errorf("repeated: %+v", a)
		}
		wantAnswer(t, w.fail(r, nil), job.PullStale, "recorded as succeeded")
		wantAnswer(t, w.beat(refOf(r))[0], job.PullStale, "recorded as succeeded")
		w.wantHistory(id, "succeeded")
	})
}

// A pull worker that does not poll is busy only with what it has in hand.
func TestPullWaitReasons(t *testing.T) {
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
		r, session := w.pullOne(job.PullPoll{Worker: "w"})
		w.trigger(id)
		why("all matching slots are busy")
		w.finish(r)
		why("no worker polls queue q at the moment")
		r, _ = w.pullOne(job.PullPoll{Session: session})
		w.finish(r)
		why("")
	})
}

func TestPullStaleAnswersSayWhy(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(nil)
		w.trigger(id)
		r, session := w.pullOne(job.PullPoll{Worker: "w"})
		other := refOf(r)
		other.Fence += 7
		gone := job.PullRef{RunID: job.RunKey{Job: 99, At: 5, Origin: job.OriginManual}.String(), Fence: 3}
		never := job.PullRef{RunID: job.RunKey{Job: id, At: 5, Origin: job.OriginManual}.String(), Fence: 3}
		a := w.beat(other, gone, never, refOf(r))
		wantAnswer(t, a[0], job.PullStale, "never given out")
		wantAnswer(t, a[1], job.PullStale, "no such job")
		wantAnswer(t, a[2], job.PullStale, "no such run")
		wantAnswer(t, a[3], job.PullOK, "")

		b, err := w.s.PullHeartbeat(t.Context(), job.PullBeat{Queue: inDefault("q"), Worker: "x", Runs: []job.PullRef{refOf(r)}})
		if err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, b.Runs[0], job.PullStale, `the worker "w" holds this run`)
		b, err = w.s.PullHeartbeat(t.Context(), job.PullBeat{Queue: inDefault("p"), Runs: []job.PullRef{refOf(r)}})
		if err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, b.Runs[0], job.PullStale, `the queue "q"`)

		_, err = w.s.PullPoll(t.Context(), job.PullPoll{Queue: inDefault("nope"), Max: 1})
		wantCode(t, err, job.CodeUnknownQueue)
		w.create(job.ScheduleManual, func(s *job.Spec) { s.Type, s.Payload = job.TypeQueue, []byte(`{"queue":"p"}`) })
		_, err = w.s.PullPoll(t.Context(), job.PullPoll{Queue: inDefault("p"), Max: 1, Session: session})
		wantCode(t, err, job.CodeInvalid)
		_, err = w.s.PullPoll(t.Context(), job.PullPoll{Queue: inDefault("q"), Max: 1, Session: session, Worker: "x"})
		wantCode(t, err, job.CodeInvalid)
		_, err = w.s.PullPoll(t.Context(), job.PullPoll{Queue: inDefault("q"), Max: 1, Session: "1.2.3"})
		wantCode(t, err, job.CodeInvalid)
		w.finish(r)
		w.wantHistory(id, "succeeded")
	})
}

// A worker of the other kind cannot be robbed by a caller that guesses a fence, nor can a pull worker's name keep it
// from registering.
func TestPullWorkersAndOthersDoNotMeet(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		pulls := w.queueJob(nil)
		w.trigger(pulls)
		r, _ := w.pullOne(job.PullPoll{Worker: "w1"})
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(time.Minute) }).mustJoin()
		id := w.create("@manual", nil)
		w.trigger(id)
		time.Sleep(time.Second)
		a := f.ran()[0]
		wantAnswer(t, w.finish(job.PullRun{RunID: a.Run.String(), Fence: a.Fence}), job.PullStale, "is not a pull worker")
		wantAnswer(t, w.finish(r), job.PullOK, "")
		time.Sleep(2 * time.Minute)
		w.wantHistory(id, "succeeded")
		_, err := w.s.Register(t.Context(), job.Register{Worker: "w9", Secret: "s", Slots: 1, Types: []job.Type{job.TypeShell}, Incarnation: 1<<incarnationBits | pullBit | 1})
		wantCode(t, err, job.CodeStale)
	})
}

func TestPullLeasesArePerRun(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		var ids []job.ID
		for i := range 3 {
			ids = append(ids, w.queueJob(func(s *job.Spec) {
				if i == 2 {
					zero := 0
					s.Delivery, s.Retry.MaxRetries = job.DeliverAtMostOnce, &zero
				}
			}))
			w.trigger(ids[i])
		}
		r := w.pull(job.PullPoll{Max: 10, Wait: job.Duration(time.Second)})
		if len(r.Runs) != 3 {
			t.Fatalf("%d runs", len(r.Runs))
		}
		by := map[job.ID]job.PullRun{}
		for _, x := range r.Runs {
			by[x.JobID] = x
		}
		for range 6 {
			time.Sleep(10 * time.Second)
			wantAnswer(t, w.beat(refOf(by[ids[0]]))[0], job.PullOK, "")
		}
		// One was named all the time; the others were not, for a TTL.
		w.wantHistory(ids[1], "failed(worker_lost)")
		w.wantHistory(ids[2], "lost(worker_lost)")
		wantAnswer(t, w.finish(by[ids[0]]), job.PullOK, "")
		wantAnswer(t, w.finish(by[ids[1]]), job.PullStale, "worker_lost")
		wantAnswer(t, w.finish(by[ids[2]]), job.PullStale, "worker_lost")
		again, _ := w.pullOne(job.PullPoll{Wait: job.Duration(30 * time.Second)})
		if again.RunID != by[ids[1]].RunID || again.Fence <= by[ids[1]].Fence || again.Key != by[ids[1]].Key || again.Attempt != 2 {
			t.Errorf("again: %+v", again)
		}
		wantAnswer(t, w.finish(by[ids[1]]), job.PullStale, "worker_lost")
		wantAnswer(t, w.finish(again), job.PullOK, "")
		w.wantHistory(ids[1], "failed(worker_lost)", "succeeded")
	})
}

func TestPullAnswerThatWasLostIsDeliveredAgain(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(func(s *job.Spec) { s.Overlap = job.OverlapAllow })
		w.trigger(id)
		first, s1 := w.pullOne(job.PullPoll{Worker: "w"})
		w.trigger(id)
		second, s2 := w.pullOne(job.PullPoll{Session: s1})
		if second.RunID == first.RunID {
			t.Fatal("what was received is delivered again")
		}
		// The worker never saw that: it polls with the receipt of the answer before.
		again, s3 := w.pullOne(job.PullPoll{Session: s1})
		if again.RunID != second.RunID || again.Fence != second.Fence || again.Attempt != second.Attempt || s3 != s2 {
			t.Errorf("%+v after %+v", again, second)
		}
		// Once it is named it was received, whatever receipt the poll carries.
		w.beat(refOf(second))
		if r := w.pull(job.PullPoll{Session: s1, Max: 1}); len(r.Runs) != 0 {
			t.Errorf("delivered again: %+v", r.Runs)
		}
		wantAnswer(t, w.finish(first), job.PullOK, "")
		wantAnswer(t, w.finish(second), job.PullOK, "")
		w.wantHistory(id, "succeeded", "succeeded")
		if n := len(applied[fsm.Expire](w)); n != 0 {
			t.Errorf("%d expires", n)
		}
	})
}

// A client that hangs up is given nothing, and what was being claimed for it goes back without having used up an
// attempt.
func TestPullHangUp(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.log.latency = 50 * time.Millisecond
		zero := 0
		id := w.queueJob(func(s *job.Spec) { s.Delivery, s.Retry.MaxRetries = job.DeliverAtMostOnce, &zero })
		ctx, hangUp := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := w.s.PullPoll(ctx, job.PullPoll{Queue: inDefault("q"), Max: 5, Wait: job.Duration(time.Minute)})
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
		r, _ := w.pullOne(job.PullPoll{})
		if r.Attempt != 1 {
			t.Errorf("attempt %d", r.Attempt)
		}
		wantAnswer(t, w.finish(r), job.PullOK, "")
		w.wantHistory(id, "succeeded")
		time.Sleep(time.Minute)
		if n := len(w.s.Workers()); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

func TestPullOverALeaderChange(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		zero := 0
		id := w.queueJob(func(s *job.Spec) {
			s.Overlap, s.Delivery, s.Retry.MaxRetries = job.OverlapAllow, job.DeliverAtMostOnce, &zero
		})
		w.trigger(id)
		first, s1 := w.pullOne(job.PullPoll{Worker: "w"})
		w.trigger(id)
		second, _ := w.pullOne(job.PullPoll{Session: s1}) // this answer is lost
		w.lead()
		again, _ := w.pullOne(job.PullPoll{Session: s1})
		if again.RunID != second.RunID || again.Fence != second.Fence {
			t.Errorf("%+v after %+v", again, second)
		}
		w.lead()
		// A worker that knows no more than run id and fence goes on; what it does not name keeps a full lease.
		time.Sleep(20 * time.Second)
		wantAnswer(t, w.beat(refOf(first))[0], job.PullOK, "")
		time.Sleep(20 * time.Second)
		wantAnswer(t, w.finish(first), job.PullOK, "")
		w.wantHistory(id, "lost(worker_lost)", "succeeded")
		wantAnswer(t, w.finish(again), job.PullStale, "worker_lost")

		w.trigger(id)
		third, s3 := w.pullOne(job.PullPoll{Worker: "w"})
		w.lead()
		if r := w.pull(job.PullPoll{Session: s3, Max: 1}); len(r.Runs) != 0 {
			t.Errorf("what it holds was delivered again: %+v", r.Runs)
		}
		wantAnswer(t, w.finish(third), job.PullOK, "")
	})
}

func TestPullTimeout(t *testing.T) {
	for _, tt := range []struct {
		name string
		act  func(w *world, r job.PullRun)
		want string
	}{
		{"it stops when told", func(w *world, r job.PullRun) { w.fail(r, nil) }, "failed(timeout)"},
		{"it was just done", func(w *world, r job.PullRun) { w.finish(r) }, "succeeded"},
		{"it does not listen", func(w *world, r job.PullRun) {
			for range 8 {
				time.Sleep(5 * time.Second)
				w.beat(refOf(r))
			}
			wantAnswer(w.t, w.finish(r), job.PullStale, "timeout")
		}, "failed(timeout)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				id := w.queueJob(func(s *job.Spec) { s.Timeout = job.Duration(40 * time.Second) })
				w.trigger(id)
				r, _ := w.pullOne(job.PullPoll{})
				for range 3 {
					time.Sleep(10 * time.Second)
					wantAnswer(t, w.beat(refOf(r))[0], job.PullOK, "")
				}
				if tt.name == "it was just done" { // the next leader reckons it as well
					w.lead()
					w.beat(refOf(r))
				}
				time.Sleep(11 * time.Second)
				a := w.beat(refOf(r))[0]
				wantAnswer(t, a, job.PullCanceling, "timeout of 40s")
				if !a.TimedOut {
					t.Errorf("%+v does not say that it is the timeout", a)
				}
				tt.act(w, r)
				if got := w.summary(id)[0]; got != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestPullCancelAndReplace(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(func(s *job.Spec) { s.Overlap = job.OverlapReplace })
		w.trigger(id)
		r, session := w.pullOne(job.PullPoll{})
		w.trigger(id)
		a := w.pull(job.PullPoll{Session: session, Held: []job.PullRef{refOf(r)}}).Held
		wantAnswer(t, a[0], job.PullCanceling, "canceled")
		wantAnswer(t, w.fail(r, nil), job.PullOK, "")
		next, _ := w.pullOne(job.PullPoll{})
		w.do(&fsm.Cancel{Head: w.head(), Job: uint64(id), All: true})
		canceled := w.beat(refOf(next))[0]
		wantAnswer(t, canceled, job.PullCanceling, "canceled")
		if canceled.TimedOut {
			t.Errorf("%+v: it did not take too long", canceled)
		}
		// It was done by then: a late success is a success.
		wantAnswer(t, w.finish(next), job.PullOK, "")
		w.wantHistory(id, "canceled(replaced)", "succeeded")

		// The worker does not confirm: it closes when the lease ends.
		w.trigger(id)
		w.pullOne(job.PullPoll{})
		w.do(&fsm.Cancel{Head: w.head(), Job: uint64(id), All: true})
		time.Sleep(time.Minute)
		if got := w.summary(id)[2]; got != "canceled(canceled)" {
			t.Errorf("%q", got)
		}
	})
}

func TestPullFailures(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(nil)
		w.trigger(id)
		r, _ := w.pullOne(job.PullPoll{})
		began := time.Now()
		wantAnswer(t, w.fail(r, func(x *job.PullResult) { x.Delay = job.Duration(20 * time.Second) }), job.PullOK, "")
		if a := w.fail(r, nil); a.Status != job.PullOK || !a.Repeated {
			t.Errorf("%+v", a)
		}
		r, _ = w.pullOne(job.PullPoll{Wait: job.Duration(time.Minute)})
		if d := time.Since(began); d < 20*time.Second || r.Attempt != 2 {
			t.Errorf("attempt %d came after %s", r.Attempt, d)
		}
		wantAnswer(t, w.fail(r, func(x *job.PullResult) { x.Unstarted, x.Error = true, "" }), job.PullOK, "")
		r, _ = w.pullOne(job.PullPoll{Wait: job.Duration(time.Minute)})
		wantAnswer(t, w.fail(r, func(x *job.PullResult) { x.Permanent = true }), job.PullOK, "")
		w.wantHistory(id, "failed", "dead(permanent_failure)")
	})
}

func TestPullOnePollAtATime(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(nil)
		session := w.pull(job.PullPoll{Worker: "w", Max: 1}).Session
		w.trigger(id)
		r, session := w.pullOne(job.PullPoll{Session: session})
		old := make(chan error, 1)
		go func() {
			_, err := w.s.PullPoll(context.Background(), job.PullPoll{Queue: inDefault("q"), Max: 1, Session: session, Wait: job.Duration(time.Minute)})
			old <- err
		}()
		time.Sleep(time.Second)
		young := make(chan error, 1)
		go func() {
			_, err := w.s.PullPoll(context.Background(), job.PullPoll{Queue: inDefault("q"), Max: 1, Session: session, Wait: job.Duration(2 * time.Second)})
			young <- err
		}()
		wantCode(t, <-old, job.CodeStale)
		if err := <-young; err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		wantAnswer(t, w.finish(r), job.PullOK, "")
	})
}

// A session string of another cluster, or of none, is as good as none.
func TestPullForeignSession(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(nil)
		w.trigger(id)
		foreign := receipt{incarnation: 99<<incarnationBits | pullBit, fence: 1 << 60, secret: "abcdefghijkl", worker: "w"}
		r, session := w.pullOne(job.PullPoll{Session: foreign.String()})
		if got, err := parseReceipt(session); err != nil || got.worker != "w" || got.fence != r.Fence || got.incarnation == foreign.incarnation {
			t.Errorf("%+v, %v", got, err)
		}
		wantAnswer(t, w.finish(r), job.PullOK, "")
		for _, s := range []string{"x", "1.2.3.4", "...", "g000.1.abcdefghijkl.!", "1.1.abcdefghijkl.dw", "g000.-.abcdefghijkl.dw"} {
			if _, err := parseReceipt(s); err == nil {
				t.Errorf("%q is read", s)
			}
		}
	})
}

// An outcome that is not known is not given as one, and the repetition finds out.
func TestPullOutcomeUnknown(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(nil)
		w.trigger(id)
		r, _ := w.pullOne(job.PullPoll{})
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Complete); ok {
				return errAmbiguous, true
			}
			return nil, true
		})
		_, err := w.s.PullReport(t.Context(), job.PullReport{Queue: inDefault("q"), Runs: []job.PullResult{{PullRef: refOf(r)}}})
		wantCode(t, err, job.CodeOutcomeUnknown)
		w.setFault(nil)
		if a := w.finish(r); a.Status != job.PullOK || !a.Repeated {
			t.Errorf("%+v", a)
		}
		w.wantHistory(id, "succeeded")
	})
}

// Many runs and polls at the same time: every run is delivered to one poll, and no poll gets more than it has room for.
func TestPullShares(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(func(s *job.Spec) { s.Overlap = job.OverlapAllow })
		const runs, polls = 60, 7
		for range runs {
			w.trigger(id)
		}
		got := make(chan []job.PullRun, 100)
		for i := range polls {
			go func() {
				session := ""
				for {
					r, err := w.s.PullPoll(context.Background(), job.PullPoll{Queue: inDefault("q"), Max: 1 + i, Session: session, Wait: job.Duration(2 * time.Second)})
					if err != nil {
						t.Error(err)
					}
					if len(r.Runs) > 1+i {
						t.Errorf("%d runs for %d slots", len(r.Runs), 1+i)
					}
					session = r.Session
					got <- r.Runs
					if len(r.Runs) == 0 {
						return
					}
				}
			}()
		}
		var all []job.PullRef
		for ended := 0; ended < polls; {
			batch := <-got
			if len(batch) == 0 {
				ended++
			}
			for _, r := range batch {
				if slices.Contains(all, refOf(r)) {
					t.Errorf("%s was delivered twice", r.RunID)
				}
				all = append(all, refOf(r))
				wantAnswer(t, w.finish(r), job.PullOK, "")
			}
		}
		if len(all) != runs || len(w.history(id)) != runs {
			t.Errorf("%d runs were delivered, %d records", len(all), len(w.history(id)))
		}
	})
}

// A poll is answered with as much of a job's backlog as it has room for, though of a job's occurrences each is due only
// when the one before is claimed; and it waits for nothing when there is no more.
func TestPullABacklogOfOneJob(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.queueJob(func(s *job.Spec) { s.Schedule, s.Overlap = "* * * * * *", job.OverlapAllow })
		time.Sleep(60*time.Second + 300*time.Millisecond)
		poll := func(most, want int) {
			t.Helper()
			began := time.Now()
			r := w.pull(job.PullPoll{Worker: "w", Max: most, Wait: job.Duration(10 * time.Second)})
			if len(r.Runs) != want {
				t.Errorf("%d runs of at most %d, want %d", len(r.Runs), most, want)
			}
			if took := time.Since(began); took > 300*time.Millisecond {
				t.Errorf("answered after %s", took)
			}
		}
		poll(7, 7)
		poll(50, 50)
		poll(50, 3)
	})
}

// A poll that was given up may reach the next leader after its worker's heartbeats did. Its session is older than the
// answer that the worker has, so it says less than the worker knows: a run that was named since is in hand, and does not
// go back. At most once is at stake.
func TestLateOlderPollAfterAnElection(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.queueJob(func(s *job.Spec) { s.Delivery = job.DeliverAtMostOnce })
		older := w.pull(job.PullPoll{Worker: "w"}).Session
		w.trigger(id)
		r, _ := w.pullOne(job.PullPoll{Session: older})
		def := w.definition(id)
		def.Version++
		def.Spec.Priority = "high"
		w.update(id, def)
		w.lead()
		wantAnswer(t, w.beat(refOf(r))[0], job.PullOK, "")
		w.pull(job.PullPoll{Session: older})
		if other := w.pull(job.PullPoll{Worker: "other", Max: 1, Wait: job.Duration(time.Second)}); len(other.Runs) != 0 {
			t.Errorf("a second worker has the run: %+v", other.Runs)
		}
		wantAnswer(t, w.beat(refOf(r))[0], job.PullOK, "")
		wantAnswer(t, w.finish(r), job.PullOK, "")
		w.wantHistory(id, "succeeded")
	})
}
