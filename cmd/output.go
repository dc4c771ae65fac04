package cmd

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"math"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/internal/terminal"
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

// table collects rows. A row may also be one text over the whole width, which does not disturb the columns. On a
// terminal it is made to fit: a line that wraps is no table. What stands behind a detail mark in a cell is given up
// first, then the end of the last column.
type table struct {
	rows []row
	wrap bool // let it wrap: nothing may be missing
}

type row struct {
	cells []string
	text  string
}

const (
	detail = "\x00" // in a cell: what follows is dropped when there is no room
	gap    = 2
	// lastColumn is what the last column keeps before details and the ends of names are given up for it.
	lastColumn = 20
	// leastColumn is what a column keeps when the terminal is very narrow.
	leastColumn = 8
)

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = cell(c)
	}
	t.rows = append(t.rows, row{cells: cells})
}

func (t *table) text(s string) { t.rows = append(t.rows, row{text: s}) }

// cell is a text that stays in its place: without line ends, and with the width that is counted for it.
func cell(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return terminal.Disguised(r) || r == utf8.RuneError }) {
		return s
	}
	shown, hidden, has := strings.Cut(s, detail)
	if has {
		return cell(shown) + detail + cell(hidden)
	}
	var out strings.Builder
	fmt.Fprint(terminal.To(&out), s)
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, out.String())
}

func (p *printer) table(t table) {
	room := p.a.width
	if t.wrap {
		room = 0
	}
	widths := t.fit(room)
	for _, r := range t.rows {
		line := r.text
		for i, c := range r.cells {
			c = cut(strings.Replace(c, detail, "", 1), widths[i])
			line += c
			if i < len(r.cells)-1 {
				line += strings.Repeat(" ", widths[i]-visible(c)+gap)
			}
		}
		if line = strings.TrimRight(line, " "); room > 0 {
			line = cut(line, room)
		}
		p.printf("%s\n", line)
	}
}

// fit decides how wide the columns are, and drops details where they do not fit into the room. 0 is room without end.
func (t *table) fit(room int) []int {
	widths := t.widths()
	if over := total(widths) - room; room == 0 || over <= 0 || shrink(widths, len(widths)-1, lastColumn, over) == 0 {
		return widths
	}
	for _, r := range t.rows {
		for i, c := range r.cells {
			r.cells[i], _, _ = strings.Cut(c, detail)
		}
	}
	widths = t.widths()
	last := len(widths) - 1
	over := shrink(widths, last, lastColumn, total(widths)-room)
	over = shrink(widths, 0, lastColumn, over) // a name
	over = shrink(widths, last, leastColumn, over)
	for i := range widths {
		over = shrink(widths, i, leastColumn, over)
	}
	return widths
}

func (t *table) widths() (w []int) {
	for _, r := range t.rows {
		for i, c := range r.cells {
			if i == len(w) {
				w = append(w, 0)
			}
			w[i] = max(w[i], visible(c))
		}
	}
	return w
}

func total(widths []int) int {
	n := gap * (len(widths) - 1)
	for _, w := range widths {
		n += w
	}
	return n
}

// shrink takes what is over from a column, but leaves it the least; it says what is still over.
func shrink(widths []int, i, least, over int) int {
	if take := min(over, widths[i]-least); take > 0 {
		widths[i] -= take
		over -= take
	}
	return over
}

// visible is how many columns a text takes on the screen.
func visible(s string) (n int) {
	for range runes(s) {
		n++
	}
	return n
}

// runes are the visible runes of a text, with where each begins.
func runes(s string) iter.Seq2[int, rune] {
	return func(yield func(int, rune) bool) {
		colour := false
		for i, r := range s {
			switch {
			case r == '\x1b':
				colour = true
			case colour:
				colour = r != 'm'
			case r != 0 && !yield(i, r):
				return
			}
		}
	}
}

// cut shortens a text to n columns.
func cut(s string, n int) string {
	if visible(s) <= n {
		return s
	}
	seen, end := 0, 0
	for i := range runes(s) {
		if seen++; seen == n {
			end = i
			break
		}
	}
	if s = s[:end] + "…"; strings.Contains(s, "\x1b") {
		s += reset
	}
	return s
}

// The colours.
const (
	plain  = terminal.Plain
	red    = terminal.Red
	green  = terminal.Green
	yellow = terminal.Yellow
	cyan   = terminal.Cyan
	reset  = terminal.Reset
)

// paint colours a text.
func (p *printer) paint(color, s string) string {
	if !p.a.color || s == "" {
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

// when shows a time both ways: "in 4s (12:00:05 CET)".
func (p *printer) when(i job.Instant) string {
	if i == 0 {
		return "-"
	}
	return relative(i.Time().Sub(p.now)) + " (" + p.clock(i) + ")"
}

// whenCell is when, in a table: the absolute time is a detail.
func (p *printer) whenCell(i job.Instant) string {
	return asCell(p.when(i))
}

// asCell makes what is in brackets a detail.
func asCell(s string) string { return strings.Replace(s, " (", detail+" (", 1) }

// clock shows a time in the user's zone, with its date if that is not today.
func (p *printer) clock(i job.Instant) string {
	t := i.Time().In(p.a.loc)
	y, m, d := p.now.In(p.a.loc).Date()
	if ty, tm, td := t.Date(); ty == y && tm == m && td == d {
		return t.Format("15:04:05 MST")
	}
	return t.Format("2006-01-02 15:04:05 MST")
}

// span shows an interval in one go: "12:00–12:11 CET", "2026-11-01 12:00–2026-11-02 12:11 CET"; both ends have their
// zone if it changes.
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
	zone := to.Format(" MST")
	if first == last {
		return text + zone
	}
	if other := from.Format(" MST"); other != zone {
		text += other
	}
	return text + "–" + end + zone
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

// coarse is a duration in at most two units, cut off: three days need no seconds.
func coarse(d time.Duration) string {
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

func dash(s string) string { return cmp.Or(s, "-") }

// escapes are the codes by which programs colour what they write and steer the terminal.
var escapes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])`)

// short is the first line of a text, not longer than n.
func short(s string, n int) string {
	s, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	s = escapes.ReplaceAllString(s, "")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
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

// line is the first line of a text, however long.
func line(s string) string { return short(s, math.MaxInt) }

// fields prints "name  value" lines and leaves out what has no value.
func (p *printer) fields(pairs ...string) {
	t := table{wrap: true}
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
