package fsm

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

func TestCreate(t *testing.T) {
	w := newWorld(t)
	named := func(n string) func(*job.Spec) { return func(s *job.Spec) { s.Name = n } }
	id := w.create(T(10), named("a"))
	if id != 1 || w.st.Counters().Jobs != 1 {
		t.Fatalf("%s", id)
	}
	item := func(n uint64, spec job.Spec) *Create {
		return &Create{Items: []CreateItem{{Job: n, Def: w.def(spec, 1), Next: When{T(10), T(10)}}}}
	}
	same := w.want(CodeExists, item(2, testSpec(named("a"))))
	if same.Job != 1 || same.Version != 1 {
		t.Fatalf("%+v", same)
	}
	other := testSpec(named("a"))
	other.Timeout++
	w.unchanged(CodeDuplicate, item(2, other))
	w.unchanged(CodeStale, item(1, testSpec(named("b"))), item(0, testSpec(named("b"))))
	w.unchanged(CodeRefused, item(2, testSpec(named(strings.Repeat("x", job.MaxName+1)))),
		&Create{Items: []CreateItem{{Job: 2, Def: w.def(testSpec(nil), 1), Next: When{1 << 60, 1 << 60}}}},
		&Create{Items: []CreateItem{{Job: 2, Def: w.def(testSpec(nil), 1), Next: When{-5, -5}}}},
		&Create{Items: []CreateItem{{Job: 2, Def: w.def(testSpec(nil), 1), Next: When{T(10), T(9)}}}})
	// Numbers may have holes, and are never given out again.
	w.want(CodeOK, item(5, testSpec(named("b"))))
	w.unchanged(CodeStale, item(4, testSpec(named("c"))))
	w.want(CodeOK, &Delete{Job: 5})
	w.unchanged(CodeStale, item(5, testSpec(named("c"))))
	w.want(CodeOK, item(6, testSpec(named("b")))) // the name is free again
}

