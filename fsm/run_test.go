package fsm

import (
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Every attempt of a run is of the same run and has a higher fence; the run stays open in between.
func TestRetryKeepsTheRunAndRaisesTheFence(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	o := w.claim(id, T(70))
	for attempt := uint16(1); attempt <= 3; attempt++ {
		if o.Attempt != attempt || o.Run != scheduled(id, T(10)) {
			t.Fatalf("%+v", o)
		}
		w.complete(o, ResultRetry, T(int64(100*attempt)))
		row, _ := w.row(o.Run)
		if row.Status != job.RunRetrying || row.Ready != T(int64(100*attempt)) || row.Failures != attempt || row.Worker != "" {
			t.Fatalf("%+v", row)
		}
		next := w.claimRun(o.Run)
		if next.Fence <= o.Fence {
			t.Fatalf("the fence did not grow: %d, %d", o.Fence, next.Fence)
		}
		w.unchanged(CodeStale, addResult(&Complete{}, o.Run, o.Fence, ResultSucceeded, 0), expireOf(o)) // a late result with an old fence
		o = next
	}
	w.complete(o, ResultDead, 0)
	w.unchanged(CodeStale, addResult(&Complete{}, o.Run, o.Fence, ResultSucceeded, 0), expireOf(o))
	w.wantHistory(id, line{Status: job.RunFailed, At: T(10), Attempt: 1}, line{Status: job.RunFailed, At: T(10), Attempt: 2},
		line{Status: job.RunFailed, At: T(10), Attempt: 3}, line{Status: job.RunDead, At: T(10), Attempt: 4})
	if s, _ := w.state(id); s.Dead != 1 || s.LastStatus != job.RunDead || w.st.Counters().Dead != 1 {
		t.Fatalf("%+v", s)
	}
}

// The state of a job is read and written for each of its items; the second must see what the first wrote.
func TestTwoRetriesOfOneJobInOneBatch(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapAllow))
	a, b := w.claim(id, T(70)), w.claim(id, T(130))
	both := addResult(&Complete{}, a.Run, a.Fence, ResultRetry, T(200))
	addResult(both, b.Run, b.Fence, ResultRetry, T(200)) // ready in the same millisecond
	for _, o := range w.do(both)[0].Items {
		if o.Code != CodeOK {
			t.Fatalf("%+v", o)
		}
	}
	keys := w.due(id)
	if len(keys) != 3 {
		t.Fatalf("a retry is lost: %+v", keys)
	}
	c := &Claim{}
	s, _ := w.state(id)
	for _, k := range keys {
		if k.Kind == store.KindRetry {
			addClaim(c, k, s.Gen, 0)
		}
	}
	items := w.do(c)[0].Items
	if len(items) != 2 || items[0].Code != CodeClaimed || items[1].Code != CodeClaimed || items[0].Run == items[1].Run || items[0].Fence == items[1].Fence {
		t.Fatalf("%+v", items)
	}
	// Both ends in one batch as well, one of them twice.
	ends := addResult(&Complete{}, items[0].Run, items[0].Fence, ResultSucceeded, 0)
	addResult(ends, items[1].Run, items[1].Fence, ResultDead, 0)
	addResult(ends, items[1].Run, items[1].Fence, ResultDead, 0)
	if r := w.do(ends)[0].Items; r[0].Code != CodeOK || r[1].Code != CodeOK || r[2].Code != CodeStale {
		t.Fatalf("%+v", r)
	}
	if s, _ := w.state(id); s.Active != 0 || s.Dead != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestReturnedUsesNoAttempt(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	w.now = T(11)
	o := w.claim(id, T(70))
	w.complete(o, ResultReturned, 0)
	if row, _ := w.row(o.Run); row.Status != job.RunPending || row.Attempt != 0 || row.Ready != T(11) {
		t.Fatalf("%+v", row)
	}
	again := w.claimRun(o.Run)
	if again.Attempt != 1 || again.Fence <= o.Fence {
		t.Fatalf("%+v", again)
	}
	w.complete(again, ResultRetry, T(20))
	w.complete(w.claimRun(o.Run), ResultReturned, 0)
	if row, _ := w.row(o.Run); row.Status != job.RunRetrying || row.Attempt != 1 || row.Failures != 1 {
		t.Fatalf("%+v", row)
	}
	w.wantHistory(id, line{Status: job.RunFailed, At: T(10), Attempt: 1})
}

func TestNonsenseResultsAreRefused(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	o := w.claim(id, T(70))
	for _, res := range []Result{0, 6, 255} {
		w.unchanged(CodeRefused, addResult(&Complete{}, o.Run, o.Fence, res, 0))
	}
	w.complete(o, ResultRetry, 1<<62) // a retry that would never come is moved to where it can be stored
	if row, _ := w.row(o.Run); row.Ready != maxTime {
		t.Fatalf("%+v", row)
	}
}

