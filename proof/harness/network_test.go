package harness

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestNetsLeaveNothingBehind: neither this test process nor one that died in the middle.
func TestNetsLeaveNothingBehind(t *testing.T) {
	exists := func(link, ns string) bool {
		_, err := net.InterfaceByName(link)
		_, nerr := os.Stat(filepath.Join("/run/netns", ns))
		return err == nil || nerr == nil
	}
	var link, ns string
	t.Run("lives", func(t *testing.T) {
		w := NewNet(t, 2)
		link, ns = w.bridge(), w.ns(1)
		if !exists(link, ns) {
			t.Errorf("there is neither %s nor %s", link, ns)
		}
	})
	if link == "" {
		t.Skip("no network namespaces here")
	}
	if exists(link, ns) {
		t.Errorf("%s or %s is left after the test", link, ns)
	}

	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf("%s%d.7", netPrefix, dead.Process.Pid)
	for _, args := range [][]string{{"link", "add", left, "type", "bridge"}, {"netns", "add", left + "-0"}} {
		if err := ip(args...); err != nil {
			t.Fatal(err)
		}
	}
	NewNet(t, 1)
	if exists(left, left+"-0") {
		t.Error("what a dead process left is still there")
	}
}