func TestUpdate(t *testing.T) {
	w := newWorld(t)
	a := w.create(T(10), func(s *job.Spec) { s.Name = "a" })
	w.create(T(10), func(s *job.Spec) { s.Name = "b" })
	rename := func(n string) func(*job.Spec) { return func(s *job.Spec) { s.Name = n } }

	w.unchanged(CodeDuplicate, w.updateOf(a, T(10), rename("b")))
	w.unchanged(CodeNotFound, &Update{Job: 99, Version: 1, Def: w.def(testSpec(nil), 2)})
	old := w.updateOf(a, T(10), rename("c"))
	skipsAVersion := w.updateOf(a, T(10), rename("c"))
	skipsAVersion.Def = w.def(testSpec(rename("c")), 3)
	w.unchanged(CodeMoved, skipsAVersion)
	w.want(CodeOK, w.updateOf(a, T(20), rename("c")))
	if o := w.one(old); o.Code != CodeConflict || o.Version != 2 {
		t.Fatalf("%+v", o)
	}
	if _, p := w.state(a); p.At != T(20) {
		t.Fatalf("%+v", p)
	}
	err := w.st.View(func(v *store.View) error {
		if id, ok := v.Named(job.DefaultNamespace, "c"); !ok || id != a {
			t.Error("the new name does not lead to it")
		}
		if _, ok := v.Named(job.DefaultNamespace, "a"); ok {
			t.Error("the old name is still taken")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// An interval that the next occurrence lies in, or that makes no sense, would leave a job that can never run.
	for _, g := range []Gap{
		gap(T(20), T(30), 2, job.RunSkipped, job.ReasonEdited), gap(T(20), T(10), 1, job.RunSkipped, 0), gap(T(20), T(20), -1, job.RunSkipped, 0),
		gap(T(20), T(20), 1, job.RunClaimed, 0), gap(0, T(20), 1, job.RunSkipped, 0), gap(T(20), 1<<60, 1, job.RunSkipped, 0),
	} {
		u := w.updateOf(a, T(25), rename("d"))
		u.Dropped = g
		w.unchanged(CodeRefused, u)
	}
}

// An edit records what it drops, also if its proposer forgot: an occurrence that was due is never dropped in silence.
func TestAnEditAccountsForWhatItDrops(t *testing.T) {
	slower := func(s *job.Spec) { s.Schedule = "0 * * * *" }
	t.Run("named", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), nil)
		w.now = T(200)
		u := w.updateOf(id, T(3600), slower)
		u.Dropped = gap(T(10), T(190), 4, job.RunSkipped, job.ReasonEdited)
		w.want(CodeOK, u)
		w.wantHistory(id, line{Status: job.RunSkipped, Reason: job.ReasonEdited, At: T(10), Count: 4})
		if s, _ := w.state(id); s.LastNominal != T(190) {
			t.Fatalf("%+v", s)
		}
	})
	t.Run("forgotten", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), nil)
		w.now = T(10)
		w.want(CodeOK, w.updateOf(id, T(3600), slower))
		w.wantHistory(id, line{Status: job.RunSkipped, Reason: job.ReasonEdited, At: T(10), Count: 1})
	})
	t.Run("the new schedule goes back", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(100), nil)
		w.now = T(100)
		w.want(CodeOK, w.updateOf(id, T(50), oneOff))
		w.wantHistory(id, line{Status: job.RunSkipped, Reason: job.ReasonEdited, At: T(100), Count: 1})
		if o := w.claim(id, 0); o.Code != CodeClaimed {
			t.Fatalf("%+v", o)
		}
	})
	t.Run("on both sides of the next one", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), nil)
		w.now = T(300)
		u := w.updateOf(id, T(100), oneOff)
		u.Dropped = gap(T(10), T(70), 2, job.RunSkipped, job.ReasonEdited)
		for _, g := range []Gap{gap(T(100), T(250), 3, job.RunSkipped, job.ReasonEdited), gap(T(130), T(110), 3, job.RunSkipped, 0), gap(T(130), T(250), 3, job.RunClaimed, 0)} {
			u.After = g
			w.unchanged(CodeRefused, u)
		}
		u.After = gap(T(130), T(250), 3, job.RunSkipped, job.ReasonEdited)
		recurring := *u
		recurring.Def = w.updateOf(id, T(100), slower).Def
		w.unchanged(CodeRefused, &recurring)
		w.want(CodeOK, u)
		// What lies behind it is accounted for: no pause may have it once more.
		w.want(CodeOK, &Pause{Job: uint64(id)})
		r := &Resume{Job: uint64(id), Seen: w.seen(id), NotRun: gap(T(100), T(250), 4, job.RunSkipped, job.ReasonPaused)}
		w.unchanged(CodeRefused, r)
		r.NotRun, r.Next = Gap{}, When{T(100), T(100)}
		w.want(CodeOK, r)
		w.wantHistory(id, line{Status: job.RunSkipped, Reason: job.ReasonEdited, At: T(10), Count: 2}, line{Status: job.RunSkipped, Reason: job.ReasonEdited, At: T(130), Count: 3})
		if o := w.claim(id, 0); o.Code != CodeClaimed {
			t.Fatalf("%+v", o)
		}
	})
	t.Run("all of them behind the next one", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(100), nil)
		w.now = T(300)
		u := w.updateOf(id, T(50), oneOff)
		u.After = gap(T(100), T(280), 4, job.RunSkipped, job.ReasonEdited)
		w.want(CodeOK, u)
		w.wantHistory(id, line{Status: job.RunSkipped, Reason: job.ReasonEdited, At: T(100), Count: 4})
		if o := w.claim(id, 0); o.Code != CodeClaimed {
			t.Fatalf("%+v", o)
		}
	})
	t.Run("not yet due", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), nil)
		w.want(CodeOK, w.updateOf(id, T(3600), slower))
		w.wantHistory(id) // the old schedule's plan binds nothing
	})
	t.Run("kept", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), nil)
		w.now = T(20)
		w.want(CodeOK, w.updateOf(id, T(10), func(s *job.Spec) { s.Timeout++ }))
		w.wantHistory(id)
	})
}

