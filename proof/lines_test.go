package proof

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestPackagesHaveShortLines keeps the product readable side by side with something else: up to 120 columns, a tab
// counting four. Exempt are tests, generated files, and lines with a raw string, which cannot be broken.
func TestPackagesHaveShortLines(t *testing.T) {
	const most = 120
	root := harness.Sources(t)
	looked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if isGenerated(t, path, src) {
			return nil
		}
		raw := rawStringLines(path, src)
		for i, line := range strings.Split(string(src), "\n") {
			looked++
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); n > most && !raw[i+1] {
				rel, _ := filepath.Rel(root, path)
				t.Errorf("%s:%d has %d columns: shorten or break it, the most is %d", rel, i+1, n, most)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 10_000 {
		t.Errorf("only %d lines were looked at", looked)
	}
}

func isGenerated(t *testing.T, path string, src []byte) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return ast.IsGenerated(f)
}

// rawStringLines are the lines of a file that a raw string touches.
func rawStringLines(path string, src []byte) map[int]bool {
	lines := map[int]bool{}
	file := token.NewFileSet().AddFile(path, -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && lit[0] == '`' {
			for n := file.Line(pos); n <= file.Line(pos+token.Pos(len(lit)-1)); n++ {
				lines[n] = true
			}
		}
	}
}
