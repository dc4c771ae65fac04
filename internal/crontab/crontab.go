// Package crontab reads the tables of cron and says what job each line is: the command, when it runs and in which
// environment, as cron itself would read it (cronie; where Debian's cron, FreeBSD and OpenBSD know more, that too).
package crontab

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/internal/daylight"
	"github.com/carillon-scheduler/carillon/internal/jsontext"
	"github.com/carillon-scheduler/carillon/job"
)

// Options say what a table does not.
type Options struct {
	Zone     string // in which cron read the table; CRON_TZ in the table wins
	Host     string // whose worker runs the jobs: the tag host; "" for any
	AsWorker bool   // leave users out: all jobs run as the worker's user
	Mail     bool   // tell the addresses of MAILTO when a job begins to fail; the nodes need a mail server
	Timeout  time.Duration
	Prefix   string // of the jobs' names
	Now      time.Time
}

// Line is what became of a line that is neither empty nor a comment.
type Line struct {
	Number int
	Text   string
	Job    *job.Spec // nil: it is no job
	Notes  []string  // what is not as it was under cron, although the line was carried over
	Err    string    // why the line was not carried over
}

// Reader reads tables one after the other; the names of their jobs differ from each other.
type Reader struct {
	o     Options
	names map[string]int
}

// NewReader makes a reader.
func NewReader(o Options) *Reader { return &Reader{o, map[string]int{}} }

// Read reads one table. With column the sixth field of a line is the user, as in /etc/crontab and /etc/cron.d; without
// it the table is the user's, or that of the worker's own user ("").
func (r *Reader) Read(data []byte, column bool, user string) []Line {
	t := table{Reader: r, env: map[string]string{}, column: column, user: user}
	var lines []Line
	for n := 1; len(data) > 0; n++ {
		raw, rest, ended := bytes.Cut(data, []byte("\n"))
		data = rest
		text, cr := strings.CutSuffix(string(raw), "\r")
		text = strings.TrimLeft(text, " \t")
		if text == "" || text[0] == '#' {
			continue
		}
		l := Line{Number: n, Text: text}
		t.read(&l)
		if l.Job != nil && cr {
			l.note("the carriage return at the end of the line is dropped; cron would pass it to the command")
		}
		if l.Job != nil && !ended {
			l.note("cron refuses a last line without a newline; it is converted anyway")
		}
		lines = append(lines, l)
	}
	return lines
}

// userName is what a user may be called; a command usually has a path, or is longer.
var userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// HasUsers says that a table reads as one with users, as /etc/crontab: the field after the times of every line could be
// one, more follows, and some are root.
func HasUsers(data []byte) bool {
	root := false
	for text := range strings.Lines(string(data)) {
		text = strings.TrimSpace(text)
		if _, _, variable := readVariable(text); text == "" || text[0] == '#' || variable {
			continue
		}
		rest, fields := text, 5
		if text[0] == '@' {
			fields = 1
		}
		for range fields {
			_, rest = cutField(rest)
		}
		user, command := cutField(rest)
		if command == "" || !userName.MatchString(user) {
			return false
		}
		root = root || user == "root"
	}
	return root
}

func (l *Line) note(format string, args ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(format, args...))
}

func (l *Line) fail(format string, args ...any) { l.Job, l.Err = nil, fmt.Sprintf(format, args...) }

// table is one crontab while it is read: variables hold for the lines below them.
type table struct {
	*Reader
	env    map[string]string
	column bool // lines name the user
	user   string
}

func (t *table) read(l *Line) {
	if !utf8.ValidString(l.Text) {
		l.fail("it is not UTF-8: convert the file, for instance with iconv -f latin1 -t utf8")
		return
	}
	if strings.ContainsFunc(l.Text, func(r rune) bool { return r < ' ' && r != '\t' }) {
		l.fail("it has a control character")
		return
	}
	if name, value, ok := readVariable(l.Text); ok {
		t.env[name] = value
		t.checkVariable(l, name, value)
		return
	}
	t.entry(l)
}

