package cmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/job"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

// shell runs commands as a user would, against one backend.
type shell struct {
	t     *testing.T
	fake  *apitest.Fake
	addr  string
	env   map[string]string
	color bool
	width int
}

func newShell(t *testing.T) *shell {
	t.Helper()
	f := apitest.New()
	f.Now = func() time.Time { return noon }
	srv := httptest.NewServer(api.New(f, api.Options{}))
	t.Cleanup(srv.Close)
	return &shell{t: t, fake: f, addr: srv.Listener.Addr().String(), env: map[string]string{}}
}

func (s *shell) app() *app {
	return &app{now: func() time.Time { return noon }, loc: time.UTC, env: func(k string) string {
		if k == "CARILLON_ADDR" {
			return s.addr
		}
		return s.env[k]
	}}
}

func (s *shell) run(stdin string, args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	a := s.app()
	root := a.root()
	pre := root.PersistentPreRunE
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		err := pre(cmd, args)
		a.color, a.width = s.color, s.width
		return err
	}
	var out, errOut bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetIn(strings.NewReader(stdin))
	a.args = args
	code = a.execute(s.t.Context(), root, &errOut)
	return out.String(), errOut.String(), code
}

// populate puts one of everything in.
func (s *shell) populate() {
	s.t.Helper()
	for _, args := range [][]string{
		{"submit", "--name", "hello", "--schedule", "@every 2s", "--http", "http://127.0.0.1:8080/hook?a=1&b=2", "--body",
			`{"n":1}`, "--tag", "team=a"},
		{"submit", "--name", "report", "--schedule", "0 9 * * MON-FRI", "--tz", "Europe/Berlin", "--shell", "make report",
			"--overlap", "queue", "--max-retries", "5", "--deadline", "1h"},
	} {
		if _, stderr, code := s.run("", args...); code != 0 {
			s.t.Fatal(stderr)
		}
	}
	at := func(d time.Duration) job.Instant { return job.At(noon.Add(d)) }
	ms := func(n int64) *int64 { return &n }
	id := func(d time.Duration) string {
		return job.RunKey{Job: 1, At: noon.Add(d).UnixMilli(), Origin: job.OriginSchedule}.String()
	}
	s.fake.AddHistory(job.Run{RunID: id(-26 * time.Hour), JobID: 1, JobName: "hello", ScheduledAt: at(-26 * time.Hour),
		Origin: job.OriginSchedule, Status: job.RunSucceeded,
		StartedAt: at(-26*time.Hour + 3*time.Millisecond), FinishedAt: at(-26*time.Hour + 1203*time.Millisecond), Attempt: 1,
		Worker: "n1", LagMS: ms(3)})
	s.fake.AddHistory(job.Run{JobID: 1, JobName: "hello", Status: job.RunMissed, Reason: job.ReasonOutage,
		First: at(-25 * time.Hour), Last: at(-2 * time.Hour), Count: 1000, CountAtLeast: true})
	s.fake.AddHistory(job.Run{JobID: 1, JobName: "hello", Status: job.RunSkipped, Reason: job.ReasonOverlap,
		First: at(-time.Hour), Last: at(-49 * time.Minute), Count: 12})
	s.fake.AddHistory(job.Run{RunID: id(-40 * time.Second), JobID: 1, JobName: "hello",
		ScheduledAt: at(-40 * time.Second), Origin: job.OriginSchedule, Status: job.RunFailed,
		StartedAt: at(-40*time.Second + 12*time.Millisecond), FinishedAt: at(-39 * time.Second), Attempt: 1, Worker: "n1",
		LagMS: ms(12), Error: "status 500: \x1b[31mboom\nsecond line"})
	s.fake.AddHistory(job.Run{RunID: id(-40 * time.Second), JobID: 1, JobName: "hello",
		ScheduledAt: at(-40 * time.Second), Origin: job.OriginSchedule, Status: job.RunDead, Reason: job.ReasonExhausted,
		StartedAt: at(-30 * time.Second), FinishedAt: at(-29 * time.Second), Attempt: 2, Worker: "n1", LagMS: ms(10_000),
		Error: "status 500"})
	s.fake.AddDead(job.Run{RunID: id(-40 * time.Second), JobID: 1, JobName: "hello", ScheduledAt: at(-40 * time.Second),
		FinishedAt: at(-29 * time.Second), Origin: job.OriginSchedule, Status: job.RunDead,
		Reason: job.ReasonExhausted, Attempt: 2, Error: "status 500", Output: "first\nsecond\n"})
	s.fake.AddDead(job.Run{RunID: id(-60 * time.Second), JobID: 1, JobName: "hello", ScheduledAt: at(-60 * time.Second),
		FinishedAt: at(-59 * time.Second), Origin: job.OriginSchedule, Status: job.RunDead,
		Reason: job.ReasonPermanent, Attempt: 1, Error: "status 404"})
	s.fake.AddOpen(job.Run{RunID: id(-2 * time.Second), JobID: 1, JobName: "hello", ScheduledAt: at(-2 * time.Second),
		Origin: job.OriginSchedule, Status: job.RunRunning,
		ClaimedAt: at(-2 * time.Second), StartedAt: at(-1998 * time.Millisecond), Attempt: 1, Worker: "n1", Fence: 7,
		LagMS: ms(2), Key: "j_1:1793620798"})
}

