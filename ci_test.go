package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever .ci/run calls, it fails if that fails: each call of go in turn, with everything else succeeding. The programs are stand-ins.
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
echo "ok $n: $*"; [ "$n" != "$FAIL" ]`,
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
		if out, _, err := run(i); err == nil {
			t.Errorf("call %d of go failed, and nothing came of it:\n%s", i, out)
		}
	}
}