// A run that no worker has in hand is given to its worker with the definition of that moment: its class and lane follow the edit, and a
// claim that matched it to a worker of the old class is stale.
func TestAnEditReclassifiesRunsThatHaveNotStarted(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapAllow))
	claimed := w.claim(id, T(70))
	retrying := w.claim(id, T(130))
	w.complete(retrying, ResultRetry, T(500))
	pending := w.want(CodeOK, &Trigger{Job: uint64(id)})
	claim := func(k job.RunKey) *Claim {
		row, _ := w.row(k)
		due, _ := row.Due(k)
		s, _ := w.state(k.Job)
		c := &Claim{}
		addClaim(c, due, s.Gen, 0)
		return c
	}
	early := []Command{claim(pending.Run), claim(retrying.Run)}
	w.want(CodeOK, w.updateOf(id, T(130), func(s *job.Spec) {
		s.Type, s.Payload, s.Priority = job.TypeShell, []byte(`{"command":"true"}`), "high"
	}))
	s, _ := w.state(id)
	for _, k := range []job.RunKey{pending.Run, retrying.Run} {
		if row, _ := w.row(k); row.Class != s.Class || row.Lane != 1 {
			t.Errorf("%s: %+v", k, row)
		}
	}
	w.unchanged(CodeStale, early...)
	// A selector alone, in the same lane, moves the key as well.
	early = []Command{claim(pending.Run), claim(retrying.Run)}
	w.want(CodeOK, w.updateOf(id, T(130), func(s *job.Spec) { s.Workers = map[string]string{"zone": "b"} }))
	w.unchanged(CodeStale, early...)
	// What a worker has in hand keeps its class until it comes back.
	row, _ := w.row(claimed.Run)
	if s, _ := w.state(id); row.Class == s.Class {
		t.Fatal("a claimed run was reclassified")
	}
	w.complete(claimed, ResultRetry, T(300))
	row, _ = w.row(claimed.Run)
	if s, _ := w.state(id); row.Class != s.Class {
		t.Fatal("its retry goes to the old class")
	}
}

func TestPauseWithAPendingRetry(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapAllow))
	retrying := w.claim(id, T(70))
	inHand := w.claim(id, T(130))
	w.complete(retrying, ResultRetry, T(40))
	manual := w.want(CodeOK, &Trigger{Job: uint64(id)})
	claim := w.claimOf(id, T(190))
	w.want(CodeOK, &Pause{Job: uint64(id)})
	if keys := w.due(id); len(keys) != 1 || keys[0].Run() != manual.Run {
		t.Fatalf("due in a paused job: %+v", keys)
	}
	w.unchanged(CodeStale, claim)
	s, p := w.state(id)
	if !p.Parked || !s.Paused || s.ParkedAt != T(130) || s.Active != 3 {
		t.Fatalf("%+v %+v", s, p)
	}
	// Pausing again is fine and changes nothing.
	w.unchanged(CodeOK, &Pause{Job: uint64(id)})
	// What is in hand goes on, and its retry waits as well.
	w.complete(inHand, ResultRetry, T(50))
	for _, k := range []job.RunKey{retrying.Run, inHand.Run} {
		if row, _ := w.row(k); row.Status != job.RunWaiting || row.Held != job.RunRetrying {
			t.Fatalf("%s: %+v", k, row)
		}
	}
	// What was asked for by hand runs; a hand-back does not change that, a failure does.
	w.complete(w.claimRun(manual.Run), ResultReturned, 0)
	if row, _ := w.row(manual.Run); row.Status != job.RunPending {
		t.Fatalf("%+v", row)
	}
	w.complete(w.claimRun(manual.Run), ResultRetry, T(50))
	if row, _ := w.row(manual.Run); row.Status != job.RunWaiting || row.Held != job.RunRetrying {
		t.Fatalf("%+v", row)
	}
	w.now = T(300)
	w.want(CodeOK, w.resumeOf(id, T(310), gap(T(130), T(250), 3, job.RunSkipped, job.ReasonPaused)))
	if keys := w.due(id); len(keys) != 4 {
		t.Fatalf("%+v", keys)
	}
	w.claimRun(manual.Run)
	if o := w.claimRun(retrying.Run); o.Attempt != 2 {
		t.Fatalf("%+v", o)
	}
	w.wantHistory(id, line{Status: job.RunFailed, At: T(10), Attempt: 1}, line{Status: job.RunFailed, At: T(70), Attempt: 1},
		line{Status: job.RunFailed, At: manual.Run.At, Attempt: 1}, line{Status: job.RunSkipped, Reason: job.ReasonPaused, At: T(130), Count: 3})
	if s, p := w.state(id); p.At != T(310) || s.ParkedAt != 0 || s.LastNominal != T(250) {
		t.Fatalf("%+v %+v", s, p)
	}
}

