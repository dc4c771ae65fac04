package output

import (
	"bytes"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/terminal"
)

// What a target answers can be anything. It stays in its cell.
func TestTableShowsNoControls(t *testing.T) {
	var out bytes.Buffer
	p := &Printer{W: &out}
	var tb Table
	tb.Row("NAME", "ERROR", "NOTE")
	tb.Row("a", "500: \x1b[2Jgone\nb  succeeded", "at noon"+Detail+" \x1b]0;x\x07")
	tb.Row("b", terminal.Red+"failed"+terminal.Reset, "")
	p.Table(tb)
	want := "NAME  ERROR" + strings.Repeat(" ", 19) + "NOTE\n" +
		`a     500: gone b  succeeded  at noon \x1b]0;x\x07` + "\n" +
		"b     " + terminal.Red + "failed" + terminal.Reset + "\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// A cause that does not fit beside its row stands below it, whole unless it is very long.
func TestTableBelow(t *testing.T) {
	long := "status 503 Service Unavailable: " + strings.Repeat("there is more of it ", 30)
	for room, want := range map[int]string{
		0:  "RUN\nr_1  status 500: the disk is full\nr_2  " + strings.TrimRight(long, " ") + "\nr_3\n",
		40: "RUN\nr_1  status 500: the disk is full\nr_2\n    status 503 Service Unavailable:\n    there is more of it there is more of\n    it there is more of it there is mor…\nr_3\n",
	} {
		var out bytes.Buffer
		p := &Printer{W: &out, Width: room}
		tb := Table{Below: true}
		tb.Row("RUN", "")
		tb.Row("r_1", "status 500: the disk is full")
		tb.Row("r_2", long)
		tb.Row("r_3", "")
		p.Table(tb)
		if out.String() != want {
			t.Errorf("%d columns: %q, want %q", room, out.String(), want)
		}
		for line := range strings.Lines(out.String()) {
			if n := Visible(strings.TrimSuffix(line, "\n")); room > 0 && n > room {
				t.Errorf("%d columns of %d: %q", n, room, line)
			}
		}
	}
}
