package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// Fault makes one system call of a process fail: the Nth that changes a file of a class below Dir, counted over all
// threads in the order in which they come. (strace counts by thread, so it cannot say "the tenth write of this file".)
// Only that one fails: a disk that recovers is the harder case, because a process that goes on is not told again. Nth 0
// only counts.
type Fault struct {
	Dir   string
	Class string
	Nth   int
	Errno int
	Log   string // a line for every call of the classes
}

// The classes of files in a data directory.
const (
	ClassLog      = "log"      // raft.db, and what is to become it
	ClassState    = "state"    // state.db, and what is to take its place
	ClassSnapshot = "snapshot" // what is in snapshots/, and that directory
	ClassDir      = "dir"      // the rest: who lives there, and the directory itself
)

// Class says to which class a path below a data directory belongs. Empty: it is none of its files.
func Class(dir, path string) string {
	rel, err := filepath.Rel(dir, path)
	rel = strings.TrimPrefix(rel, datadir.GroupDir(0)+"/")
	switch {
	case err != nil || rel == ".." || strings.HasPrefix(rel, "../"), isSocket(dir, path):
		return ""
	case strings.HasPrefix(rel, "raft.db"):
		return ClassLog
	case strings.HasPrefix(rel, "state.db"):
		return ClassState
	case rel == "snapshots" || strings.HasPrefix(rel, "snapshots/"):
		return ClassSnapshot
	}
	return ClassDir
}

// isSocket says whether a path is that of the admin socket of a data directory, or of the directory in which that is
// made. They hold nothing that a node would miss: without its socket it says so and works on, and the next one makes it
// anew.
func isSocket(dir, path string) bool {
	making := filepath.Join(dir, ".sock")
	return path == filepath.Join(dir, node.AdminSocket) || path == making || strings.HasPrefix(path, making+"/")
}

// faultEnv carries a Fault to the process that carries it out: this test binary, once to trace and once to set up the
// filter.
const faultEnv, filterEnv = "CARILLON_PROOF_FAULT", "CARILLON_PROOF_FILTER"

// faultMain is what this binary does when a test started it as a tracer; ok is false when it was not.
func faultMain() (code int, ok bool) {
	if os.Getenv(filterEnv) != "" {
		fmt.Fprintln(os.Stderr, "filter:", filtered(os.Args[1:])) // it returns only if it failed
		return 125, true
	}
	text := os.Getenv(faultEnv)
	if text == "" {
		return 0, false
	}
	var f Fault
	err := json.Unmarshal([]byte(text), &f)
	if err == nil {
		code, err = f.trace(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fault:", err)
		return 125, true
	}
	return code, true
}

// Wrap is what to put before a command so that the fault happens to it.
func (f Fault) Wrap(tb testing.TB) []string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	text, err := json.Marshal(f)
	if err != nil {
		tb.Fatal(err)
	}
	return []string{"env", faultEnv + "=" + string(text), self}
}

// Happened says whether the call was made to fail, and which one it was.
func (f Fault) Happened() (what string, ok bool) {
	b, _ := os.ReadFile(f.Log)
	for line := range bytes.Lines(b) {
		if text, failed := strings.CutSuffix(strings.TrimSpace(string(line)), " FAILED"); failed {
			return text, true
		}
	}
	return "", false
}

// Calls counts the calls of a class.
func (f Fault) Calls(class string) (n int) {
	b, _ := os.ReadFile(f.Log)
	for line := range bytes.Lines(b) {
		if bytes.HasPrefix(line, []byte(class+" ")) {
			n++
		}
	}
	return n
}
