package fsm

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// An occurrence that finds a run open is decided about without a worker, by the policy.
func TestAdmitDecidesWithoutASlot(t *testing.T) {
	for policy, want := range map[string]Code{job.OverlapSkip: CodeSkipped, job.OverlapQueue: CodeQueued, job.OverlapReplace: CodeQueued, job.OverlapAllow: CodeStale} {
		w := newWorld(t)
		id := w.create(T(10), overlap(policy))
		w.now = T(10)
		first := w.claim(id, T(70))
		w.now = T(70)
		r := w.do(w.admitOf(id, T(130)))[0]
		if o := r.Items[0]; o.Code != want {
			t.Fatalf("%s: %+v", policy, o)
		}
		if told := len(r.Canceling) == 1; told != (policy == job.OverlapReplace) {
			t.Errorf("%s: told to stop: %+v", policy, r.Canceling)
		}
		s, p := w.state(id)
		if want == CodeStale {
			continue
		}
		if p.At != T(130) || s.LastNominal != T(70) || s.Active != 1 {
			t.Errorf("%s: %+v %+v", policy, s, p)
		}
		w.complete(first, ResultSucceeded, 0)
		if policy == job.OverlapSkip {
			if s, _ := w.state(id); s.NotRun.Count != 1 || s.NotRun.Reason != job.ReasonOverlap {
				t.Errorf("%+v", s)
			}
		} else {
			w.complete(w.claimRun(scheduled(id, T(70))), ResultSucceeded, 0)
		}
	}
}

// With nothing in its way an occurrence is claimed, with a slot.
func TestAdmitOfAFreeOccurrenceIsStale(t *testing.T) {
	for _, policy := range []string{job.OverlapSkip, job.OverlapQueue, job.OverlapReplace} {
		w := newWorld(t)
		id := w.create(T(10), overlap(policy))
		w.now = T(10)
		w.unchanged(CodeStale, w.admitOf(id, T(70)))
		early := w.admitOf(id, T(70))
		early.Head = Head{Now: T(9), Term: w.term}
		w.unchanged(CodeRefused, early)
	}
}

// What was open at the occurrence's own time counts, also if it has ended before anything could be decided.
func TestBusyUntil(t *testing.T) {
	for policy, want := range map[string]Code{job.OverlapSkip: CodeSkipped, job.OverlapQueue: CodeClaimed, job.OverlapReplace: CodeClaimed} {
		for _, ended := range []int64{T(69), T(70), T(80)} {
			w := newWorld(t)
			id := w.create(T(10), overlap(policy))
			w.now = T(10)
			first := w.claim(id, T(70))
			w.now = ended
			w.complete(first, ResultSucceeded, 0)
			w.now = T(90)
			code := want
			if ended < T(70) {
				code = CodeClaimed
			}
			if o := w.claim(id, T(130)); o.Code != code {
				t.Errorf("%s, ended at %d: %+v", policy, ended-T(0), o)
			}
		}
	}
}

// A leader whose clock was set back holds, and stamps results by that clock. A run that it ends was open until the mark
// all the same: what came due until then met it.
func TestBusyUntilOfAClockThatIsBehind(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapSkip))
	w.now = T(10)
	first := w.claim(id, T(70))
	w.now = T(75)
	w.want(CodeOK, &Stamp{})
	w.now = T(-45)
	w.complete(first, ResultDead, 0)
	if err := w.st.View(func(v *store.View) error {
		return v.EachDead(0, func(_ uint64, d store.Dead) bool {
			if d.DiedAt != T(75) {
				t.Errorf("it died at %d, and its record is of the mark", d.DiedAt-T(0))
			}
			return true
		})
	}); err != nil {
		t.Fatal(err)
	}
	w.now = T(90)
	if o := w.claim(id, T(130)); o.Code != CodeSkipped {
		t.Errorf("the occurrence that met it: %+v", o)
	}
}

// An admission covers what the same run is in the way of, and nothing that came when it had ended.
func TestAdmitCoversWhatTheRunWasInTheWayOf(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapSkip))
	w.now = T(10)
	first := w.claim(id, T(70))
	w.now = T(150)
	w.complete(first, ResultSucceeded, 0)
	w.now = T(200)
	all := w.admitOf(id, T(250))
	all.Gaps[0].Last, all.Gaps[0].Count = T(190), 3
	w.unchanged(CodeStale, all)
	some := w.admitOf(id, T(190))
	some.Gaps[0].Last, some.Gaps[0].Count = T(130), 2
	w.want(CodeSkipped, some)
	if o := w.claim(id, T(250)); o.Code != CodeClaimed {
		t.Fatalf("%+v", o)
	}
	w.wantHistory(id, line{Status: job.RunSucceeded, At: T(10), Attempt: 1}, line{Status: job.RunSkipped, Reason: job.ReasonOverlap, At: T(70), Count: 2})
}

