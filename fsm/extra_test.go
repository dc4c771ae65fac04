package fsm

import (
	"math"
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

func TestManualRunsInOneMillisecond(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100), overlap(job.OverlapAllow))
	trigger := func() *Trigger { return &Trigger{Job: uint64(id)} }
	var times []int64
	for _, r := range w.do(trigger(), trigger(), trigger()) {
		times = append(times, r.Items[0].Run.At)
	}
	if !slices.Equal(times, []int64{T(0), T(0) + 1, T(0) + 2}) {
		t.Fatalf("%v", times)
	}
	// Also when the first ones are long finished, and when the clock was put back.
	w.want(CodeOK, &Cancel{Job: uint64(id), All: true})
	if o := w.want(CodeOK, trigger()); o.Run.At != T(0)+3 || o.Run.Origin != job.OriginManual {
		t.Fatalf("%+v", o)
	}
	w.now = T(0) - 5000
	if o := w.want(CodeOK, trigger()); o.Run.At != T(0)+4 {
		t.Fatalf("%+v", o)
	}
}

func TestTriggerMakesItsKeyFromTheTemplate(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100), nil)
	o := w.want(CodeOK, &Trigger{Job: uint64(id), Key: "{job_name}-{scheduled_at_unix}", Name: "x"})
	want := job.IdempotencyKey("{job_name}-{scheduled_at_unix}", "x", o.Run)
	if claimed := w.claimRun(o.Run); claimed.Key != want || want == "" {
		t.Fatalf("%q, want %q", claimed.Key, want)
	}
}

// Runs by hand of a paused job run, in their order: one that has to wait for its turn gets it, and is not overtaken.
func TestManualRunsOfAPausedJobRunInTheirOrder(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100), overlap(job.OverlapQueue))
	w.want(CodeOK, &Pause{Job: uint64(id)})
	a, b := w.want(CodeOK, &Trigger{Job: uint64(id)}), w.want(CodeQueued, &Trigger{Job: uint64(id)})
	w.complete(w.claimRun(a.Run), ResultSucceeded, 0)
	c := w.want(CodeQueued, &Trigger{Job: uint64(id)})
	w.complete(w.claimRun(b.Run), ResultSucceeded, 0)
	w.complete(w.claimRun(c.Run), ResultSucceeded, 0)
	w.want(CodeOK, w.resumeOf(id, T(100), Gap{}))
}

// A run by hand that waited behind an occurrence which was due starts when a pause takes that away: nothing else would
// start it before the resume.
func TestPauseLetsRunsByHandGo(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapQueue))
	w.now = T(11)
	a := w.want(CodeQueued, &Trigger{Job: uint64(id)})
	w.want(CodeOK, &Pause{Job: uint64(id)})
	b := w.want(CodeQueued, &Trigger{Job: uint64(id)})
	w.complete(w.claimRun(a.Run), ResultSucceeded, 0)
	w.complete(w.claimRun(b.Run), ResultSucceeded, 0)
}

// An occurrence that waits for its turn is held by the pause, and runs by hand pass it.
func TestPauseHoldsWaitingOccurrences(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapQueue))
	first := w.claim(id, T(70))
	second := w.claim(id, T(130))
	byHand := w.want(CodeQueued, &Trigger{Job: uint64(id)})
	w.want(CodeOK, &Pause{Job: uint64(id)})
	w.complete(first, ResultSucceeded, 0)
	if row, _ := w.row(second.Run); row.Status != job.RunWaiting {
		t.Fatalf("a paused job's occurrence was released: %+v", row)
	}
	w.complete(w.claimRun(byHand.Run), ResultSucceeded, 0)
	w.want(CodeOK, w.resumeOf(id, T(130), Gap{}))
	w.complete(w.claimRun(second.Run), ResultSucceeded, 0)
}

