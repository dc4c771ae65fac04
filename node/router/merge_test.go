package router_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// randomWorld has random lists in some groups, and one group that has all of them: what the router should say.
func randomWorld(rnd *rand.Rand) (*world, *fake) {
	var numbers []uint32
	for g := range uint32(1 + rnd.IntN(6)) {
		numbers = append(numbers, g+uint32(rnd.IntN(2)))
	}
	numbers = slices.Compact(numbers)
	w, one := newWorld(numbers...), &fake{}
	names := rnd.Perm(10_000)
	times := rnd.Perm(4000) // none twice: which of two at one time comes first is open
	at := func() job.Instant {
		n := times[0]
		times = times[1:]
		return job.Instant(1_000_000 + n)
	}
	for _, g := range numbers {
		f := w.groups[g]
		if f.budget = rnd.IntN(4) * 3; f.budget > 0 {
			f.budget++
		}
		for n := range rnd.IntN(60) {
			id := idIn(g, uint64(n+1))
			j := job.Job{ID: id, Status: []job.Status{job.StatusPaused, job.StatusScheduled}[rnd.IntN(2)]}
			j.Namespace = []string{"default", "a", "b"}[rnd.IntN(3)]
			j.Name = fmt.Sprintf("%s-%04d", []string{"x", "y"}[rnd.IntN(2)], names[0])
			names = names[1:]
			f.jobs = append(f.jobs, j)
			f.upcoming = append(f.upcoming, wire.Upcoming{JobID: id, StartAt: job.Instant(1000 + rnd.IntN(20))})
			key := job.RunKey{Job: id, At: int64(rnd.IntN(30)), Origin: job.OriginSchedule}
			f.runs = append(f.runs, job.Run{RunID: key.String(), JobID: id, Status: job.RunRunning})
		}
		slices.SortFunc(f.upcoming, upcomingOrder)
		slices.SortFunc(f.runs, openOrder)
		var ended []job.Instant
		for range rnd.IntN(60) {
			ended = append(ended, at())
		}
		slices.Sort(ended)
		for i, end := range slices.Backward(ended) {
			f.runs = append(f.runs, job.Run{JobID: idIn(g, 1), Seq: uint64(i + 1), FinishedAt: end,
				Status: job.RunSucceeded})
			f.dead = append(f.dead, job.DeadLetter{Seq: uint64(i + 1), Run: job.Run{JobID: idIn(g, 1), FinishedAt: end, Status: job.RunDead}})
			f.audit = append(f.audit, wire.AuditRecord{Seq: uint64(i + 1), At: end, Action: "job.create"})
		}
		one.jobs = append(one.jobs, f.jobs...)
		one.upcoming = append(one.upcoming, f.upcoming...)
		one.runs = append(one.runs, f.runs...)
		for _, d := range f.dead {
			d.Seq |= uint64(g) << 46
			one.dead = append(one.dead, d)
		}
		for _, r := range f.audit {
			r.Seq |= uint64(g) << 46
			one.audit = append(one.audit, r)
		}
	}
	slices.SortFunc(one.upcoming, upcomingOrder)
	slices.SortFunc(one.runs, func(a, b job.Run) int {
		return cmp.Or(cmp.Compare(min(a.Seq, 1), min(b.Seq, 1)), cmp.Compare(b.FinishedAt, a.FinishedAt), openOrder(a, b))
	})
	slices.SortFunc(one.dead, func(a, b job.DeadLetter) int { return cmp.Compare(b.FinishedAt, a.FinishedAt) })
	slices.SortFunc(one.audit, func(a, b wire.AuditRecord) int { return cmp.Compare(b.At, a.At) })
	return w, one
}

func upcomingOrder(a, b wire.Upcoming) int {
	return cmp.Or(cmp.Compare(a.StartAt, b.StartAt), cmp.Compare(a.JobID, b.JobID))
}

func openOrder(a, b job.Run) int {
	x, _ := job.ParseRunKey(a.RunID)
	y, _ := job.ParseRunKey(b.RunID)
	switch {
	case newer(x, y):
		return -1
	case newer(y, x):
		return 1
	}
	return 0
}

// Whatever the groups have and however long pages are: the rows are those of one list, each once and in its order.
func TestPagesOfGroupsAreThoseOfOneList(t *testing.T) {
	for seed := range uint64(25) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w, one := randomWorld(rnd)
		limit := func() int { return 1 + rnd.IntN(25) }
		all := func() int { return 1000 }
		for _, target := range []string{"/jobs", "/jobs?namespace=*", "/jobs?namespace=*&status=paused",
			"/jobs?prefix=x", "/jobs?prefix=x&namespace=*", "/jobs?namespace=*&q=1", "/jobs?q=2&prefix=y&status=paused"} {
			same(t, seed, target, walk(t, w, target, limit, jobsOf), walk(t, api.New(one, api.Options{}), target, all, jobsOf))
		}
		for _, target := range []string{"/runs", "/runs?status=running,succeeded"} {
			same(t, seed, target, walk(t, w, target, limit, runsOf), one.runs)
		}
		same(t, seed, "/dead", walk(t, w, "/dead", limit, deadOf), one.dead)
		same(t, seed, "/audit", walk(t, w, "/audit", limit, auditOf), one.audit)
		same(t, seed, "/upcoming", walk(t, w, "/upcoming", limit, upcomingOf), one.upcoming)
	}
}

func same[T any](t *testing.T, seed uint64, what string, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("seed %d, %s: %d rows, one list has %d", seed, what, len(got), len(want))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("seed %d, %s: row %d is %+v, in one list %+v", seed, what, i, got[i], want[i])
		}
	}
}