// A clock that was ahead left a stamp in the future. Nothing is in the way of anything then.
func TestBusyUntilOfAClockThatWasReset(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapSkip))
	w.now = T(5000)
	w.complete(w.claim(id, T(5050)), ResultSucceeded, 0)
	w.now = T(100)
	w.want(CodeOK, &ClockReset{})
	w.want(CodeOK, w.updateOf(id, T(160), func(s *job.Spec) {}))
	w.now = T(160)
	if o := w.claim(id, T(220)); o.Code != CodeClaimed {
		t.Fatalf("%+v", o)
	}
}

// A claim disposes of what became due while the occurrence waited for a slot; one that leaves some behind is stale.
func TestClaimDisposesOfAllThatIsDue(t *testing.T) {
	for policy, want := range map[string]Code{job.OverlapSkip: CodeStale, job.OverlapReplace: CodeStale, job.OverlapQueue: CodeClaimed, job.OverlapAllow: CodeClaimed} {
		w := newWorld(t)
		id := w.create(T(10), overlap(policy))
		w.now = T(150)
		w.want(want, w.claimOf(id, T(70)))
	}
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapSkip))
	w.now = T(150)
	c := w.claimOf(id, T(190))
	c.Late = []Late{{0, gap(T(70), T(130), 2, job.RunSkipped, job.ReasonWaiting)}}
	o := w.want(CodeClaimed, c)
	w.complete(o, ResultSucceeded, 0)
	w.now = T(190)
	w.claim(id, T(250))
	w.wantHistory(id, line{Status: job.RunSucceeded, At: T(10), Attempt: 1}, line{Status: job.RunSkipped, Reason: job.ReasonWaiting, At: T(70), Count: 2})
}

// An occurrence that is due and waits for a slot is open for runs by hand.
func TestDueOccurrenceIsOpenForRunsByHand(t *testing.T) {
	w := newWorld(t)
	skip, queue, replace := w.create(T(10), overlap(job.OverlapSkip)), w.create(T(10), overlap(job.OverlapQueue)), w.create(T(10), overlap(job.OverlapReplace))
	w.now = T(20)
	w.unchanged(CodeRefused, &Trigger{Job: uint64(skip)})

	// queue: it waits behind the occurrence.
	byHand := w.want(CodeQueued, &Trigger{Job: uint64(queue)}).Run
	o := w.claim(queue, T(70))
	if row, _ := w.row(byHand); o.Code != CodeClaimed || row.Status != job.RunWaiting {
		t.Fatalf("%+v %+v", o, row)
	}
	w.complete(o, ResultSucceeded, 0)
	w.claimRun(byHand)

	// replace: it takes the place of the occurrence.
	w.want(CodeOK, &Trigger{Job: uint64(replace)})
	if o := w.claim(replace, T(70)); o.Code != CodeSkipped {
		t.Fatalf("%+v", o)
	}
	if s, p := w.state(replace); p.At != T(70) || s.NotRun.Status != job.RunCanceled || s.NotRun.Reason != job.ReasonReplaced || s.Runs != 0 {
		t.Fatalf("%+v %+v", s, p)
	}
}

// run_all: the entry goes on with the live schedule, and the runs wait for its gaps.
func TestCatchUpWaitsForTheLiveSchedule(t *testing.T) {
	for _, policy := range []string{job.OverlapSkip, job.OverlapQueue, job.OverlapReplace} {
		w := newWorld(t)
		id := w.create(T(60), overlap(policy))
		w.now = T(300)
		w.want(CodeOK, w.advanceOf(id, T(360), gap(T(60), T(120), 2, job.RunMissed, job.ReasonOutage), T(180), T(240), T(300)))
		s, p := w.state(id)
		if p.At != T(360) || s.LastNominal != T(300) || s.Runs != 3 || s.Active != 1 || s.Waiting != 2 {
			t.Fatalf("%s: %+v %+v", policy, s, p)
		}
		a := w.claimRun(scheduled(id, T(180)))
		w.now = T(360)
		// A live one waits behind it and is not skipped, and neither is the one behind that, unless the newest wins.
		first := w.want(CodeQueued, w.admitOf(id, T(420))).Run
		w.now = T(420)
		second := w.want(CodeQueued, w.admitOf(id, T(900))).Run
		w.now = T(430)
		w.complete(a, ResultSucceeded, 0)
		live := second
		if policy != job.OverlapReplace {
			live = first
		}
		if row, _ := w.row(live); row.Status != job.RunPending {
			t.Fatalf("%s: %+v", policy, row)
		}
		if row, _ := w.row(scheduled(id, T(240))); row.Status != job.RunWaiting {
			t.Fatalf("%s: a serial run was started before a live one: %+v", policy, row)
		}
		w.complete(w.claimRun(live), ResultSucceeded, 0)
		if policy != job.OverlapReplace {
			w.complete(w.claimRun(second), ResultSucceeded, 0)
		}
		w.complete(w.claimRun(scheduled(id, T(240))), ResultSucceeded, 0)
		// While an occurrence is due none is started, whatever ended.
		b := w.claimRun(scheduled(id, T(300)))
		w.want(CodeOK, &Backfill{Job: uint64(id), At: []int64{T(60)}})
		w.now = T(900)
		w.complete(b, ResultSucceeded, 0)
		fill := job.RunKey{Job: id, At: T(60), Origin: job.OriginBackfill}
		if row, _ := w.row(fill); row.Status != job.RunWaiting {
			t.Fatalf("%s: %+v", policy, row)
		}
		o := w.claim(id, T(2000))
		if o.Code != CodeClaimed {
			t.Fatalf("%s: %+v", policy, o)
		}
		w.complete(o, ResultSucceeded, 0)
		w.complete(w.claimRun(fill), ResultSucceeded, 0)
	}
}

