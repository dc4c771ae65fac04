package cmd

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/job"
)

// printer writes for people.
type printer struct {
	w   io.Writer
	a   *app
	now time.Time
	err error // the first one
}

func (a *app) printer(cmd *cobra.Command) *printer {
	return &printer{w: cmd.OutOrStdout(), a: a, now: a.now()}
}

func (p *printer) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(p.w, format, args...); p.err == nil {
		p.err = err
	}
}

// table collects rows. A row may also be one text over the whole width, which does not disturb the columns.
type table struct {
	rows []row
}

type row struct {
	cells []string
	text  string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, row{cells: cells}) }
func (t *table) text(s string)       { t.rows = append(t.rows, row{text: s}) }

func (p *printer) table(t table) {
	// A line without cells would end tabwriter's columns, so those are put in afterwards.
	var buf bytes.Buffer
	w := tabwriter.NewWriter(&buf, 0, 8, 2, ' ', 0)
	for _, r := range t.rows {
		if r.cells != nil {
			fmt.Fprintln(w, strings.Join(r.cells, "\t"))
		}
	}
	w.Flush()
	lines := strings.Split(buf.String(), "\n")
	for _, r := range t.rows {
		text := r.text
		if r.cells != nil {
			text, lines = lines[0], lines[1:]
		}
		p.printf("%s\n", strings.TrimRight(text, " "))
	}
}

// The colours. All have the same length, so that tabwriter, which counts them as text, still aligns.
const (
	plain  = "\x1b[39m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
	reset  = "\x1b[0m"
)

// paint colours a cell. In a column with colours every cell must be painted, the header too.
func (p *printer) paint(color, s string) string {
	if !p.a.color {
		return s
	}
	return color + s + reset
}

func (p *printer) runStatus(s job.RunStatus) string {
	color := plain
	switch s {
	case job.RunSucceeded:
		color = green
	case job.RunFailed, job.RunDead, job.RunLost, job.RunMissed, job.RunExpired:
		color = red
	case job.RunClaimed, job.RunRunning, job.RunCanceling:
		color = cyan
	case job.RunRetrying, job.RunSkipped, job.RunCanceled:
		color = yellow
	}
	return p.paint(color, dash(s.String()))
}

func (p *printer) jobStatus(s job.Status) string {
	color := plain
	switch s {
	case job.StatusPaused:
		color = yellow
	case job.StatusFailed, job.StatusQuarantined:
		color = red
	case job.StatusCompleted:
		color = green
	}
	return p.paint(color, string(s))
}

// when shows a time both ways: "in 4s (12:00:05)".
func (p *printer) when(i job.Instant) string {
	if i == 0 {
		return "-"
	}
	return relative(i.Time().Sub(p.now)) + " (" + p.clock(i) + ")"
}

// clock shows a time in the user's zone, with its date if that is not today.
func (p *printer) clock(i job.Instant) string {
	t := i.Time().In(p.a.loc)
	y, m, d := p.now.In(p.a.loc).Date()
	if ty, tm, td := t.Date(); ty == y && tm == m && td == d {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// span shows an interval in one go: "12:00–12:11", "2026-11-01 12:00–2026-11-02 12:11".
func (p *printer) span(first, last job.Instant) string {
	from, to := first.Time().In(p.a.loc), last.Time().In(p.a.loc)
	layout := "15:04"
	if from.Second() != 0 || to.Second() != 0 {
		layout = "15:04:05"
	}
	day := func(t time.Time) string { return t.Format("2006-01-02") }
	text, end := from.Format(layout), to.Format(layout)
	if day(from) != day(p.now.In(p.a.loc)) || day(from) != day(to) {
		text = day(from) + " " + text
	}
	if day(from) != day(to) {
		end = day(to) + " " + end
	}
	if first == last {
		return text
	}
	return text + "–" + end
}

func relative(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d >= time.Second:
		return "in " + coarse(d)
	case d <= -time.Second:
		return coarse(-d) + " ago"
	}
	return "now"
}

// coarse is a duration in at most two units, cut off: nobody needs the seconds of three days.
func coarse(d time.Duration) string {
	type unit struct {
		size time.Duration
		name string
	}
	units := []unit{{365 * 24 * time.Hour, "y"}, {24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
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

// fine is a short duration with the precision that one looks for in lags and run times.
func fine(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case abs < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < 0:
		return "-" + coarse(-d)
	}
	return coarse(d)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// short is the first line of a text, not longer than n.
func short(s string, n int) string {
	s, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' ' // what a target answered must not steer the terminal
		}
		return r
	}, s)
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	if more {
		s += " …"
	}
	return s
}

// fields prints "name  value" lines and leaves out what has no value.
func (p *printer) fields(pairs ...string) {
	var t table
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" && pairs[i+1] != "-" {
			t.row(pairs[i], pairs[i+1])
		}
	}
	p.table(t)
}

// more tells how to get the next page.
func (p *printer) more(cursor string) {
	if cursor != "" {
		p.printf("more: --cursor %s\n", cursor)
	}
}
