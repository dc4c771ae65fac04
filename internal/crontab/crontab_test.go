package crontab

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

var now = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

func read(text string, o Options) []Line {
	o.Now = now
	return NewReader(o).Read([]byte(text), false, "")
}

func one(t *testing.T, text string, o Options) Line {
	t.Helper()
	return last(t, read(text, o))
}

// withUsers is the last line of a table with users.
func withUsers(t *testing.T, text string, o Options) Line {
	t.Helper()
	o.Now = now
	return last(t, NewReader(o).Read([]byte(text), true, ""))
}

func last(t *testing.T, lines []Line) Line {
	t.Helper()
	if len(lines) == 0 {
		t.Fatal("no line")
	}
	return lines[len(lines)-1]
}

func payload(t *testing.T, l Line) job.ShellPayload {
	t.Helper()
	if l.Job == nil {
		t.Fatalf("%q: %s", l.Text, l.Err)
	}
	var p job.ShellPayload
	if err := json.Unmarshal(l.Job.Payload, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// Cron's own reading of the variables: see env.c.
func TestVariables(t *testing.T) {
	for text, want := range map[string]string{
		`A=1`:                     `A|1`,
		`A = 1 `:                  `A|1`,
		"A\t=\t1\t":               `A|1`,
		`A=`:                      `A|`,
		`A=""`:                    `A|`,
		`A=" 1 "`:                 `A| 1 `,
		`A='a "b" c'`:             `A|a "b" c`,
		`"A"="1"`:                 `A|1`,
		`'A'=1`:                   `A|1`,
		`A=a b # not a comment`:   `A|a b # not a comment`,
		`A=$HOME/bin:$PATH`:       `A|$HOME/bin:$PATH`,
		`A=x=y`:                   `A|x=y`,
		`A="1" 2`:                 ``,
		`A="1`:                    ``,
		`A B=1`:                   ``,
		`"A=B"=1`:                 ``,
		`* * * * * FOO=1 command`: ``,
		`*/5 * * * * a=b`:         ``,
	} {
		name, value, ok := readVariable(text)
		got := ""
		if ok {
			got = name + "|" + value
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A variable holds for the lines below it, until it is set again.
func TestVariablesByPosition(t *testing.T) {
	lines := read("* * * * * a\nX=1\n* * * * * b\nX=2\nPATH=/opt/bin\n* * * * * c\n", Options{})
	var got []string
	for _, l := range lines {
		if l.Job != nil {
			p := payload(t, l)
			got = append(got, p.Command+" "+p.Env["X"]+" "+p.Env["PATH"])
		}
	}
	if want := []string{"a  " + standardPath, "b 1 " + standardPath, "c 2 /opt/bin"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestCommands(t *testing.T) {
	for _, c := range []struct{ line, command, argv string }{
		{`* * * * * date`, `date`, ``},
		{`* * * * * date +\%F`, `date +%F`, ``},
		{`* * * * * echo a\b \\\% c`, `echo a\b \\% c`, ``},
		{`* * * * * cat%a%b`, "{ cat\n} <<'END'\na\nb\nEND\n", ``},
		{`* * * * * cat%a\%b%`, "{ cat\n} <<'END'\na%b\nEND\n", ``},
		{`* * * * * cat%END`, "{ cat\n} <<'END2'\nEND\nEND2\n", ``},
		{`* * * * * cat%`, `cat`, ``},
		{`* * * * * echo a # b`, `echo a # b`, ``},
		{`* * * * * -n date`, `date`, ``},
		{"SHELL=/bin/bash\n* * * * * echo {1..3}", ``, `/bin/bash -c echo {1..3}`},
		{"SHELL=/bin/bash\n* * * * * cat%x", ``, "/bin/bash -c { cat\n} <<'END'\nx\nEND\n"},
		{`-* * * * * quiet`, `quiet`, ``},
	} {
		l := one(t, c.line+"\n", Options{})
		p := payload(t, l)
		if p.Command != c.command || strings.Join(p.Argv, " ") != c.argv {
			t.Errorf("%q: %q %q", c.line, p.Command, p.Argv)
		}
	}
}

// What is no line of cron, or means what a job cannot, is said and not guessed.
func TestRefused(t *testing.T) {
	for line, want := range map[string]string{
		`@reboot start`:                   "@reboot",
		`@fortnightly x`:                  "cron does not know",
		`* * * * *`:                       "command",
		`* * * *`:                         "five fields",
		`60 * * * * x`:                    "not within 0-59",
		`* 24 * * * x`:                    "not within 0-23",
		`* * 0 * * x`:                     "not within 1-31",
		`* * * 13 * x`:                    "not within 1-12",
		`* * * * 8 x`:                     "not within 0-7",
		`* * * * monday x`:                "not a value",
		`5/15 * * * * x`:                  "step without a range",
		`*/0 * * * * x`:                   "step",
		`* 22-4 * * * x`:                  "runs backwards",
		`0 0 31 2 * x`:                    "",
		`0 0 */2,5 * 1 x`:                 "both fields allow",
		`1,,2 * * * * x`:                  "is empty",
		`* * * * * -x cmd`:                "not an option",
		"SHELL=/bin/csh\n* * * * * cat%x": "input",
		"HOME=tmp\n* * * * * x":           "absolute",
		"CRON_TZ=Mars/Base\n* * * * * x":  "not a zone",
		"CARILLON_X=1":                    "cannot be set",
		"A=secret://x":                    "cannot be set",
		"* * * * * \x01":                  "control character",
		"* * * * * \xff":                  "UTF-8",
	} {
		l := one(t, line+"\n", Options{})
		if l.Job != nil || l.Err == "" || !strings.Contains(l.Err, want) {
			t.Errorf("%q: %+v", line, l)
		}
	}
	l := withUsers(t, "* * * * * root\n", Options{})
	if l.Job != nil || !strings.Contains(l.Err, "no command after the user") {
		t.Errorf("%+v", l)
	}
	l = withUsers(t, "* * * * * www:staff x\n", Options{})
	if l.Job != nil || !strings.Contains(l.Err, "www:staff") {
		t.Errorf("%+v", l)
	}
}

// Cron neither repeats nor makes up for anything, does not mind a run that is still open, and sets no bound.
func TestMeaning(t *testing.T) {
	l := last(t, NewReader(Options{Host: "web1", Mail: true, Zone: "Europe/Berlin", Timeout: 24 * time.Hour, Now: now}).Read(
		[]byte("RANDOM_DELAY=6\nMAILTO=ops@example.com,root\n17 4 * * 0 backup.sh\n"), false, "deploy"))
	s := l.Job
	if s == nil {
		t.Fatal(l.Err)
	}
	if s.Overlap != job.OverlapAllow || *s.Retry.MaxRetries != 0 || s.Delivery != job.DeliverAtMostOnce ||
		s.Missed.Policy != job.MissedSkip || s.Timezone != "Europe/Berlin" || s.Workers["host"] != "web1" ||
		s.Jitter != job.Duration(6*time.Minute) || s.Name != "backup.sh" || s.Timeout != job.Duration(24*time.Hour) ||
		!slices.Equal(s.Notify.Email, []string{"ops@example.com"}) {
		t.Errorf("%+v", s)
	}
	if p := payload(t, l); p.User != "deploy" || p.Env["SHELL"] != "/bin/sh" || len(p.Env) != 2 {
		t.Errorf("%+v", p)
	}
	if len(l.Notes) != 2 {
		t.Errorf("%q", l.Notes)
	}
	l = withUsers(t, "MAILTO=\"\"\nCRON_TZ=Asia/Tokyo\nHOME=/srv\n17 4 * * 0 deploy /opt/x/y.sh\n",
		Options{Zone: "Europe/Berlin"})
	if p := payload(t, l); p.User != "deploy" || p.Dir != "/srv" || p.Env["HOME"] != "/srv" ||
		l.Job.Timezone != "Asia/Tokyo" || l.Job.Notify != nil || len(l.Notes) != 0 {
		t.Errorf("%+v %+v %q", p, l.Job, l.Notes)
	}
	l = withUsers(t, "* * * * * deploy x\n", Options{AsWorker: true})
	if p := payload(t, l); p.User != "" {
		t.Errorf("%+v", p)
	}
	l = one(t, "* * * * * -s x\n", Options{})
	if l.Job == nil || l.Job.Overlap != job.OverlapSkip {
		t.Errorf("%+v", l)
	}
}

// The command of the job does what cron's does, with cron's input and environment.
func TestCommandsRun(t *testing.T) {
	home := t.TempDir()
	for line, want := range map[string]string{
		`cat%one%two%`:                      "one\ntwo\n",
		`cat%a\%b%c\d`:                      "a%b\nc\\d\n",
		`cat; echo end # comment%input`:     "input\nend\n",
		`read a; read b; echo "$b $a"%1%2`:  "2 1\n",
		`cat%$HOME \` + "`id`":              "$HOME \\`id`\n",
		`cat`:                               "",
		`printf '\%s\n' "$SHELL" "$PATH"`:   "/bin/sh\n" + standardPath + "\n",
		`date -u -d @0 +\%Y-\%m`:            "1970-01\n",
		`false || echo 50\%`:                "50%\n",
		`exit 3`:                            "",
		`echo "$X"; pwd`:                    "a b\n" + home + "\n",
		`test -z "$MAILTO$CRON_TZ" && echo`: "\n",
	} {
		l := one(t, "X='a b'\nHOME="+home+"\nMAILTO=x\nCRON_TZ=UTC\n* * * * * "+line+"\n", Options{})
		p := payload(t, l)
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", p.Command)
		cmd.Dir = p.Dir
		for k, v := range p.Env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		out, err := cmd.CombinedOutput()
		if string(out) != want || (err != nil) != (line == "exit 3") {
			t.Errorf("%s: %q, want %q (%v)", line, out, want, err)
		}
	}
}

// A system's table that comes by a pipe is known by its users.
func TestHasUsers(t *testing.T) {
	for table, want := range map[string]bool{
		"SHELL=/bin/sh\n# m h\n17 * * * * root cd / && run-parts /etc/cron.hourly\n@daily www-data php x.php\n": true,
		"*/5 * * * * /usr/bin/true x\n": false, "0 3 * * * backup --all\n": false, "0 3 * * * root\n": false,
		"0 3 * * * root run\n0 4 * * * /bin/date -u\n": false, "": false, "MAILTO=root\n": false,
	} {
		if HasUsers([]byte(table)) != want {
			t.Errorf("%q", table)
		}
	}
}

func TestNames(t *testing.T) {
	var lines []string
	want := []string{"backup.sh", "backup.sh-2", "sessionclean", "report.py", "cleanup", "artisan", "sync", "cron-j_x", "job",
		"backup.sh-3", "certbot", "nice"}
	for _, c := range []string{"/opt/backup.sh --all", "backup.sh >/dev/null 2>&1",
		"[ -x /usr/lib/php/sessionclean ] && if [ ! -d /run/systemd/system ]; then /usr/lib/php/sessionclean; fi",
		"A=1 /usr/bin/python3 /srv/report.py", "nice -n 10 ionice -c2 cleanup", "cd /var/www && php artisan schedule:run",
		"flock -n /tmp/l sync", "j_x", `"" && ''`, "backup.sh", "test -x /usr/bin/certbot -a \\! -d /run && certbot renew",
		"nice"} {
		lines = append(lines, "* * * * * "+c)
	}
	var got []string
	for _, l := range read(strings.Join(lines, "\n")+"\n", Options{}) {
		if l.Job == nil {
			t.Errorf("%q: %s", l.Text, l.Err)
			continue
		}
		got = append(got, l.Job.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Every line fires when cron would have run it, over years in zones with all kinds of changes.
func TestTimesAgainstCron(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana"}
	lines := []string{
		"* * * * *", "*/5 * * * *", "0 * * * *", "7 * * * *", "*/7 2 * * *", "30 2 * * *", "0 3 * * *", "0 0 * * *",
		"30 1 * * *", "15 1-3 * * *", "0-59/20 2 * * *", "0,30 2 * * *", "45 23 * * *", "0 */2 * * *", "5 */3 * * *",
		"0 4 1 * *", "0 4 1 * 1", "0 4 */2 * 1", "0 4 1 * */2", "0 4 29 2 *", "0 4 * jan-mar,DEC mon-fri", "0 4 * * 7",
		"0 4 * * 0-7", "0 4 15 * 0-7", "0 4 1-31 * 5", "0 4 * * fri-sun", "0 4 * * 5-0", "*/90 * * * *", "*/40 1 * * *",
		"05 04 * * *", "0 1,2,3 * * *", "*,5 2 * * *", "*/20,7 * * * *", "1-10/3,50 0-23/6 * * *", "59 23 31 12 *",
		"0 2 * 3,10,11 0", "30 2 8-14 3 *", "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually",
		"0-59 2 * * *", "* 2 * * *", "0 0-23 * * *", "30 0-23/2 * * *", "1 1 1-31/2 * *", "10 2 */3 */2 *",
	}
	for _, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			loc, err := time.LoadLocation(zone)
			if err != nil {
				t.Skip(err)
			}
			minutes := wallMinutes(loc, now, now.AddDate(1, 0, 0))
			for _, line := range lines {
				l := one(t, line+" x\n", Options{Zone: zone})
				if l.Job == nil {
					t.Errorf("%q: %s", line, l.Err)
					continue
				}
				s, err := schedule.Parse(l.Job.Schedule, schedule.Options{Zone: zone, Gap: l.Job.DSTGap,
					Overlap: l.Job.DSTOverlap})
				if err != nil {
					t.Errorf("%q: %v", line, err)
					continue
				}
				want := cronRuns(line, minutes, now)
				var got []int64
				for at, ok := s.Next(now.Add(-time.Second)); ok && at.Before(now.AddDate(1, 0, 0)); at, ok = s.Next(at) {
					if !s.Skipped(at) {
						got = append(got, at.Unix())
					}
				}
				if d := firstDifference(got, want); d != "" {
					t.Errorf("%q as %q gap %q overlap %q: %s", line, l.Job.Schedule, l.Job.DSTGap, l.Job.DSTOverlap, d)
				}
				if len(want) == 0 && !strings.Contains(line, "29 2") {
					t.Errorf("%q: cron never runs it", line)
				}
			}
		})
	}
}

func firstDifference(got, want []int64) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("%s is missing", time.Unix(want[i], 0).UTC())
		case i >= len(want):
			return fmt.Sprintf("%s is too much", time.Unix(got[i], 0).UTC())
		case got[i] != want[i]:
			return fmt.Sprintf("%s instead of %s", time.Unix(got[i], 0).UTC(), time.Unix(want[i], 0).UTC())
		}
	}
	return ""
}