// A catch-up run starts where it ends before the next occurrence, by what attempts took. One that has a slot too late
// waits again, one that has none yet makes room for the next occurrence, and after five times without room it starts.
func TestCatchUpWaitsForRoom(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(60), overlap(job.OverlapSkip))
	at := int64(60)
	live := func(takes, every int64) {
		t.Helper()
		w.now = T(at)
		o := w.claim(id, T(at+every))
		w.now = T(at + takes)
		w.complete(o, ResultSucceeded, 0)
		at += every
	}
	fill := job.RunKey{Job: id, At: T(10), Origin: job.OriginBackfill}
	is := func(st job.RunStatus) {
		t.Helper()
		if row, _ := w.row(fill); row.Status != st {
			s, _ := w.state(id)
			t.Fatalf("at %d it is %s, not %s: %+v", (w.now-T(0))/1000, row.Status, st, s)
		}
	}
	live(30, 60)
	live(30, 60)
	w.now++
	w.want(CodeOK, &Backfill{Job: uint64(id), At: []int64{T(10)}})
	is(job.RunWaiting) // it would end a millisecond too late
	live(20, 60)
	is(job.RunPending)
	w.now = T(at - 20) // it had to wait for a slot
	row, _ := w.row(fill)
	due, _ := row.Due(fill)
	s, _ := w.state(id)
	c := &Claim{}
	addClaim(c, due, s.Gen, 0)
	w.want(CodeQueued, c)
	is(job.RunWaiting)
	live(10, 60)
	is(job.RunPending)
	w.now = T(at) // it has none, and the next occurrence is due
	if o := w.claim(id, T(at+60)); o.Code != CodeClaimed {
		t.Fatalf("%+v", o)
	} else {
		is(job.RunWaiting)
		w.now = T(at + 50)
		w.complete(o, ResultSucceeded, 0)
		at += 60
	}
	for range maxPassedOver - 3 {
		is(job.RunWaiting)
		live(50, 60)
	}
	is(job.RunWaiting)
	live(50, 60)
	is(job.RunPending)
	w.claimRun(fill)
	if s, _ := w.state(id); s.PassedOver != 0 {
		t.Errorf("%+v", s)
	}
}

// What was redriven waits for room as a backfill does: one that starts without it, after five times, does so alone.
func TestRedrivenRunsWaitForRoom(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(60), overlap(job.OverlapSkip))
	at := int64(60)
	live := func(takes int64, res Result) job.RunKey {
		t.Helper()
		w.now = T(at)
		o := w.claim(id, T(at+60))
		if o.Code == CodeQueued { // it is late because of a redriven one, and has just become pending
			t.Fatalf("%+v", o)
		}
		w.now = T(at + takes)
		w.complete(o, res, 0)
		at += 60
		return o.Run
	}
	var dead []job.RunKey
	var seqs []uint64
	for range 2 {
		dead = append(dead, live(30, ResultDead))
		s, _ := w.state(id)
		seqs = append(seqs, s.HistHead)
	}
	w.now = T(at - 10)
	w.want(CodeOK, &Redrive{Seqs: seqs})
	is := func(k job.RunKey, want job.RunStatus) {
		t.Helper()
		if row, _ := w.row(k); row.Status != want {
			s, _ := w.state(id)
			t.Fatalf("%s is %s, not %s: %+v", k, row.Status, want, s)
		}
	}
	for {
		if row, _ := w.row(dead[0]); row.Status != job.RunWaiting {
			break
		}
		if live(50, ResultSucceeded); at > 600 {
			t.Fatal("it never starts")
		}
	}
	is(dead[0], job.RunPending)
	o := w.claimRun(dead[0])
	w.now++
	w.complete(o, ResultSucceeded, 0)
	is(dead[1], job.RunWaiting)
	// One that has a slot too late waits again.
	live(10, ResultSucceeded)
	is(dead[1], job.RunPending)
	w.now = T(at - 1)
	row, _ := w.row(dead[1])
	due, _ := row.Due(dead[1])
	s, _ := w.state(id)
	c := &Claim{}
	addClaim(c, due, s.Gen, 0)
	w.want(CodeQueued, c)
	is(dead[1], job.RunWaiting)
}