func TestBackfillIsSerialisedAndNotSubjectToSkip(t *testing.T) {
	for _, policy := range []string{job.OverlapSkip, job.OverlapQueue, job.OverlapAllow, job.OverlapReplace} {
		w := newWorld(t)
		id := w.create(T(1000), overlap(policy))
		w.now = T(900)
		o := w.want(CodeOK, &Backfill{Job: uint64(id), At: []int64{T(60), T(120), T(180)}})
		if o.Count != 3 || len(o.Skipped) != 0 {
			t.Fatalf("%s: %+v", policy, o)
		}
		for i, at := range []int64{T(60), T(120), T(180)} {
			if s, _ := w.state(id); s.Active != 1 || s.Waiting != uint32(2-i) {
				t.Fatalf("%s: %+v", policy, s)
			}
			w.complete(w.claimRun(job.RunKey{Job: id, At: at, Origin: job.OriginBackfill}), ResultSucceeded, 0)
		}
	}
}

// What is open, ran or is about to run is left out, with a record; an interval of those has nothing in it that runs.
func TestBackfillLeavesOutWhatRan(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(60), overlap(job.OverlapAllow))
	w.complete(w.claim(id, T(120)), ResultSucceeded, 0)
	open := w.claim(id, T(180))
	w.want(CodeOK, w.advanceOf(id, T(300), gap(T(180), T(240), 2, job.RunMissed, job.ReasonOutage)))
	w.now = T(310)
	o := w.want(CodeOK, &Backfill{Job: uint64(id), At: []int64{T(60), T(120), T(180), T(240), T(300)}})
	if !slices.Equal(o.Times, []int64{T(180), T(240)}) || !slices.Equal(o.Skipped, []int64{T(60), T(120), T(300)}) {
		t.Fatalf("%+v", o)
	}
	h := w.history(id)
	if len(h) != 3 || h[1].Interval != (store.Interval{First: T(60), Last: T(120), Count: 2, Status: job.RunSkipped, Reason: job.ReasonAlreadyRan}) ||
		h[2].Interval.First != T(300) || h[2].Interval.Count != 1 {
		t.Fatalf("%+v", h)
	}
	if s, _ := w.state(id); s.LastNominal != T(240) || s.NotRun.Count != 2 {
		t.Fatalf("it touched the account of the schedule: %+v", s)
	}
	// Twice in one request, or open as a backfill: once.
	if o := w.want(CodeOK, &Backfill{Job: uint64(id), At: []int64{T(180), T(30), T(30)}}); !slices.Equal(o.Times, []int64{T(30)}) {
		t.Fatalf("%+v", o)
	}
	w.complete(open, ResultSucceeded, 0)
}

// What the proposer left out is in the record and in the answer, also in that to a repeat: the client knows no other one.
func TestBackfillAnswersWithWhatTheProposerLeftOut(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(600), overlap(job.OverlapAllow))
	w.now = T(310)
	b := &Backfill{Job: uint64(id), Request: Request{ID: "again", Expires: T(9999)}, At: []int64{T(60), T(240)}, Keys: []string{"k1", "k2"}, Left: []int64{T(30), T(120), T(180)}}
	for range 2 {
		if o := w.want(CodeOK, b); !slices.Equal(o.Times, b.At) || !slices.Equal(o.Skipped, b.Left) {
			t.Fatalf("%+v", o)
		}
	}
	w.wantHistory(id, line{Status: job.RunSkipped, Reason: job.ReasonAlreadyRan, At: T(30), Count: 1},
		line{Status: job.RunSkipped, Reason: job.ReasonAlreadyRan, At: T(120), Count: 2})
	for i, at := range b.At {
		c := w.claimRun(job.RunKey{Job: id, At: at, Origin: job.OriginBackfill})
		if c.Key != b.Keys[i] {
			t.Errorf("%+v", c)
		}
		w.complete(c, ResultSucceeded, 0)
	}
}

