package importer

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

// Where a file lies says whether its lines name a user, and otherwise whose it is.
func TestPlaced(t *testing.T) {
	for _, c := range []struct {
		flags  crontabFlags
		name   string
		column bool
		user   string
	}{
		{crontabFlags{}, "/etc/crontab", true, ""},
		{crontabFlags{}, "/etc/cron.d/php", true, ""},
		{crontabFlags{noColumn: true}, "/etc/cron.d/php", false, ""},
		{crontabFlags{}, "/var/spool/cron/crontabs/alice", false, "alice"},
		{crontabFlags{}, "/var/spool/cron/bob", false, "bob"},
		{crontabFlags{}, "/var/cron/tabs/carol", false, "carol"},
		{crontabFlags{user: "deploy"}, "/var/spool/cron/bob", false, "deploy"},
		{crontabFlags{column: true}, "/srv/tab", true, ""},
		{crontabFlags{user: "deploy"}, "/srv/tab", false, "deploy"},
		{crontabFlags{}, "/srv/tab", false, ""},
	} {
		if f := c.flags.placed(c.name, nil); f.column != c.column || f.user != c.user {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

// What is different for many jobs in the same way is said once.
func TestNotesAreSaidOnce(t *testing.T) {
	cmd := &cobra.Command{}
	var said bytes.Buffer
	cmd.SetErr(&said)
	p := printer{cmd: cmd}
	for i := range 10 {
		f := found{place: fmt.Sprintf("tab:%d", i+1), notes: []string{"no mail"}}
		if i == 9 {
			f.notes = append(f.notes, "no user")
		}
		if err := p.print(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.end("line"); err != nil {
		t.Error(err)
	}
	want := "tab:1: note: no mail (also tab:2, tab:3, tab:4, tab:5, tab:6, tab:7, tab:8 and 2 more)\ntab:10: note: no user\n"
	if said.String() != want {
		t.Errorf("%s", said.String())
	}
}
