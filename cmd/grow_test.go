package cmd

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
)

// The number of groups grows by hand, and what cannot be is refused with a way out.
func TestGrowGroupsCommand(t *testing.T) {
	t.Parallel()
	n := openNode(t, "n1", 0)
	s := newShell(t)
	grow := func(args ...string) (string, string, int) {
		return s.run("", append([]string{"cluster", "grow-groups", "--addr", n.Addr()}, args...)...)
	}
	for _, x := range []struct{ arg, want string }{
		{"two", `"two" is not a number of groups`}, {"0", "cannot have 0 groups"}, {"65", "from 2 to 64"},
		{"2.5", `"2.5" is not a number`}, {"99999999999999999999", "is not a number of groups"},
	} {
		if _, errOut, code := grow(x.arg); code != exit.Usage || !strings.Contains(errOut, x.want) {
			t.Errorf("%s: %d %s", x.arg, code, errOut)
		}
	}
	for _, args := range [][]string{{}, {"2", "3"}} {
		if _, errOut, code := grow(args...); code != exit.Usage {
			t.Errorf("%v: %d %s", args, code, errOut)
		}
	}
	if out, errOut, code := grow("1"); code != exit.OK || out != "it has 1 group already: nothing to do\n" {
		t.Errorf("%d %s%s", code, out, errOut)
	}
	if out, errOut, code := grow("2"); code != exit.OK || out != "2 groups take new jobs\n" {
		t.Errorf("%d %s%s", code, out, errOut)
	}
	if out, errOut, code := grow("2"); code != exit.OK || !strings.Contains(out, "2 groups already: nothing to do") {
		t.Errorf("%d %s%s", code, out, errOut)
	}
	if _, errOut, code := grow("1"); code != exit.Usage || !strings.Contains(errOut, "has 2 groups of jobs") {
		t.Errorf("%d %s", code, errOut)
	}
	out, errOut, code := grow("3", "--no-wait", "--json")
	var g client.Growth
	if err := json.Unmarshal([]byte(out), &g); err != nil || code != exit.OK || g.Want != 3 || g.Groups > 3 {
		t.Errorf("%d %s%s %v", code, out, errOut, err)
	}
	if out, errOut, code = grow("3", "--json"); code != exit.OK || !strings.Contains(out, `"done":`) ||
		json.Unmarshal([]byte(out), &g) != nil || !g.Done || g.Groups != 3 {
		t.Errorf("%d %s%s", code, out, errOut)
	}
}
