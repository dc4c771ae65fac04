package cmd

import (
	"bytes"
	"strings"
	"testing"
)

// What a target answers can be anything. It stays in its cell.
func TestTableShowsNoControls(t *testing.T) {
	var out bytes.Buffer
	p := &printer{w: &out, a: newApp()}
	var tb table
	tb.row("NAME", "ERROR", "NOTE")
	tb.row("a", "500: \x1b[2Jgone\nb  succeeded", "at noon"+detail+" \x1b]0;x\x07")
	tb.row("b", red+"failed"+reset, "")
	p.table(tb)
	want := "NAME  ERROR" + strings.Repeat(" ", 26) + "NOTE\n" +
		`a     500: \x1b[2Jgone b  succeeded  at noon \x1b]0;x\x07` + "\n" +
		"b     " + red + "failed" + reset + "\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
