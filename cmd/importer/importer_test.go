package importer

import "testing"

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
