package cmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/habits"
)

func TestVersionFlag(t *testing.T) {
	s := newShell(t)
	for _, more := range [][]string{nil, {"--json"}} {
		word, _ := s.want(exit.OK, "", append([]string{"version"}, more...)...)
		flag, _ := s.want(exit.OK, "", append([]string{"--version"}, more...)...)
		if word == "" || flag != word {
			t.Errorf("%q, %q", word, flag)
		}
	}
	s.want(exit.Usage, "", "-v")
	if out, _ := s.want(exit.OK, ""); !strings.Contains(out, "Available Commands") && !strings.Contains(out, "Jobs and runs:") {
		t.Error(out)
	}
}

// What people type for it does the same.
func TestOtherWaysToSayIt(t *testing.T) {
	s := newShell(t)
	s.populate()
	for one, other := range map[string]string{
		"jobs get hello": "jobs describe hello", "jobs why hello": "why hello", "jobs get report": "job show report",
		"jobs create --name x --schedule @manual --shell date --json": "submit --name x --schedule @manual --shell date --json",
	} {
		a, _ := s.want(exit.OK, "", strings.Fields(one)...)
		b, _ := s.want(exit.OK, "", strings.Fields(other)...)
		if a == "" || a != b {
			t.Errorf("%s:\n%s\n%s:\n%s", one, a, other, b)
		}
	}
	out, _ := s.want(exit.OK, "", "jobs", "--status", "failing")
	if !strings.Contains(out, "hello") || strings.Contains(out, "report") {
		t.Error(out)
	}
	out, _ = s.want(exit.OK, "", "__complete", "jobs", "get", "")
	if !strings.Contains(out, "hello\t@every 2s") || !strings.Contains(out, "report\t") || !strings.Contains(out, ":4") {
		t.Error(out)
	}
}

// A tab knows what is there, and what a flag takes.
func TestTab(t *testing.T) {
	s := newShell(t)
	s.populate()
	s.env = map[string]string{"CARILLON_CONFIG_DIR": t.TempDir()}
	s.must("queues", "set", "mail", "--concurrency", "3")
	s.must("queues", "set", "fax", "--concurrency", "3")
	s.want(exit.OK, "", "login", s.addr, "--context", "here")
	page, err := s.node().Backend.DeadLetters(t.Context(), client.DeadQuery{Limit: 100}, api.Read{})
	if err != nil || len(page.Dead) < 2 {
		t.Fatal(page, err)
	}
	one, two := fmt.Sprint(page.Dead[0].Seq), fmt.Sprint(page.Dead[1].Seq)
	for typed, want := range map[string]string{
		"jobs get r": "report\t", "why ": "hello\t", "logs h": "hello\t", "runs ": "hello\t", "dead --job ": "hello\t", "upcoming ": "hello\t",
		"runs get ": s.running + "\thello running", "runs tail ": s.running, "dead redrive " + one + " ": two + "\thello", "queues get ": "fax",
		"queues pause m": "mail", "jobs --status f": "failing", "runs --status ": "succeeded", "jobs --type s": "shell", "token create x --role v": "viewer",
		"--context ": "here", "jobs --context h": "here", "context use ": "here", "cluster remove ": "n1\t",
	} {
		out, _ := s.want(exit.OK, "", append([]string{"__complete"}, strings.Split(typed, " ")...)...)
		if !strings.HasPrefix(out, want) && !strings.Contains(out, "\n"+want) || !strings.Contains(out, "\n:4\n") {
			t.Errorf("%s: no %q in\n%s", typed, want, out)
		}
	}
	for typed, not := range map[string]string{"dead redrive " + one + " ": one + "\t", "queues pause m": "fax", "jobs get hello ": "report"} {
		if out, _ := s.want(exit.OK, "", append([]string{"__complete"}, strings.Split(typed, " ")...)...); strings.Contains("\n"+out, "\n"+not) {
			t.Errorf("%s:\n%s", typed, out)
		}
	}
	s.addr = "127.0.0.1:1" // a shell is not told of errors
	if out, errOut := s.want(exit.OK, "", "__complete", "jobs", "get", ""); out != ":4\n" || strings.Contains(errOut, "error") {
		t.Errorf("%q %q", out, errOut)
	}
}