// typeLists takes the lists of job types, which register themselves, out of the texts.
var typeLists = strings.NewReplacer(strings.Join(executor.NodeTypes(), ", "), "NODE-TYPES", choices(), "CHOICES")

// golden compares with testdata/NAME.golden.
func golden(t *testing.T, got string) {
	t.Helper()
	// The fields of a job are declared in one place, and listed by an error: a golden file does not list them again.
	_, err := job.DecodeSpec([]byte(`{"?":0}`))
	if e, ok := err.(*job.Error); ok {
		got = strings.ReplaceAll(got, e.Remedy, "remove it; the fields are {all of them}")
	}
	got = typeLists.Replace(got)
	path := filepath.Join("testdata", strings.ReplaceAll(t.Name(), "/", "_")+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err, "(run with -update)")
	}
	if got != string(want) {
		t.Errorf("%s differs (run with -update and look at the diff):\n%s", path, got)
	}
}

// script is a session at the terminal. A step "<text" is the standard input of the next one.
func (s *shell) script(steps ...[]string) string {
	var b strings.Builder
	stdin := ""
	for _, args := range steps {
		if len(args) == 1 && strings.HasPrefix(args[0], "<") {
			stdin = args[0][1:]
			continue
		}
		quoted := make([]string, len(args))
		for i, arg := range args {
			quoted[i] = arg
			if strings.ContainsAny(arg, " *{}$\"\n") || arg == "" {
				quoted[i] = "'" + arg + "'"
			}
		}
		out, errOut, code := s.run(stdin, args...)
		fmt.Fprintf(&b, "$ carillon %s\n%s", strings.Join(quoted, " "), out)
		if errOut != "" {
			fmt.Fprintf(&b, "--- stderr\n%s", errOut)
		}
		if code != 0 {
			fmt.Fprintf(&b, "--- exit %d\n", code)
		}
		b.WriteString("\n")
		stdin = ""
	}
	return strings.ReplaceAll(b.String(), s.addr, "ADDR")
}

