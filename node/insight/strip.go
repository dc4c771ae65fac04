package insight

import (
	"cmp"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

// Strip is what is known of the occurrences of one job. What is expected comes from the schedule alone, never from what
// was recorded: a hole in the records shows as one.
type Strip struct {
	Sched *schedule.Schedule // nil: it cannot be read, and nothing is expected
	// Follows and Known are times after which all is known: that of the schedule's last change, and that of the oldest
	// record that was read.
	Follows, Known int64
	Now            int64
	Last           int64               // the last nominal time that is accounted for
	Due, Ready     int64               // the occurrence that waits; 0: none
	Stopped        job.Reason          // why, of a job that is paused or in quarantine
	Left           int64               // how many more runs max_runs allows; negative: any number
	Forbidden      func(at int64) bool // by a calendar

	Runs map[int64]*wire.Occurrence // recorded and open runs of the schedule
	Gaps []store.Interval           // of occurrences that did not run
	// Backfills is how the newest backfill of an occurrence ended.
	Backfills map[int64]string
}

// MaxCells bounds how many occurrences of one job are looked at in one go.
const MaxCells = 100_000

// From is the time after which each occurrence of the schedule is expected to have a fate.
func (s *Strip) From() int64 { return max(s.Follows, s.Known) }

// Cells are the occurrences in [from, to], oldest first, and up to ahead of those that are to come. ok is false if
// there are too many.
func (s *Strip) Cells(from, to int64, ahead int) (cells []wire.Occurrence, ok bool) {
	past := min(to, s.Now)
	gaps := newIntervals(s.Gaps)
	used := make(map[int64]bool, len(s.Runs))
	if s.Sched != nil {
		start := max(s.From(), from-1)
		if _, more := s.Sched.Count(time.UnixMilli(start), time.UnixMilli(past), MaxCells); more {
			return nil, false
		}
		for at := start; ; {
			t, more := s.Sched.Next(time.UnixMilli(at))
			if at = t.UnixMilli(); !more || at > past {
				break
			}
			used[at] = true
			if run := s.Runs[at]; run != nil {
				cells = append(cells, *run)
			} else if g := gaps.around(at); g != nil {
				cells = append(cells, notRun(g, at))
			} else if cell, is := s.unrecorded(at); is {
				cells = append(cells, cell)
			}
		}
	}
	// What the schedule has not, or no longer: what an edit dropped, runs of an earlier schedule.
	for at, run := range s.Runs {
		if !used[at] && from <= at && at <= to {
			cells = append(cells, *run)
		}
	}
	for i := range gaps.all {
		g := &gaps.all[i]
		if !gaps.met[i] && g.Last >= from && g.First <= to {
			cell := notRun(g, g.First)
			if cell.Count = g.Count; g.Count > 1 {
				cell.Last = job.Instant(g.Last)
			}
			cells = append(cells, cell)
		}
	}
	if s.Due != 0 && s.Due <= past && s.Due >= from && !used[s.Due] && s.Runs[s.Due] == nil && s.Stopped == 0 {
		if cell, is := s.unrecorded(s.Due); is {
			cells = append(cells, cell)
		}
	}
	for i := range cells {
		cells[i].Backfill = s.Backfills[int64(cells[i].ScheduledAt)]
	}
	slices.SortStableFunc(cells, func(a, b wire.Occurrence) int { return cmp.Compare(a.ScheduledAt, b.ScheduledAt) })
	return append(cells, s.upcoming(max(from, s.Now+1), to, ahead)...), true
}

// unrecorded is the fate of an occurrence whose time has come and of which nothing is recorded; is says that it was to
// be expected at all.
func (s *Strip) unrecorded(at int64) (cell wire.Occurrence, is bool) {
	cell = wire.Occurrence{ScheduledAt: job.Instant(at), Count: 1, Fate: wire.FateUnaccounted}
	switch {
	case s.Due == 0:
		return cell, at <= s.Last || s.Left != 0 // nothing follows the last run that max_runs allows
	case at < s.Due && s.Sched != nil && s.Sched.Skipped(time.UnixMilli(at)): // before there were records of it
		cell.Fate, cell.Reason = wire.FateSkipped, job.ReasonDSTGap.String()
	case at < s.Due:
	case s.Stopped != 0: // its jitter is still to come, or it is a one-off that runs when the job is resumed
		cell.Fate, cell.Reason = wire.FateWaiting, s.Stopped.String()
	default:
		ready := s.Ready
		if s.Sched != nil && at != s.Due {
			ready = at + s.Sched.Delay().Milliseconds()
		}
		if cell.Fate, cell.Reason = wire.FateWaiting, "due"; ready > s.Now {
			cell.Fate, cell.Reason, cell.StartAt = wire.FateUpcoming, "", job.Instant(ready)
		}
	}
	return cell, true
}

// upcoming are up to n occurrences in [from, to] that are planned. Those that are skipped are among them, but do
// not count.
func (s *Strip) upcoming(from, to int64, n int) (out []wire.Occurrence) {
	if s.Due == 0 || s.Stopped != 0 {
		return nil
	}
	left := s.Left
	at, ready := s.Due, s.Ready
	if s.Due < from { // what is due or lies before counts towards max_runs too
		if s.Sched == nil {
			return nil
		}
		if left > 0 {
			past, _ := s.Sched.Count(time.UnixMilli(s.Due), time.UnixMilli(from-1), MaxCells)
			left = max(0, left-int64(past)-1)
		}
		at = 0
		if t, ok := s.Sched.Next(time.UnixMilli(from - 1)); ok {
			at = t.UnixMilli()
			ready = at + s.Sched.Delay().Milliseconds()
		}
	}
	for looked := 0; at != 0 && at <= to && n > 0 && left != 0 && looked < MaxCells; looked++ {
		cell := wire.Occurrence{ScheduledAt: job.Instant(at), Count: 1, Fate: wire.FateUpcoming,
			StartAt: job.Instant(ready)}
		switch {
		case s.Sched != nil && s.Sched.Skipped(time.UnixMilli(at)):
			cell.Fate, cell.Reason, cell.StartAt = wire.FateSkipped, job.ReasonDSTGap.String(), 0
		case s.Forbidden != nil && s.Forbidden(at):
			cell.Fate, cell.Reason, cell.StartAt = wire.FateBlackout, job.ReasonBlackout.String(), 0
		default:
			left--
		}
		n--
		out = append(out, cell)
		if s.Sched == nil {
			break
		}
		t, ok := s.Sched.Next(time.UnixMilli(at))
		if at = t.UnixMilli(); !ok {
			break
		}
		ready = at + s.Sched.Delay().Milliseconds()
	}
	return out
}

// Summarize counts the fates of occurrences. What is to come is told by the time: a calendar's word on it is a plan.
func Summarize(cells []wire.Occurrence, now int64) (sum wire.OccurrenceSummary) {
	for i := range cells {
		c := &cells[i]
		switch {
		case c.Fate == wire.FateUpcoming:
			sum.Upcoming += c.Count
			continue
		case int64(c.ScheduledAt) > now:
			continue
		}
		sum.Expected += c.Count
		switch c.Fate {
		case wire.FateUnaccounted:
			sum.Unaccounted += c.Count
		case wire.FateRunning, wire.FateWaiting:
			sum.Open += c.Count
		case wire.FateSucceeded, wire.FateFailed, wire.FateDead, wire.FateLost:
			sum.Ran += c.Count
		case wire.FateCanceled:
			if c.Attempts > 0 {
				sum.Ran += c.Count
			} else {
				sum.Explained += c.Count
			}
		default:
			sum.Explained += c.Count
		}
	}
	return sum
}

// notRun is the fate of an occurrence in an interval of those that did not run.
func notRun(g *store.Interval, at int64) wire.Occurrence {
	return wire.Occurrence{ScheduledAt: job.Instant(at), Count: 1, Fate: Fate(g.Status, g.Reason),
		Reason: g.Reason.String()}
}

// Fate is that of an occurrence whose run, or whose not running, was recorded so.
func Fate(status job.RunStatus, reason job.Reason) string {
	if status == job.RunSkipped {
		switch reason {
		case job.ReasonPaused:
			return wire.FatePaused
		case job.ReasonBlackout:
			return wire.FateBlackout
		}
	}
	switch status {
	case job.RunClaimed, job.RunRunning, job.RunCanceling:
		return wire.FateRunning
	case job.RunPending, job.RunWaiting, job.RunRetrying:
		return wire.FateWaiting
	}
	return status.String()
}

// intervals finds the one that a time is in. They rarely overlap, but an edit into a one-off may leave some that do.
type intervals struct {
	all  []store.Interval
	last []int64 // the largest Last of those up to here
	met  []bool
}

func newIntervals(all []store.Interval) *intervals {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b store.Interval) int { return cmp.Compare(a.First, b.First) })
	v := &intervals{all: all, last: make([]int64, len(all)), met: make([]bool, len(all))}
	for i := range all {
		if v.last[i] = all[i].Last; i > 0 {
			v.last[i] = max(v.last[i], v.last[i-1])
		}
	}
	return v
}

func (v *intervals) around(at int64) *store.Interval {
	i, _ := slices.BinarySearchFunc(v.all, at+1, func(g store.Interval, t int64) int { return cmp.Compare(g.First, t) })
	for i--; i >= 0 && v.last[i] >= at; i-- {
		if v.all[i].Last >= at {
			v.met[i] = true
			return &v.all[i]
		}
	}
	return nil
}