func TestResume(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	w.unchanged(CodeOK, w.resumeOf(id, 0, Gap{})) // not paused: nothing to do, whatever it says
	early := w.resumeOf(id, T(100), Gap{})
	w.want(CodeOK, &Pause{Job: uint64(id)})
	w.unchanged(CodeMoved, early)
	w.unchanged(CodeNotFound, &Resume{Job: 99}, &Pause{Job: 99})
	w.unchanged(CodeRefused, w.resumeOf(id, T(100), gap(T(10), T(100), 2, job.RunSkipped, job.ReasonPaused)), w.resumeOf(id, 1<<60, Gap{}))
	// An edit in between moves it too.
	stale := w.resumeOf(id, T(100), Gap{})
	w.want(CodeOK, w.updateOf(id, T(15), func(s *job.Spec) { s.Timeout++ }))
	w.unchanged(CodeMoved, stale)
	if s, p := w.state(id); !p.Parked || s.ParkedAt != T(15) {
		t.Fatalf("an edit of a paused job: %+v %+v", s, p)
	}
	// A proposer that forgets the occurrence which passed meanwhile does not make it vanish.
	w.now = T(50)
	w.want(CodeOK, w.resumeOf(id, T(100), Gap{}))
	w.wantHistory(id, line{Status: job.RunSkipped, Reason: job.ReasonPaused, At: T(15), Count: 1})
}

func TestResumeReleasesWaitingRuns(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapQueue))
	first := w.claim(id, T(70))
	second := w.claim(id, T(130))
	w.want(CodeOK, &Pause{Job: uint64(id)})
	w.complete(first, ResultSucceeded, 0)
	if row, _ := w.row(second.Run); row.Status != job.RunWaiting || row.Held != 0 {
		t.Fatalf("a paused job's waiting run was released: %+v", row)
	}
	w.want(CodeOK, w.resumeOf(id, T(130), Gap{}))
	w.complete(w.claimRun(second.Run), ResultSucceeded, 0)
}

