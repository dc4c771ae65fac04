package proof

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// startBounded starts a node with bounds for shell jobs, or skips the test with the reason that the node gives: where
// processes cannot be bounded a fork bomb would take the machine, and the node refuses.
func startBounded(t *testing.T, flags ...string) *harness.Node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a control group for each job needs root or a delegated group; without one the processes of this user would be counted, those of the tests too")
	}
	binary := harness.Build(t)
	args := append([]string{"server", "--node-id", "x", "--bootstrap", "--listen", harness.FreeAddr(t), "--data-dir",
		filepath.Join(t.TempDir(), "try"), "--executors", "shell"}, flags...)
	try := spawn(t, nil, binary, args...)
	harness.Eventually(t, harness.ReadyLimit, "it serves or refuses", func() bool {
		select {
		case <-try.done:
			return true
		default:
			return strings.Contains(try.said(), "serves on")
		}
	})
	select {
	case <-try.done:
		t.Skipf("this machine cannot bound the processes of shell jobs: %s", strings.TrimSpace(try.said()))
	default:
		try.signal(syscall.SIGTERM)
		try.exit()
	}
	n := harness.NewNode(t, binary, filepath.Join(t.TempDir(), "data"),
		append([]string{"--executors", "http,shell"}, flags...)...)
	n.Start()
	return n
}

// alive counts the processes that have a text in their environment, which every process of a run inherits.
func alive(text string) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), text) {
			n++
		}
	}
	return n
}

// TestRunawayShellJobs: commands that never stop writing (to their output, to a file) and one that forks without end
// run into their bounds. Meanwhile the node fires other jobs, each occurrence once and none missed, and is sound and
// ready afterwards.
func TestRunawayShellJobs(t *testing.T) {
	heavy(t)
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("processes are counted in /proc, and there is none")
	}
	n := startBounded(t, "--shell-processes", "40", "--shell-memory", "64MiB", "--shell-file-size", "1MiB",
		"--shell-open-files", "64", "--slots", "16")
	target := harness.NewTarget(t)
	every := job.Spec{Name: "every", Type: job.TypeHTTP, Schedule: "* * * * * *",
		Payload: []byte(`{"url":"` + target.URL + `/every"}`), Overlap: job.OverlapAllow}
	if _, err := n.Client.CreateJob(t.Context(), every); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "it fires", func() bool { return target.Done() >= 1 })

	dir := t.TempDir()
	none := 0
	runaway := func(name, script string) job.Run {
		s := shellJob(name, "%s", script)
		s.Retry, s.Timeout = job.Retry{MaxRetries: &none}, job.Duration(4*time.Second)
		return makeRun(t, n, s)
	}
	runs := map[string]job.Run{
		"flood": runaway("flood", "exec yes flood"),
		"file":  runaway("file", "while :; do cat /dev/zero >"+dir+"/big || exit 3; done"),
		// It forks without end, and one process leaves the group.
		"bomb": runaway("bomb",
			"setsid sh -c 'exec sleep 1000' & bomb() { while :; do bomb & done; }; bomb & exec sleep 1000"),
	}
	bomb := "CARILLON_RUN=" + runs["bomb"].RunID
	before, most := target.Done(), 0
	harness.Eventually(t, 60*time.Second, "all of them ended", func() bool {
		most = max(most, alive(bomb))
		for _, r := range runs {
			if d, err := n.Client.GetRun(t.Context(), r.RunID); err != nil || d.Status.Open() {
				return false
			}
		}
		return true
	})
	t.Logf("the bomb had up to %d processes", most)
	if most < 2 || most > 50 { // it is not counted in one moment: those who come while others go may both be in it
		t.Errorf("the bomb had %d processes at a time", most)
	}
	for name, want := range map[string]string{"flood": "timed out", "file": "exit status 3", "bomb": "timed out"} {
		d := awaitRun(t, n, runs[name].RunID, job.RunDead)
		if !strings.Contains(d.Error, want) || len(d.Output) > job.MaxOutputBytes {
			t.Errorf("%s: %q, %d bytes of output", name, d.Error, len(d.Output))
		}
		if name == "bomb" && !strings.Contains(d.Output, "fork") {
			t.Errorf("the bomb never met its bound: %q", d.Output)
		}
		t.Logf("%s: %s", name, d.Error)
	}
	if st, err := os.Stat(dir + "/big"); err != nil || st.Size() > 1<<20 {
		t.Errorf("%+v, %v", st, err)
	}
	harness.Eventually(t, time.Minute, "nothing of the bomb is left, also what left its process group",
		func() bool { return alive(bomb) == 0 })

	// The other job fired on: every occurrence from its first to its last is there, once.
	if during := target.Done() - before; during < 1 {
		t.Errorf("%d requests meanwhile", during)
	}
	at := map[string]int{}
	var first, last time.Time
	for _, s := range target.Seen() {
		at[s.ScheduledAt]++
		when, err := time.Parse(time.RFC3339, s.ScheduledAt)
		if err != nil {
			t.Fatal(err)
		}
		if first.IsZero() || when.Before(first) {
			first = when
		}
		if when.After(last) {
			last = when
		}
	}
	for when := first; !when.After(last); when = when.Add(time.Second) {
		if k := at[when.UTC().Format(time.RFC3339)]; k != 1 {
			t.Errorf("the occurrence of %s was fired %d times", when, k)
		}
	}
	if d := awaitRun(t, n, makeRun(t, n, shellJob("fine", "echo fine")).RunID, job.RunSucceeded); d.Output != "fine\n" {
		t.Errorf("%+v", d.Run)
	}
	if s, err := n.Client.Status(t.Context()); err != nil || !s.Ready {
		t.Errorf("%+v, %v", s.NotReady, err)
	}
}
