package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/cmd/exit"
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
}

func TestSubmitSeveralFiles(t *testing.T) {
	s := newShell(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	spec := func(name string) string {
		return "name: " + name + "\nschedule: '@manual'\ntype: shell\npayload: {command: date}\n"
	}
	a, b := write("a.yaml", spec("a")), write("b.yaml", spec("b")+"---\n"+spec("b2"))
	write("more/c.yml", spec("c"))
	write("more/README.md", "no job")
	out, _ := s.want(exit.OK, "", "submit", a, b, "-f", filepath.Join(dir, "more"))
	for _, want := range []string{"submitted a (", "2 created", "submitted c ("} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// One that is wrong does not keep the others back, and is said where it stands.
	bad, d := write("bad.yaml", "name: x\nschedul: never\n"), write("d.yaml", spec("d"))
	out, errOut := s.want(exit.Usage, "", "submit", "-f", bad, "-f", d)
	if !strings.Contains(out, "submitted d (") || !strings.Contains(errOut, "bad.yaml:") ||
		!strings.Contains(errOut, "1 of 2 files were not submitted whole") {
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
	if _, errOut := s.want(exit.Usage, "", "submit", "--shell", "date", "--at", "tomorrow"); !strings.Contains(errOut, "09:00") {
		t.Error(errOut)
	}
	if _, errOut := s.want(exit.Usage, "", "submit", "--shell", "date", "--at", "09:00", "--tz", "Nowhere"); !strings.Contains(errOut, "Nowhere") {
		t.Error(errOut)
	}
}
