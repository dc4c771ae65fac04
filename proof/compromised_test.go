package proof

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// Somebody has the machine of a voter, and made himself an admin's token there. It ends with the removal of that node,
// like all tokens except the one that the removal was asked for with; the command says how each becomes valid again.
func TestCompromisedNodeLosesItsTokens(t *testing.T) {
	t.Parallel()
	c := startFlooded(t)
	n1, n2, n3 := c.nodes[0], c.nodes[1], c.nodes[2]
	dir := t.TempDir()
	admin := filepath.Join(n1.data, "admin.token")
	socket := func(n *secureNode, args ...string) (string, error) {
		at := &secureNode{t: t, binary: n.binary, addr: "unix:" + filepath.Join(n.data, "admin.sock")}
		out, err := at.cli("", args...)
		return string(out), err
	}
	made := func(n *secureNode, name string, flags ...string) (file string) {
		t.Helper()
		file = filepath.Join(dir, name)
		if _, err := socket(n, append([]string{"token", "create", name, "--out", file}, flags...)...); err != nil {
			t.Fatal(err)
		}
		return file
	}
	thief := made(n3, "thief", "--role", "admin", "--shell")
	ci := made(n1, "ci", "--role", "operator")
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // whom the cluster lets in, whoever asks
	status := func(n *secureNode, file string) int {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rq, err := http.NewRequest(http.MethodGet, "https://"+n.addr+"/api/v1/whoami", nil)
		if err != nil {
			t.Fatal(err)
		}
		rq.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(text)))
		res, err := hc.Do(rq)
		if err != nil {
			return 0
		}
		res.Body.Close()
		return res.StatusCode
	}
	rest := []*secureNode{n1, n2}
	good := func(file string) func() bool {
		return func() bool { return status(n1, file) == http.StatusOK && status(n2, file) == http.StatusOK }
	}
	for _, file := range []string{admin, thief, ci} {
		harness.Eventually(t, time.Minute, filepath.Base(file)+" is valid", good(file))
	}
	n3.end(9)
	var out []byte
	harness.Eventually(t, time.Minute, "the node is removed", func() bool {
		var err error
		if out, err = n1.cli(admin, "cluster", "remove", "n3", "--compromised"); err != nil {
			t.Log(err) // the leader is elected anew, or has not missed the node yet
		}
		return err == nil
	})
	for _, n := range rest {
		for _, file := range []string{thief, ci} {
			if got := status(n, file); got != http.StatusUnauthorized {
				t.Errorf("%s answers the token %s with %d", n.id, filepath.Base(file), got)
			}
		}
	}
	harness.Eventually(t, time.Minute, "the token of who asked is valid", good(admin))
	resume := ""
	for line := range strings.Lines(string(out)) {
		if args, found := strings.CutPrefix(strings.TrimSpace(line), "carillon token resume "); found {
			if id, about, _ := strings.Cut(args, " "); strings.Contains(about, "ci (operator)") {
				resume = id
			}
		}
	}
	if resume == "" || strings.Count(string(out), "token resume ") != 2 || !strings.Contains(string(out), "thief (admin)") {
		t.Fatalf("it does not say how each is resumed:\n%s", out)
	}
	if out, err := socket(n1, "token", "resume", resume); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	harness.Eventually(t, time.Minute, "the resumed token is valid", good(ci))
	if got := status(n1, thief); got != http.StatusUnauthorized {
		t.Errorf("the thief's is answered with %d", got)
	}
}