func TestAtMostOnceIsLostAndNeverRepeated(t *testing.T) {
	once := func(s *job.Spec) { s.Delivery = job.DeliverAtMostOnce }
	t.Run("worker lost", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), once)
		o := w.claim(id, T(70))
		w.want(CodeOK, expireOf(o))
		w.wantHistory(id, line{Status: job.RunLost, Reason: job.ReasonWorkerLost, At: T(10), Attempt: 1})
		if len(w.openRuns(id)) != 0 || len(w.due(id)) != 1 {
			t.Fatal("it would be repeated")
		}
	})
	t.Run("failed", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), once)
		w.complete(w.claim(id, T(70)), ResultRetry, T(20))
		w.wantHistory(id, line{Status: job.RunDead, At: T(10), Attempt: 1})
	})
	t.Run("never started", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), once)
		o := w.claim(id, T(70))
		w.complete(o, ResultReturned, 0)
		w.claimRun(o.Run)
	})
}

func TestALostWorkersRunGoesBack(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	o := w.claim(id, T(70))
	w.now = T(40)
	w.want(CodeOK, expireOf(o))
	if row, _ := w.row(o.Run); row.Status != job.RunRetrying || row.Ready != T(40) || row.Losses != 1 || row.Failures != 0 {
		t.Fatalf("%+v", row)
	}
	w.wantHistory(id, line{Status: job.RunFailed, Reason: job.ReasonWorkerLost, At: T(10), Attempt: 1})
}

// A run that takes its worker with it every time is taken to be the cause.
func TestAWorkerLostFiveTimesIsTheRunsFault(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	o := w.claim(id, T(70))
	for i := 1; i < maxLosses; i++ {
		w.want(CodeOK, expireOf(o))
		o = w.claimRun(o.Run)
	}
	w.want(CodeOK, expireOf(o))
	h := w.history(id)
	if last := h[len(h)-1]; len(h) != maxLosses || last.Status != job.RunDead || last.Reason != job.ReasonWorkerLost || last.Attempt != maxLosses {
		t.Fatalf("%+v", h)
	}
	if s, _ := w.state(id); s.Dead != 1 || s.Active != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestExpireHoldsTheRetryOfAPausedJob(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	o := w.claim(id, T(70))
	w.want(CodeOK, &Pause{Job: uint64(id)})
	w.want(CodeOK, expireOf(o))
	if row, _ := w.row(o.Run); row.Status != job.RunWaiting || row.Held != job.RunRetrying || len(w.due(id)) != 0 {
		t.Fatalf("%+v", row)
	}
}

// What did not run accumulates in the runtime state and is written out once, at the next claim, resume, edit or delete.
func TestNotRunIntervalsCoalesceAndAreFlushed(t *testing.T) {
	miss := func(w *world, id job.ID, at int64) {
		w.Helper()
		w.want(CodeOK, w.advanceOf(id, at+60_000, gap(at, at, 1, job.RunMissed, job.ReasonOutage)))
	}
	three := line{Status: job.RunMissed, Reason: job.ReasonOutage, At: T(0), Count: 3}
	for name, then := range map[string]func(*world, job.ID){
		"claim":  func(w *world, id job.ID) { w.claim(id, T(240)) },
		"edit":   func(w *world, id job.ID) { w.want(CodeOK, w.updateOf(id, T(180), func(s *job.Spec) { s.Timeout++ })) },
		"delete": func(w *world, id job.ID) { w.want(CodeOK, &Delete{Job: uint64(id)}) },
		"resume": func(w *world, id job.ID) {
			w.want(CodeOK, &Pause{Job: uint64(id)})
			w.wantHistory(id)
			w.want(CodeOK, w.resumeOf(id, T(180), Gap{}))
		},
		"end": func(w *world, id job.ID) { // nothing follows that would write it out
			w.want(CodeOK, w.advanceOf(id, 0, gap(T(180), T(180), 1, job.RunExpired, job.ReasonDeadline)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.create(T(0), nil)
			for i := range int64(3) {
				miss(w, id, T(60*i))
			}
			w.wantHistory(id)
			then(w, id)
			if name == "end" {
				w.wantHistory(id, three, line{Status: job.RunExpired, Reason: job.ReasonDeadline, At: T(180), Count: 1})
			} else {
				w.wantHistory(id, three)
			}
			if iv := w.history(id)[0].Interval; iv.Last != T(120) {
				t.Fatalf("%+v", iv)
			}
		})
	}
	t.Run("another reason begins another interval", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(0), nil)
		miss(w, id, T(0))
		miss(w, id, T(60))
		w.want(CodeOK, w.advanceOf(id, T(180), gap(T(120), T(120), 1, job.RunSkipped, job.ReasonBlackout)))
		w.wantHistory(id, line{Status: job.RunMissed, Reason: job.ReasonOutage, At: T(0), Count: 2})
		w.claim(id, T(240))
		w.wantHistory(id, line{Status: job.RunMissed, Reason: job.ReasonOutage, At: T(0), Count: 2},
			line{Status: job.RunSkipped, Reason: job.ReasonBlackout, At: T(120), Count: 1})
	})
	t.Run("the last one of a schedule is skipped", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(0), nil)
		w.claim(id, T(60))
		if o := w.claim(id, 0); o.Code != CodeSkipped {
			t.Fatalf("%+v", o)
		}
		w.wantHistory(id, line{Status: job.RunSkipped, Reason: job.ReasonOverlap, At: T(60), Count: 1})
	})
}

