package bench_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/bench"
	"github.com/carillon-scheduler/carillon/cmd"
)

// asCarillon makes this test binary the program itself. Whatever it starts inherits it, so that nodes and workers are
// real processes.
const asCarillon = "CARILLON_BENCH_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asCarillon) != "" {
		os.Exit(cmd.Main())
	}
	// These tests wait nearly all of their time. The command line is read later and may say otherwise.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func carillon(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real processes; left out with -short")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, args...)
	c.Env = append(os.Environ(), asCarillon+"=1", "TMPDIR="+t.TempDir(), "CARILLON_ADDR=")
	return c
}

// run is what a user sees of a command.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	c := carillon(t, args...)
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), c.ProcessState.ExitCode()
}

// inLong skips what measures one more cluster of processes: a bench that is held up ends with an error, and several of
// them hold each other up.
func inLong(t *testing.T) {
	t.Helper()
	if os.Getenv("CARILLON_LONG") == "" {
		t.Skip("it measures a cluster of processes; set CARILLON_LONG=1")
	}
}

func TestHotOnRealProcesses(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := run(t, "bench", "hot", "--jobs", "200", "--idle", "100", "--workers", "2", "--slots", "50",
		"--node-flag=--log-level=error")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{"hot, target noop, 3 nodes", "200 in ", "/s", "lag ", "lost, repeated       0, 0"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

// Clusters with several groups are measured in the same way, and compared with each other.
func TestGroupsOnRealProcesses(t *testing.T) {
	inLong(t)
	for _, bad := range []string{"0", "65", "x", "1,65", ""} {
		if stdout, stderr, code := run(t, "bench", "submit", "--groups", bad); code != 2 ||
			!strings.Contains(stderr, "--groups") {
			t.Errorf("%q: exit %d\n%s%s", bad, code, stdout, stderr)
		}
	}
	stdout, stderr, code := run(t, "bench", "submit", "--groups", "1,2", "--nodes", "1", "--duration", "1s", "--clients", "4")
	if code != 0 || stderr != "" || !strings.Contains(stdout, "submit, 1 nodes, 2 groups") ||
		!strings.Contains(stdout, "rate                 2 groups: ") || !strings.Contains(stdout, " of 1 group (") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	for _, target := range []string{"noop", "queue"} {
		stdout, stderr, code := run(t, "bench", "hot", "--groups", "2", "--jobs", "100", "--workers", "1", "--slots", "50",
			"--target", target)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "hot, target "+target+", 3 nodes, 2 groups") ||
			!strings.Contains(stdout, "lost, repeated       0, 0") {
			t.Errorf("exit %d\n%s%s", code, stdout, stderr)
		}
	}
}

// A secure cluster is measured in the same way, by workers of both kinds, and in pairs with a plain one.
func TestSecureOnRealProcesses(t *testing.T) {
	inLong(t)
	stdout, stderr, code := run(t, "bench", "hot", "--secure", "--jobs", "100", "--workers", "1", "--slots", "50",
		"--target", "queue")
	if code != 0 || stderr != "" || !strings.Contains(stdout, "hot, target queue, secure, 3 nodes") ||
		!strings.Contains(stdout, "lost, repeated       0, 0") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	stdout, stderr, code = run(t, "bench", "lag", "--pairs", "1", "--nodes", "1", "--rate", "20", "--duration", "1s",
		"--workers", "1", "--json")
	var c bench.Comparison
	if err := json.Unmarshal([]byte(stdout), &c); err != nil || code != 0 || stderr != "" {
		t.Fatalf("%v, exit %d\n%s%s", err, code, stdout, stderr)
	}
	if len(c.Rounds) != 1 || len(c.Rounds[0]) != 2 || c.Rounds[0][0].Result.Secure || !c.Rounds[0][1].Result.Secure ||
		c.Rounds[0][1].Result.Runs < 20 || len(c.Ratios) < 3 || c.Ratios[0].Figure != "rate" {
		t.Error(stdout)
	}
	for _, args := range [][]string{{"--secure", "--addr", "127.0.0.1:1"}, {"--pairs", "1", "--addr", "127.0.0.1:1"},
		{"--pairs", "-1"}} {
		if stdout, stderr, code := run(t, append([]string{"bench", "lag"}, args...)...); code != 2 {
			t.Errorf("%q: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// What --json prints is one object whose figures belong together.
func TestScenariosAsJSON(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "kept")
	for _, c := range []struct {
		name string
		args []string
		good func(r *bench.Result) bool
	}{
		{"lag", []string{"--rate", "20", "--duration", "1s", "--target", "http"}, func(r *bench.Result) bool {
			return r.Target == "http" && r.Runs >= 20 && r.Lag != nil && r.Lag.Count >= 10 && r.Lag.P50 <= r.Lag.Max &&
				r.Jobs == 20
		}},
		{"steady", []string{"--rate", "30", "--duration", "1s", "--idle", "7", "--target", "queue", "--workers", "1"},
			func(r *bench.Result) bool {
				return r.Target == "queue" && r.Runs >= 30 && r.CycleMS > 0 && r.Jobs == 37
			}},
		{"submit", []string{"--clients", "3", "--duration", "300ms", "--data-dir", dir}, func(r *bench.Result) bool {
			return r.Created > 0 && r.Jobs == uint64(r.Created) && r.Latency != nil && r.Latency.Count == r.Created
		}},
		{"submit", []string{"--clients", "2", "--bulk", "50", "--duration", "300ms"}, func(r *bench.Result) bool {
			return r.Created >= 100 && r.Jobs == uint64(r.Created) && r.Latency != nil && r.Latency.Count*50 == r.Created
		}},
		{"load", []string{"--jobs", "500"}, func(r *bench.Result) bool {
			return r.Created == 500 && r.Jobs == 500 && r.LoadRate > 0 && r.DiskPerJob > 0
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, code := run(t, append([]string{"bench", c.name, "--json", "--nodes", "1"}, c.args...)...)
			if code != 0 || stderr != "" {
				t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
			}
			var r bench.Result
			if err := json.Unmarshal([]byte(stdout), &r); err != nil {
				t.Fatalf("%v\n%s", err, stdout)
			}
			if r.Scenario != c.name || r.Nodes != 1 || r.Lost != 0 || r.Repeated != 0 || r.Problems != nil ||
				r.Rate <= 0 && c.name != "load" || !c.good(&r) {
				t.Error(stdout)
			}
			if _, err := os.Stat(filepath.Join(dir, "n1")); slices.Contains(c.args, dir) && err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFailoverOnRealProcesses(t *testing.T) {
	inLong(t)
	stdout, stderr, code := run(t, "bench", "failover", "--rate", "20", "--kills", "1", "--workers", "1", "--slots", "100")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{"failover, target noop, 3 nodes", "of 1 kills", "lost, repeated       0, 0"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestGrowthOnRealProcesses(t *testing.T) {
	t.Parallel()
	picture := filepath.Join(t.TempDir(), "growth.svg")
	stdout, stderr, code := run(t, "bench", "growth", "--nodes", "1", "--jobs", "50", "--sizes", "100", "--target",
		"http", "--plot", picture)
	if code != 0 || stderr != "" || strings.Count(stdout, "growth, target http, 1 nodes") != 1 ||
		strings.Count(stdout, "lost, repeated       0, 0") != 1 {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if svg, err := os.ReadFile(picture); err != nil || strings.Count(string(svg), "<circle ") != 1 {
		t.Errorf("%s %v", svg, err)
	}
}
