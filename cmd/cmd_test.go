package cmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/jobflags"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = apitest.Noon

// shell runs commands as a user would, against one node.
type shell struct {
	t     *testing.T
	addr  string
	env   map[string]string
	color bool
	width int
	asked bool // standard input is that of somebody at a terminal

	node   func() *apitest.Node // what the commands reach; it is started when the first of them does
	wrap   func(api.Backend) api.Backend
	worker *apitest.Worker

	running, died string    // runs of hello: one that runs, and one that died of its last attempt
	began         time.Time // when an attempt did
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{t: t, env: map[string]string{}, node: sync.OnceValue(func() *apitest.Node { return apitest.Start(t) })}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := s.node()
		b := n.Backend
		if s.wrap != nil {
			b = s.wrap(b)
		}
		api.New(b, n.Options).ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	s.addr = srv.Listener.Addr().String()
	return s
}

func (s *shell) app() *app {
	return &app{now: func() time.Time { return noon }, loc: time.UTC, work: runWorker, person: func(io.Reader) bool { return s.asked }, env: func(k string) string {
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

// must runs a command that succeeds.
func (s *shell) must(args ...string) {
	s.t.Helper()
	if _, stderr, code := s.run("", args...); code != 0 {
		s.t.Fatal(stderr)
	}
}

// lived is a data directory after a day, and what a worker needs to go on with it.
var lived struct {
	once          sync.Once
	dir           string
	worker        job.Poll // with its session
	beat          job.Heartbeat
	running, died string
}

// populate gives the shell a node that lived for a day: two jobs, one of them with every kind of run.
func (s *shell) populate() {
	s.t.Helper()
	lived.once.Do(func() { liveADay(s.t) })
	dir := s.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(lived.dir)); err != nil {
		s.t.Fatal(err)
	}
	s.running, s.died = lived.running, lived.died
	workers := s.open(dir, noon).Options.Workers
	s.t.Cleanup(s.stop)
	p := lived.worker
	for range 2 { // for a session of this leader, and with it
		r, err := workers.Poll(s.t.Context(), p)
		if err != nil {
			s.t.Fatal(err)
		}
		p.Session = r.Session
	}
	if _, err := workers.Heartbeat(s.t.Context(), lived.beat); err != nil {
		s.t.Fatal(err)
	}
	s.worker = &apitest.Worker{Session: p.Session, Workers: workers}
}

// liveADay makes what populate copies.
func liveADay(t *testing.T) {
	s := newShell(t)
	dir := filepath.Join(scratch, "lived")
	worker := job.Poll{Worker: "w1", Secret: "s", Types: []job.Type{job.TypeHTTP, job.TypeShell},
		Tags: map[string]string{"zone": "a"}, Slots: 1}
	s.worker = s.open(dir, noon.Add(-26*time.Hour)).Register(t, worker)
	s.must("submit", "--name", "hello", "--schedule", "@every 2s", "--http", "http://127.0.0.1:8080/hook?a=1&b=2",
		"--body", `{"n":1}`, "--tag", "team=a", "--max-retries", "1")
	a := s.nextRun()
	s.begin(3 * time.Millisecond)
	s.end(a, 1200*time.Millisecond, job.Result{Outcome: job.OutcomeSucceeded})
	s.stop()

	// All that was due is missed, and the last of it runs now.
	s.worker = s.open(dir, noon.Add(-39*time.Second)).Register(t, worker)
	s.must("submit", "--name", "report", "--schedule", "0 9 * * MON-FRI", "--tz", "Europe/Berlin", "--shell",
		"make report", "--overlap", "queue", "--max-retries", "5", "--deadline", "1h")
	a = s.worker.Take(t)
	s.begin(12 * time.Millisecond)
	s.end(a, 24*time.Second, job.Result{Outcome: job.OutcomeFailed, Error: "status 500: \x1b[31mboom\nsecond line",
		RetryAfter: job.Duration(10 * time.Second)})
	s.advance(10 * time.Second)
	a = s.worker.Take(t)
	s.begin(0)
	s.end(a, time.Second, job.Result{Outcome: job.OutcomeFailed, Error: "status 500", Output: "first\nsecond\n"})
	lived.died = a.Run.String()
	a = s.nextRun()
	s.begin(time.Millisecond)
	s.end(a, time.Millisecond, job.Result{Outcome: job.OutcomeFailed, Permanent: true, Error: "status 404"})
	a = s.nextRun()
	s.begin(2 * time.Millisecond)
	lived.running = a.Run.String()
	worker.Session, worker.Secret = s.worker.Session, ""
	lived.beat = job.Heartbeat{Session: worker.Session, Runs: []job.Ref{{Fence: a.Fence}}}
	s.advance(noon.Sub(s.node().Clock.Now()))
	s.stop()
	lived.dir, lived.worker = dir, worker
}

func (s *shell) stop() {
	s.t.Helper()
	if err := s.node().Stop(); err != nil {
		s.t.Error(err)
	}
}

// open starts the node of the shell in a directory.
func (s *shell) open(dir string, at time.Time) *apitest.Node {
	s.t.Helper()
	n, err := apitest.Open(dir, apitest.At(at))
	if err != nil {
		s.t.Fatal(err)
	}
	s.node = func() *apitest.Node { return n }
	return n
}

func (s *shell) hello() job.Job {
	s.t.Helper()
	j, err := s.node().Backend.GetJob(s.t.Context(), "hello", api.Read{})
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// nextRun waits for the next occurrence of hello.
func (s *shell) nextRun() job.Assignment {
	s.t.Helper()
	s.node().Clock.Advance(s.hello().NextRunAt.Time().Sub(s.node().Clock.Now()))
	return s.worker.Take(s.t)
}

// advance lets time pass, until what came due in it was judged: hello has an open run, so that it is skipped.
func (s *shell) advance(d time.Duration) {
	s.t.Helper()
	c := s.node().Clock
	c.Advance(d)
	for end := time.Now().Add(time.Minute); s.hello().NextRunAt <= job.At(c.Now()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("what came due was not judged")
		}
	}
}

func (s *shell) begin(after time.Duration) {
	s.t.Helper()
	s.advance(after)
	s.began = s.node().Clock.Now()
	s.advance(time.Millisecond)
}

func (s *shell) end(a job.Assignment, after time.Duration, r job.Result) {
	s.t.Helper()
	r.StartedAt = job.At(s.began)
	s.advance(after - time.Millisecond)
	r.FinishedAt = job.At(s.node().Clock.Now())
	s.worker.Report(s.t, a, r)
}

// typeLists takes the lists of job types, which register themselves, out of the texts.
var typeLists = strings.NewReplacer(strings.Join(executor.NodeTypes(), ", "), "NODE-TYPES", jobflags.Choices(), "CHOICES")

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
	return s.mask(b.String())
}

var (
	uptime = regexp.MustCompile(`, up [0-9a-z]+`)
	began  = regexp.MustCompile(`"started_at":"[^"]*","members"`)
	inRaft = regexp.MustCompile(`"raft":\{[^}]*\}`)
	onDisk = regexp.MustCompile(`,?"disk":\{[^}]*\}`)
	disk   = regexp.MustCompile(`(?m)^disk .*\n`)
	member = regexp.MustCompile(`"instance_id":"[^"]*"([^}]*)"applied_index":\d+,"last_heard":"[^"]*"`)
	room   = regexp.MustCompile(`[0-9.]+ [A-Za-z]+ free`)
	queue  = regexp.MustCompile(`(queue is now at version |"workers":\[\],"version":|workers  none\nversion  )\d+`)
)

// mask takes out what is different in every life of a node.
func (s *shell) mask(text string) string {
	text = strings.ReplaceAll(text, s.addr, "ADDR")
	if s.worker != nil {
		st, err := s.node().Backend.Status(s.t.Context(), api.Read{})
		if err != nil {
			s.t.Fatal(err)
		}
		text = strings.NewReplacer(st.ClusterID, "CLUSTER", s.node().Addr(), "NODE:PORT").Replace(text)
	}
	text = member.ReplaceAllString(text, `"instance_id":"ID"${1}"applied_index":INDEX,"last_heard":"TIME"`)
	text = room.ReplaceAllString(text, "SPACE free")
	text = queue.ReplaceAllString(text, "${1}INDEX")
	text = uptime.ReplaceAllString(text, ", up TIME")
	text = began.ReplaceAllString(text, `"started_at":"TIME","members"`)
	text = inRaft.ReplaceAllString(text, `"raft":{}`)
	return disk.ReplaceAllString(onDisk.ReplaceAllString(text, ""), "")
}

func TestGolden(t *testing.T) {
	const run, dead = "RUN", "DEAD" // the one that runs, and the one that died of its last attempt
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
		"namespaces": {
			{"submit", "-n", "team-a", "--name", "hello", "--schedule", "@manual", "--queue", "mail"},
			{"<name: world\nnamespace: team-a\ntype: shell\nschedule: '@daily'\npayload: {command: date}\n"},
			{"submit", "-"},
			{"<name: world\nnamespace: team-a\ntype: shell\nschedule: '@daily'\npayload: {command: date}\n"},
			{"submit", "-", "-n", "team-b"},
			{"jobs", "-n", "team-a"},
			{"jobs", "list", "-A"},
			{"jobs", "-A", "--prefix", "hel", "--json"},
			{"jobs", "get", "world"},
			{"jobs", "get", "world", "-n", "team-a"},
			{"jobs", "get", "world", "-n", "team-a", "-o", "yaml"},
			{"jobs", "get", "hello", "-n", "team-c"},
			{"jobs", "run", "hello", "--namespace", "team-a"},
			{"runs", "hello", "-n", "team-a"},
			{"runs", "-A"},
			{"runs", "-A", "hello"},
			{"runs", "list", "-A", "--status", "dead,skipped", "--limit", "3"},
			{"runs", "export", "-n", "team-a"},
			{"dead", "-A"},
			{"dead", "-n", "team-a"},
			{"dead", "purge", "-n", "team-a", "--all", "--yes"},
			{"queues", "set", "mail", "-n", "team-a", "--concurrency", "2"},
			{"queues", "-A"},
			{"<name: days\ndates: [12-25]\n"},
			{"calendars", "set", "-", "-n", "team-a"},
			{"calendars", "-A"},
			{"calendars", "get", "days", "-n", "team-a"},
			{"calendars"},
			{"jobs", "-n", "Team A"},
			{"jobs", "-n", ""},
			{"jobs", "-n", "team-a", "-A"},
			{"jobs", "delete", "hello", "-A"},
			{"status", "-n", "team-a"},
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
			{"jobs", "--limit", "1", "--cursor", "j_1"},
			{"jobs", "--prefix", "zzz"},
			{"jobs", "--status", "pausd"},
			{"jobs", "--json", "--prefix", "he"},
			{"jobs", "get", "hello"},
			{"jobs", "get", "report"},
			{"jobs", "get", "report", "-o", "yaml"},
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
			{"jobs", "run", "report"},
			{"jobs", "run", "report", "--json"},
			{"jobs", "cancel", "report"},
			{"jobs", "cancel", "report", "--json"},
			{"jobs", "backfill", "report", "--from", "2026-10-01", "--to", "2026-10-02T23:00", "--dry-run"},
			{"jobs", "backfill", "report", "--from", "2026-10-01T00:00:00Z", "--to", "2026-10-02T23:00:00Z", "--json"},
			{"jobs", "backfill", "report", "--from", "2026-10-01"},
			{"jobs", "backfill", "report", "--from", "2026-10-03", "--to", "2026-10-01"},
			{"jobs", "backfill", "hello", "--from", "2026-10-01", "--to", "2026-10-03"},
			{"jobs", "delete", "hello", "--version", "2"},
			{"jobs", "delete", "hello"},
			{"jobs", "delete", "report", "--json"},
			{"jobs", "delete", "hello"},
		},
		"insight": {
			{"jobs", "why", "hello"},
			{"jobs", "why", "report"},
			{"jobs", "pause", "report"},
			{"jobs", "why", "report"},
			{"jobs", "why", "nope"},
			{"jobs", "why"},
			{"jobs", "occurrences", "hello"},
			{"jobs", "occurrences", "report", "--from", "2026-10-01", "--to", "2026-10-02"},
			{"jobs", "occurrences", "hello", "--limit", "1"},
			{"jobs", "occurrences", "hello", "--from", "yesterday"},
			{"jobs", "stats", "hello"},
			{"jobs", "stats", "report"},
			{"jobs", "stats", "hello", "--json"},
			{"upcoming", "--limit", "3"},
			{"upcoming", "hello", "--limit", "1"},
			{"upcoming", "-A", "--limit", "1"},
			{"upcoming", "nope"},
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
			{"dead", "get", "4"},
			{"dead", "get", "9"},
			{"dead", "get", "x"},
			{"dead", "redrive"},
			{"dead", "redrive", "4", "--all"},
			{"dead", "redrive", "4"},
			{"dead", "purge", "--job", "hello", "--json"},
			{"dead", "purge", "--all"}, {"dead", "purge", "--all", "--yes"},
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
			{"status", "--watch=1ms"},
			{"cluster", "clock-reset"},
			{"cluster", "clock-reset", "--json"},
			{"cluster", "scrub"},
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
				for _, args := range st {
					for i, arg := range args {
						args[i] = cmp.Or(map[string]string{run: s.running, dead: s.died}[arg], arg)
					}
				}
			}
			golden(t, s.script(st...))
		})
	}
}