func TestGolden(t *testing.T) {
	run := job.RunKey{Job: 1, At: noon.Add(-2 * time.Second).UnixMilli(), Origin: job.OriginSchedule}.String()
	dead := job.RunKey{Job: 1, At: noon.Add(-40 * time.Second).UnixMilli(), Origin: job.OriginSchedule}.String()
	type steps = [][]string
	for name, st := range map[string]steps{
		"submit": {
			{"submit", "--at", "+5s", "--shell", "date"},
			{"submit", "--name", "m", "--schedule", "@manual", "--queue", "emails", "--data", "{\"to\":\"x\"}", "--worker",
				"zone=a", "--json"},
			{"submit", "--name", "key", "--schedule", "@hourly", "--shell", "date", "--idempotency-key", "k"},
			{"submit", "--name", "key", "--schedule", "@hourly", "--shell", "date", "--idempotency-key", "k"},
			{"submit", "--name", "key", "--schedule", "@hourly", "--shell", "date"},
			{"submit", "--name", "m2", "--schedule", "@manual", "--nats", "orders.new", "--broker", "nats://127.0.0.1:4222",
				"--jetstream", "--header", "X-A: b", "--data", "hello", "--json"},
			{"submit", "--name", "m3", "--schedule", "@manual", "--kafka", "orders", "--broker", "events", "--key", "k",
				"--data", "{\"n\":1}", "--json"},
			{"submit", "--name", "m4", "--schedule", "@manual", "--shell", "date", "--user", "www-data", "--limit",
				"memory=512MiB", "--limit", "cpu=30s", "--json"},
			{"submit", "--schedule", "@manual", "--shell", "date", "--limit", "ram=1"},
			{"submit", "--schedule", "@manual", "--shell", "date", "--limit", "processes=-1"},
			{"submit", "--schedule", "@manual", "--kafka", "orders"},
			{"submit", "--schedule", "@manual", "--kafka", "orders", "--broker", "nats://h"},
			{"submit", "--schedule", "@manual", "--nats", "orders.*", "--broker", "b"},
			{"submit", "--schedule", "@manual", "--nats", "orders", "--broker", "nats://u:p@h"},
			{"submit", "--schedule", "@manual", "--nats", "orders", "--broker", "b", "--key", "k"},
			{"submit"},
			{"submit", "--schedule", "@hourly"},
			{"submit", "--shell", "date"},
			{"submit", "--shell", "date", "--schedule", "@hourly", "--at", "now"},
			{"submit", "--shell", "date", "--http", "http://x/", "--at", "in 10m"},
			{"submit", "--shell", "date", "--method", "GET", "--at", "in 10m"},
			{"submit", "--shell", "date", "--at", "tomorrow"},
			{"submit", "--shell", "date", "--schedule", "0 0 31 2 *"},
			{"submit", "--shell", "date", "--schedule", "@daily", "--tz", "Europe/Berln"},
			{"submit", "--shell", "date", "--schedule", "@daily", "--timeout", "-3s"},
			{"submit", "--shell", "date", "--schedule", "@daily", "--timeout", "3"},
			{"submit", "--http", "http://x/", "--schedule", "@daily", "--header", "nonsense"},
			{"submit", "--http", "http://x/", "--schedule", "@daily", "--expect-status", "200,2xx,9xx"},
			{"submit", "--http", "http://x/", "--schedule", "@daily", "--tag", "nonsense"},
			{"submit", "--http", "http://x/", "--at", "2020-01-01T00:00:00+02:00", "--header", "X-A: b", "--expect-status",
				"200,3xx", "--method", "put", "--json"},
			{"submit", "nosuchfile.yaml"},
			{"submit", "x.yaml", "--name", "y"},
		},
		"submit_file": {
			{"<name: one\ntype: shell\nschedule: '@daily'\npayload: {command: date}\n"},
			{"submit", "-"},
			{"<# jobs\nname: two\ntype: shell\nschedule: 2027-03-01T09:00:00Z\npayload:\n  command: date\nretry:\n  base: 5s\n---\nname: three\ntype: http\nschedule: '@every 5m'\npayload: {url: 'http://x/?a=b&c=d', body: {n: 1}}\n"},
			{"submit", "-"},
			{"<{\"name\":\"four\",\"type\":\"shell\",\"schedule\":\"@daily\",\"payload\":{\"command\":\"date\"}}\n{\"nam\":\"x\"}\n\n{\"name\":\"two\",\"type\":\"shell\",\"schedule\":\"@hourly\",\"payload\":{\"command\":\"date\"}}\n{\"name\":\"four\",\"type\":\"shell\",\"schedule\":\"@daily\",\"payload\":{\"command\":\"date\"}}\n"},
			{"submit", "-"},
			{"<[{\"name\":\"five\",\"type\":\"shell\",\"schedule\":\"@daily\",\"payload\":{\"command\":\"date\"}},\n{\"name\":\"six\",\"type\":\"shell\",\"schedule\":\"@daily\",\"payload\":{}}]"},
			{"submit", "-", "--json"},
			{"<name: seven\ntype: shell\nschedule: '@daily'\npayload:\n  command: date\ntimezon: UTC\n"},
			{"submit", "-"},
			{"<name: seven\ntype: shell\nschedule: '@daily'\ntimezone: Mars/Olympus\npayload:\n  command: date\n"},
			{"submit", "-"},
			{"<name: seven\ntype: shell\nschedule: '@daily'\nretry:\n  base: 10s\n  cap: 2s\npayload:\n  command: date\n---\nname: eight\ntype: shell\nschedule: '@daily'\nretry:\n  base: 10s\n  cap: 2s\npayload:\n  command: date\n"},
			{"submit", "-"},
			{"<name: [\n"},
			{"submit", "-"},
			{"<{\"name\":\n\"x\",}"},
			{"submit", "-"},
			{"<\n"},
			{"submit", "-"},
		},
		"jobs": {
			{"jobs"},
			{"jobs", "list", "--type", "http", "--tag", "team=a", "--prefix", "he", "--status", "scheduled"},
			{"jobs", "--limit", "1"},
			{"jobs", "--limit", "1", "--cursor", "1"},
			{"jobs", "--prefix", "zzz"},
			{"jobs", "--status", "pausd"},
			{"jobs", "--json", "--prefix", "he"},
			{"jobs", "get", "hello"},
			{"jobs", "get", "report"},
			{"jobs", "get", "report", "--yaml"},
			{"jobs", "get", "j_1", "--json"},
			{"jobs", "get", "nope"},
			{"jobs", "nope"},
			{"jobs", "get"},
		},
		"jobs_change": {
			{"jobs", "pause", "hello"},
			{"jobs", "pause", "hello"},
			{"jobs", "list"},
			{"jobs", "resume", "hello"},
			{"jobs", "run", "hello"},
			{"jobs", "run", "hello", "--json"},
			{"jobs", "cancel", "hello"},
			{"jobs", "cancel", "hello", "--json"},
			{"jobs", "backfill", "report", "--from", "2026-10-01", "--to", "2026-10-02T23:00", "--dry-run"},
			{"jobs", "backfill", "report", "--from", "2026-10-01T00:00:00Z", "--to", "2026-10-02T23:00:00Z", "--json"},
			{"jobs", "backfill", "report", "--from", "2026-10-01"},
			{"jobs", "backfill", "report", "--from", "2026-10-03", "--to", "2026-10-01"},
			{"jobs", "backfill", "hello", "--from", "2026-10-01", "--to", "2026-10-03"},
			{"jobs", "delete", "hello", "--version", "1"},
			{"jobs", "delete", "hello"},
			{"jobs", "delete", "report", "--json"},
			{"jobs", "delete", "hello"},
		},
		"runs": {
			{"runs", "hello"},
			{"runs"},
			{"runs", "--status", "skipped,missed,dead"},
			{"runs", "list", "hello", "--limit", "1", "--json"},
			{"runs", "report"},
			{"runs", "hello", "--status", "sucess"},
			{"runs", "nope"},
			{"runs", "get", run},
			{"runs", "get", dead},
			{"runs", "get", "hello"},
			{"runs", "cancel", run},
			{"runs", "cancel", run, "--json"},
			{"runs", "tail", run},
			{"runs", "tail", dead},
			{"runs", "tail", dead, "--follow"},
			{"runs", "tail", dead, "--json"},
			{"runs", "tail", "hello"},
			{"runs", "tail", "r_9.1k6e21le0.s"},
			{"runs", "tail"},
			{"runs", "export", "--after", "3"},
			{"runs", "export", "--limit", "1"},
		},
		"dead": {
			{"dead"},
			{"dead", "list", "--job", "hello", "--limit", "1"},
			{"dead", "get", "1"},
			{"dead", "get", "9"},
			{"dead", "get", "x"},
			{"dead", "redrive"},
			{"dead", "redrive", "1", "--all"},
			{"dead", "redrive", "1"},
			{"dead", "purge", "--job", "hello", "--json"},
			{"dead", "purge", "--all"},
			{"dead"},
			{"dead", "--json"},
		},
		"queues": {
			{"queues"},
			{"queues", "set", "mail"},
			{"queues", "set", "mail", "--concurrency", "-1"},
			{"queues", "set", "mail", "--concurrency", "10"},
			{"queues", "pause", "mail"},
			{"queues", "set", "mail", "--concurrency", "2", "--json"},
			{"queues", "set", "mail", "--concurrency", "3", "--version", "1"},
			{"queues", "set", "a b", "--concurrency", "3"},
			{"queues", "pause", "nope"},
			{"submit", "--name", "film", "--schedule", "@manual", "--queue", "video"},
			{"queues", "list"},
			{"queues", "get", "mail"},
			{"queues", "get", "video", "--json"},
			{"queues", "get", "nope"},
			{"queues", "resume", "mail"},
			{"queues", "delete", "mail"},
			{"queues", "delete", "mail"},
			{"queues", "--json"},
		},
		"calendars": {
			{"calendars"},
			{"<name: holidays\ntimezone: Europe/Berlin\ndates: [12-25, 2026-12-31]\ndaily: ['22:00-06:00']\nwindows:\n  - {from: 2026-07-01T00:00:00Z, to: 2026-07-02T00:00:00Z}\n"},
			{"calendars", "set", "-"},
			{"<weekdays: [sat, sun]\n"},
			{"calendars", "set", "-", "--name", "weekends", "--json"},
			{"<weekdays: [sat]\n"},
			{"calendars", "set", "-"},
			{"<name: x\nweekdays:\n  - sat\n  - caturday\n"},
			{"calendars", "set", "-"},
			{"calendars", "list"},
			{"calendars", "get", "holidays"},
			{"calendars", "get", "holidays", "--json"},
			{"calendars", "delete", "holidays"},
			{"calendars", "delete", "holidays"},
		},
		"status": {
			{"status"},
			{"status", "--json"},
			{"status", "--watch", "--interval", "1ms"},
			{"cluster", "clock-reset"},
			{"cluster", "clock-reset", "--json"},
		},
		"usage": {
			{"subimt"},
			{"submit", "--nam", "x"},
			{"jobs", "get", "a", "b"},
			{"schedule", "nxt"},
			{"server"},
			{"server", "--node-id", "n1"},
			{"server", "--node-id", "n1", "--data-dir", "x", "--executors", "http,ftp"},
			{"server", "--node-id", "n1", "--data-dir", "x", "--broker", "orders=amqp://u:secret@h"},
			{"server", "--node-id", "n1", "--data-dir", "x", "--shell-memory", "lots"},
			{"server", "--node-id", "n1", "--data-dir", "x", "--shell-open-files", "2"},
			{"server", "--node-id", "n1", "--data-dir", "x", "--shell-cgroup", "here"},
			{"server", "--node-id", "n1", "--data-dir", "x", "--tags", "zone"},
			{"server", "--node-id", "n1", "--data-dir", "x", "--log-level", "loud"},
			{"server", "--node-id", "n1", "--data-dir", "x", "--listen", "foo"},
			{"server", "--node-id", "n1", "--data-dir", "x", "--listen", "10.0.0.1:70000"},
			{"server", "--node-id", "n1", "--data-dir", "x", "--advertise", "n1"},
			{"dev", "--listen", "0.0.0.0:7400"},
			{"dev", "--listen", ":7400"},
			{"dev", "--listen", "127.0.0.1"},
		},
		"schedule": {
			{"schedule", "next", "30 2 * * *", "--tz", "America/New_York", "--from", "2027-03-12T12:00:00Z", "--count", "3"},
			{"schedule", "next", "30 2 * * *", "--tz", "America/New_York", "--from", "2027-03-12T12:00:00Z", "--count", "2",
				"--dst-gap", "skip"},
			{"schedule", "next", "30 1 * * *", "--tz", "America/New_York", "--from", "2027-11-06", "--count", "3"},
			{"schedule", "next", "*/30 * * * *", "--tz", "America/New_York", "--from", "2027-11-07T00:45", "--count", "5"},
			{"schedule", "next", "30 1 * * *", "--tz", "America/New_York", "--from", "2027-11-06T12:00:00Z", "--count", "3",
				"--dst-overlap", "both"},
			{"schedule", "next", "0 0 * * *", "--tz", "Africa/Cairo", "--from", "2027-04-28T12:00:00Z", "--count", "3"},
			{"schedule", "next", "*/30", "2", "*", "*", "*", "--tz", "Australia/Lord_Howe", "--from", "2027-10-02", "--count",
				"4"},
			{"schedule", "next", "@every 90m", "--from", "2027-01-01T00:00:00Z", "--count", "2", "--job-id", "j_7", "--json"},
			{"schedule", "next", "2027-03-01T09:00:00+01:00", "--json"},
			{"schedule", "next", "2020-03-01T09:00:00Z"},
			{"schedule", "next", "@daily", "--count", "2"},
			{"schedule", "next", "@daily", "--count", "0"},
			{"schedule", "next", "0 0 31 2 *"},
			{"schedule", "next", "@daily", "--tz", "Nowhere"},
			{"schedule", "next", "@daily", "--from", "soon"},
			{"schedule", "describe", "0 9 * * MON-FRI", "--tz", "Europe/Berlin"},
			{"schedule", "describe", "@manual", "--json"},
			{"schedule", "check", "0 9 * * MON-FRI"},
			{"schedule", "check", "0 25 * * *"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)
			if name != "submit" && name != "submit_file" && name != "calendars" && name != "queues" {
				s.populate()
			}
			golden(t, s.script(st...))
		})
	}
}

