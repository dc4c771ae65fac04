package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
)

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of a package that is being built
	FailedBuild                   string // the package for whose sake this one has no tests
}

// verdict is what a run comes to.
type verdict struct {
	flaky, failed []finding
}

// finding is a test, or a package outside of any test, with what it said.
type finding struct {
	name   string // package.Test
	repeat string // the command that repeats it
	words  []string
}

// lines are FLAKY or FAIL lines, each followed by at most one more of the test's words and the command that repeats it.
func (v verdict) lines() (out []string) {
	add := func(kind string, all []finding) {
		for _, f := range all {
			first := "it said nothing"
			if len(f.words) > 0 {
				first = f.words[0]
			}
			out = append(out, cut(fmt.Sprintf("%s %s: %s", kind, f.name, first)))
			if len(f.words) > 1 && kind == "FAIL" {
				out = append(out, cut("     "+f.words[1]))
			}
			if f.repeat != "" && kind == "FAIL" {
				out = append(out, "     repeat: "+f.repeat)
			}
		}
	}
	add("FAIL", v.failed)
	add("FLAKY", v.flaky)
	return out
}

// cut keeps a line to what a person reads of it.
func cut(line string) string {
	if len(line) > 300 {
		return strings.ToValidUTF8(line[:300], "") + " …"
	}
	return line
}

// run is one run of a package's tests. A package that is repeated has several.
type run struct {
	output map[string][]string // by test; of the package itself by ""
	failed map[string]bool
	passed map[string]bool
	result string
	built  bool
}

func newRun() *run {
	return &run{output: map[string][]string{}, failed: map[string]bool{}, passed: map[string]bool{}, built: true}
}

func read(r io.Reader) (verdict, error) {
	runs := map[string][]*run{} // by package
	var packages []string
	var builds []string
	buildOutput := map[string][]string{}
	lines := bufio.NewReader(r)
	for {
		text, err := lines.ReadString('\n')
		if err != nil && err != io.EOF {
			return verdict{}, err
		}
		var e event
		if json.Unmarshal([]byte(text), &e) == nil {
			switch {
			case e.Action == "build-output":
				if buildOutput[e.ImportPath] == nil {
					builds = append(builds, e.ImportPath)
				}
				buildOutput[e.ImportPath] = append(buildOutput[e.ImportPath], e.Output)
			case e.Package != "":
				all := runs[e.Package]
				if all == nil {
					packages = append(packages, e.Package)
				}
				if len(all) == 0 || e.Action == "start" {
					all = append(all, newRun())
					runs[e.Package] = all
				}
				all[len(all)-1].add(e)
			}
		}
		if err == io.EOF {
			break
		}
	}
	var v verdict
	for _, p := range builds {
		if said := compilerWords(buildOutput[p]); len(said) > 0 {
			v.failed = append(v.failed, finding{name: short(p), words: said})
		}
	}
	for _, p := range packages {
		v.judge(p, runs[p])
	}
	return v, nil
}

func (r *run) add(e event) {
	switch e.Action {
	case "output":
		r.output[e.Test] = append(r.output[e.Test], e.Output)
	case "fail", "pass", "skip":
		if e.Test == "" {
			r.result, r.built = e.Action, e.FailedBuild == ""
		} else if e.Action == "fail" {
			r.failed[e.Test] = true
		} else {
			r.passed[e.Test] = true
		}
	}
}

// judge takes the runs of one package, in their order. A test counts by its last result. What fails outside of any
// test, a goroutine that is left over or a panic, is not excused by a repetition: that runs no test at all.
func (v *verdict) judge(pkg string, runs []*run) {
	var roots []string
	for _, r := range runs {
		named := false
		for test := range r.failed {
			named = true
			if root, _, _ := strings.Cut(test, "/"); !slices.Contains(roots, root) {
				roots = append(roots, root)
			}
		}
		if !named && r.built && r.result != "pass" && r.result != "skip" {
			v.failed = append(v.failed, finding{name: short(pkg), words: r.outside()})
		}
	}
	slices.Sort(roots)
	for _, root := range roots {
		f := finding{name: short(pkg) + "." + root,
			repeat: fmt.Sprintf("go test -count=1 -run '^%s$' .%s", root, strings.TrimPrefix(pkg, module))}
		good := false
		for _, r := range runs {
			failed := r.failed[root] || len(r.failedBelow(root)) > 0
			if failed || r.passed[root] {
				good = !failed
			}
			if failed && f.words == nil {
				f.words = r.words(root)
			}
		}
		if good {
			v.flaky = append(v.flaky, f)
		} else {
			v.failed = append(v.failed, f)
		}
	}
}

// failedBelow are the subtests of a test that failed.
func (r *run) failedBelow(root string) (out []string) {
	for test := range r.failed {
		if strings.HasPrefix(test, root+"/") {
			out = append(out, test)
		}
	}
	slices.Sort(out)
	return out
}

var (
	said   = regexp.MustCompile(`^\s+([A-Za-z0-9_]+\.go):\d+: (.*)`)
	broken = regexp.MustCompile(`^(panic:|fatal error:|WARNING: DATA RACE|\s*testing\.go:\d+: race detected)`)
	rule   = regexp.MustCompile(`^\s+\[[a-z]+\] |^\s+replay: `) // what the checker says, and how to see it again
	// logs of nodes; the seed of a test; what it did and when
	noise = regexp.MustCompile(`: end of the log of |^\s+handler\.go:\d+: |` +
		`\.go:\d+: (time=\S+ level=|seed \d+(:| \(repeat)|\d+ seeds, |\d\d:\d\d:\d\d\.)`)
	ordinary = regexp.MustCompile(`^(PASS|FAIL|ok|exit status|coverage:|\?|===|---|\s*$)`)
)

// words are what a failed test said itself: a panic, a race or a broken rule first, then what stands in its test files,
// then whatever else names a file. Logs of nodes are left out.
func (r *run) words(root string) []string {
	var worst, own, other []string
	for _, test := range append([]string{root}, r.failedBelow(root)...) {
		for _, line := range r.output[test] {
			line = strings.TrimRight(line, "\n")
			switch m := said.FindStringSubmatch(line); {
			case broken.MatchString(line) || rule.MatchString(line):
				worst = append(worst, strings.TrimSpace(line))
			case m == nil || noise.MatchString(line):
			case strings.HasSuffix(m[1], "_test.go"):
				own = append(own, strings.TrimSpace(line))
			default:
				other = append(other, strings.TrimSpace(line))
			}
		}
	}
	return slices.Concat(worst, own, other)
}

// outside is what was said outside of any test.
func (r *run) outside() (out []string) {
	for _, line := range r.output[""] {
		if !ordinary.MatchString(line) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	if len(out) > 2 {
		out = out[:2]
	}
	return out
}

// compilerWords are the lines of a compiler that name a place.
func compilerWords(lines []string) (out []string) {
	for _, line := range strings.Split(strings.Join(lines, ""), "\n") {
		if line != "" && !strings.HasPrefix(line, "# ") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

const module = "github.com/carillon-scheduler/carillon"

// short is a package by its path in the tree.
func short(pkg string) string {
	pkg, _, _ = strings.Cut(pkg, " ") // "a/b [a/b.test]" while it is built
	if pkg == module {
		return path.Base(module)
	}
	return strings.TrimPrefix(pkg, module+"/")
}
