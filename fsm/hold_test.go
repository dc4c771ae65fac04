package fsm

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// hold does to the state what a restore does.
func (w *world) hold() {
	w.Helper()
	b, err := w.st.Begin()
	if err != nil {
		w.Fatal(err)
	}
	info := b.Info()
	info.Hold = store.Hold{On: true, Since: w.now, Cluster: "old", Index: b.C.Index}
	b.SetInfo(info)
	if err := b.Commit(); err != nil {
		w.Fatal(err)
	}
}

func TestHoldStopsWhatTimeBrings(t *testing.T) {
	w := newWorld(t)
	due, other := w.create(T(10), nil), w.create(T(10), nil)
	done := w.create(0, oneOff)
	claimed := w.claim(w.create(T(5), overlap(job.OverlapAllow)), T(65))
	died := w.claim(w.create(T(6), nil), T(66))
	w.complete(died, ResultDead, 0)
	w.now = T(100_000_000)
	w.hold()

	clean := w.look().due
	cleanup := &Cleanup{Later: w.now + 1}
	for _, e := range clean {
		if e.Kind == store.KindCleanup && e.Job == done {
			cleanup.Lane, cleanup.Ready, cleanup.Jobs = []byte{byte(e.Lane)}, []int64{e.Ready}, []uint64{uint64(e.Job)}
		}
	}
	if len(cleanup.Jobs) != 1 {
		t.Fatal("nothing to clean up")
	}
	w.unchanged(CodeStale, w.claimOf(due, T(70)), w.advanceOf(due, T(70), gap(T(10), T(10), 1, job.RunMissed, job.ReasonOutage)),
		expireOf(claimed), &Quarantine{Job: uint64(due), Gen: 1, Why: "bad"}, cleanup, &CloseRestored{Limit: 5})
	seq := w.look().dead[0]
	for _, cmd := range []Command{&Trigger{Job: uint64(due)}, &Backfill{Job: uint64(due), At: []int64{T(1)}}, &Redrive{Seqs: []uint64{seq}}} {
		w.unchanged(CodeRefused, cmd)
	}

	// What people ask for is done, and so is what a worker reports.
	w.create(T(20), nil)
	w.want(CodeOK, w.updateOf(due, T(10), func(s *job.Spec) { s.Tags = map[string]string{"a": "b"} }))
	w.want(CodeOK, &Pause{Job: uint64(other)})
	w.want(CodeOK, w.resumeOf(other, T(200), Gap{}))
	w.want(CodeOK, &Delete{Job: uint64(other)})
	w.want(CodeOK, &Stamp{Takeover: true})
	w.complete(claimed, ResultSucceeded, 0)
	if info := w.st.Info(); !info.Hold.On || info.Hold.Releasing || info.Released != 0 {
		t.Errorf("%+v", info)
	}
}

func TestReleaseIsOnce(t *testing.T) {
	w := newWorld(t)
	w.now = T(1)
	if o := w.want(CodeOK, &Release{}); o.Count != 0 || w.st.Info().Released != 0 {
		t.Errorf("there was no hold: %+v", o)
	}
	w.hold()
	w.now = T(2)
	q := Request{ID: "r", Expires: T(99)}
	if o := w.want(CodeOK, &Release{Request: q}); o.Count != 1 {
		t.Errorf("%+v", o)
	}
	w.now = T(3)
	if o := w.want(CodeOK, &Release{Request: q}); o.Count != 1 || !o.Replay {
		t.Errorf("a repeat: %+v", o)
	}
	if o := w.want(CodeOK, &Release{}); o.Count != 0 {
		t.Errorf("the second: %+v", o)
	}
	if info := w.st.Info(); info.Released != T(2) || !info.Hold.On || !info.Hold.Releasing {
		t.Errorf("%+v", info)
	}
	w.want(CodeOK, &CloseRestored{Limit: 1})
	if info := w.st.Info(); info.Released != T(2) || info.Hold != (store.Hold{}) {
		t.Errorf("%+v", info)
	}
	w.unchanged(CodeStale, &CloseRestored{Limit: 1})
	if o := w.want(CodeOK, &Release{}); o.Count != 0 || w.st.Info().Released != T(2) {
		t.Errorf("after it: %+v", o)
	}
	// A clock that ran ahead when it was released must not swallow what is still to come.
	w.now = T(1)
	w.want(CodeOK, &ClockReset{})
	if info := w.st.Info(); info.Released != T(1) {
		t.Errorf("%+v", info)
	}
}