// What is put back of a job that is paused waits, and that is said.
func TestRedriveOfAPausedJob(t *testing.T) {
	for _, by := range []string{"--job hello", "--all", ""} {
		s := newShell(t)
		s.populate()
		page, err := s.node().Backend.DeadLetters(t.Context(), client.DeadQuery{Limit: 100}, api.Read{})
		if err != nil || len(page.Dead) == 0 {
			t.Fatal(page, err)
		}
		if by == "" {
			by = fmt.Sprint(page.Dead[0].Seq)
		}
		s.must("jobs", "pause", "hello")
		const want = "hello is paused: its runs wait until carillon jobs resume hello\n"
		if out, _ := s.want(exit.OK, "", append([]string{"dead", "redrive"}, strings.Fields(by)...)...); !strings.HasSuffix(out, want) {
			t.Errorf("%s: %s", by, out)
		}
	}
	s := newShell(t)
	s.populate()
	if out, _ := s.want(exit.OK, "", "dead", "redrive", "--job", "hello"); strings.Contains(out, "paused") {
		t.Error(out)
	}
}

// Why of a job that fails says so, and when it runs in the zone of the reader.
func TestWhyOfAFailingJob(t *testing.T) {
	s := newShell(t)
	s.populate()
	out, _ := s.want(exit.OK, "", "why", "hello")
	if !strings.Contains(out, "its last run is dead, ") || !strings.Contains(out, "carillon logs hello, carillon runs hello") || instants.MatchString(out) {
		t.Error(out)
	}
	out, _ = s.want(exit.OK, "", "why", "report")
	if strings.Contains(out, "its last run") || instants.MatchString(out) || strings.Count(out, "no worker") > 2 {
		t.Error(out)
	}
	t.Log(out)
}

func TestLogs(t *testing.T) {
	s := newShell(t)
	s.populate()
	out, errOut := s.want(exit.OK, "", "logs", s.died)
	if out != "first\nsecond\n" || errOut != "" {
		t.Errorf("%q %q", out, errOut)
	}
	if _, errOut = s.want(exit.OK, "", "logs", "hello"); !strings.HasPrefix(errOut, "--- run "+s.running+", running, started ") {
		t.Error(errOut)
	}
	if _, errOut = s.want(exit.NotFound, "", "logs", "report"); !strings.Contains(errOut, "no run of report has begun") ||
		!strings.Contains(errOut, "`carillon why report`") {
		t.Error(errOut)
	}
	s.want(exit.NotFound, "", "logs", "nosuch")
	s.want(exit.Usage, "", "logs", "hello", "-o", "yaml")
	spec, _ := s.want(exit.OK, "", "jobs", "get", "hello", "-o", "yaml")
	s.want(exit.OK, strings.Replace(spec, "overlap: skip", "overlap: allow", 1), "apply", "-f", "-")
	s.must("jobs", "run", "hello") // it waits, and has written nothing
	if _, errOut = s.want(exit.OK, "", "logs", "hello"); !strings.HasPrefix(errOut, "--- run "+s.running+", running, started ") {
		t.Error(errOut)
	}
}

func TestSubmitSeveralFiles(t *testing.T) {
	s := newShell(t)
	spec := func(name string) string {
		return "name: " + name + "\nschedule: '@manual'\ntype: shell\npayload: {command: date}\n"
	}
	dir := applyIn(t, map[string]string{"a.yaml": spec("a"), "b.yaml": spec("b") + "---\n" + spec("b2"),
		"more/c.yml": spec("c"), "more/README.md": "no job", "bad.yaml": "name: x\nschedul: never\n", "d.yaml": spec("d")})
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	out, _ := s.want(exit.OK, "", "submit", a, b, "-f", filepath.Join(dir, "more"))
	for _, want := range []string{"submitted a (", "2 created", "submitted c ("} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// One that is wrong does not keep the others back, and is said where it stands.
	out, errOut := s.want(exit.Usage, "", "submit", "-f", filepath.Join(dir, "bad.yaml"), "-f", filepath.Join(dir, "d.yaml"))
	if !strings.Contains(out, "submitted d (") || !strings.Contains(errOut, "bad.yaml:") ||
		!strings.Contains(errOut, "1 of 2 files were not submitted completely") {
		t.Errorf("%s%s", out, errOut)
	}
	s.want(exit.Usage, "", "submit", a, b, "--idempotency-key", "k")
	s.want(exit.Usage, "", "submit", a, "--name", "y")
	s.want(exit.Usage, "", "submit", t.TempDir())
	s.want(exit.Usage, "", "submit", filepath.Join(dir, "nosuch.yaml"))
	s.addr = "127.0.0.1:1"
	if _, errOut := s.want(exit.Unavailable, "", "submit", a, b); strings.Count(errOut, "error:") != 1 {
		t.Error(errOut)
	}
}

