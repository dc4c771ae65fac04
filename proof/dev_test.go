package proof

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
	"github.com/carillon-scheduler/carillon/proof/port"
)

// said is output that another goroutine writes.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var leads = regexp.MustCompile(`(n\d) leads\. .*kill -9 (\d+)`)

// TestDevClusterLosesItsLeader does what `carillon dev --nodes 3` tells a person to do: kill the leader, and watch.
func TestDevClusterLosesItsLeader(t *testing.T) {
	heavy(t)
	t.Parallel()
	first := port.ReserveRow(t, 3)
	dir := t.TempDir()
	cmd := exec.Command(harness.Build(t), "dev", "--nodes", "3", "--listen", first, "--data-dir", dir)
	var out said
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := harness.Spawn(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test failed
		if t.Failed() {
			t.Log(out.String())
		}
	})
	leader := func() (id string, pid int) {
		all := leads.FindAllStringSubmatch(out.String(), -1)
		if len(all) == 0 {
			return "", 0
		}
		last := all[len(all)-1]
		pid, _ = strconv.Atoi(last[2])
		return last[1], pid
	}
	harness.Eventually(t, harness.ReadyLimit, "there is a leader", func() bool { id, _ := leader(); return id != "" })
	old, pid := leader()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.ReadyLimit, "another one leads", func() bool { id, _ := leader(); return id != old })
	harness.Eventually(t, harness.ReadyLimit, "the killed one is back", func() bool {
		host, port, _ := net.SplitHostPort(first)
		n, _ := strconv.Atoi(port)
		k, _ := strconv.Atoi(old[1:])
		s, err := client.New(fmt.Sprintf("%s:%d", host, n+k-1), client.WithAttempts(1)).Status(t.Context())
		return err == nil && s.Ready
	})
	// And once more by a request, to a node that is not the one to die: it is told that it was done.
	second, gone := leader()
	host, port, _ := net.SplitHostPort(first)
	n, _ := strconv.Atoi(port)
	k, _ := strconv.Atoi(second[1:])
	via := client.New(fmt.Sprintf("%s:%d", host, n+k%3), client.WithAttempts(1))
	if err := via.DevKill(t.Context(), client.DevKillRequest{NodeID: second}); err != nil {
		t.Errorf("kill %s: %v", second, err)
	}
	harness.Eventually(t, harness.ReadyLimit, "it was killed", func() bool { return strings.Contains(out.String(), second+" was killed") })
	harness.Eventually(t, harness.ReadyLimit, "another one leads again", func() bool { _, pid := leader(); return pid != gone })
	if err := via.DevKill(t.Context(), client.DevKillRequest{NodeID: "n9"}); job.CodeOf(err) != job.CodeNotFound {
		t.Errorf("kill a node that is not there: %v", err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(harness.ReadyLimit):
		t.Fatal("an interrupt does not end it")
	}
}
