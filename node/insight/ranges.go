package insight

import (
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// Shorten moves the time after which all is known forward until no more than MaxCells occurrences lie between it and
// to: of a job with more, the newest are complete and of those before only what was recorded is shown.
func (s *Strip) Shorten(from, to int64) {
	to = min(to, s.Now)
	start := max(s.From(), from-1)
	for s.Sched != nil && start < to {
		if _, more := s.Sched.Count(time.UnixMilli(start), time.UnixMilli(to), MaxCells); !more {
			return
		}
		start += (to-start)/2 + 1
		s.Known = start
	}
}

// Ranges puts neighbours together until there are at most n cells of what was, each with how many of which fate it has.
// What is to come stays as it is: there are few.
func Ranges(cells []wire.Occurrence, now int64, n int) []wire.Occurrence {
	past := len(cells)
	for past > 0 && int64(cells[past-1].ScheduledAt) > now {
		past--
	}
	if past <= n {
		return cells
	}
	out := make([]wire.Occurrence, 0, n+len(cells)-past)
	for k := range n {
		out = append(out, together(cells[k*past/n:(k+1)*past/n]))
	}
	return append(out, cells[past:]...)
}

// together is one cell for several.
func together(cells []wire.Occurrence) wire.Occurrence {
	if len(cells) == 1 {
		return cells[0]
	}
	first := cells[0]
	one := wire.Occurrence{ScheduledAt: first.ScheduledAt, Fate: first.Fate, Reason: first.Reason,
		Fates: make(map[string]int64, 1)}
	for i := range cells {
		c := &cells[i]
		one.Last = max(one.Last, c.ScheduledAt, c.Last)
		one.Count += c.Count
		one.Fates[c.Fate] += c.Count
		if c.Reason != first.Reason {
			one.Reason = ""
		}
	}
	if len(one.Fates) > 1 {
		one.Fate, one.Reason = wire.FateMixed, ""
	}
	return one
}