// It is noon in UTC: a time of day is the next one in the zone of the job, and the answer says which that is.
func TestSubmitAt(t *testing.T) {
	s := newShell(t)
	for at, want := range map[string]string{
		"10m": "12:10:00 UTC", "+1d": "-03 12:00:00 UTC", "11:30": "-03 11:30:00 UTC", "12:30": "12:30:00 UTC",
		"12:30 --tz Europe/Berlin": "-03 11:30:00 UTC", "13:30 --tz Europe/Berlin": "12:30:00 UTC",
	} {
		args := append([]string{"submit", "--shell", "date", "--at"}, strings.Fields(at)...)
		if out, _ := s.want(exit.OK, "", args...); !strings.Contains(out, want) {
			t.Errorf("%s: %s", at, out)
		}
	}
	if out, _ := s.want(exit.OK, "", "submit", "--shell", "date", "--at", "2020-01-01T09:00:00Z"); !strings.Contains(out, "which was due ") ||
		!strings.Contains(out, "runs now") {
		t.Error(out)
	}
	if _, errOut := s.want(exit.Usage, "", "submit", "--shell", "date", "--at", "tomorrow"); !strings.Contains(errOut, "09:00") {
		t.Error(errOut)
	}
	if _, errOut := s.want(exit.Usage, "", "submit", "--shell", "date", "--at", "09:00", "--tz", "Nowhere"); !strings.Contains(errOut, "Nowhere") {
		t.Error(errOut)
	}
}

// What people type out of habit works, or is answered with one command that does it.
func TestHabits(t *testing.T) {
	for typed, want := range map[string]string{
		"ls": "jobs", "list": "jobs", "get jobs": "jobs", "get job x": "jobs get x", "describe job x": "jobs get x", "get x": "jobs get x",
		"run x": "jobs run x", "delete x": "jobs delete x", "delete job x": "jobs delete x", "rm x": "jobs delete x", "ps": "runs",
		"create -f x.yaml": "submit -f x.yaml", "add x.yaml": "submit x.yaml", "crontab -l": "jobs", "crontab -e": "jobs edit JOB",
		"crontab tab": "import crontab tab", "exec x": "jobs run x", "top": "status --watch", "node status": "cluster members",
		"server members": "cluster members", "operator raft list-peers": "cluster members", "member list": "cluster members",
		"endpoint health": "status", "workflow list": "jobs", "schedule create": "submit FILE", "schedule list": "jobs", "start": "dev",
		"stop x": "jobs pause x", "init": "cluster init --out DIR", "edit x": "jobs edit x", "edit": "jobs edit JOB", "pause x": "jobs pause x",
		"trigger x": "jobs run x", "resume x": "jobs resume x", "kill x": "jobs cancel x", "snapshot save f": "backup f",
		"config use-context prod": "context use prod", "job status x": "jobs get x", "history x": "runs x", "tail x": "logs -f x",
		"--addr 127.0.0.1:1 --json=false run x": "jobs run x", "nodes": "cluster members", "retry x": "dead redrive --job x",
		"delete my'job": "jobs delete 'my'\\''job'",
		"subimt":        "submit", "schedule nxt": "schedule next", "statsu": "status", "jobs lst": "jobs list", "contex": "context",
		"jbos": "jobs", "rnus": "runs", "context current": "context show", "use prod": "context use prod",
	} {
		s := newShell(t)
		out, errOut, code := s.run("", strings.Fields(typed)...)
		if says := "hint: did you mean `carillon " + want + "`?\n"; code != exit.Usage || out != "" || strings.Count(errOut, "\n") != 2 ||
			!strings.Contains(errOut, "error: there is no command `carillon ") || !strings.HasSuffix(errOut, says) {
			t.Errorf("%s: exit %d\n%s%s", typed, code, out, errOut)
		}
	}
	s := newShell(t)
	// What is suggested is a command line that is understood.
	for _, typed := range habits.Typed() {
		_, errOut, code := s.run("", strings.Fields(typed)...)
		_, means, _ := strings.Cut(errOut, "did you mean `carillon ")
		means, _, _ = strings.Cut(means, "`?")
		cmd, rest, err := s.app().root().Find(strings.Fields(means))
		if err == nil {
			if err = cmd.ParseFlags(rest); err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
		}
		if code != exit.Usage || err != nil || !cmd.HasParent() {
			t.Errorf("%s: exit %d, %q: %v", typed, code, means, err)
		}
	}
	s.populate()
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte("name: y\nschedule: '@manual'\ntype: shell\npayload: {command: date}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, typed := range []string{"version", "--version", "help", "config", "job run report", "jobs create -f " + file, "apply -f " + file,
		"logs hello", "why hello", "job ls", "jobs describe hello", "jobs rm report", "help jobs", "context", "runs hello"} {
		if out, errOut, code := s.run("", strings.Fields(typed)...); code != exit.OK {
			t.Errorf("%s: exit %d\n%s%s", typed, code, out, errOut)
		}
	}
	for typed, want := range map[string]string{
		"xyzzy":         "error: there is no command `carillon xyzzy`\nhint: `carillon --help` lists the commands\n",
		"jobs xyzzy":    "error: there is no command `carillon jobs xyzzy`\nhint: `carillon jobs --help` lists the commands\n",
		"version extra": "error: `carillon version` takes no argument, but got \"extra\"\nhint: `carillon version --help` says more\n",
		"submit": "error: there is no job to submit\nhint: `carillon submit jobs.yaml` takes a file, " +
			"`carillon submit --schedule '@every 1m' --shell date` makes a job\n",
		"apply a b":      "error: `carillon apply` takes no argument, but got \"a\"\nhint: did you mean `carillon apply -f a -f b`?\n",
		"jobs --watch 5": "error: the interval of --watch needs an = before it\nhint: did you mean `carillon jobs --watch=5s`?\n",
	} {
		if out, errOut, code := s.run("", strings.Fields(typed)...); code != exit.Usage || out != "" || errOut != want {
			t.Errorf("%s: exit %d\n%s%s", typed, code, out, errOut)
		}
	}
}

