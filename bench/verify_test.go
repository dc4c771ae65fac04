package bench

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// scene is a history and what a target saw.
type scene struct {
	history history
	seen    []effect
}

func key(id job.ID, at int64) job.RunKey {
	return job.RunKey{Job: id, At: at, Origin: job.OriginSchedule}
}

// history is a backend that exports what no node should record, and answers nothing else.
type history struct {
	api.Backend
	records []job.Run
}

func (h *history) ExportHistory(_ context.Context, after uint64, limit int, _ api.Read) ([]job.Run, error) {
	rest := h.records[min(after, uint64(len(h.records))):]
	return rest[:min(limit, len(rest))], nil
}

func (h *history) add(r job.Run) {
	r.Seq = uint64(len(h.records) + 1)
	h.records = append(h.records, r)
}

// ran is a run as it should be, at both ends.
func (s *scene) ran(k job.RunKey) {
	s.recorded(k, job.RunSucceeded)
	s.arrived(k)
}

func (s *scene) recorded(k job.RunKey, status job.RunStatus) {
	lag := int64(3)
	s.history.add(job.Run{RunID: k.String(), JobID: k.Job, Status: status, ScheduledAt: job.Instant(k.At),
		Origin:    k.Origin,
		ClaimedAt: job.Instant(k.At + 1), FinishedAt: job.Instant(k.At + 5), LagMS: &lag})
}

func (s *scene) arrived(k job.RunKey) {
	s.seen = append(s.seen, effect{run: k, fence: uint64(len(s.seen) + 1), at: k.At + 3})
}

// judged is what is said about a scene whose history has one record from before.
func judged(t *testing.T, ids []job.ID, play func(*scene), expect func(*account)) *Result {
	t.Helper()
	s := &scene{}
	s.recorded(key(ids[0], -77_000), job.RunDead)
	play(s)
	srv := httptest.NewServer(api.New(&s.history, api.Options{}))
	defer srv.Close()
	r := &Result{}
	a, err := settle(t.Context(), client.New(srv.Listener.Addr().String()), r, 1, set(ids), s.seen)
	if err != nil {
		t.Fatal(err)
	}
	expect(a)
	a.figures()
	return r
}

type verdict struct {
	name           string
	play           func(*scene)
	lost, repeated int
	says           string // empty: all is well
}

func (v *verdict) check(t *testing.T, r *Result) {
	t.Helper()
	all := strings.Join(r.Problems, "\n")
	if r.Lost != v.lost || r.Repeated != v.repeated || (v.says == "") != (all == "") || !strings.Contains(all, v.says) {
		t.Errorf("%d lost, %d repeated: %q", r.Lost, r.Repeated, r.Problems)
	}
}

// What is wrong with a hot second is found, whichever end it is to be seen at.
func TestOnceFindsWhatIsWrong(t *testing.T) {
	ids := []job.ID{1, 2, 3}
	const at = 10_000
	all := func(s *scene) {
		for _, id := range ids {
			s.ran(key(id, at))
		}
	}
	for _, v := range []verdict{
		{name: "all is well", play: all},
		{name: "jobs of another bench",
			play: func(s *scene) { all(s); s.ran(key(9, at)); s.arrived(key(8, at)); s.recorded(key(7, at), job.RunDead) }},
		{name: "never ran", play: func(s *scene) { s.ran(key(1, at)); s.ran(key(3, at)) }, lost: 1,
			says: "job j_2 has no run"},
		{name: "recorded and not delivered",
			play: func(s *scene) { s.ran(key(1, at)); s.ran(key(2, at)); s.recorded(key(3, at), job.RunSucceeded) }, lost: 1,
			says: "never reached the target"},
		{name: "delivered and not recorded",
			play: func(s *scene) { s.ran(key(1, at)); s.ran(key(2, at)); s.arrived(key(3, at)) }, lost: 1,
			says: "is not in the history"},
		{name: "delivered twice", play: func(s *scene) { all(s); s.arrived(key(2, at)) }, repeated: 1,
			says: "reached the target 2 times"},
		{name: "recorded twice", play: func(s *scene) { all(s); s.recorded(key(2, at), job.RunSucceeded) },
			says: "is in the history 2 times"},
		{name: "done twice", play: func(s *scene) { all(s); s.ran(key(2, at)) }, repeated: 1,
			says: "is in the history 2 times"},
		{name: "invented, and recorded", play: func(s *scene) { all(s); s.ran(key(2, at+1000)) }, says: "4 runs of 3 jobs"},
		{name: "invented, and not recorded", play: func(s *scene) { all(s); s.arrived(key(2, at+1000)) },
			says: "is not in the history"},
		{name: "at another time", play: func(s *scene) { s.ran(key(1, at)); s.ran(key(2, at)); s.ran(key(3, at+1000)) },
			lost: 1, says: "job j_3 has no run"},
		{name: "of another origin", play: func(s *scene) {
			s.ran(key(1, at))
			s.ran(key(2, at))
			s.ran(job.RunKey{Job: 3, At: at, Origin: job.OriginManual})
		}, lost: 1, says: "job j_3 has no run"},
		{name: "failed", play: func(s *scene) {
			s.ran(key(1, at))
			s.ran(key(2, at))
			s.recorded(key(3, at), job.RunDead)
			s.arrived(key(3, at))
		}, says: "dead"},
		{name: "skipped", play: func(s *scene) {
			all(s)
			s.history.add(job.Run{JobID: 2, Status: job.RunSkipped, Reason: job.ReasonOverlap, First: at, Last: at,
				Count: 4})
		}, says: "4 occurrences"},
	} {
		t.Run(v.name, func(t *testing.T) {
			r := judged(t, ids, v.play, func(a *account) { a.once(ids, at) })
			v.check(t, r)
			if v.says == "" && (r.Lag == nil || r.Lag.Count != 3 || r.Lag.Max != 3 || r.CycleMS != 4) {
				t.Errorf("%+v, cycle %v", r.Lag, r.CycleMS)
			}
		})
	}
}