func jobsOf(p wire.JobPage) ([]string, string) {
	var out []string
	for _, j := range p.Jobs {
		out = append(out, j.ID.String()+" "+j.Name)
	}
	return out, p.NextCursor
}

func runsOf(p wire.RunPage) ([]job.Run, string)             { return p.Runs, p.NextCursor }
func deadOf(p wire.DeadPage) ([]job.DeadLetter, string)     { return p.Dead, p.NextCursor }
func auditOf(p wire.AuditPage) ([]wire.AuditRecord, string) { return p.Records, p.NextCursor }
func upcomingOf(p wire.UpcomingPage) ([]wire.Upcoming, string) {
	return p.Occurrences, p.NextCursor
}

// The total is that of all groups on every page, also of those that a page did not need.
func TestTotalsAreThoseOfAllGroups(t *testing.T) {
	w := newWorld(1, 2, 3)
	for _, g := range w.numbers {
		for n := range 10 {
			j := job.Job{ID: idIn(g, uint64(n+1)), Status: job.StatusPaused}
			j.Namespace, j.Name = "default", fmt.Sprintf("x%d%d", g, n)
			w.groups[g].jobs = append(w.groups[g].jobs, j)
		}
	}
	for _, target := range []string{"/jobs?status=paused&limit=3", "/jobs?q=x&limit=3", "/jobs?prefix=x&limit=3"} {
		cursor, scanned := "", 0
		for pages := 0; pages == 0 || cursor != ""; pages++ {
			var p wire.JobPage
			call(t, w, "GET", target+"&cursor="+cursor, "", &p)
			if scanned += p.Scanned; p.Total != 30 {
				t.Errorf("%s, page %d: the total is %d", target, pages, p.Total)
			}
			cursor = p.NextCursor
		}
		if scanned > 30 {
			t.Errorf("%s: %d of 30 jobs were looked at", target, scanned)
		}
	}
}

// A cursor of another list, of a node of one group, or of groups that there are not is refused in the API's words.
func TestForeignCursorsAreRefused(t *testing.T) {
	w := newWorld(1, 2)
	for _, target := range []string{"/jobs?cursor=j_1a", "/jobs?cursor=gn~1.x", "/jobs?cursor=gj~9.j_1a",
		"/jobs?cursor=gj~1.x", "/jobs?cursor=gj~1.j_1a~1.j_1a", "/jobs?cursor=gj~", "/jobs?cursor=gj~1", "/jobs?cursor=g",
		"/jobs?cursor=gj~1_x", "/runs?cursor=h12", "/dead?cursor=12", "/dead:groups?cursor=1", "/audit?cursor=1",
		"/upcoming?cursor=gj~1.", "/jobs?cursor=gj~1." + strings.Repeat("a", 40_000)} {
		rec := call(t, w, "GET", target, "", nil)
		if rec.Code != 400 || !strings.Contains(rec.Body.String(), `"field":"cursor"`) {
			t.Errorf("%.60s: %d %s", target, rec.Code, rec.Body)
		}
	}
}

// A group without a leader fails a consistent list, which names it. A stale one goes on without it and says so, on
// every page.
func TestMissingGroup(t *testing.T) {
	w := newWorld(1, 2, 3)
	for _, g := range w.numbers {
		f := w.groups[g]
		for n := range 4 {
			j := job.Job{ID: idIn(g, uint64(n+1))}
			j.Namespace, j.Name = "default", fmt.Sprintf("x%d%d", n, g)
			f.jobs = append(f.jobs, j)
			f.runs = append(f.runs, job.Run{JobID: 1, Seq: uint64(4 - n), FinishedAt: job.Instant(int(g)*10 - n), Status: job.RunSucceeded})
		}
	}
	w.down[2] = true
	for _, target := range []string{"/jobs?limit=9", "/jobs?prefix=x", "/runs?status=succeeded", "/dead", "/dead:groups",
		"/upcoming", "/upcoming:load", "/runs:summary", "/stats", "/queues", "/audit", "/runs:export", "/audit:export"} {
		rec := call(t, w, "GET", target, "", nil)
		if rec.Code != 503 || !strings.Contains(rec.Body.String(), "group 2") {
			t.Errorf("%s: %d %s", target, rec.Code, rec.Body)
		}
		rec = call(t, w, "GET", target+map[bool]string{true: "&", false: "?"}[strings.Contains(target, "?")]+"stale=true", "", nil)
		if rec.Code != 200 || rec.Header().Get(wire.MissingHeader) != "2" {
			t.Errorf("%s, stale: %d, missing %q", target, rec.Code, rec.Header().Get(wire.MissingHeader))
		}
	}
	for _, target := range []string{"/jobs?stale=true&limit=3", "/jobs?stale=true&prefix=x&limit=3"} {
		cursor, n := "", 0
		for pages := 0; pages == 0 || cursor != ""; pages++ {
			var p wire.JobPage
			rec := call(t, w, "GET", target+"&cursor="+cursor, "", &p)
			if n += len(p.Jobs); pages > 1 && rec.Header().Get(wire.MissingHeader) != "2" {
				t.Errorf("%s: page %d does not say what is missing", target, pages)
			}
			cursor = p.NextCursor
		}
		if n != 8 {
			t.Errorf("%s: %d jobs of the groups that answer", target, n)
		}
	}
	var st wire.Status
	call(t, w, "GET", "/status", "", &st)
	if len(st.Troubles) != 1 || !strings.Contains(st.Troubles[0].Text, "group 2") {
		t.Errorf("the status says %+v", st.Troubles)
	}
}
