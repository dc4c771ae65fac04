package proof

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

const module = "github.com/carillon-scheduler/carillon"

// layers is the list of packages in docs/architecture.md, from top to bottom: imports point down only. Packages on one
// line do not import each other.
var layers = [][]string{
	{""}, // main.go
	{"cmd"}, {"bench"}, {"node"}, {"api", "web"}, {"notify"}, {"scheduler"}, {"executor"}, {"fsm"}, {"store"}, {"transport"}, {"client"}, {"wheel"}, {"schedule"}, {"job"}, {"internal"},
}

// outside are directories with programs and tests that may import anything and that nothing of the product may import.
var outside = []string{"proof"}

// TestImportsPointDown holds the direction of the imports. Tests are exempt: they may look at a package from above.
func TestImportsPointDown(t *testing.T) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", module+"/...")
	cmd.Dir = harness.Sources(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	level := func(path string) (family string, n int) {
		family, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, module), "/"), "/")
		return family, slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, family) })
	}
	checked := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from, n := level(p.ImportPath)
		if slices.Contains(outside, from) {
			continue
		}
		if n < 0 {
			t.Errorf("%s has no layer: say in layers and in docs/architecture.md where it stands", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if imp != module && !strings.HasPrefix(imp, module+"/") {
				continue
			}
			checked++
			to, m := level(imp)
			switch {
			case slices.Contains(outside, to):
				t.Errorf("%s imports %s: the product does not stand on its tests", p.ImportPath, imp)
			case m <= n && to != from: // a family's own parts are its own business
				t.Errorf("%s imports %s, which stands above or beside it", p.ImportPath, imp)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d imports were looked at", checked)
	}
}