// ours are the variables that cron itself reads. They are no part of the job's environment here.
var ours = map[string]string{
	"MAILTO": "", "RANDOM_DELAY": "", "CRON_TZ": "",
	"MAILFROM":                  "the sender of mail is the nodes' --smtp-from",
	"CONTENT_TYPE":              "it concerns cron's mail",
	"CONTENT_TRANSFER_ENCODING": "it concerns cron's mail",
}

// checkVariable says what is lost of a variable; the environment of a job leaves it out.
func (t *table) checkVariable(l *Line, name, value string) {
	switch why := ours[name]; {
	case why != "":
		l.note("%s is left out: %s", name, why)
	case name == "LOGNAME" || name == "USER":
		l.note("%s is left out, as cron does: it is the user that the job runs as", name)
	case !carried(name, value):
		l.Err = fmt.Sprintf("the variable %q cannot be set for a job: use letters, digits and _, no CARILLON_… and no "+
			"value with secret://", name)
	}
}

// carried says whether a job may have a variable. What refers to a secret here was plain text there.
func carried(name, value string) bool {
	return job.ShellVariable(name) && !strings.Contains(value, "secret://")
}

// words are cron's names of schedules, with whether cron takes them for wildcards.
var words = map[string]struct {
	schedule string
	wild     bool
}{
	"@yearly": {"@yearly", false}, "@annually": {"@yearly", false}, "@monthly": {"@monthly", false},
	"@weekly": {"@weekly", false}, "@daily": {"@daily", false}, "@midnight": {"@daily", false},
	"@hourly": {"@hourly", true},
	// FreeBSD's.
	"@every_minute": {"* * * * *", true}, "@every_second": {"* * * * * *", true},
}

var secondsRE = regexp.MustCompile(`^@[1-9][0-9]{0,8}$`)

func (t *table) entry(l *Line) {
	rest := l.Text
	rest = strings.TrimPrefix(rest, "-") // cronie: do not log
	spec := &job.Spec{Type: job.TypeShell, Overlap: job.OverlapAllow, Delivery: job.DeliverAtMostOnce,
		Timeout: job.Duration(t.o.Timeout)}
	spec.Retry.MaxRetries = new(int)
	spec.Missed.Policy = job.MissedSkip
	wild := false
	if rest != "" && rest[0] == '@' {
		var word string
		word, rest = cutField(rest)
		known, ok := words[word]
		switch {
		case ok:
			spec.Schedule, wild = known.schedule, known.wild
		case word == "@reboot":
			l.fail("@reboot has no counterpart: a cluster does not start with a machine. Use a systemd unit on that " +
				"host")
			return
		case secondsRE.MatchString(word):
			spec.Schedule, wild = "@every "+word[1:]+"s", true
			spec.Overlap = job.OverlapSkip
			l.note("FreeBSD counts %s seconds from the end of a run; this job starts every %[1]s seconds, and skips "+
				"a start while a run is open", word[1:])
		default:
			l.fail("cron does not know %q; it knows @yearly, @monthly, @weekly, @daily, @midnight, @hourly and "+
				"@reboot", word)
			return
		}
	} else {
		var texts [5]string
		for i := range texts {
			texts[i], rest = cutField(rest)
		}
		s, err := readFields(texts)
		if err != nil {
			l.fail("%v", err)
			return
		}
		spec.Schedule, wild = s.expression, s.wild
		l.Notes = append(l.Notes, s.notes...)
	}
	user := t.user
	if t.column {
		user, rest = cutField(rest)
		if rest == "" {
			l.fail("there is no command after the user %q: is this a crontab without a user column "+
				"(--no-user-column)?", user)
			return
		}
	}
	l.Job = spec
	p, ok := t.command(l, rest)
	if !ok || !t.owner(l, &p, user) || !t.zone(l, wild) {
		return
	}
	t.mail(l)
	t.delay(l)
	if t.o.Host != "" {
		spec.Workers = map[string]string{"host": t.o.Host}
	}
	spec.Name = t.name(&p)
	var err error
	if spec.Payload, err = jsontext.Marshal(p); err != nil {
		l.fail("%v", err)
	}
}

