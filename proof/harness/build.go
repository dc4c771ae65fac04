package harness

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// builds are the binaries made in this test process, by their flags. Several tests use the same one.
var builds struct {
	sync.Mutex
	dir  string
	made map[string]string
}

// Main runs the tests of a package and removes the binaries that they built. Use it in TestMain.
func Main(m *testing.M) int {
	if code, ok := faultMain(); ok {
		return code
	}
	defer func() {
		builds.Lock()
		defer builds.Unlock()
		if builds.dir != "" {
			os.RemoveAll(builds.dir)
		}
	}()
	return m.Run()
}

// Build makes the binary, once for each set of tags, and returns its path.
func Build(tb testing.TB, tags ...string) string {
	tb.Helper()
	if len(tags) == 0 {
		return build(tb)
	}
	return build(tb, "-tags", strings.Join(tags, ","))
}

// BuildLevel makes a binary of another feature level: a later version of the product, as far as the cluster is
// concerned.
func BuildLevel(tb testing.TB, level int) string {
	tb.Helper()
	return build(tb, "-ldflags", fmt.Sprintf("-X github.com/carillon-scheduler/carillon/fsm.level=%d", level))
}

func build(tb testing.TB, flags ...string) string {
	tb.Helper()
	builds.Lock()
	defer builds.Unlock()
	key := strings.Join(flags, " ")
	if path, ok := builds.made[key]; ok {
		return path
	}
	if builds.dir == "" {
		dir, err := os.MkdirTemp("", "carillon-proof-")
		if err != nil {
			tb.Fatal(err)
		}
		builds.dir, builds.made = dir, map[string]string{}
	}
	root := Sources(tb)
	path := filepath.Join(builds.dir, fmt.Sprintf("carillon-%d", len(builds.made)))
	args := append([]string{"build", "-o", path}, flags...)
	if os.Getenv("CARILLON_RACE") != "" {
		args = append(args, "-race")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	builds.made[key] = path
	return path
}

// moduleRoot is where go.mod is; tests run in the directory of their package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = up
	}
}

// touchSources looks at every source file of the module. `go test` remembers a result together with the files that the
// test looked at by itself; what the compiler that we start reads it does not know, and without this it would go on
// saying "(cached)" about a product that has changed.
func touchSources(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case !d.IsDir():
			_, err = os.Stat(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it is being edited
		}
		return err
	})
}

// Sources makes a test's result depend on the sources of the module, and returns the module's directory.
func Sources(tb testing.TB) string {
	tb.Helper()
	root, err := moduleRoot()
	if err == nil {
		err = touchSources(root)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return root
}

// Long says whether the long variants are asked for.
func Long() bool { return os.Getenv("CARILLON_LONG") != "" }

// Longest says whether even those are asked for that take many minutes (CARILLON_LONG=2).
func Longest() bool { return os.Getenv("CARILLON_LONG") == "2" }

// Seed chooses the test's random numbers and prints them, so that a failure can be repeated as far as timing allows.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	if s := os.Getenv("CARILLON_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			tb.Fatalf("CARILLON_SEED: %v", err)
		}
		tb.Logf("seed %d (from CARILLON_SEED)", n)
		return n
	}
	h := fnv.New64a()
	fmt.Fprint(h, tb.Name(), time.Now().UnixNano())
	n := h.Sum64() % 1_000_000_000
	tb.Logf("seed %d (repeat with CARILLON_SEED=%d)", n, n)
	return n
}

// Eventually waits for a condition. It is the only way in which these tests wait for something that is not a random
// instant.
func Eventually(tb testing.TB, limit time.Duration, what string, cond func() bool) {
	tb.Helper()
	if !Within(limit, cond) {
		tb.Fatalf("after %s still not: %s", limit, what)
	}
}

// Within says whether a condition came true in time.
func Within(limit time.Duration, cond func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(2 * time.Millisecond) {
		if cond() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
