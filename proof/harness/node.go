package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/proof/port"
)

// Node is one carillon process on a fixed port and data directory, through all its lives.
type Node struct {
	ID, Addr, Dir string
	Binary        string
	Flags         []string // beside those that every start needs
	Join          []string // members of the cluster that it joins; without any it begins one
	Wrap          []string // put before the command, such as strace
	Advertise     string   // a name for the others, if the address may change
	Client        *client.Client
	Lives         int

	tb      testing.TB
	at      atomic.Pointer[string] // Addr, for its clients
	logPath string
	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{}
	outages []Outage
}

// ReadyLimit is how long a start may take before it counts as failed. It is far above what a start takes, because the
// tests share their machine.
const ReadyLimit = time.Minute

// NewNode prepares a node; Start starts it. It is killed at the end of the test, and its log shown if the test failed.
func NewNode(tb testing.TB, binary, dir string, flags ...string) *Node {
	tb.Helper()
	n := &Node{ID: "n1", Dir: dir, Binary: binary, Flags: flags, tb: tb,
		logPath: filepath.Join(tb.TempDir(), "node.log")}
	n.Move(FreeAddr(tb))
	n.Client = client.New("localhost", client.WithHTTPClient(n.http()), client.WithAttempts(1), client.WithTimeout(0))
	tb.Cleanup(func() {
		for _, sign := range []string{"WARNING: DATA RACE", "panic:", "fatal error:"} {
			if bytes.Contains(n.Log(), []byte(sign)) {
				tb.Errorf("the log contains %q", sign)
			}
		}
		if tb.Failed() {
			n.explain()
		}
		n.Destroy()
		if dir := os.Getenv("CARILLON_LOGS"); dir != "" { // keeps the logs of tests that pass, too
			_ = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(tb.Name(), "/", "_")+"-"+n.ID+".log"), n.Log(),
				0o600)
		}
	})
	return n
}

// Move gives it an address, which it listens on from its next start. Its clients follow: they may be in use meanwhile.
func (n *Node) Move(addr string) {
	n.Addr = addr
	n.at.Store(&addr)
}

// http is a client of the node, wherever that is; the name in the URL means nothing. Without keep-alive a request never
// meets a connection of a process that is dead, and one attempt is one attempt.
func (n *Node) http() *http.Client {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *n.at.Load())
	}
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial},
		Timeout: 30 * time.Second}
}

// Stale is a client that reads what this node itself knows, leader or not.
func (n *Node) Stale() *client.Client {
	return client.New("localhost", client.WithHTTPClient(n.http()), client.WithAttempts(1), client.WithStale(),
		client.WithTimeout(0))
}

// What is shown of a log after a failure is bounded: the failure's own words stand above it, and a long output is cut
// at its beginning.
const (
	shownLines   = 40
	shownColumns = 200
)

// explain shows the end of the log after a failure, and keeps the whole of it with the stacks of a process that still
// runs.
func (n *Node) explain() {
	n.tb.Logf("end of the log of %s, %s:\n%s", n.ID, n.Addr, narrow(n.LogTail(shownLines), shownColumns))
	n.mu.Lock()
	cmd, exited := n.cmd, n.exited
	n.mu.Unlock()
	if cmd != nil && cmd.Process.Signal(syscall.SIGQUIT) == nil {
		select {
		case <-exited:
		case <-time.After(3 * time.Second):
		}
	}
	f, err := os.CreateTemp("", "carillon-proof-failed-*.log")
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := f.Write(n.Log()); err == nil {
		n.tb.Logf("the whole log, with the stacks of a process that was still there, is in %s", f.Name())
	}
}

// CopyDir copies the data directory of a node that is dead, without the socket that one leaves behind that was killed.
func CopyDir(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, path)
		if err = errors.Join(err, relErr); err != nil || isSocket(from, path) {
			return err
		}
		to := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	})
}

// FreeAddr is an address that no other process gets before the test ends, not even while its node is dead.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	return port.Reserve(tb)
}

