//go:build carillon_mutants

package mutants

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job/mutant"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// bound is how many seeds a fault may take.
const bound = 60

// packages are those whose own tests must find a fault that the simulation need not see: behind it stand other rules that keep the harm
// from anybody's eyes.
var packages = map[mutant.Mutant]string{
	mutant.ForgetTerm: "./fsm",
	mutant.LowerTerm:  "./executor",
}

// TestMutantsAreFound runs each fault against seeds of the simulation until it is found. Each run is a process of its own, so that one
// that breaks down says so and harms no other.
func TestMutantsAreFound(t *testing.T) {
	root := harness.Sources(t)
	if _, err := os.Stat(filepath.Join(root, "proof", "sim", "sim_test.go")); err != nil {
		t.Skip("there is no simulation in this tree")
	}
	binary := filepath.Join(t.TempDir(), "sim.test")
	build := exec.Command("go", "test", "-c", "-tags", "carillon_mutants", "-o", binary, "./proof/sim")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	simulate := func(m mutant.Mutant, seed int) (found bool, out string) {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary, "-test.run", "^TestSeed$")
		cmd.Dir = filepath.Join(root, "proof", "sim")
		cmd.Env = append(os.Environ(), "CARILLON_SIM_SEED="+strconv.Itoa(seed), "CARILLON_MUTANT=")
		if m != mutant.None {
			cmd.Env = append(cmd.Env, "CARILLON_MUTANT="+m.String())
		}
		text, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return err != nil, string(text)
	}
	only := os.Getenv("CARILLON_ONLY") // one mutant, by name
	for _, m := range mutant.All() {
		if only != "" && only != m.String() {
			continue
		}
		t.Run(m.String(), func(t *testing.T) {
			limit := bound
			if packages[m] != "" {
				limit = 3
			}
			for seed := 1; seed <= limit; seed++ {
				found, out := simulate(m, seed)
				if !found {
					continue
				}
				if without, _ := simulate(mutant.None, seed); without {
					t.Logf("seed %d fails without the mutant as well", seed)
					continue
				}
				t.Logf("found with the %d. seed: %s", seed, why(out))
				return
			}
			path := packages[m]
			if path == "" {
				t.Fatalf("not found with %d seeds", limit)
			}
			cmd := exec.Command("go", "test", "-count=1", "-tags", "carillon_mutants", path)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "CARILLON_MUTANT="+m.String())
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("found neither with %d seeds nor by the tests of %s", limit, path)
			}
			var failed []string
			for _, line := range strings.Split(string(out), "\n") {
				if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
					failed = append(failed, strings.Fields(name)[0])
				}
			}
			if len(failed) == 0 {
				t.Fatalf("%s:\n%s", path, out)
			}
			t.Logf("found by the tests of %s: %s", path, strings.Join(failed, ", "))
		})
	}
}

// why is the first broken rule in the output of a simulation.
func why(out string) string {
	for _, line := range strings.Split(out, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "[") || strings.HasPrefix(line, "panic") {
			return line[:min(len(line), 300)]
		}
	}
	return "the simulation failed"
}
