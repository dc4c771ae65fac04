package output

import (
	"strings"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/internal/terminal"
)

// Table collects rows. A row may also be one text over the whole width, which does not disturb the columns. On a
// terminal it is made to fit: a line that wraps is no table. What stands behind a Detail mark in a cell is given up
// first, then the end of the last column.
type Table struct {
	rows []row
	Wrap bool // let it wrap: nothing may be missing
	// Below puts the last cell of a row under it where it does not fit beside it: a cause that is cut in the middle is
	// none.
	Below bool
}

type row struct {
	cells []string
	text  string
}

// Detail is a mark in a cell: what follows is dropped when there is no room.
const Detail = "\x00"

const (
	gap = 2
	// lastColumn is what the last column keeps before details and the ends of names are given up for it.
	lastColumn = 20
	// leastColumn is what a column keeps when the terminal is very narrow.
	leastColumn = 8
	// belowLines is how many lines a cell takes under its row.
	belowLines = 3
)

// Row adds a row of cells.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = cell(c)
	}
	t.rows = append(t.rows, row{cells: cells})
}

// Text adds a row that is one text.
func (t *Table) Text(s string) { t.rows = append(t.rows, row{text: s}) }

// cell is a text that stays in its place: without line ends, and with the width that is counted for it.
func cell(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return terminal.Disguised(r) || r == utf8.RuneError }) {
		return s
	}
	shown, hidden, has := strings.Cut(s, Detail)
	if has {
		return cell(shown) + Detail + cell(hidden)
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, terminal.Shown(s))
}

// Table writes a table.
func (p *Printer) Table(t Table) {
	room := p.Width
	if t.Wrap {
		room = 0
	}
	if p.Parts && p.columns != nil {
		t.rows = t.rows[min(1, len(t.rows)):] // the head is there
	}
	widths := t.fit(room)
	if p.Parts && p.columns != nil {
		widths = p.columns
	}
	p.columns = widths
	for _, r := range t.rows {
		line := r.text
		var below []string
		last := len(r.cells) - 1
		if t.Below && room >= 2*lastColumn && last == len(widths)-1 && Visible(r.cells[last]) > widths[last] {
			below = wrap(strings.Replace(r.cells[last], Detail, "", 1), room-2*gap, belowLines)
			r.cells = r.cells[:last]
		}
		for i, c := range r.cells {
			if c = strings.Replace(c, Detail, "", 1); room > 0 { // otherwise only a later part could be wider
				c = cut(c, widths[i])
			}
			line += c
			if i < len(r.cells)-1 {
				line += strings.Repeat(" ", max(0, widths[i]-Visible(c))+gap)
			}
		}
		if line = strings.TrimRight(line, " "); room > 0 {
			line = cut(line, room)
		}
		p.Printf("%s\n", line)
		for _, l := range below {
			p.Printf("%s%s\n", strings.Repeat(" ", 2*gap), l)
		}
	}
}

// fit decides how wide the columns are, and drops details where they do not fit into the room. 0 is room without end.
func (t *Table) fit(room int) []int {
	widths := t.widths()
	if over := total(widths) - room; room == 0 || over <= 0 || shrink(widths, len(widths)-1, lastColumn, over) == 0 {
		return widths
	}
	for _, r := range t.rows {
		for i, c := range r.cells {
			r.cells[i], _, _ = strings.Cut(c, Detail)
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

// wrap breaks a text between its words into lines of a width, and cuts the last of them.
func wrap(s string, width, most int) (lines []string) {
	line := ""
	words := strings.Fields(s)
	for i, word := range words {
		switch longer := strings.TrimPrefix(line+" "+word, " "); {
		case line == "" || Visible(longer) <= width:
			line = longer
		case len(lines) == most-1:
			return append(lines, cut(line+" "+strings.Join(words[i:], " "), width))
		default:
			lines = append(lines, cut(line, width))
			line = word
		}
	}
	return append(lines, cut(line, width))
}

func (t *Table) widths() (w []int) {
	for _, r := range t.rows {
		for i, c := range r.cells {
			if i == len(w) {
				w = append(w, 0)
			}
			w[i] = max(w[i], Visible(c))
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
