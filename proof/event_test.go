package proof

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestEventsAreLoggedAndDescribed holds the list of events: each is logged somewhere, and docs/observe.md has it. What
// that has besides is gone.
func TestEventsAreLoggedAndDescribed(t *testing.T) {
	root := harness.Sources(t)
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "internal/event/event.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{} // of the constant: the event
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			text, err := strconv.Unquote(spec.Values[i].(*ast.CallExpr).Args[0].(*ast.BasicLit).Value)
			if err != nil || !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(text) {
				t.Errorf("event %s has the name %q", name.Name, text)
			}
			for _, other := range names {
				if other == text {
					t.Errorf("two events have the name %s", text)
				}
			}
			names[name.Name] = text
		}
		return true
	})
	if len(names) < 20 {
		t.Fatalf("only %d events were found", len(names))
	}
	used := map[string]bool{}
	logged := regexp.MustCompile(`\bevent\.([A-Z][A-Za-z]*)`)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range logged.FindAllSubmatch(text, -1) {
			used[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/observe.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Log events\n")
	if !found {
		t.Fatal("docs/observe.md has no section \"Log events\"")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	described := map[string]bool{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
				described[m[1]] = true
			}
		}
	}
	for constant, name := range names {
		if !used[constant] {
			t.Errorf("event.%s is never logged", constant)
		}
		if !described[name] {
			t.Errorf("docs/observe.md does not say what %s is", name)
		}
		delete(described, name)
	}
	for name := range described {
		t.Errorf("docs/observe.md has the event %s, which there is not", name)
	}
}