func TestBackfillForcedMakesANewRunWithANewKey(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(60), nil)
	w.complete(w.claim(id, T(120)), ResultSucceeded, 0)
	w.now = T(70)
	o := w.want(CodeOK, &Backfill{Job: uint64(id), At: []int64{T(60)}, Keys: []string{"again-1"}, Force: true})
	if o.Count != 1 {
		t.Fatalf("%+v", o)
	}
	if c := w.claimRun(job.RunKey{Job: id, At: T(60), Origin: job.OriginBackfill}); c.Key != "again-1" {
		t.Fatalf("%+v", c)
	}
}

// The proposer looked through the history up to SeenHead; what came after it is looked through in apply.
func TestBackfillSeesWhatRanMeanwhile(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(60), nil)
	w.complete(w.claim(id, T(120)), ResultSucceeded, 0)
	s, _ := w.state(id)
	late := &Backfill{Job: uint64(id), At: []int64{T(120)}, SeenHead: s.HistHead}
	w.complete(w.claim(id, T(180)), ResultSucceeded, 0)
	w.now = T(130)
	if o := w.want(CodeOK, late); o.Count != 0 || len(o.Skipped) != 1 {
		t.Fatalf("%+v", o)
	}
}

func TestBackfillOfAPausedJobLeavesTheWaitingOccurrence(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(60), nil)
	w.want(CodeOK, &Pause{Job: uint64(id)})
	w.now = T(70)
	if o := w.want(CodeOK, &Backfill{Job: uint64(id), At: []int64{T(30), T(60)}}); !slices.Equal(o.Times, []int64{T(30)}) {
		t.Fatalf("the occurrence at %d would run twice: %+v", T(60), o)
	}
	if len(w.due(id)) != 0 {
		t.Fatal("a paused job's backfill is due")
	}
}

func TestBackfillBounds(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100), nil)
	w.unchanged(CodeRefused, &Backfill{Job: uint64(id), At: make([]int64, job.MaxBackfill+1)}, &Backfill{Job: uint64(id), At: []int64{T(1)}},
		&Backfill{Job: uint64(id), At: []int64{-1}}, &Backfill{Job: uint64(id), Left: make([]int64, job.MaxBackfill+1)}, &Backfill{Job: uint64(id), Left: []int64{T(1)}})
}

// Redrive keeps the run and its key, goes on with the attempt count under a higher fence, and has a fresh retry budget.
func TestRedrive(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	c := w.claimOf(id, T(70))
	c.Keys = []string{"my-key"}
	o := w.want(CodeClaimed, c)
	w.complete(o, ResultRetry, T(20))
	o = w.claimRun(o.Run)
	w.complete(o, ResultDead, 0)
	s, _ := w.state(id)
	seq := s.HistHead
	w.want(CodeOK, w.updateOf(id, T(70), func(s *job.Spec) { s.Priority = "critical" }))
	if got := w.want(CodeOK, &Redrive{Seqs: []uint64{seq, 999, seq}}); got.Count != 1 {
		t.Fatalf("%+v", got)
	}
	row, _ := w.row(o.Run)
	if row.Status != job.RunPending || row.Failures != 0 || row.Losses != 0 || row.Lane != 0 {
		t.Fatalf("%+v", row)
	}
	again := w.claimRun(o.Run)
	if again.Key != "my-key" || again.Attempt != 3 || again.Fence <= o.Fence {
		t.Fatalf("%+v", again)
	}
	if s, _ := w.state(id); s.Dead != 0 || w.st.Counters().Dead != 0 {
		t.Fatalf("%+v", s)
	}
	w.complete(again, ResultDead, 0)
	if s, _ := w.state(id); s.Dead != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestRedriveTakesItsTurn(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapSkip))
	var seqs []uint64
	for i := range int64(2) {
		w.complete(w.claim(id, T(10+60*(i+1))), ResultDead, 0)
		s, _ := w.state(id)
		seqs = append(seqs, s.HistHead)
	}
	inHand := w.claim(id, T(190))
	if o := w.want(CodeOK, &Redrive{Seqs: seqs}); o.Count != 2 {
		t.Fatalf("%+v", o)
	}
	if s, _ := w.state(id); s.Active != 1 || s.Waiting != 2 {
		t.Fatalf("%+v", s)
	}
	w.complete(inHand, ResultSucceeded, 0)
	w.complete(w.claimRun(scheduled(id, T(10))), ResultSucceeded, 0)
	w.complete(w.claimRun(scheduled(id, T(70))), ResultSucceeded, 0)
}

