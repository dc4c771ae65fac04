package harness

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Hosts is an /etc/hosts that only the nodes of one test see, each in a mount namespace of its own. What is written
// into it counts for those that run, too.
type Hosts struct {
	tb   testing.TB
	path string
}

// NewHosts makes one, or skips the test where that is not possible.
func NewHosts(tb testing.TB) *Hosts {
	tb.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		tb.Skip("a private /etc/hosts needs a mount namespace, and that root on Linux")
	}
	h := &Hosts{tb, filepath.Join(tb.TempDir(), "hosts")}
	h.Set()
	try := append(h.wrap(), "grep", "-q", "carillon", "/etc/hosts")
	if out, err := exec.Command(try[0], try[1:]...).CombinedOutput(); err != nil {
		tb.Skipf("no private /etc/hosts here: %v: %s", err, out)
	}
	return h
}

func (h *Hosts) wrap() []string {
	return []string{"unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount --bind "$0" /etc/hosts && exec "$@"`, h.path}
}

// hostName is how a node is called, whatever its address is.
func hostName(id string) string { return id + ".carillon.test" }

// Set says where n1, n2 and so on are now.
func (h *Hosts) Set(addrs ...string) {
	h.tb.Helper()
	text := "127.0.0.1 localhost\n# of a test of carillon\n"
	for i, addr := range addrs {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			h.tb.Fatal(err)
		}
		text += fmt.Sprintf("%s %s\n", host, hostName(fmt.Sprintf("n%d", i+1)))
	}
	// Into the same file: another one under its name would not be the one that is mounted.
	if err := os.WriteFile(h.path, []byte(text), 0o644); err != nil {
		h.tb.Fatal(err)
	}
}

// Place gives a node its name and a first address.
func (h *Hosts) Place(n *Node, addr string) {
	n.Move(addr)
	n.Wrap = h.wrap()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		h.tb.Fatal(err)
	}
	n.Advertise = net.JoinHostPort(hostName(n.ID), port)
}
