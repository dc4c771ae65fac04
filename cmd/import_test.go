package cmd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/cmd/exit"
)

// Crontabs as they are found on machines: what becomes of each line. A file that ends in .system has users.
func TestImportCrontabs(t *testing.T) {
	files, err := filepath.Glob("testdata/crontabs/*")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := newShell(t)
			args := []string{"import", "crontab", file, "--tz", "Europe/Berlin", "--host", "web1"}
			if strings.HasSuffix(file, ".system") {
				args = append(args, "--user-column")
			}
			stdout, stderr, code := s.run("", args...)
			if want := strings.Contains(stderr, ": left out:"); (code != 0) != want || code > 1 {
				t.Errorf("exit code %d", code)
			}
			golden(t, stdout+"=== standard error\n"+stderr)
		})
	}
}

// What is printed is what submit takes, every job of it; a second time nothing is created.
func TestImportIsSubmitted(t *testing.T) {
	files, err := filepath.Glob("testdata/crontabs/*")
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	args := append([]string{"import", "crontab", "--tz", "Europe/Berlin", "--any-host"}, files...)
	yaml, _, _ := s.run("", args...)
	jobs := strings.Count(yaml, "\nschedule: ")
	if jobs < 80 {
		t.Fatalf("%d jobs", jobs)
	}
	for _, want := range []string{"%d created, 0 already there", "0 created, %d already there"} {
		stdout, stderr, code := s.run(yaml, "submit", "-")
		if code != 0 || !strings.HasPrefix(stdout, fmt.Sprintf(want, jobs)) {
			t.Fatalf("%d %s %s", code, stdout, stderr)
		}
	}
	// The same as lines of JSON.
	lines, _, _ := s.run("", append(args, "--json")...)
	if n := strings.Count(lines, "\n"); n != jobs {
		t.Errorf("%d lines for %d jobs", n, jobs)
	}
}

func TestImportCrontabArguments(t *testing.T) {
	const system = "17 * * * * root run-parts /etc/cron.hourly\n"
	if _, errOut := newShell(t).want(exit.OK, system, "import", "crontab", "-"); !strings.Contains(errOut, "looks like a user") ||
		!strings.Contains(errOut, "--user-column") {
		t.Error(errOut)
	}
	for _, flag := range []string{"--user-column", "--no-user-column"} {
		if _, errOut := newShell(t).want(exit.OK, system, "import", "crontab", "-", flag); strings.Contains(errOut, "looks like") {
			t.Errorf("%s: %s", flag, errOut)
		}
	}

	s := newShell(t)
	dir := filepath.Join(t.TempDir(), "cron.d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"b": "0 1 * * * deploy /opt/b\n", "a": "0 1 * * * root /opt/a\n", "a.dpkg-old": "0 1 * * * root /opt/old\n",
		".hidden": "0 1 * * * root /opt/hidden\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, code := s.run("", "import", "crontab", dir, "--tz", "UTC", "--host", "web1")
	if code != 0 || strings.Count(stdout, "name:") != 2 || !strings.Contains(stdout, "user: deploy") ||
		strings.Index(stdout, "name: a") > strings.Index(stdout, "name: b") || !strings.Contains(stdout, "host: web1") ||
		!strings.Contains(stderr, "--tags host=web1") {
		t.Errorf("%d\n%s\n%s", code, stdout, stderr)
	}
	stdout, stderr, code = s.run("MAILTO=ops@example.com\n0 1 * * * deploy now\n", "import", "crontab", "-", "--tz", "UTC", "--any-host", "--prefix",
		"web1.", "--timeout", "1h", "--user", "app", "--mail")
	if code != 0 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stdout, "name: web1.deploy") || strings.Contains(stdout, "host:") ||
		!strings.Contains(stdout, "timeout: 1h0m0s") || !strings.Contains(stdout, "user: app") ||
		!strings.Contains(stdout, "ops@example.com\n") {
		t.Errorf("%d\n%s\n%s", code, stdout, stderr)
	}
	s.env["TZ"] = "Asia/Tokyo"
	stdout, _, code = s.run("0 1 * * * x\n", "import", "crontab", "-", "--any-host")
	if code != 0 || !strings.Contains(stdout, "timezone: Asia/Tokyo") {
		t.Errorf("%d\n%s", code, stdout)
	}
	for _, args := range [][]string{{}, {"/does/not/exist"}, {"-", "--tz", "Mars/Base"}, {"-", "--timeout", "0s"},
		{"-", "--host", "a", "--any-host"}, {"-", "--user-column", "--no-user-column"}} {
		if stdout, stderr, code := s.run("0 1 * * * x\n", append([]string{"import", "crontab"}, args...)...); code == 0 ||
			stdout != "" || stderr == "" {
			t.Errorf("%q: %d %q %q", args, code, stdout, stderr)
		}
	}
}

// The jobs of a Dkron server: what becomes of each.
func TestImportDkron(t *testing.T) {
	s := newShell(t)
	stdout, stderr, code := s.run("", "import", "dkron", "testdata/dkron.json", "--tz", "Europe/Berlin")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	golden(t, stdout+"=== standard error\n"+stderr)
	if made, said, code := s.run(stdout, "submit", "-"); code != 0 || !strings.HasPrefix(made, "14 created") {
		t.Errorf("%d %s %s", code, made, said)
	}
	stdout, _, _ = s.run("", "import", "dkron", "testdata/dkron.json", "--tz", "Europe/Berlin", "--disabled", "--mail")
	if !strings.Contains(stdout, "name: 'off'") || !strings.Contains(stdout, "- ops@example.com") {
		t.Error(stdout)
	}
	for _, in := range []string{"", "{}", "null", "[1]", `{"name":1}`, "not JSON"} {
		if stdout, stderr, code := s.run(in, "import", "dkron", "-"); (code == 0) != (in == "null") || stdout != "" ||
			strings.Contains(stderr, "panic") {
			t.Errorf("%q: %d %q %q", in, code, stdout, stderr)
		}
	}
}
