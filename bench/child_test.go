//go:build linux

package bench_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// children are the processes that a process started, each with its arguments.
func children(t *testing.T, pid int) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		// The name, in parentheses, may contain anything; after it come the state and the parent.
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child := filepath.Base(filepath.Dir(file))
			out[child] = args(child)
		}
	}
	return out
}

// args are the arguments of a process, empty if it is gone or a zombie.
func args(pid string) string {
	data, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(data), "\x00", " ")
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// However a measurement ends, its nodes and workers end with it.
func TestChildrenDieWithTheBench(t *testing.T) {
	t.Parallel()
	c := carillon(t, "bench", "lag", "--nodes", "1", "--workers", "1", "--rate", "1", "--duration", "10m")
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	var all map[string]string
	eventually(t, "a node and a worker run", func() bool {
		all = children(t, c.Process.Pid)
		kinds := ""
		for _, a := range all {
			kinds += a
		}
		return strings.Contains(kinds, " server ") && strings.Contains(kinds, " bench worker ")
	})
	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for pid, was := range all {
		eventually(t, "the end of "+was, func() bool { return args(pid) != was })
	}
}
