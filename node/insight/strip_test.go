package insight

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

const minute = int64(time.Minute / time.Millisecond)

// minutely is an hour of a job that runs every minute, of which every occurrence succeeded.
func minutely(t *testing.T) (*Strip, int64) {
	t.Helper()
	sched, err := schedule.Parse("* * * * *", schedule.Options{Zone: "UTC"})
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC).UnixMilli()
	now := noon + 60*minute + 1
	s := &Strip{Sched: sched, Follows: noon, Now: now, Last: noon + 60*minute, Due: noon + 61*minute,
		Ready: noon + 61*minute, Left: -1, Runs: map[int64]*wire.Occurrence{}}
	for i := int64(1); i <= 60; i++ {
		at := noon + i*minute
		s.Runs[at] = &wire.Occurrence{ScheduledAt: job.Instant(at), Count: 1, Fate: wire.FateSucceeded, Attempts: 1}
	}
	return s, noon
}

func sums(t *testing.T, s *Strip, from int64) ([]wire.Occurrence, wire.OccurrenceSummary) {
	t.Helper()
	cells, ok := s.Cells(from, s.Now+1000*minute, 5)
	if !ok {
		t.Fatal("too many")
	}
	sum := Summarize(cells, s.Now)
	if sum.Expected != sum.Ran+sum.Open+sum.Explained+sum.Unaccounted {
		t.Errorf("it does not add up: %+v", sum)
	}
	return cells, sum
}

// A hole is not explained by anything around it.
func TestAHoleShows(t *testing.T) {
	s, noon := minutely(t)
	if _, sum := sums(t, s, noon); sum != (wire.OccurrenceSummary{Expected: 60, Ran: 60, Upcoming: 5}) {
		t.Fatalf("%+v", sum)
	}
	for _, i := range []int64{1, 17, 60} {
		delete(s.Runs, noon+i*minute)
	}
	cells, sum := sums(t, s, noon)
	if sum != (wire.OccurrenceSummary{Expected: 60, Ran: 57, Unaccounted: 3, Upcoming: 5}) {
		t.Errorf("%+v", sum)
	}
	for _, i := range []int{1, 17, 60} {
		if c := cells[i-1]; c.Fate != wire.FateUnaccounted || int64(c.ScheduledAt) != noon+int64(i)*minute {
			t.Errorf("%+v", c)
		}
	}
	// An interval explains what is in it and nothing beside it.
	s.Gaps = []store.Interval{{First: noon + 17*minute, Last: noon + 17*minute, Count: 1, Status: job.RunSkipped,
		Reason: job.ReasonOverlap}}
	if _, sum := sums(t, s, noon); sum.Unaccounted != 2 || sum.Explained != 1 {
		t.Errorf("%+v", sum)
	}
	// A job that is parked without a reason has lost its next occurrence.
	s.Due, s.Ready, s.Now = 0, 0, s.Now+3*minute
	if _, sum := sums(t, s, noon); sum.Unaccounted != 5 {
		t.Errorf("%+v", sum)
	}
	s.Left = 0 // max_runs is reached: nothing was to follow
	if _, sum := sums(t, s, noon); sum.Unaccounted != 2 || sum.Expected != 60 {
		t.Errorf("%+v", sum)
	}
}

// Nothing is claimed about a time of which the records are gone, or that an earlier schedule had.
func TestOnlyWhatIsKnownIsExpected(t *testing.T) {
	s, noon := minutely(t)
	for i := int64(1); i <= 30; i++ {
		delete(s.Runs, noon+i*minute)
	}
	s.Known = noon + 30*minute
	early := noon - 30*minute - 7
	s.Runs[early] = &wire.Occurrence{ScheduledAt: job.Instant(early), Count: 1, Fate: wire.FateDead}
	s.Gaps = []store.Interval{{First: noon - 20*minute, Last: noon - 10*minute, Count: 11, Status: job.RunMissed,
		Reason: job.ReasonOutage}}
	cells, sum := sums(t, s, noon-100*minute)
	if sum != (wire.OccurrenceSummary{Expected: 42, Ran: 31, Explained: 11, Upcoming: 5}) {
		t.Errorf("%+v", sum)
	}
	if cells[0].Fate != wire.FateDead || cells[1].Fate != wire.FateMissed || cells[1].Count != 11 ||
		int64(cells[1].Last) != noon-10*minute {
		t.Errorf("%+v", cells[:2])
	}
}

func TestWhatWaitsAndWhatComes(t *testing.T) {
	s, noon := minutely(t)
	for i := int64(58); i <= 60; i++ {
		delete(s.Runs, noon+i*minute)
	}
	s.Last, s.Due, s.Ready = noon+57*minute, noon+58*minute, noon+58*minute
	if _, sum := sums(t, s, noon); sum.Open != 3 || sum.Unaccounted != 0 {
		t.Errorf("a backlog: %+v", sum)
	}
	s.Ready = s.Now + 1
	if cells, sum := sums(t, s, noon); sum.Open != 2 || sum.Upcoming != 6 || cells[57].StartAt == 0 {
		t.Errorf("its jitter is to come: %+v", sum)
	}
	s.Stopped = job.ReasonPaused
	s.Gaps = []store.Interval{{First: s.Due, Last: s.Due + minute, Count: 2, Status: job.RunSkipped,
		Reason: job.ReasonPaused}}
	cells, sum := sums(t, s, noon)
	if sum.Explained != 2 || sum.Open != 1 || sum.Upcoming != 0 || cells[57].Fate != wire.FatePaused {
		t.Errorf("paused: %+v", sum)
	}
	s.Stopped, s.Gaps, s.Due, s.Ready, s.Left = 0, nil, noon+61*minute, noon+61*minute, 2
	s.Last = noon + 60*minute
	s.Forbidden = func(at int64) bool { return at == noon+62*minute }
	if cells, sum = sums(t, s, noon); sum.Upcoming != 2 || cells[61].Fate != wire.FateBlackout || len(cells) != 63 {
		t.Errorf("two runs are left: %+v, %d", sum, len(cells))
	}
}

