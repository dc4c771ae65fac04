package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestVerdict(t *testing.T) {
	const m = `"Package":"github.com/carillon-scheduler/carillon/node"`
	line := func(action, rest string) string {
		if rest != "" {
			rest = "," + rest
		}
		return `{"Action":"` + action + `",` + m + rest + "}\n"
	}
	test := func(action, name, output string) string {
		return line(action, `"Test":"`+name+`","Output":"`+output+`"`)
	}
	first := line("start", "") + test("run", "TestA", "") +
		test("output", "TestA", `    handler.go:322: time=2026 level=WARN msg=x\n`) +
		test("output", "TestA", `    a_test.go:3: seed 58 (repeat with CARILLON_SEED=58)\n`) +
		test("output", "TestA", `    a_test.go:5: 20:10:46.602 killed: n1 for 1.019s\n`) +
		test("output", "TestA", `    a_test.go:7: late by 3\n`) + test("fail", "TestA", "") +
		test("pass", "TestB", "") + line("fail", "")
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"all is well": {line("start", "") + test("pass", "TestA", "") + line("pass", ""), nil},
		"no tests":    {line("start", "") + line("skip", ""), nil},
		"failed twice": {first + line("start", "") + test("fail", "TestA", "") + line("fail", ""), []string{
			"FAIL node.TestA: a_test.go:7: late by 3", "     repeat: go test -count=1 -run '^TestA$' ./node"}},
		"not repeated": {first, []string{
			"FAIL node.TestA: a_test.go:7: late by 3", "     repeat: go test -count=1 -run '^TestA$' ./node"}},
		"passed when it was repeated": {first + line("start", "") + test("pass", "TestA", "") + line("pass", ""), []string{
			"FLAKY node.TestA: a_test.go:7: late by 3"}},
		"a part of a test": {line("start", "") + test("output", "TestA/x", `        b.go:1: somewhere\n`) +
			test("output", "TestA/x", `        a_test.go:9: wrong\n`) + test("fail", "TestA/x", "") + test("fail", "TestA", "") + line("fail", ""),
			[]string{"FAIL node.TestA: a_test.go:9: wrong", "     b.go:1: somewhere", "     repeat: go test -count=1 -run '^TestA$' ./node"}},
		// The repetition of a package that failed outside of its tests runs none of them, and passes.
		"outside of any test": {line("start", "") + test("pass", "TestA", "") + line("output", `"Output":"PASS\n"`) +
			line("output", `"Output":"goleak: found unexpected goroutines:\n"`) + line("fail", "") +
			line("start", "") + line("pass", ""), []string{"FAIL node: goleak: found unexpected goroutines:"}},
		"a seed": {line("start", "") + test("output", "TestA", `    a_test.go:1: 5 seeds, 3 faults\n`) +
			test("output", "TestA/1", `    a_test.go:2: seed 1 (storm)\n`) + test("output", "TestA/1", `      [order] late\n`) +
			test("output", "TestA/1", `      replay: go test\n`) + test("fail", "TestA/1", "") + line("fail", ""), []string{
			"FAIL node.TestA: [order] late", "     replay: go test", "     repeat: go test -count=1 -run '^TestA$' ./node"}},
		"a panic": {line("start", "") + test("output", "TestA", `panic: nil map\n`) + test("fail", "TestA", "") + line("fail", ""), []string{
			"FAIL node.TestA: panic: nil map", "     repeat: go test -count=1 -run '^TestA$' ./node"}},
		"cut off": {line("start", "") + test("run", "TestA", ""), []string{"FAIL node: it said nothing"}},
		"does not compile": {`{"ImportPath":"github.com/carillon-scheduler/carillon/node [x.test]","Action":"build-output","Output":"# node\nnode/a.go:3:1: undefined: x\n"}` + "\n" +
			line("start", "") + line("output", `"Output":"FAIL node [build failed]\n"`) + line("fail", `"FailedBuild":"x"`), []string{
			"FAIL node: node/a.go:3:1: undefined: x"}},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := read(strings.NewReader(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if got := v.lines(); !slices.Equal(got, c.want) {
				t.Errorf("%q, not %q", got, c.want)
			}
		})
	}
}

// What the tool chain of today writes is read: a package that fails in the ways that count.
func TestVerdictOfRealRuns(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go command")
	}
	for name, c := range map[string]struct {
		code string
		want string
	}{
		"passes":   {`func TestX(t *testing.T) {}`, ""},
		"fails":    {`func TestX(t *testing.T) { t.Error("in these words") }`, "FAIL x.TestX: x_test.go:4: in these words"},
		"panics":   {`func TestX(t *testing.T) { panic("in these words") }`, `FAIL x.TestX: panic: in these words [recovered, repanicked]`},
		"main":     {`func TestMain(m *testing.M) { m.Run(); println("in these words"); os.Exit(1) }; func TestX(t *testing.T) {}`, "FAIL x: in these words"},
		"compiles": {`func TestX(t *testing.T) { y() }`, "FAIL x: ./x_test.go:4:28: undefined: y"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			head := "package x\nimport (\"os\"; \"testing\")\nvar _ = os.Exit\n"
			for file, text := range map[string]string{"go.mod": "module x\n", "x_test.go": head + c.code + "\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(goTool, "test", "-json", ".")
			cmd.Dir = dir
			out, _ := cmd.Output() // it fails where it should
			v, err := read(strings.NewReader(string(out)))
			if err != nil {
				t.Fatal(err)
			}
			got := append(v.lines(), "")[0]
			if got != c.want {
				t.Errorf("%q, not %q, of\n%s", got, c.want, out)
			}
		})
	}
}