func (t *table) owner(l *Line, p *job.ShellPayload, user string) bool {
	if user == "" || t.o.AsWorker {
		return true
	}
	if !job.UserName(user) {
		l.fail("%q is not the name of a user; of FreeBSD's user:group/class only the user can be converted", user)
		return false
	}
	p.User = user
	return true
}

// standardPath is what cron gives a command whose table has no PATH.
const standardPath = "/usr/bin:/bin:/usr/sbin:/sbin"

// environment is what cron gives a command besides HOME, LOGNAME and USER, which depend on the user.
func (t *table) environment() map[string]string {
	env := map[string]string{"PATH": standardPath, "SHELL": "/bin/sh"}
	maps.Copy(env, t.env)
	maps.DeleteFunc(env, func(name, value string) bool {
		_, own := ours[name]
		return own || name == "LOGNAME" || name == "USER" || !carried(name, value)
	})
	return env
}

func (t *table) zone(l *Line, wild bool) bool {
	zone := cmp.Or(t.env["CRON_TZ"], t.o.Zone, "UTC")
	if _, err := time.LoadLocation(zone); err != nil {
		l.fail("%q is not a zone of the IANA database: correct CRON_TZ or --tz", zone)
		return false
	}
	if tz := t.env["TZ"]; tz != "" && t.env["CRON_TZ"] == "" && tz != zone {
		l.note("TZ=%s is for the command; cron reads the schedule in the zone of the host, here %s", tz, zone)
	}
	l.Job.Timezone = zone
	// A job with a wildcard in minute or hour follows the wall clock, and so has nothing in an hour that is left out
	// and runs in both of an hour that comes twice. Any other runs right after the hour that is left out, and in the
	// first of the two.
	gap, overlap := daylight.GapAfter, daylight.OverlapFirst
	if wild {
		gap, overlap = daylight.GapSkip, daylight.OverlapBoth
	}
	if err := daylight.Keep(l.Job, gap, overlap, t.o.Now); err != nil {
		l.fail("%v", err)
		return false
	}
	if !wild && daylight.SeveralInGap(l.Job, t.o.Now) {
		l.note("when the clock goes forward, cron makes up every run that it skipped; Carillon runs once")
	}
	return true
}

func (t *table) mail(l *Line) {
	to, set := t.env["MAILTO"]
	if !set || to == "" {
		return
	}
	var known, local []string
	for _, a := range strings.FieldsFunc(to, func(r rune) bool { return r == ',' || r == ' ' }) {
		if strings.Contains(a, "@") && !strings.ContainsAny(a, "$") {
			known = append(known, a)
		} else {
			local = append(local, a)
		}
	}
	switch {
	case known != nil && !t.o.Mail:
		l.note("cron mails all output to %s; Carillon keeps it in the history, and with --mail it mails when the "+
			"job begins to fail", strings.Join(known, ", "))
	case known != nil:
		l.Job.Notify = &job.Notify{Email: known}
		l.note("cron mails all output to %s; Carillon mails when the job begins to fail and when it works again",
			strings.Join(known, ", "))
	}
	if local != nil {
		l.note("MAILTO=%s is left out: it is not an address outside this host", strings.Join(local, ","))
	}
}

// delay is cronie's RANDOM_DELAY: minutes, of which each start of cron takes a part by chance.
func (t *table) delay(l *Line) {
	text, ok := t.env["RANDOM_DELAY"]
	if !ok {
		return
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 0 || n > 24*60 {
		l.note("RANDOM_DELAY=%s is left out, as cron does: it is not a number of minutes up to 1440", text)
		return
	}
	l.Job.Jitter = job.Duration(time.Duration(n) * time.Minute)
}

// cutField takes a word off the beginning, and the blanks after it.
func cutField(s string) (word, rest string) {
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, ""
	}
	return s[:i], strings.TrimLeft(s[i:], " \t")
}
