package cmd

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/cmd/exit"
)

// Groups are moved, and a node with replicas is removed, by hand.
func TestReplicaCommands(t *testing.T) {
	t.Parallel()
	n1 := openNode(t, "n1", 2)
	n2 := openNode(t, "n2", 0, n1.Addr())
	s := newShell(t)
	run := func(args ...string) (string, string, int) { return s.run("", append(args, "--addr", n2.Addr())...) }
	eventually := func(what string, cond func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if cond() {
				return
			}
		}
		t.Fatalf("never: %s", what)
	}
	fails := func(code int, want string, args ...string) {
		t.Helper()
		if _, errOut, got := run(args...); got != code || !strings.Contains(errOut, want) {
			t.Errorf("%q: %d %s", args, got, errOut)
		}
	}
	var out, errOut string
	var code int
	eventually("group 1 is on n1 and n2", func() bool {
		out, errOut, code = run("cluster", "move-group", "1", "--to", "n1,n2", "--no-wait")
		return code == 0 && out == "group 1 is on n1, n2\n"
	})
	fails(exit.Usage, "group 0 has a replica on every node", "cluster", "move-group", "0", "--to", "n1")
	fails(exit.Usage, "not the number of a group", "cluster", "move-group", "one", "--to", "n1")
	fails(exit.NotFound, "no group 9", "cluster", "move-group", "9", "--to", "n1")
	fails(exit.Usage, "one to three nodes", "cluster", "move-group", "1")
	fails(exit.Usage, `no node "n9"`, "cluster", "move-group", "1", "--to", "n9")
	eventually("group 2 has begun", func() bool {
		out, errOut, code = run("cluster", "move-group", "2", "--to", "n2")
		return code == 0
	})
	if out != "group 2 is on n2\n" {
		t.Errorf("%q %q", out, errOut)
	}
	if out, errOut, code = run("cluster", "move-group", "2", "--to", "n2", "--json"); code != 0 ||
		!strings.Contains(out, `"done": true`) && !strings.Contains(out, `"done":true`) {
		t.Errorf("%d %q %q", code, out, errOut)
	}

	openNode(t, "n3", 0, n1.Addr())
	eventually("n3 votes", func() bool {
		out, _, code := run("cluster", "members")
		return code == 0 && strings.Count(out, "voter") == 2 // and the leader
	})
	if out, errOut, code = run("cluster", "remove", "n1"); code != 0 || !strings.Contains(out, "n1 is no longer a member") ||
		!strings.Contains(errOut, "n1 is leaving: group 1 still to hand over") {
		t.Errorf("%d %q %q", code, out, errOut)
	}
	eventually("group 1 is where it went", func() bool {
		out, _, code := run("cluster", "move-group", "1", "--to", "n2,n3", "--no-wait")
		return code == 0 && out == "group 1 is on n2, n3\n"
	})
}