// Delete takes the occurrence and all open runs in one step; what is in hand is told to stop and recorded when it does.
func TestDeleteTakesEverythingInOneStep(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), func(s *job.Spec) { s.Overlap, s.Concurrency, s.Name = job.OverlapAllow, 3, "x" })
	inHand := w.claim(id, T(70))
	retrying := w.claim(id, T(130))
	manual := w.want(CodeOK, &Trigger{Job: uint64(id)})
	waiting := w.claim(id, T(190))
	w.complete(retrying, ResultRetry, T(400))
	w.now = T(200)
	w.unchanged(CodeConflict, &Delete{Job: uint64(id), Version: 2})
	w.unchanged(CodeNotFound, &Delete{Job: 99})
	claim := w.claimOf(id, T(250))
	r := w.do(&Delete{Job: uint64(id), Version: 1})[0]
	if r.Items[0].Code != CodeOK || len(r.Canceling) != 1 || r.Canceling[0].Run != inHand.Run {
		t.Fatalf("%+v", r)
	}
	if keys := w.due(id); len(keys) != 0 {
		t.Fatalf("%+v", keys)
	}
	w.unchanged(CodeStale, claim)
	w.unchanged(CodeNotFound, &Trigger{Job: uint64(id)}, &Pause{Job: uint64(id)}, &Cancel{Job: uint64(id), All: true}, &Backfill{Job: uint64(id), At: []int64{T(1)}})
	want := []line{
		{Status: job.RunFailed, At: T(70), Attempt: 1},
		{Status: job.RunCanceled, Reason: job.ReasonDeleted, At: manual.Run.At},
		{Status: job.RunCanceled, Reason: job.ReasonDeleted, At: retrying.Run.At, Attempt: 1},
		{Status: job.RunCanceled, Reason: job.ReasonDeleted, At: waiting.Run.At},
		{Status: job.RunCanceled, Reason: job.ReasonDeleted, At: T(190), Count: 1},
	}
	w.wantHistory(id, want...)
	w.complete(inHand, ResultRetry, T(500)) // a retry of a deleted job does not happen
	w.wantHistory(id, append(want, line{Status: job.RunCanceled, Reason: job.ReasonDeleted, At: T(10), Attempt: 1})...)
	if n := len(w.openRuns(id)); n != 0 || w.st.Counters().Jobs != 0 {
		t.Fatalf("%d open runs", n)
	}
}

func TestDeletedJobsRunsMayStillEnd(t *testing.T) {
	for _, end := range []struct {
		cmd  func(Outcome) Command
		want job.RunStatus
	}{
		{func(o Outcome) Command { return addResult(&Complete{}, o.Run, o.Fence, ResultSucceeded, 0) }, job.RunSucceeded},
		{func(o Outcome) Command { return addResult(&Complete{}, o.Run, o.Fence, ResultDead, 0) }, job.RunCanceled},
		{func(o Outcome) Command { return addResult(&Complete{}, o.Run, o.Fence, ResultReturned, 0) }, job.RunCanceled},
		{func(o Outcome) Command { return expireOf(o) }, job.RunCanceled},
	} {
		w := newWorld(t)
		id := w.create(T(10), nil)
		o := w.claim(id, T(70))
		w.want(CodeOK, &Delete{Job: uint64(id)})
		w.want(CodeOK, &Cancel{Job: uint64(id), At: o.Run.At, Origin: byte(o.Run.Origin)}) // it is canceling already
		w.want(CodeOK, end.cmd(o))
		h := w.history(id)
		if len(h) != 1 || h[0].Status != end.want || len(w.openRuns(id)) != 0 {
			t.Errorf("%+v", h)
		}
	}
}

