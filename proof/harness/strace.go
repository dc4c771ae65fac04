package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// NeedStrace skips a test where processes cannot be traced.
func NeedStrace(tb testing.TB) {
	tb.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		tb.Skip("strace is not installed")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	args := append(StraceArgs(filepath.Join(tb.TempDir(), "try")), "true")
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		tb.Skipf("strace cannot trace here: %v: %s", err, bytes.TrimSpace(out))
	}
}

// TwoLives is what to put before a command to have it twice, one after the other, as if under one strace: the second
// life begins when the first is dead and go exists. pid is where the number of the first is.
func TwoLives(pid, goes string) []string {
	return []string{"sh", "-c",
		`pid=$0 goes=$1; shift; "$@" & echo $! >"$pid.tmp"; mv "$pid.tmp" "$pid"; wait $!; while [ ! -e "$goes" ]; do sleep 0.05; done; exec "$@"`, pid, goes}
}

// Injection is a strace that makes system calls of a running process fail.
type Injection struct {
	cmd *exec.Cmd
	log string
}

// Inject attaches to the node's process: the when-th call from now on that each of its threads makes on the file fails
// with the error, and no other. (strace counts by thread.) A disk that recovers is the harder case: a process that goes
// on would not be told again.
func Inject(tb testing.TB, n *Node, call, errno string, when int, file string) *Injection {
	tb.Helper()
	i := &Injection{log: filepath.Join(tb.TempDir(), "inject.log")}
	i.cmd = exec.Command("strace", "-f", "-y", "-o", i.log, "-P", file, "-e", "trace="+call,
		"-e", fmt.Sprintf("inject=%s:error=%s:when=%d", call, errno, when), "-p", fmt.Sprint(n.PID()))
	said, err := os.Create(filepath.Join(tb.TempDir(), "strace.err"))
	if err != nil {
		tb.Fatal(err)
	}
	defer said.Close()
	i.cmd.Stderr = said
	if err := Spawn(i.cmd); err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = i.cmd.Wait()
		close(done)
	}()
	tb.Cleanup(func() {
		killGroup(i.cmd)
		<-done
	})
	// It says so when it has hold of the threads.
	Eventually(tb, time.Minute, "strace attached", func() bool {
		b, _ := os.ReadFile(said.Name())
		return bytes.Contains(b, []byte("attached"))
	})
	return i
}

// Hits counts the calls that were made to fail.
func (i *Injection) Hits() int {
	b, _ := os.ReadFile(i.log)
	return bytes.Count(b, []byte("(INJECTED)"))
}
