package fsm

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

func TestOverlapSkip(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapSkip))
	o := w.claim(id, T(70))
	for i := int64(1); i <= 3; i++ {
		if got := w.claim(id, T(10+60*(i+1))); got.Code != CodeSkipped {
			t.Fatalf("%+v", got)
		}
	}
	if s, _ := w.state(id); s.Runs != 1 || s.NotRun.Count != 3 || s.NotRun.First != T(70) || s.NotRun.Last != T(190) {
		t.Fatalf("%+v", s)
	}
	w.complete(o, ResultSucceeded, 0)
	if got := w.claim(id, T(310)); got.Code != CodeClaimed {
		t.Fatalf("%+v", got)
	}
	w.wantHistory(id, line{Status: job.RunSucceeded, At: T(10), Attempt: 1}, line{Status: job.RunSkipped, Reason: job.ReasonOverlap, At: T(70), Count: 3})
}

// A run between two attempts is open: nothing may overlap with it.
func TestARunBetweenAttemptsIsOpen(t *testing.T) {
	for policy, want := range map[string]Code{job.OverlapSkip: CodeSkipped, job.OverlapQueue: CodeQueued, job.OverlapAllow: CodeClaimed} {
		w := newWorld(t)
		id := w.create(T(10), overlap(policy))
		w.complete(w.claim(id, T(70)), ResultRetry, T(100))
		if got := w.claim(id, T(130)); got.Code != want {
			t.Errorf("%s: %+v", policy, got)
		}
	}
}

func TestOverlapQueue(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapQueue))
	first := w.claim(id, T(70))
	second := w.claim(id, T(130))
	third := w.claim(id, T(190))
	if second.Code != CodeQueued || third.Code != CodeQueued {
		t.Fatalf("%+v %+v", second, third)
	}
	w.now = T(200)
	w.complete(first, ResultSucceeded, 0)
	if row, _ := w.row(second.Run); row.Status != job.RunPending || row.Ready != T(200) {
		t.Fatalf("the older one was not released: %+v", row)
	}
	if row, _ := w.row(third.Run); row.Status != job.RunWaiting {
		t.Fatalf("both were released: %+v", row)
	}
	// A retry keeps the next one waiting; the end of the run does not.
	o := w.claimRun(second.Run)
	w.complete(o, ResultRetry, T(210))
	if row, _ := w.row(third.Run); row.Status != job.RunWaiting {
		t.Fatalf("%+v", row)
	}
	w.complete(w.claimRun(second.Run), ResultDead, 0)
	w.complete(w.claimRun(third.Run), ResultSucceeded, 0)
	if s, _ := w.state(id); s.Active != 0 || s.Waiting != 0 || s.Runs != 3 {
		t.Fatalf("%+v", s)
	}
}

func TestOverlapQueueIsBounded(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(0), overlap(job.OverlapQueue))
	first := w.claim(id, T(60))
	n := int64(1)
	for ; n <= job.MaxWaiting; n++ {
		if got := w.claim(id, T(60*(n+1))); got.Code != CodeQueued {
			t.Fatalf("%d: %+v", n, got)
		}
	}
	if got := w.claim(id, T(60*(n+1))); got.Code != CodeSkipped {
		t.Fatalf("%+v", got)
	}
	w.complete(first, ResultSucceeded, 0)
	// The skipped one is written out as soon as another is accepted, also if that one has to wait.
	if got := w.claim(id, T(60*(n+2))); got.Code != CodeQueued {
		t.Fatalf("%+v", got)
	}
	w.wantHistory(id, line{Status: job.RunSucceeded, At: T(0), Attempt: 1}, line{Status: job.RunSkipped, Reason: job.ReasonQueueFull, At: T(60 * n), Count: 1})
}

func TestOverlapAllow(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(0), overlap(job.OverlapAllow))
	for i := int64(0); i < 5; i++ {
		if got := w.claim(id, T(60*(i+1))); got.Code != CodeClaimed {
			t.Fatalf("%d: %+v", i, got)
		}
	}
	if s, _ := w.state(id); s.Active != 5 {
		t.Fatalf("%+v", s)
	}
}

func TestConcurrencyLimitsAllow(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(0), func(s *job.Spec) { s.Overlap, s.Concurrency = job.OverlapAllow, 2 })
	a := w.claim(id, T(60))
	b := w.claim(id, T(120))
	c := w.claim(id, T(180))
	d := w.claim(id, T(240))
	if a.Code != CodeClaimed || b.Code != CodeClaimed || c.Code != CodeQueued || d.Code != CodeQueued {
		t.Fatalf("%d %d %d %d", a.Code, b.Code, c.Code, d.Code)
	}
	w.complete(b, ResultSucceeded, 0)
	if row, _ := w.row(c.Run); row.Status != job.RunPending {
		t.Fatalf("%+v", row)
	}
	if row, _ := w.row(d.Run); row.Status != job.RunWaiting {
		t.Fatalf("%+v", row)
	}
	// A looser limit lets more of them start at once.
	w.want(CodeOK, w.updateOf(id, T(240), func(s *job.Spec) { s.Concurrency = 5 }))
	if row, _ := w.row(d.Run); row.Status != job.RunPending {
		t.Fatalf("%+v", row)
	}
}