// The proposer counts what was due, and its word counts if it saw the occurrence that is due now.
func TestDeleteRecordsWhatWasDue(t *testing.T) {
	for name, tt := range map[string]struct {
		gap     Gap
		pause   bool
		count   int64
		last    int64
		atLeast bool
		reason  job.Reason
	}{
		"counted":        {Gap{First: T(10), Last: T(490), Count: 9, Status: job.RunCanceled, Reason: job.ReasonDeleted}, false, 9, T(490), false, job.ReasonDeleted},
		"paused":         {Gap{First: T(10), Last: T(490), Count: 9, Status: job.RunSkipped, Reason: job.ReasonPaused}, true, 9, T(490), false, job.ReasonPaused},
		"at least":       {Gap{First: T(10), Last: T(490), Count: 5, AtLeast: true}, false, 5, T(490), true, job.ReasonDeleted},
		"another one":    {Gap{First: T(9), Last: T(490), Count: 9}, false, 1, T(10), true, job.ReasonDeleted},
		"not passed yet": {Gap{First: T(10), Last: T(501), Count: 9}, false, 1, T(10), true, job.ReasonDeleted},
		"nonsense":       {Gap{First: T(10), Last: T(9), Count: 9}, false, 1, T(10), true, job.ReasonDeleted},
		"not counted":    {Gap{}, false, 1, T(10), true, job.ReasonDeleted},
	} {
		w := newWorld(t)
		id := w.create(T(10), nil)
		if tt.pause {
			w.want(CodeOK, &Pause{Job: uint64(id)})
		}
		w.now = T(500)
		w.want(CodeOK, &Delete{Job: uint64(id), NotRun: tt.gap})
		h := w.history(id)
		if len(h) != 1 || h[0].Reason != tt.reason || h[0].Interval.First != T(10) || h[0].Interval.Last != tt.last || h[0].Interval.Count != tt.count || h[0].Interval.AtLeast != tt.atLeast {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestDeleteOfAPausedJobRecordsWhatPassed(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	w.want(CodeOK, &Pause{Job: uint64(id)})
	w.now = T(500)
	w.want(CodeOK, &Delete{Job: uint64(id)})
	h := w.history(id)
	if len(h) != 1 || h[0].Reason != job.ReasonPaused || h[0].Interval.First != T(10) || !h[0].Interval.AtLeast {
		t.Fatalf("%+v", h)
	}
}

func TestQuarantine(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapAllow))
	retrying := w.claim(id, T(70))
	w.complete(retrying, ResultRetry, T(20))
	s, _ := w.state(id)
	w.unchanged(CodeStale, &Quarantine{Job: uint64(id), Gen: s.Gen + 1, Why: "x"}, &Quarantine{Job: 99, Gen: 1})
	w.want(CodeOK, &Quarantine{Job: uint64(id), Gen: s.Gen, Why: "its schedule cannot be read"})
	if len(w.due(id)) != 0 {
		t.Fatal("it is still due")
	}
	w.unchanged(CodeStale, &Quarantine{Job: uint64(id), Gen: s.Gen + 1, Why: "again"})
	w.unchanged(CodeRefused, &Trigger{Job: uint64(id)})
	note := func() (n string) {
		w.st.View(func(v *store.View) error { n = v.Note(id); return nil })
		return n
	}
	if note() != "its schedule cannot be read" {
		t.Fatalf("%q", note())
	}
	w.now = T(100)
	w.want(CodeOK, w.resumeOf(id, T(130), gap(T(70), T(70), 1, job.RunSkipped, job.ReasonQuarantined)))
	if note() != "" {
		t.Fatalf("%q", note())
	}
	if o := w.claimRun(retrying.Run); o.Attempt != 2 {
		t.Fatalf("%+v", o)
	}
}

func TestCancel(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), func(s *job.Spec) { s.Overlap, s.Concurrency = job.OverlapAllow, 2 })
	inHand := w.claim(id, T(70))
	retrying := w.claim(id, T(130))
	w.complete(retrying, ResultRetry, T(400))
	waiting := w.claim(id, T(190))
	one := func(k job.RunKey) *Cancel { return &Cancel{Job: uint64(k.Job), At: k.At, Origin: byte(k.Origin)} }
	w.unchanged(CodeNotFound, one(scheduled(id, T(11))), one(scheduled(99, T(10))), &Cancel{Job: 99, All: true})

	// Canceling the retry makes room for the one that waits.
	if o := w.want(CodeOK, one(retrying.Run)); o.Count != 1 || o.Run != retrying.Run {
		t.Fatalf("%+v", o)
	}
	if row, _ := w.row(waiting.Run); row.Status != job.RunPending {
		t.Fatalf("%+v", row)
	}
	r := w.do(&Cancel{Job: uint64(id), All: true})[0]
	if r.Items[0].Count != 2 || len(r.Canceling) != 1 || r.Canceling[0].Run != inHand.Run {
		t.Fatalf("%+v", r)
	}
	if row, _ := w.row(inHand.Run); row.Status != job.RunCanceling || row.Cancel != job.ReasonCanceled {
		t.Fatalf("%+v", row)
	}
	w.complete(inHand, ResultCanceled, 0)
	if keys := w.due(id); len(keys) != 1 || keys[0].At != T(190) {
		t.Fatalf("the job itself goes on: %+v", keys)
	}
	w.wantHistory(id, line{Status: job.RunFailed, At: T(70), Attempt: 1},
		line{Status: job.RunCanceled, Reason: job.ReasonCanceled, At: T(70), Attempt: 1},
		line{Status: job.RunCanceled, Reason: job.ReasonCanceled, At: T(130)},
		line{Status: job.RunCanceled, Reason: job.ReasonCanceled, At: T(10), Attempt: 1})
}