// Who leaves out what is meant is told what is missing, and where to find it.
func TestMissingArguments(t *testing.T) {
	s := newShell(t)
	for typed, want := range map[string]string{
		"jobs get":       "say which job: carillon jobs get JOB\nhint: `carillon jobs` lists them",
		"why":            "say which job: carillon why JOB\nhint: `carillon jobs` lists them",
		"logs":           "say which job or run: carillon logs JOB|RUN\nhint: `carillon jobs` lists the jobs",
		"runs get":       "say which run: carillon runs get RUN\nhint: `carillon runs JOB` lists them",
		"queues get":     "say which one: carillon queues get NAME\nhint: `carillon queues list` lists them",
		"context use":    "say which one: carillon context use NAME\nhint: `carillon context list` lists them",
		"token revoke":   "say which token: carillon token revoke TOKEN\nhint: `carillon token list` lists them",
		"login":          "say which address: carillon login ADDR\nhint: for example 10.0.0.1:7400, or several with commas",
		"dead get":       "say which one: carillon dead get ID\nhint: `carillon dead list` lists them",
		"cluster remove": "say which node: carillon cluster remove NODE\nhint: `carillon cluster members` lists them",
		"jobs get a b":   "2 arguments are not what `carillon jobs get JOB` takes\nhint: `carillon jobs get --help` says more",
	} {
		if out, errOut, code := s.run("", strings.Fields(typed)...); code != exit.Usage || out != "" || errOut != "error: "+want+"\n" {
			t.Errorf("%s: exit %d\n%s%s", typed, code, out, errOut)
		}
	}
}

// Ctrl-C at a question is an answer, though the terminal is still being read.
func TestQuestionIsInterrupted(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	cmd := &cobra.Command{}
	ctx, cancel := context.WithCancel(t.Context())
	cmd.SetContext(ctx)
	cmd.SetIn(in)
	cmd.SetErr(io.Discard)
	a := newApp()
	a.person = func(io.Reader) bool { return true }
	err := (&confirmation{}).ask(a, cmd, true, func() (string, error) { cancel(); return "All goes.", nil })
	if err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Error(err)
	}
}

// What cannot be undone is asked about at a terminal. A script is trusted with what it names, and not with everything.
func TestQuestions(t *testing.T) {
	s := newShell(t)
	s.populate()
	count := func() int {
		t.Helper()
		page, err := s.node().Backend.DeadLetters(t.Context(), client.DeadQuery{Limit: 100}, api.Read{})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Dead)
	}
	had := count()
	if _, errOut := s.want(exit.Usage, "y\n", "dead", "purge", "--all"); !strings.Contains(errOut, "give --yes") {
		t.Error(errOut)
	}
	s.asked = true
	for _, no := range []string{"", "n\n", "\n", "maybe\n"} {
		_, errOut := s.want(exit.Usage, no, "dead", "purge", "--all")
		if want := fmt.Sprintf("This removes %s, all of namespace default. This cannot be undone. Go on? [y/N] ", plural(had, "dead letter")); !strings.HasPrefix(errOut, want) {
			t.Error(errOut)
		}
		s.want(exit.Usage, no, "dead", "purge", "--job", "hello")
		s.want(exit.Usage, no, "cluster", "remove", "n9")
		s.want(exit.Usage, no, "secret", "delete", "nosuch")
	}
	if n := count(); n != had || n == 0 {
		t.Errorf("%d of %d are left", n, had)
	}
	s.want(exit.OK, "y\n", "dead", "purge", "--all")
	if n := count(); n != 0 {
		t.Errorf("%d are left", n)
	}
	s.want(exit.OK, "", "dead", "purge", "--all", "--yes")
	s.asked = false
	s.want(exit.OK, "", "dead", "purge", "--job", "hello")
}