func TestColor(t *testing.T) {
	s := newShell(t)
	s.populate()
	s.color = true
	out := s.script([]string{"runs", "hello"}, []string{"jobs"})
	golden(t, strings.ReplaceAll(out, "\x1b", "ESC"))

	a := s.app()
	if a.wantsColor(io.Discard) {
		t.Error("colour where there is no terminal")
	}
}

// On a terminal no line of a table is longer than the terminal is wide, and what is cut says so.
func TestWidth(t *testing.T) {
	s := newShell(t)
	s.populate()
	if _, errOut, code := s.run("", "submit", "--name", "a-name-that-an-owner-thought-would-explain-everything",
		"--schedule", "0 9 * * MON-FRI", "--tz", "America/Argentina/Buenos_Aires", "--shell", "date"); code != 0 {
		t.Fatal(errOut)
	}
	ready := job.At(noon.Add(90 * time.Second))
	s.fake.AddOpen(job.Run{RunID: "r_3.x.s", JobID: 3, JobName: "a-name-that-an-owner-thought-would-explain-everything",
		ScheduledAt: job.At(noon), Origin: job.OriginSchedule,
		Status: job.RunRetrying, ReadyAt: ready, Attempt: 2,
		Error: "status 503 Service Unavailable: come back when there is more of me than there is now"})
	commands := [][]string{{"jobs"}, {"runs"}, {"runs", "hello"}, {"runs", "--status", "skipped,missed,dead"}, {"dead"}}
	for _, s.color = range []bool{false, true} {
		for _, s.width = range []int{100, 80, 60, 40, 1} {
			for _, args := range commands {
				out, _, _ := s.run("", args...)
				for line := range strings.Lines(out) {
					if n := visible(strings.TrimSuffix(line, "\n")); n > s.width {
						t.Errorf("%v at %d: %d columns: %q", args, s.width, n, line)
					}
					if strings.Contains(line, detail) {
						t.Errorf("%v at %d: %q", args, s.width, line)
					}
				}
			}
		}
	}
	s.color = false
	var b strings.Builder
	for _, s.width = range []int{0, 100, 80} {
		fmt.Fprintf(&b, "%d columns\n\n%s", s.width, s.script(commands...))
	}
	golden(t, b.String())
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	s.addr = l.Addr().String()
	l.Close()
	out, errOut, code := s.run("", "jobs")
	want := "error: cannot reach carillon at http://" + s.addr +
		": connection refused\nhint: start one with `carillon dev`, or set --addr or CARILLON_ADDR\n"
	if out != "" || errOut != want || code != exitUnavailable {
		t.Errorf("%q, %q, %d", out, errOut, code)
	}
	if _, errOut, code := s.run("", "jobs", "--addr", "ftp://x"); code != exitUsage {
		t.Error(errOut, code)
	}
}