// What the clock goes over is accounted for: by its record, without one if it is older than those, and ahead of its time.
func TestSkippedByTheClock(t *testing.T) {
	sched, err := schedule.Parse("30 2 * * *", schedule.Options{Zone: "America/New_York", Gap: "skip"})
	if err != nil {
		t.Fatal(err)
	}
	gap := time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC)
	before, after := gap.Add(-23*time.Hour-30*time.Minute).UnixMilli(), gap.Add(23*time.Hour+30*time.Minute).UnixMilli()
	s := &Strip{Sched: sched, Follows: before, Now: before + 1, Last: before, Due: gap.UnixMilli(), Ready: gap.UnixMilli(), Left: 1}
	cells, ok := s.Cells(before+1, after+1, 5)
	if sum := Summarize(cells, s.Now); !ok || len(cells) != 2 || cells[0].Fate != wire.FateSkipped || cells[0].Reason != "dst_gap" ||
		cells[0].StartAt != 0 || int64(cells[1].StartAt) != after || sum.Upcoming != 1 {
		t.Errorf("ahead, with one run left: %+v", cells)
	}
	s.Now, s.Last, s.Due, s.Ready = after-1, gap.UnixMilli(), after, after
	cells, sum := sums(t, s, before+1)
	if cells[0].Fate != wire.FateSkipped || sum.Explained != 1 || sum.Unaccounted != 0 {
		t.Errorf("without a record: %+v %+v", sum, cells)
	}
}

func TestOverlappingIntervals(t *testing.T) {
	v := newIntervals([]store.Interval{{First: 50, Last: 60, Count: 2, Reason: 2}, {First: 1, Last: 100, Count: 9, Reason: 1},
		{First: 70, Last: 75, Count: 1, Reason: 3}})
	for at, want := range map[int64]job.Reason{0: 0, 1: 1, 49: 1, 50: 2, 60: 2, 61: 1, 72: 3, 80: 1, 100: 1, 101: 0} {
		var got job.Reason
		if g := v.around(at); g != nil {
			got = g.Reason
		}
		if got != want {
			t.Errorf("at %d: %d, want %d", at, got, want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	if q := QuantilesOf(nil); q.P50 != nil || q.Max != nil {
		t.Errorf("%+v", q)
	}
	var values []int64
	for i := range int64(100) {
		values = append(values, 100-i)
	}
	if q := QuantilesOf(values); *q.P50 != 50 || *q.P95 != 95 || *q.Max != 100 {
		t.Errorf("%d %d %d", *q.P50, *q.P95, *q.Max)
	}
	if q := QuantilesOf([]int64{7}); *q.P50 != 7 || *q.P95 != 7 || *q.Max != 7 {
		t.Errorf("%d %d %d", *q.P50, *q.P95, *q.Max)
	}
}

// However many there are, each is in one of the cells, what is to come is not, and no hole is covered by its neighbours.
func TestRangesHaveEachOccurrence(t *testing.T) {
	s, noon := minutely(t)
	delete(s.Runs, noon+17*minute)
	s.Runs[noon+40*minute].Fate = wire.FateDead
	cells, sum := sums(t, s, noon)
	for _, n := range []int{1, 7, 59, 60, 1000} {
		got := Ranges(cells, s.Now, n)
		fates := map[string]int64{}
		var last job.Instant
		for _, c := range got {
			if c.ScheduledAt <= last {
				t.Errorf("%d cells: %s follows %s", n, c.ScheduledAt, last)
			}
			last = max(c.ScheduledAt, c.Last)
			if c.Fates == nil {
				fates[c.Fate] += c.Count
			}
			var of int64
			for fate, k := range c.Fates {
				of += k
				fates[fate] += k
			}
			if c.Fates != nil && (of != c.Count || (len(c.Fates) > 1) != (c.Fate == wire.FateMixed)) {
				t.Errorf("%d cells: %+v", n, c)
			}
		}
		if len(got) != min(n, 60)+5 || fates[wire.FateSucceeded] != 58 || fates[wire.FateDead] != 1 ||
			fates[wire.FateUnaccounted] != sum.Unaccounted || fates[wire.FateUpcoming] != 5 {
			t.Errorf("%d cells: %d with %v", n, len(got), fates)
		}
	}
}

// A job that has more than can be looked at shows the newest, and says from when on.
func TestTooManyAreShortened(t *testing.T) {
	s, noon := minutely(t)
	s.Follows = noon - 400*24*60*minute
	if _, ok := s.Cells(s.Follows, s.Now, 0); ok {
		t.Fatal("a minute of each of 400 days is not too much")
	}
	s.Shorten(s.Follows, s.Now)
	cells, ok := s.Cells(s.Follows, s.Now, 0)
	if !ok || len(cells) < MaxCells/3 || int64(cells[0].ScheduledAt) <= s.From() || s.From() == s.Follows {
		t.Errorf("%v, %d cells from %d", ok, len(cells), s.From())
	}
}
