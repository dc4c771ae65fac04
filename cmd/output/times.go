package output

import (
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// When shows a time both ways: "in 4s (12:00:05 CET)".
func (p *Printer) When(i job.Instant) string {
	if i == 0 {
		return "-"
	}
	return Relative(i.Time().Sub(p.Now)) + " (" + p.Clock(i) + ")"
}

// WhenCell is When, in a table: the absolute time is a Detail.
func (p *Printer) WhenCell(i job.Instant) string {
	return AsCell(p.When(i))
}

// AsCell makes what is in brackets a Detail.
func AsCell(s string) string { return strings.Replace(s, " (", Detail+" (", 1) }

// Clock shows a time in the user's zone, with its date if that is not today.
func (p *Printer) Clock(i job.Instant) string {
	t := i.Time().In(p.Zone)
	y, m, d := p.Now.In(p.Zone).Date()
	if ty, tm, td := t.Date(); ty == y && tm == m && td == d {
		return t.Format("15:04:05 MST")
	}
	return t.Format("2006-01-02 15:04:05 MST")
}

// Span shows an interval in one go: "12:00–12:11 CET", "2026-11-01 12:00–2026-11-02 12:11 CET"; both ends have their
// zone if it changes.
func (p *Printer) Span(first, last job.Instant) string {
	from, to := first.Time().In(p.Zone), last.Time().In(p.Zone)
	layout := "15:04"
	if from.Second() != 0 || to.Second() != 0 {
		layout = "15:04:05"
	}
	day := func(t time.Time) string { return t.Format("2006-01-02") }
	text, end := from.Format(layout), to.Format(layout)
	if day(from) != day(p.Now.In(p.Zone)) || day(from) != day(to) {
		text = day(from) + " " + text
	}
	if day(from) != day(to) {
		end = day(to) + " " + end
	}
	zone := to.Format(" MST")
	if first == last {
		return text + zone
	}
	if other := from.Format(" MST"); other != zone {
		text += other
	}
	return text + "–" + end + zone
}

// Relative is how far away a time is.
func Relative(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d >= time.Second:
		return "in " + Coarse(d)
	case d <= -time.Second:
		return Coarse(-d) + " ago"
	}
	return "now"
}

// Coarse is a duration in at most two units, cut off: three days need no seconds.
func Coarse(d time.Duration) string {
	type unit struct {
		size time.Duration
		name string
	}
	units := []unit{{365 * 24 * time.Hour, "y"}, {24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"},
		{time.Second, "s"}}
	for i, u := range units {
		if d < u.size && u.size > time.Second {
			continue
		}
		text := fmt.Sprintf("%d%s", d/u.size, u.name)
		if i+1 < len(units) {
			if n := d % u.size / units[i+1].size; n > 0 {
				text += fmt.Sprintf("%d%s", n, units[i+1].name)
			}
		}
		return text
	}
	return "0s"
}

// Fine is a short duration with the precision that one looks for in lags and run times.
func Fine(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case abs < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < 0:
		return "-" + Coarse(-d)
	}
	return Coarse(d)
}