// Each of two jobs runs every second, from 1.2 s to 8.2 s and from 1.7 s to 8.7 s; measured is the time from 3 s to 8
// s.
func TestEveryFindsWhatIsWrong(t *testing.T) {
	ids := []job.ID{1, 2}
	series := func(s *scene, id job.ID, from, to int64, but ...int64) {
		for at := from; at <= to; at += 1000 {
			if !slices.Contains(but, at) {
				s.ran(key(id, at))
			}
		}
	}
	first := func(s *scene) { series(s, 1, 1200, 8200) }
	for _, v := range []verdict{
		{name: "all is well", play: func(s *scene) { first(s); series(s, 2, 1700, 8700) }},
		{name: "paused in its last second", play: func(s *scene) { first(s); series(s, 2, 1700, 6700) }},
		{name: "never ran", play: first, lost: 1, says: "job j_2 never ran"},
		{name: "a hole", play: func(s *scene) { first(s); series(s, 2, 1700, 8700, 3700, 4700) }, lost: 2,
			says: "job j_2 ran 6 times where it should have run 8 times, 0 of them"},
		{name: "invented between", play: func(s *scene) { first(s); series(s, 2, 1700, 8700); s.ran(key(2, 4000)) },
			says: "ran 9 times where it should have run 8 times, 1 of them when it should not"},
		{name: "at another time", play: func(s *scene) { first(s); series(s, 2, 1700, 8700, 4700); s.ran(key(2, 4750)) },
			lost: 1, says: "ran 8 times where it should have run 8 times, 1 of them"},
		{name: "began late", play: func(s *scene) { first(s); series(s, 2, 4700, 8700) }, lost: 2,
			says: "ran 1700 ms after it should have begun"},
		{name: "ended early", play: func(s *scene) { first(s); series(s, 2, 1700, 3700) }, lost: 3,
			says: "ran 4300 ms before the end"},
		{name: "by hand as well", play: func(s *scene) {
			first(s)
			series(s, 2, 1700, 8700)
			s.ran(job.RunKey{Job: 2, At: 4700, Origin: job.OriginManual})
		}, says: "ran 9 times where it should have run 8"},
	} {
		t.Run(v.name, func(t *testing.T) {
			v.check(t, judged(t, ids, v.play, func(a *account) { a.every(ids, 1000, 3000, 8000) }))
		})
	}
}

// A problem more than anybody reads changes the count, not the list.
func TestProblemsAreBounded(t *testing.T) {
	ids := make([]job.ID, 500)
	for i := range ids {
		ids[i] = job.ID(i + 1)
	}
	r := judged(t, ids, func(*scene) {}, func(a *account) { a.once(ids, 1000) })
	if r.Lost != 500 || len(r.Problems) != 20 {
		t.Errorf("%d lost, %d problems", r.Lost, len(r.Problems))
	}
}