func TestExitCodes(t *testing.T) {
	for err, want := range map[error]int{
		nil:                                  exitOK,
		errors.New("disk"):                   exitFailure,
		job.Errorf(job.CodeInternal, "", ""): exitFailure,
		job.Errorf(job.CodeInvalid, "", ""):  exitUsage,
		fmt.Errorf("x: %w", job.Errorf(job.CodeNotFound, "", "")): exitNotFound,
		job.Errorf(job.CodeVersionConflict, "", ""):               exitConflict,
		job.Errorf(job.CodeNoLeader, "", ""):                      exitUnavailable,
		job.Errorf("a_code_of_the_future", "", ""):                exitFailure,
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

func TestVersion(t *testing.T) {
	s := newShell(t)
	out, _, code := s.run("", "version")
	if code != 0 || !strings.HasPrefix(out, "carillon ") || !strings.Contains(out, "go1.") {
		t.Error(out, code)
	}
	out, _, _ = s.run("", "version", "--json")
	var v versionInfo
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Version == "" {
		t.Error(out, err)
	}
}

func TestCompletion(t *testing.T) {
	s := newShell(t)
	s.populate()
	for _, args := range [][]string{{"jobs", "get", "h"}, {"runs", "h"}, {"jobs", "pause", "h"}} {
		out, _, _ := s.run("", append([]string{"__complete"}, args...)...)
		if !strings.Contains(out, "hello\t@every 2s") || strings.Contains(out, "report") {
			t.Errorf("%v: %q", args, out)
		}
	}
	for _, sh := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, _, code := s.run("", "completion", sh); code != 0 || len(out) < 100 {
			t.Error(sh, code)
		}
	}
	if out, errOut, code := s.run("", "completion", "tcsh"); code != exitUsage || out != "" {
		t.Error(out, errOut, code)
	}
	s.addr = "127.0.0.1:1"
	if out, _, _ := s.run("", "__complete", "jobs", "get", "h"); !strings.HasPrefix(out, ":4") {
		t.Errorf("%q", out)
	}
}
