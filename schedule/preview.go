package schedule

import (
	"fmt"
	"time"
)

// Fire is one nominal fire time of a preview.
type Fire struct {
	At      time.Time // in the job's zone
	Note    string    // what daylight saving time did to it, "" if nothing
	Skipped bool      // see Schedule.Skipped
}

// Preview is the first n nominal fire times after a time.
func (s *Schedule) Preview(after time.Time, n int) []Fire {
	var fires []Fire
	for len(fires) < n {
		at, ok := s.Next(after)
		if !ok {
			break
		}
		fires = append(fires, Fire{At: at.In(s.zone.loc), Note: s.note(at), Skipped: s.Skipped(at)})
		after = at
	}
	return fires
}

// note explains a fire time.
func (s *Schedule) note(at time.Time) string {
	if s.kind != Cron && s.kind != RRule {
		return ""
	}
	c := &s.clock
	unix := at.Unix()
	if from, to, swallowed, ok := c.gapAt(unix); ok && swallowed != never {
		switch {
		case c.skipped(unix):
			return fmt.Sprintf("not run: %s does not exist, the clock goes from %s to %s", clockText(swallowed, to),
				clockText(from, to), clockText(to, to))
		case c.walls.next(to) == to:
			return fmt.Sprintf("the clock goes from %s to %s; times between have no run of their own",
				clockText(from, to), clockText(to, to))
		}
		return fmt.Sprintf("moved from %s, which does not exist: the clock goes from %s to %s",
			clockText(swallowed, to), clockText(from, to), clockText(to, to))
	}
	switch {
	case s.zone.passOf(unix) == 1 && c.both:
		return "this time occurs twice; this is the first"
	case s.zone.passOf(unix) == 1:
		return "this time occurs twice; it runs only the first time"
	case s.zone.passOf(unix) == 2 && c.both:
		return "this time occurs twice; this is the second"
	}
	return ""
}

// clockText is a wall time, with its date if that is not the date of ref.
func clockText(w, ref int64) string {
	layout := "15:04"
	if w%60 != 0 {
		layout = "15:04:05"
	}
	if d, _ := splitDay(w); d != floorDiv(ref, day) {
		layout = "2006-01-02 " + layout
	}
	return time.Unix(w, 0).UTC().Format(layout)
}