func TestDeadLettersOutliveTheirJob(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	w.complete(w.claim(id, T(70)), ResultDead, 0)
	s, _ := w.state(id)
	w.want(CodeOK, &Delete{Job: uint64(id)})
	w.unchanged(CodeOK, &Redrive{Seqs: []uint64{s.HistHead}}) // there is nothing to run it as
	if o := w.want(CodeOK, &Purge{Seqs: []uint64{s.HistHead, s.HistHead, 77}}); o.Count != 1 || w.st.Counters().Dead != 0 {
		t.Fatalf("%+v", o)
	}
}

func TestPurge(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	w.complete(w.claim(id, T(70)), ResultDead, 0)
	s, _ := w.state(id)
	if o := w.want(CodeOK, &Purge{Seqs: []uint64{s.HistHead}}); o.Count != 1 {
		t.Fatalf("%+v", o)
	}
	if s, _ := w.state(id); s.Dead != 0 {
		t.Fatalf("%+v", s)
	}
}

// cleanups are the clean-up entries of a job.
func (w *world) cleanups(id job.ID) (keys []store.DueKey) {
	w.st.View(func(v *store.View) error {
		return v.ScanDue(store.DueKey{Lane: job.Lanes - 1}, 1<<60, func(e store.DueEntry) bool {
			if e.Kind == store.KindCleanup && e.Job == id {
				keys = append(keys, e.DueKey)
			}
			return true
		})
	})
	return keys
}

func cleanupOf(k store.DueKey, later int64) *Cleanup {
	return &Cleanup{Lane: []byte{byte(k.Lane)}, Ready: []int64{k.Ready}, Jobs: []uint64{uint64(k.Job)}, Later: later}
}

// A leader that holds records results by the last stamp. The retention of a one-off counts from the end of its run all
// the same, and what a worker says of that end cannot have it removed early.
func TestRetentionCountsFromAnEndDuringAHold(t *testing.T) {
	for _, tc := range []struct {
		name        string
		ended, from int64
	}{
		{"after the last stamp", T(50), T(50)},
		{"before the last stamp", T(15), T(20)},
		{"beyond all time", math.MaxInt64, maxTime},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			id := w.create(T(10), func(s *job.Spec) { oneOff(s); s.Retention = job.Duration(36e9) })
			o := w.claim(id, 0)
			w.now = T(20)
			c := addResult(&Complete{}, o.Run, o.Fence, ResultSucceeded, 0)
			c.Ended[0] = tc.ended
			w.want(CodeOK, c)
			k := w.cleanups(id)
			if w.now = T(56); tc.from == T(20) {
				w.want(CodeOK, cleanupOf(k[0], 0))
				return
			}
			w.want(CodeRefused, cleanupOf(k[0], 0))
			if k = w.cleanups(id); len(k) != 1 || k[0].Ready != tc.from+36_000 {
				t.Fatalf("%+v, and its retention ends at %d", k, tc.from+36_000)
			}
		})
	}
}