// Occurrences that wait for what a catch-up run made late run if they would have run without it, and are skipped if not.
func TestLateRunsAreJudgedAsIfTheyHadBegunInTime(t *testing.T) {
	for _, takes := range []int64{30, 70} {
		w := newWorld(t)
		id := w.create(T(60), overlap(job.OverlapSkip))
		w.want(CodeOK, &Backfill{Job: uint64(id), At: []int64{T(0)}})
		o := w.claimRun(job.RunKey{Job: id, At: T(0), Origin: job.OriginBackfill})
		w.now = T(60)
		first := w.want(CodeQueued, w.admitOf(id, T(120))).Run
		w.now = T(100)
		w.complete(o, ResultSucceeded, 0)
		late := w.claimRun(first)
		w.now = T(120)
		second := w.want(CodeQueued, w.admitOf(id, T(180))).Run
		w.now = T(100 + takes)
		w.complete(late, ResultSucceeded, 0)
		row, ok := w.row(second)
		if takes == 30 && (!ok || row.Status != job.RunPending || row.Late != 10_000) {
			t.Errorf("it would have been over before the next began: %+v", row)
		}
		if takes == 70 {
			w.wantHistory(id, line{Status: job.RunSucceeded, At: T(0), Attempt: 1}, line{Status: job.RunSucceeded, At: T(60), Attempt: 1},
				line{Status: job.RunSkipped, Reason: job.ReasonOverlap, At: T(120), Count: 1})
			if s, _ := w.state(id); ok || s.Runs != 1 || s.Waiting != 0 {
				t.Errorf("%+v", s)
			}
		}
	}
}

func TestCatchUpIsSerialisedEvenIfOverlapIsAllowed(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(60), overlap(job.OverlapAllow))
	w.now = T(1000)
	w.want(CodeOK, w.advanceOf(id, T(240), Gap{}, T(60), T(120), T(180)))
	a := w.claimRun(scheduled(id, T(60)))
	d := w.claim(id, T(300))
	if d.Code != CodeClaimed {
		t.Fatalf("%+v", d)
	}
	w.complete(d, ResultSucceeded, 0)
	if row, _ := w.row(scheduled(id, T(120))); row.Status != job.RunWaiting {
		t.Fatal("an ordinary run's end released a catch-up run beside another")
	}
	w.complete(a, ResultSucceeded, 0)
	if row, _ := w.row(scheduled(id, T(120))); row.Status != job.RunPending {
		t.Fatalf("%+v", row)
	}
	if row, _ := w.row(scheduled(id, T(180))); row.Status != job.RunWaiting {
		t.Fatalf("%+v", row)
	}
}

func TestCatchUpRowsAreHeldAgainstTheState(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(60), nil)
	w.now = T(1000)
	miss := gap(T(60), T(120), 2, job.RunMissed, job.ReasonOutage)
	w.unchanged(CodeRefused, w.advanceOf(id, T(180), miss, T(180)), w.advanceOf(id, T(240), miss, T(120)), w.advanceOf(id, T(240), miss, T(200), T(180)),
		w.advanceOf(id, T(240), Gap{}, T(120)), w.advanceOf(id, 0, Gap{}, T(120)), w.advanceOf(id, T(180), miss, -1))
	w.want(CodeOK, w.advanceOf(id, 0, miss, T(180)))
}

// Redriven letters wait as serial runs and take no place of live ones.
func TestRedriveDoesNotFillTheQueue(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(0), overlap(job.OverlapQueue))
	for i := int64(0); i < job.MaxWaiting+20; i++ {
		w.now = T(60 * i)
		w.complete(w.claim(id, T(60*(i+1))), ResultDead, 0)
	}
	var seqs []uint64
	for seq := uint64(1); seq <= job.MaxWaiting+20; seq++ {
		seqs = append(seqs, seq)
	}
	w.want(CodeOK, &Redrive{Seqs: seqs})
	if s, _ := w.state(id); s.Waiting < job.MaxWaiting {
		t.Fatalf("%+v", s)
	}
	_, p := w.state(id)
	w.now = p.At
	w.want(CodeQueued, w.admitOf(id, p.At+60_000))
}
