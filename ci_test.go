package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whatever the scripts call, they fail if that fails: each call of go in turn, with everything else succeeding. What is
// said last is which step failed and in which words, in at most twenty lines. The programs are stand-ins, but for the one
// that reads the records of tests.
func TestCIFailsWithEachStep(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	bin := filepath.Join(t.TempDir(), "verdict")
	if out, err := exec.Command("go", "build", "-o", bin, "./internal/verdict").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const fails = `{"Action":"start","Package":"x"}
{"Action":"output","Package":"x","Test":"TestX","Output":"    x_test.go:1: in these words\n"}
{"Action":"output","Package":"x","Test":"TestX","Output":"    node.go:1: end of the log of n1:\n"}
{"Action":"fail","Package":"x","Test":"TestX"}
{"Action":"fail","Package":"x"}
`
	const passes = `{"Action":"start","Package":"x"}
{"Action":"pass","Package":"x","Test":"TestX"}
{"Action":"pass","Package":"x"}
`
	// Before anything runs: a file that is still open for writing in a process that another one has just forked cannot be run.
	dir := t.TempDir()
	for name, text := range map[string]string{
		// A directory can be made once: that counts calls, also of those at the same time.
		"go": `n=1; while ! mkdir "$CALLS/$n" 2>/dev/null; do n=$((n+1)); done
case "$*" in *build*) for a; do case $a in */carillon|*/again) printf '#!/bin/sh\n' >"$a"; chmod +x "$a";; esac; done;; esac
record=; for a; do case $last in --jsonfile) record=$a; printf '%s' "$RECORD" >"$a";; esac; last=$a; done
if [ "$n" != "$FAIL" ]; then
  case "$*" in "run ./internal/verdict "*) exec "$VERDICT" "$3";; esac
  echo "ok $n: $*"; exit
fi
[ -z "$record" ] || printf '%s' "$FAILS" >"$record"
echo "no success: $*"; exit 1`,
		"gofmt": `true`, "strace": `true`, "perf": `true`, "chromium": `true`, "debootstrap": `true`, "lintian": `true`, "rpm": `true`, "file": `echo "statically linked"`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run := func(script, record string, fail int) (string, int, error) {
		calls := t.TempDir()
		cmd := exec.Command(bash, script)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CALLS="+calls, fmt.Sprint("FAIL=", fail), "VERDICT="+bin,
			"RECORD="+record, "FAILS="+fails)
		out, err := cmd.CombinedOutput()
		made, _ := os.ReadDir(calls)
		return string(out), len(made), err
	}
	for _, script := range []string{".ci/run", ".ci/deep", ".ci/steps.sh"} {
		if _, err := os.ReadFile(script); err != nil { // the result is kept for as long as what was read stays as it is
			t.Fatal(err)
		}
	}
	for _, script := range []string{".ci/run", ".ci/deep"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			out, calls, err := run(script, passes, 0)
			if err != nil || calls < 8 || !regexp.MustCompile(`\n=== passed in \d+s\n$`).MatchString(out) {
				t.Fatalf("%d calls, %v:\n%s", calls, err, out)
			}
			for i := 1; i <= calls; i++ {
				out, _, err := run(script, passes, i)
				if err == nil {
					t.Errorf("call %d of go failed, and nothing came of it:\n%s", i, out)
				}
				_, end, said := strings.Cut(out, "\n=== FAILED in step ")
				if !said || strings.Count(end, "\n") > 20 {
					t.Errorf("call %d of go failed, and this was said:\n%s", i, out)
				}
				words := "FAIL x.TestX: x_test.go:1: in these words\n     repeat: "
				if strings.Contains(out, "no success: tool gotestsum") && !strings.Contains(end, words) {
					t.Errorf("call %d of go failed, and at the end this is said of it:\n%s", i, end)
				}
			}
			out, _, err = run(script, fails+passes, 0)
			if err != nil || !regexp.MustCompile(`\nFLAKY x\.TestX: x_test\.go:1: in these words\n=== passed in \d+s\n$`).MatchString(out) {
				t.Errorf("of a test that passes when it is repeated, this is said: %v\n%s", err, out)
			}
		})
	}
}

// The README names the two commands for a fresh machine. A build by it is static, also where a C compiler is installed; and what `go test ./...` leaves out for want of a variable is in
// CONTRIBUTING.md, with that variable.
func TestDocumentsSayHowToBuildAndTest(t *testing.T) {
	text := map[string]string{}
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text[name] = string(data)
	}
	builds := strings.Count(text["README.md"], "go build")
	if builds == 0 || builds != strings.Count(text["README.md"], "CGO_ENABLED=0 go build .") {
		t.Errorf("%d build lines, not all with CGO_ENABLED=0", builds)
	}
	for _, command := range []string{"\ngo run . dev", "\ngo test ./..."} {
		if !strings.Contains(text["README.md"], command) {
			t.Errorf("the README has no line with%s", strings.ReplaceAll(command, "\n", " "))
		}
	}
	variable := regexp.MustCompile(`t\.Skipf?\("[^"]*(CARILLON_[A-Z_]+)`)
	err := filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range variable.FindAllSubmatch(code, -1) {
			if !strings.Contains(text["CONTRIBUTING.md"], string(m[1])) {
				t.Errorf("%s skips a test without %s, which CONTRIBUTING.md does not say", path, m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if os.Getenv("CARILLON_LONG") == "" {
		return // .ci/run builds it the same way
	}
	bin := filepath.Join(t.TempDir(), "carillon")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if code, err := os.ReadFile(bin); err != nil || strings.Contains(string(code), "/lib64/ld-linux") {
		t.Errorf("not static: %v", err)
	}
}

// A tag can be moved to other code than was looked at.
func TestCIActionsArePinned(t *testing.T) {
	files, err := filepath.Glob(".github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	pinned := regexp.MustCompile(`uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d`)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: name the commit, with its version as a comment: %s", file, line)
			}
		}
	}
}