// Every open run of a backup is closed, whatever its state, in pieces of any size, and the state is sound after each piece.
func TestLoseClosesEveryState(t *testing.T) {
	for _, limit := range []int{1, 2, 1000} {
		t.Run(fmt.Sprint("by ", limit), func(t *testing.T) {
			w := newWorld(t)
			claimed := w.create(T(1), nil)
			w.claim(claimed, T(61))
			retrying := w.create(T(2), nil)
			w.complete(w.claim(retrying, T(62)), ResultRetry, T(5000))
			waiting := w.create(T(3), overlap(job.OverlapQueue))
			w.claim(waiting, T(63))
			w.want(CodeQueued, w.claimOf(waiting, T(123)))
			w.want(CodeQueued, w.claimOf(waiting, T(183)))
			held := w.create(T(4), nil)
			w.complete(w.claim(held, T(64)), ResultRetry, T(5000))
			w.want(CodeOK, &Pause{Job: uint64(held)})
			pending := w.create(0, func(s *job.Spec) { s.Schedule = job.ScheduleManual })
			manual := w.want(CodeOK, &Trigger{Job: uint64(pending)}).Run
			canceling := w.create(T(6), nil)
			w.claim(canceling, T(66))
			w.want(CodeOK, &Cancel{Job: uint64(canceling), All: true})
			gone := w.create(T(7), nil)
			w.claim(gone, T(67))
			w.want(CodeOK, &Delete{Job: uint64(gone)})
			once := w.create(T(8), func(s *job.Spec) { oneOff(s); s.Retention = job.Duration(1e9) })
			w.claim(once, 0)

			w.now = T(1000)
			w.hold()
			w.want(CodeOK, &Release{})
			pieces := 0
			for w.st.Info().Hold.On {
				if pieces++; pieces > 100 {
					t.Fatal("it does not end")
				}
				if o := w.want(CodeOK, &CloseRestored{Limit: limit}); o.Count > limit {
					t.Errorf("%d closed, the limit is %d", o.Count, limit)
				}
			}
			if n := w.st.OpenRunCount(); n != 0 || limit == 1 && pieces != 10 || limit == 1000 && pieces != 1 {
				t.Errorf("%d are open after %d pieces", n, pieces)
			}
			w.wantHistory(claimed, line{job.RunLost, job.ReasonRestored, T(1), 0, 1})
			w.wantHistory(retrying, line{job.RunFailed, 0, T(2), 0, 1}, line{job.RunLost, job.ReasonRestored, T(2), 0, 1})
			w.wantHistory(waiting, line{job.RunLost, job.ReasonRestored, T(63), 0, 0}, line{job.RunLost, job.ReasonRestored, T(123), 0, 0}, line{job.RunLost, job.ReasonRestored, T(3), 0, 1})
			w.wantHistory(held, line{job.RunFailed, 0, T(4), 0, 1}, line{job.RunLost, job.ReasonRestored, T(4), 0, 1})
			w.wantHistory(pending, line{job.RunLost, job.ReasonRestored, manual.At, 0, 0})
			w.wantHistory(canceling, line{job.RunCanceled, job.ReasonCanceled, T(6), 0, 1})
			w.wantHistory(gone, line{job.RunCanceled, job.ReasonDeleted, T(7), 0, 1})
			w.wantHistory(once, line{job.RunLost, job.ReasonRestored, T(8), 0, 1})
			if s, p := w.state(waiting); s.Active != 0 || s.Waiting != 0 || p.At != T(183) || s.LastStatus != job.RunLost {
				t.Errorf("%+v at %+v", s, p)
			}
			w.wantKept(once)
		})
	}
}

// wantKept wants the clean-up of a one-off job at least 30 days ahead, whatever its retention.
func (w *world) wantKept(id job.ID) {
	w.Helper()
	for _, e := range w.look().due {
		if e.Kind == store.KindCleanup && e.Job == id {
			if e.Ready-w.now < minRestored {
				w.Fatalf("%s is removed after %d ms", id, e.Ready-w.now)
			}
			return
		}
	}
	w.Fatalf("%s is never removed", id)
}

// A one-off that a restore kept from running stays, can be run by hand, and goes by its own retention after that.
func TestMissedOneOffStays(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), func(s *job.Spec) { oneOff(s); s.Retention = job.Duration(1e9) })
	w.now = T(20)
	w.want(CodeOK, w.advanceOf(id, 0, gap(T(10), T(10), 1, job.RunMissed, job.ReasonRestored)))
	w.wantKept(id)
	w.wantHistory(id, line{job.RunMissed, job.ReasonRestored, T(10), 1, 0})
	k := w.want(CodeOK, &Trigger{Job: uint64(id)}).Run
	w.complete(w.claimRun(k), ResultSucceeded, 0)
	first := int64(0)
	for _, e := range w.look().due {
		if e.Kind == store.KindCleanup && (first == 0 || e.Ready < first) {
			first = e.Ready
		}
	}
	if first != T(21) {
		t.Errorf("removed at %d", first)
	}
}

// From one backup, all replicas get to the same state, whatever happens on the way to the release.
func TestReleaseIsDeterministic(t *testing.T) {
	for seed := range uint64(3) {
		w := newWorld(t)
		g := newGen(w, seed)
		for range 150 {
			w.do(g.next())
		}
		w.hold()
		other := newWorldAt(t, copyState(t, w))
		other.index = w.index
		from := len(w.log)
		for range 60 {
			w.do(g.next())
		}
		w.do(&Release{})
		for range 40 {
			w.do(g.next())
		}
		for i := 0; w.st.Info().Hold.On; i++ {
			if w.do(&CloseRestored{Limit: 3}); i > 1000 {
				t.Fatal("it does not end")
			}
		}
		for _, l := range w.log[from:] {
			other.f.Apply(l)
		}
		if fullDigest(t, w) != fullDigest(t, other) {
			t.Errorf("seed %d: the states differ", seed)
		}
		if one, two := fmt.Sprintf("%+v", w.st.Info()), fmt.Sprintf("%+v", other.st.Info()); one != two { // an empty list may come back as none
			t.Errorf("%s\n%s", one, two)
		}
	}
}

func copyState(t *testing.T, w *world) string {
	t.Helper()
	_, _, rc, err := Stream(w.st, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	h, err := ReadHeader(rc)
	path := filepath.Join(t.TempDir(), "state.db")
	if err == nil {
		err = h.WriteState(path, rc)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A group of jobs counts as released from the later of its own mark and the instant of the control group.
func TestReleaseIsTheLaterInstant(t *testing.T) {
	for at, want := range map[int64]int64{0: T(100), T(50): T(100), T(200): T(200)} {
		w := newWorld(t)
		w.now = T(100)
		w.hold()
		w.want(CodeOK, &Release{At: at})
		if got := w.st.Info().Released; got != want {
			t.Errorf("after %d it is released from %d, want %d", at, got, want)
		}
	}
}