// A one-off is removed after its retention, but not while it has open runs or dead letters, and not while it is paused.
func TestCleanupOfAOneOffWaits(t *testing.T) {
	day := int64(24 * 3600)
	w := newWorld(t)
	id := w.create(T(10), oneOff)
	o := w.claim(id, 0)
	if len(w.cleanups(id)) != 0 {
		t.Fatal("it is still running")
	}
	w.now = T(20)
	w.complete(o, ResultDead, 0)
	k := w.cleanups(id)
	if len(k) != 1 || k[0].Ready != T(20+day) {
		t.Fatalf("%+v", k)
	}
	w.unchanged(CodeStale, cleanupOf(store.DueKey{Lane: 3, Ready: 5, Job: id}, 0))

	w.now = T(20 + day)
	w.want(CodeRefused, cleanupOf(k[0], T(50+day))) // a dead letter
	k = w.cleanups(id)
	if len(k) != 1 || k[0].Ready != T(50+day) {
		t.Fatalf("%+v", k)
	}
	s, _ := w.state(id)
	w.want(CodeOK, &Redrive{Seqs: []uint64{s.HistHead}})
	w.now = T(50 + day)
	w.want(CodeRefused, cleanupOf(k[0], T(60+day))) // an open run
	o = w.claimRun(o.Run)
	w.now = T(55 + day)
	w.complete(o, ResultSucceeded, 0) // it ran again: its retention begins anew
	k = w.cleanups(id)
	if len(k) != 2 {
		t.Fatalf("%+v", k)
	}
	w.now = k[0].Ready
	w.want(CodeRefused, cleanupOf(k[0], 0))
	w.want(CodeOK, &Pause{Job: uint64(id)})
	w.now = k[1].Ready
	w.want(CodeRefused, cleanupOf(k[1], 0))
	k = w.cleanups(id)
	if len(k) != 1 || k[0].Ready != w.now+1 {
		t.Fatalf("%+v", k)
	}
	w.want(CodeOK, w.resumeOf(id, 0, Gap{}))
	w.now++
	w.want(CodeOK, cleanupOf(k[0], 0))
	if w.st.Counters().Jobs != 0 {
		t.Fatal("it is still there")
	}
	w.want(CodeOK, cleanupOf(w.cleanups(id)[0], 0)) // the entry that resume made finds nothing
	if len(w.cleanups(id)) != 0 {
		t.Fatal("an entry is left over")
	}
}

func TestCleanupOfAnEditedOneOff(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), oneOff)
	w.complete(w.claim(id, 0), ResultSucceeded, 0)
	k := w.cleanups(id)
	w.want(CodeOK, w.updateOf(id, T(1_000_000), func(s *job.Spec) { s.Schedule = "2031-01-01T00:00:00Z" }))
	w.now = k[0].Ready
	w.want(CodeOK, cleanupOf(k[0], 0)) // it has another time to come
	if _, p := w.state(id); p.At != T(1_000_000) {
		t.Fatalf("%+v", p)
	}
	w.claim(id, 0)
}

// A one-off without a time to run at (before 1970, say) is removed like one that ran.
func TestAOneOffThatNeverRunsIsRemoved(t *testing.T) {
	w := newWorld(t)
	id := w.create(0, oneOff)
	if len(w.cleanups(id)) != 1 {
		t.Fatal("nothing will ever remove it")
	}
	missed := w.create(T(10), oneOff)
	w.now = T(1000)
	w.want(CodeOK, w.advanceOf(missed, 0, gap(T(10), T(10), 1, job.RunMissed, job.ReasonOutage)))
	if len(w.cleanups(missed)) != 1 {
		t.Fatal("nothing will ever remove it")
	}
}

// It was asked for: a newer occurrence waits for a redriven run instead of replacing it.
func TestRedriveIsNotReplaced(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapReplace))
	w.complete(w.claim(id, T(70)), ResultDead, 0)
	s, _ := w.state(id)
	w.want(CodeOK, &Redrive{Seqs: []uint64{s.HistHead}})
	next := w.claim(id, T(130))
	if row, ok := w.row(scheduled(id, T(10))); next.Code != CodeQueued || !ok || row.Status != job.RunPending {
		t.Fatalf("%+v %+v", next, row)
	}
	w.complete(w.claimRun(scheduled(id, T(10))), ResultSucceeded, 0)
	w.claimRun(next.Run)
}
