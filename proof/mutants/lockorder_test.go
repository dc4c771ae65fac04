//go:build carillon_mutants

package mutants

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sasha-s/go-deadlock"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// ordered are seeds and plans that take most of the product's ways. Two of the locks of a process taken in both orders,
// or one of them twice by one goroutine, are found by any run that takes both ways, at whatever times: a standstill
// itself needs a coincidence that thousands of seeds do not meet.
var ordered = []try{{"", 1}, {"", 2}, {"", 3}, {"", 5}, {"clones", 1}, {"inherited", 1}, {"edits", 1}, {"late-queue", 1},
	{"restored", 1}, {"limits", 1}, {"namesakes", 1}, {"planned", 1}}

// TestLockOrder runs the simulation with mutexes that remember in which order they were taken.
func TestLockOrder(t *testing.T) {
	root := harness.Sources(t)
	healthy := orderedBinary(t, root, nil)
	for _, it := range ordered {
		t.Run(strings.ReplaceAll(it.String(), " ", "_"), func(t *testing.T) {
			t.Parallel()
			if failed, out := healthy.simulate(t, mutant.None, it); failed || strings.Contains(out, potential) {
				t.Error(aroundDeadlock(out))
			}
		})
	}
	// What stopped leaders once: the store was read with the scheduler's lock held, which views of the store wait for.
	t.Run("planted", func(t *testing.T) {
		t.Parallel()
		const at = "func (s *Scheduler) inheritedLocked(x *session, fence uint64, onHold bool) {\n"
		faulty := orderedBinary(t, root, func(path string, source []byte) []byte {
			if !strings.HasSuffix(path, filepath.Join("scheduler", "poll.go")) {
				return source
			}
			if !bytes.Contains(source, []byte(at)) {
				t.Fatalf("%s: the place for the fault is not there", path)
			}
			return bytes.Replace(source, []byte(at), []byte(at+"_ = s.st.Info()\n"), 1)
		})
		for i, it := range ordered {
			if _, out := faulty.simulate(t, mutant.None, it); strings.Contains(out, potential) {
				t.Logf("found by %s, the try %d", it, i+1)
				return
			}
		}
		t.Error("not found")
	})
}

const potential = "POTENTIAL DEADLOCK"

// aroundDeadlock is what the mutexes said, or else the end of the output.
func aroundDeadlock(out string) string {
	if i := strings.Index(out, potential); i >= 0 {
		return out[i:min(len(out), i+6000)]
	}
	return out[max(0, len(out)-6000):]
}

// orderedBinary builds the simulation with other mutexes in place of those of package sync, and with what edit makes of
// the sources, which stay as they are.
func orderedBinary(t *testing.T, root string, edit func(path string, source []byte) []byte) *lab {
	t.Helper()
	_ = deadlock.Opts // the module that the overlay imports
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "carillon_mutants",
		"-f", `{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`,
		"./proof/sim")
	list.Dir = root
	files, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	replaced := 0
	for path := range strings.Lines(string(files)) {
		if path = strings.TrimSpace(path); path == "" {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before := source
		if edit != nil {
			source = edit(path, source)
		}
		source = withOrder(t, path, source)
		if bytes.Equal(source, before) {
			continue
		}
		replaced++
		to := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(path, root), string(filepath.Separator), "_"))
		if err := os.WriteFile(to, source, 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[path] = to
	}
	if replaced < 20 {
		t.Fatalf("only %d files with a mutex", replaced)
	}
	// Waiting for long is no fault in a simulation; a pair of locks is remembered as long as it runs.
	options := filepath.Join(dir, "options.go")
	if err := os.WriteFile(options, []byte(`package sim

import "github.com/sasha-s/go-deadlock"

func init() { deadlock.Opts.DeadlockTimeout, deadlock.Opts.MaxMapSize = 0, 1 << 22 }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay.Replace[filepath.Join(root, "proof", "sim", "lockorder_options.go")] = options
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	written := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(written, text, 0o600); err != nil {
		t.Fatal(err)
	}
	l := &lab{root: root, binary: filepath.Join(dir, "sim.test"), healthy: map[try]bool{}}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-tags", "carillon_mutants", "-overlay", written,
		"-o", l.binary, "./proof/sim")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return l
}

// withOrder is a file with the mutexes of go-deadlock.
func withOrder(t *testing.T, path string, source []byte) []byte {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var at []int // of the word sync, from the end on
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Mutex" || sel.Sel.Name == "RWMutex") {
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "sync" {
				at = append(at, fset.Position(pkg.Pos()).Offset)
			}
		}
		return true
	})
	if len(at) == 0 {
		return source
	}
	slices.Sort(at)
	out := bytes.Clone(source)
	for _, i := range slices.Backward(at) {
		out = slices.Concat(out[:i], []byte("deadlock"), out[i+len("sync"):])
	}
	end := fset.Position(file.Name.End()).Offset
	// In the line of the package clause, so that positions stay.
	out = slices.Concat(out[:end], []byte(`; import "github.com/sasha-s/go-deadlock"`), out[end:])
	return append(out, "\nvar _ sync.Locker\n"...)
}