// Launch starts the process and does not wait for anything.
func (n *Node) Launch() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		return errors.New("it runs already")
	}
	n.awaitPort()
	log, err := os.OpenFile(n.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	n.Lives++
	fmt.Fprintf(log, "--- life %d, %s\n", n.Lives, time.Now().UTC().Format("15:04:05.000"))
	args := append([]string{}, n.Wrap...)
	args = append(args, n.Binary, "server", "--node-id", n.ID, "--listen", n.Addr, "--data-dir", n.Dir)
	if n.Advertise != "" {
		// Under a name it may be reached from elsewhere, and would not let jobs call the targets, which are here.
		args = append(args, "--advertise", n.Advertise, "--egress-allow", "loopback")
	}
	if host, _, err := net.SplitHostPort(n.Addr); err != nil || n.Advertise != "" || !net.ParseIP(host).IsLoopback() {
		args = append(args, "--insecure") // it speaks as those on the loopback interface do
	}
	if len(n.Join) > 0 {
		args = append(args, "--join", strings.Join(n.Join, ","))
	} else {
		args = append(args, "--bootstrap")
	}
	args = append(args, n.Flags...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log // files, not pipes: whatever the process leaves behind cannot hold up Wait
	if err := Spawn(cmd); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	n.cmd, n.exited = cmd, exited
	return nil
}

// awaitPort waits until nothing listens where the node is to listen. A process that was killed under a tracer may be
// there for a moment after the tracer has ended.
func (n *Node) awaitPort() {
	host, _, err := net.SplitHostPort(n.Addr)
	if n.Lives == 0 || err != nil || !net.ParseIP(host).IsLoopback() {
		return // elsewhere it may be an address of another network namespace
	}
	Within(ReadyLimit, func() bool {
		ln, err := net.Listen("tcp", n.Addr)
		if err == nil {
			ln.Close()
		}
		return !errors.Is(err, syscall.EADDRINUSE)
	})
}

// Start starts the process and waits until it is ready.
func (n *Node) Start() {
	n.tb.Helper()
	if err := n.TryStart(); err != nil {
		n.tb.Fatalf("%v\n%s", err, n.LogTail(60))
	}
}

// TryStart is Start for a caller who wants to judge a failure himself.
func (n *Node) TryStart() error {
	if err := n.Launch(); err != nil {
		return err
	}
	return n.AwaitReady()
}

// AwaitReady waits until the process answers /readyz, or has ended.
func (n *Node) AwaitReady() error {
	var last error
	began := time.Now()
	for end := time.Now().Add(ReadyLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if state := n.Ended(); state != nil {
			return fmt.Errorf("the process ended before it was ready: %s", state)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		last = n.Client.Ready(ctx)
		cancel()
		if last == nil {
			n.mu.Lock()
			if k := len(n.outages); k > 0 && n.outages[k-1].Ready.IsZero() {
				n.outages[k-1].Ready = time.Now()
			}
			n.mu.Unlock()
			if took := time.Since(began); took > 3*time.Second {
				n.tb.Logf("life %d was ready only after %s:\n%s", n.Lives, took, n.LogTail(20))
			}
			return nil
		}
	}
	return fmt.Errorf("not ready after %s: %w", ReadyLimit, last)
}

// Ended is the state of a process that ended by itself, nil while it lives.
func (n *Node) Ended() *os.ProcessState {
	n.mu.Lock()
	cmd, exited := n.cmd, n.exited
	n.mu.Unlock()
	if cmd == nil {
		return nil
	}
	select {
	case <-exited:
		return cmd.ProcessState
	default:
		return nil
	}
}

// AwaitEnd waits until the process ended by itself.
func (n *Node) AwaitEnd(limit time.Duration) (*os.ProcessState, error) {
	n.mu.Lock()
	cmd, exited := n.cmd, n.exited
	n.mu.Unlock()
	select {
	case <-exited:
		n.forget()
		return cmd.ProcessState, nil
	case <-time.After(limit):
		return nil, fmt.Errorf("the process still runs after %s", limit)
	}
}

func (n *Node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd = nil
}

// Alive says whether there is a process.
func (n *Node) Alive() bool {
	n.mu.Lock()
	cmd := n.cmd
	n.mu.Unlock()
	return cmd != nil && n.Ended() == nil
}

// Destroy makes sure that nothing of the process is left. It does not count as an outage.
func (n *Node) Destroy() {
	n.mu.Lock()
	cmd, exited := n.cmd, n.exited
	n.cmd = nil
	n.mu.Unlock()
	if cmd != nil {
		killGroup(cmd)
		<-exited
	}
}

// Stop asks the process to end and waits for it.
func (n *Node) Stop() {
	n.tb.Helper()
	n.mu.Lock()
	cmd := n.cmd
	n.mu.Unlock()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		n.tb.Fatal(err)
	}
	state, err := n.AwaitEnd(45 * time.Second)
	if err != nil || !state.Success() {
		n.tb.Fatalf("after SIGTERM: %v, %v\n%s", state, err, n.LogTail(60))
	}
}

// PID is the process of the current life.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd.Process.Pid
}

// Log is everything the process said in all its lives.
func (n *Node) Log() []byte {
	b, err := os.ReadFile(n.logPath)
	if err != nil {
		return []byte(err.Error())
	}
	return b
}

// narrow cuts lines that are longer than a number of bytes, and says how much of them is missing.
func narrow(text []byte, columns int) []byte {
	lines := bytes.Split(text, []byte("\n"))
	for i, line := range lines {
		if over := len(line) - columns; over > 0 {
			lines[i] = fmt.Appendf(line[:columns:columns], "… (%d more)", over)
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// LogTail is the last lines of the log.
func (n *Node) LogTail(lines int) []byte {
	b := n.Log()
	all := bytes.SplitAfter(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
	return bytes.Join(all[max(0, len(all)-lines):], nil)
}

// Check runs `carillon check` on a data directory that no process has open. The error carries what it said.
func Check(binary, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "check", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("carillon check: %w\n%s", err, out)
	}
	return nil
}
