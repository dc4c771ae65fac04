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
	want := "NAME  ERROR" + strings.Repeat(" ", 26) + "NOTE\n" +
		`a     500: \x1b[2Jgone b  succeeded  at noon \x1b]0;x\x07` + "\n" +
		"b     " + terminal.Red + "failed" + terminal.Reset + "\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
