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

// Whatever .ci/run calls, it fails if that fails: each call of go in turn, with everything else succeeding. Why a test failed is the last that it
// says. The programs are stand-ins.
func TestCIFailsWithEachStep(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	run := func(fail int) (string, int, error) {
		dir := t.TempDir()
		for name, text := range map[string]string{
			// A directory can be made once: that counts calls, also of those at the same time.
			"go": `n=1; while ! mkdir "$CALLS/$n" 2>/dev/null; do n=$((n+1)); done
case "$*" in *build*) for a; do case $a in */carillon) printf '#!/bin/sh\n' >"$a"; chmod +x "$a";; esac; done;; esac
if [ "$n" != "$FAIL" ]; then echo "ok $n: $*"; exit; fi
printf -- '--- FAIL: TestX (1s)\n    x_test.go:1: in these words\n    node.go:1: end of the log of n1:\n        a line of it\nFAIL %s\n' "$*"; exit 1`,
			"gofmt": `true`, "strace": `true`, "file": `echo "statically linked"`, "nice": `shift 2; exec "$@"`,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		calls := t.TempDir()
		cmd := exec.Command(bash, ".ci/run")
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CALLS="+calls, fmt.Sprint("FAIL=", fail))
		out, err := cmd.CombinedOutput()
		made, _ := os.ReadDir(calls)
		return string(out), len(made), err
	}
	out, calls, err := run(0)
	if err != nil || calls < 8 || !strings.Contains(out, "=== done") {
		t.Fatalf("%d calls, %v:\n%s", calls, err, out)
	}
	for i := 1; i <= calls; i++ {
		out, _, err := run(i)
		if err == nil {
			t.Errorf("call %d of go failed, and nothing came of it:\n%s", i, out)
		}
		_, end, _ := strings.Cut(out, "=== what failed\n")
		if strings.Contains(out, "FAIL test ") && end != "--- FAIL: TestX (1s)\n    x_test.go:1: in these words\n" {
			t.Errorf("call %d of go failed, and at the end this is said of it:\n%s", i, end)
		}
	}
}

// A build by the README is static, also where a C compiler is installed; and what `go test ./...` leaves out for want of a variable is in
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