func TestAdvance(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(0), nil)
	w.now = T(500)
	miss := gap(T(0), T(60), 2, job.RunMissed, job.ReasonOutage)
	stale := w.advanceOf(id, T(120), miss)
	stale.Gen[0]++
	moved := w.advanceOf(id, T(120), miss)
	moved.Ready[0]++
	unknown := w.advanceOf(id, T(120), miss)
	unknown.Jobs[0] = 99
	w.unchanged(CodeStale, stale, moved, unknown)
	// What is not run is accounted for, all of it, and the next one lies behind it.
	w.unchanged(CodeRefused, w.advanceOf(id, T(60), miss), w.advanceOf(id, T(120), Gap{}),
		w.advanceOf(id, T(120), gap(T(30), T(60), 1, job.RunMissed, 0)), w.advanceOf(id, 0, gap(T(30), T(60), 1, job.RunMissed, 0)),
		w.advanceOf(id, T(120), gap(T(0), T(60), 1, job.RunSucceeded, 0)), w.advanceOf(id, T(120), gap(T(0), T(60), -1, job.RunMissed, 0)),
		w.advanceOf(id, T(120), miss, -1), w.advanceOf(id, 1<<60, miss))
	w.want(CodeOK, w.advanceOf(id, T(120), miss))
	if s, p := w.state(id); p.At != T(120) || s.LastNominal != T(60) || s.NotRun.Count != 2 || s.Runs != 0 {
		t.Fatalf("%+v %+v", s, p)
	}
	w.unchanged(CodeRefused, w.advanceOf(id, T(180), gap(T(60), T(120), 2, job.RunMissed, 0))) // one of them is accounted for already
	// Beyond max_runs there is no occurrence to account for.
	w.want(CodeOK, w.advanceOf(id, 0, Gap{}))
	if _, p := w.state(id); !p.Parked {
		t.Fatalf("%+v", p)
	}
}

func TestAPendingRunExpires(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100), overlap(job.OverlapQueue))
	a, b := w.want(CodeOK, &Trigger{Job: uint64(id)}), w.want(CodeQueued, &Trigger{Job: uint64(id)})
	advance := func(k job.RunKey, g Gap) *Advance {
		row, _ := w.row(k)
		d, _ := row.Due(k)
		return &Advance{Lane: []byte{byte(d.Lane)}, Kind: []byte{byte(d.Kind)<<4 | byte(d.Origin)}, Ready: []int64{d.Ready}, Jobs: []uint64{uint64(id)},
			At: []int64{d.At}, Gen: []uint32{0}, Next: []int64{0}, NextReady: []int64{0}, Gaps: []Gap{g}}
	}
	expired := Gap{Status: job.RunExpired, Reason: job.ReasonDeadline}
	w.unchanged(CodeStale, advance(b.Run, expired)) // it is not due
	w.unchanged(CodeRefused, advance(a.Run, Gap{}), advance(a.Run, Gap{Status: job.RunSucceeded}))
	w.want(CodeOK, advance(a.Run, expired))
	w.wantHistory(id, line{Status: job.RunExpired, Reason: job.ReasonDeadline, At: a.Run.At})
	w.claimRun(b.Run) // it moved up
}

// TestRecordsAreInTheOrderOfTheirStamps: a leader whose clock is behind records results with what its clock says. Who
// walks a chain back to a time must not take such a record for the end of what is newer.
func TestRecordsAreInTheOrderOfTheirStamps(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(60), overlap(job.OverlapAllow))
	w.now = T(60)
	first := w.claim(id, T(120))
	w.now = T(120)
	second := w.claim(id, T(180))
	w.complete(first, ResultSucceeded, 0)
	w.now = T(-600)
	w.complete(second, ResultSucceeded, 0)
	w.now = T(180)
	w.complete(w.claim(id, T(240)), ResultSucceeded, 0)
	var got []int64
	for _, r := range w.history(id) {
		got = append(got, r.Recorded)
	}
	if want := []int64{T(120), T(120), T(180)}; !slices.Equal(got, want) {
		t.Errorf("recorded at %v, want %v", got, want)
	}
}