// Replace tells the running one to stop; the newer one waits for that. One deep: the newest wins and the displaced is recorded.
func TestReplaceIsOneDeepAndTheDisplacedIsRecorded(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapReplace))
	old := w.claim(id, T(70))
	r := w.do(w.claimOf(id, T(130)))[0]
	second := r.Items[0]
	if second.Code != CodeQueued || len(r.Canceling) != 1 || r.Canceling[0] != (Canceling{Run: old.Run, Fence: old.Fence, Worker: "w1", Incarnation: 1}) {
		t.Fatalf("%+v", r)
	}
	r = w.do(w.claimOf(id, T(190)))[0]
	third := r.Items[0]
	if third.Code != CodeQueued || len(r.Canceling) != 0 {
		t.Fatalf("it was told to stop once: %+v", r)
	}
	if _, open := w.row(second.Run); open {
		t.Fatal("the displaced one still waits")
	}
	w.wantHistory(id, line{Status: job.RunCanceled, Reason: job.ReasonReplaced, At: T(70)})
	w.complete(old, ResultCanceled, 0)
	if row, _ := w.row(third.Run); row.Status != job.RunPending {
		t.Fatalf("%+v", row)
	}
	w.complete(w.claimRun(third.Run), ResultSucceeded, 0)
	w.wantHistory(id, line{Status: job.RunCanceled, Reason: job.ReasonReplaced, At: T(70)},
		line{Status: job.RunCanceled, Reason: job.ReasonReplaced, At: T(10), Attempt: 1}, line{Status: job.RunSucceeded, At: T(130), Attempt: 1})
}

// The retry is dropped at once and the replacement starts at once.
func TestReplaceOfARetryingRun(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapReplace))
	old := w.claim(id, T(70))
	w.complete(old, ResultRetry, T(500))
	r := w.do(w.claimOf(id, T(130)))[0]
	if r.Items[0].Code != CodeClaimed || len(r.Canceling) != 0 {
		t.Fatalf("%+v", r)
	}
	if keys := w.due(id); len(keys) != 1 || keys[0].At != T(130) {
		t.Fatalf("the retry is still due: %+v", keys)
	}
	w.wantHistory(id, line{Status: job.RunFailed, At: T(10), Attempt: 1}, line{Status: job.RunCanceled, Reason: job.ReasonReplaced, At: T(10), Attempt: 1})
}

func TestALateSuccessOfACancelingRunIsASuccess(t *testing.T) {
	for res, want := range map[Result]job.RunStatus{
		ResultSucceeded: job.RunSucceeded, ResultRetry: job.RunCanceled, ResultDead: job.RunCanceled, ResultCanceled: job.RunCanceled, ResultReturned: job.RunCanceled,
	} {
		w := newWorld(t)
		id := w.create(T(10), overlap(job.OverlapReplace))
		old := w.claim(id, T(70))
		w.claim(id, T(130))
		w.complete(old, res, T(500))
		h := w.history(id)
		if len(h) != 1 || h[0].Status != want {
			t.Errorf("result %d: %+v", res, h)
		}
		if s, _ := w.state(id); s.Active != 1 || s.Waiting != 0 || s.Dead != 0 {
			t.Errorf("result %d: the replacement did not get its turn: %+v", res, s)
		}
	}
}

func TestACancelingRunClosesAtLeaseEnd(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapReplace))
	old := w.claim(id, T(70))
	next := w.claim(id, T(130))
	w.want(CodeOK, expireOf(old))
	w.wantHistory(id, line{Status: job.RunCanceled, Reason: job.ReasonReplaced, At: T(10), Attempt: 1})
	if row, _ := w.row(next.Run); row.Status != job.RunPending {
		t.Fatalf("%+v", row)
	}
}

// Forced runs count (F6).
func TestManualRunsObeyTheOverlapPolicy(t *testing.T) {
	for policy, want := range map[string]Code{job.OverlapSkip: CodeRefused, job.OverlapQueue: CodeQueued, job.OverlapAllow: CodeOK, job.OverlapReplace: CodeQueued} {
		w := newWorld(t)
		id := w.create(T(10), overlap(policy))
		w.claim(id, T(70))
		w.want(want, &Trigger{Job: uint64(id)})
	}
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapSkip))
	w.want(CodeOK, &Trigger{Job: uint64(id)})
	if got := w.claim(id, T(70)); got.Code != CodeSkipped {
		t.Fatalf("a manual run did not count: %+v", got)
	}
}