func TestColor(t *testing.T) {
	s := newShell(t)
	s.populate()
	s.color = true
	var out strings.Builder
	fmt.Fprint(terminal.To(&out), s.script([]string{"runs", "hello"}, []string{"jobs"}))
	golden(t, strings.ReplaceAll(out.String(), "\x1b", "ESC"))

	a := s.app()
	if a.wantsColor(io.Discard) {
		t.Error("colour where there is no terminal")
	}
}

// oneMore is a backend with an open run more.
type oneMore struct {
	api.Backend
	run job.Run
}

func (o oneMore) Runs(ctx context.Context, q client.RunQuery, rd api.Read) (client.RunPage, error) {
	p, err := o.Backend.Runs(ctx, q, rd)
	if len(q.Statuses) == 0 {
		p.Runs = append([]job.Run{o.run}, p.Runs...)
	}
	return p, err
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
	s.wrap = func(b api.Backend) api.Backend {
		return oneMore{b, job.Run{RunID: "r_3.x.s", JobID: 3,
			JobName:     "a-name-that-an-owner-thought-would-explain-everything",
			ScheduledAt: job.At(noon), Origin: job.OriginSchedule,
			Status: job.RunRetrying, ReadyAt: ready, Attempt: 2,
			Error: "status 503 Service Unavailable: come back when there is more of me than there is now"}}
	}
	commands := [][]string{{"jobs"}, {"runs"}, {"runs", "hello"}, {"runs", "--status", "skipped,missed,dead"}, {"dead"}}
	for _, s.color = range []bool{false, true} {
		for _, s.width = range []int{100, 80, 60, 40, 1} {
			for _, args := range commands {
				out, _, _ := s.run("", args...)
				for line := range strings.Lines(out) {
					if n := output.Visible(strings.TrimSuffix(line, "\n")); n > s.width {
						t.Errorf("%v at %d: %d columns: %q", args, s.width, n, line)
					}
					if strings.Contains(line, output.Detail) {
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
	s := newShell(t)
	s.addr = port.Reserve(t)
	out, errOut, code := s.run("", "jobs")
	want := "error: cannot reach carillon at http://" + s.addr +
		": connection refused\nhint: start one with `carillon dev`, log in to a cluster with `carillon login`, or set --addr or CARILLON_ADDR\n"
	if out != "" || errOut != want || code != exit.Unavailable {
		t.Errorf("%q, %q, %d", out, errOut, code)
	}
	if _, errOut, code := s.run("", "jobs", "--addr", "ftp://x"); code != exit.Usage {
		t.Error(errOut, code)
	}
}

func TestExitCodes(t *testing.T) {
	for err, want := range map[error]int{
		nil:                                  exit.OK,
		errors.New("disk"):                   exit.Failure,
		job.Errorf(job.CodeInternal, "", ""): exit.Failure,
		job.Errorf(job.CodeInvalid, "", ""):  exit.Usage,
		fmt.Errorf("x: %w", job.Errorf(job.CodeNotFound, "", "")): exit.NotFound,
		job.Errorf(job.CodeVersionConflict, "", ""):               exit.Conflict,
		job.Errorf(job.CodeNoLeader, "", ""):                      exit.Unavailable,
		job.Errorf("a_code_of_the_future", "", ""):                exit.Failure,
	} {
		if got := exit.Code(err); got != want {
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
	if out, errOut, code := s.run("", "completion", "tcsh"); code != exit.Usage || out != "" {
		t.Error(out, errOut, code)
	}
	s.addr = "127.0.0.1:1"
	if out, _, _ := s.run("", "__complete", "jobs", "get", "h"); !strings.HasPrefix(out, ":4") {
		t.Errorf("%q", out)
	}
}

// The environment says the namespace once for all commands; a flag counts for more.
func TestNamespaceOfTheEnvironment(t *testing.T) {
	s := newShell(t)
	s.env = map[string]string{"CARILLON_NAMESPACE": "team-a"}
	s.must("submit", "--name", "x", "--schedule", "@manual", "--shell", "date")
	for args, want := range map[string]string{"jobs get x --json": `"namespace":"team-a"`, "jobs -n default": "no jobs", "jobs -A": "team-a"} {
		if out, errOut, _ := s.run("", strings.Fields(args)...); !strings.Contains(out, want) {
			t.Errorf("%s: %s%s, want %s", args, out, errOut, want)
		}
	}
	s.env["CARILLON_NAMESPACE"] = "Team A"
	if _, errOut, code := s.run("", "jobs"); code != exit.Usage || !strings.HasPrefix(errOut, "error: CARILLON_NAMESPACE: ") {
		t.Errorf("%d %s", code, errOut)
	}
}