// The occurrence is all that a one-off job has: canceling it takes that too.
func TestCancelOfAOneOffTakesItsOccurrence(t *testing.T) {
	for _, pause := range []bool{false, true} {
		w := newWorld(t)
		id := w.create(T(100), oneOff)
		claim := w.claimOf(id, 0)
		if pause {
			w.want(CodeOK, &Pause{Job: uint64(id)})
		}
		if o := w.want(CodeOK, &Cancel{Job: uint64(id), All: true}); o.Count != 1 {
			t.Fatalf("%+v", o)
		}
		w.unchanged(CodeStale, claim)
		if pause {
			w.want(CodeOK, w.resumeOf(id, 0, Gap{}))
		}
		w.wantHistory(id, line{Status: job.RunCanceled, Reason: job.ReasonCanceled, At: T(100), Count: 1})
		if o := w.one(&Cancel{Job: uint64(id), All: true}); o.Count != 0 {
			t.Fatalf("%+v", o)
		}
	}
}

// What was canceled lies ahead, and the job may be given a time before it.
func TestACanceledOneOffCanBeMovedForward(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100), oneOff)
	w.want(CodeOK, &Cancel{Job: uint64(id), All: true})
	w.want(CodeOK, w.updateOf(id, T(50), oneOff))
	if keys := w.due(id); len(keys) != 1 || keys[0].At != T(50) {
		t.Fatalf("%+v", keys)
	}
	w.want(CodeClaimed, w.claimOf(id, 0))
}

// What was due when a job was paused is due again after the resume, and what a delete takes away of it goes with the
// delete. Pauses are kept until the occurrence that is due lies behind them.
func TestPauseKeepsWhatIsDue(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapAllow))
	w.now = T(30)
	w.want(CodeOK, &Pause{Job: uint64(id)})
	w.now = T(50)
	w.want(CodeOK, w.resumeOf(id, T(10), Gap{}))
	s, p := w.state(id)
	if p.At != T(10) || s.PausedAt != 0 || s.Pauses != (store.Pauses{{From: T(30), To: T(50)}}) {
		t.Errorf("%+v at %+v", s, p)
	}
	w.claim(id, T(20))
	w.now = T(60)
	w.want(CodeOK, &Pause{Job: uint64(id)})
	w.now = T(70)
	w.want(CodeOK, w.resumeOf(id, T(20), Gap{}))
	w.claim(id, T(60))
	if s, _ := w.state(id); s.Pauses != (store.Pauses{{From: T(60), To: T(70)}}) {
		t.Errorf("%+v", s)
	}
	w.want(CodeOK, w.advanceOf(id, T(80), gap(T(60), T(70), 2, job.RunSkipped, job.ReasonPaused)))
	if s, _ := w.state(id); s.Pauses != (store.Pauses{}) {
		t.Errorf("%+v", s)
	}
	w.now = T(100)
	w.want(CodeOK, &Pause{Job: uint64(id)})
	w.now = T(120)
	w.want(CodeOK, &Delete{Job: uint64(id), NotRun: gap(T(80), T(120), 5, job.RunSkipped, job.ReasonDeleted)})
	h := w.history(id)
	if last := h[len(h)-1]; last.Reason != job.ReasonDeleted || last.Interval.Status != job.RunCanceled || last.Interval.Count != 5 {
		t.Errorf("%+v", last)
	}
}
