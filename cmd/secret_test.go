package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/node"
)

// A secret is set from a file or standard input, listed without its value, used by a job and deleted; a job that spells
// out what belongs into one is warned about.
func TestSecretCommands(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n, err := apitest.Open(dir, apitest.Secure, apitest.Keys)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &shell{t: t, addr: "unix:" + filepath.Join(dir, node.AdminSocket), node: func() *apitest.Node { return n },
		env: map[string]string{"CARILLON_CONFIG_DIR": dir}}
	const value = "hunter2 hunter2"
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte(value+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	want := func(code int, stdin string, args ...string) (string, string) {
		t.Helper()
		stdout, stderr := s.want(code, stdin, args...)
		all.WriteString(stdout + stderr)
		return stdout, stderr
	}
	if stdout, _ := want(exit.OK, value+"\n", "secret", "set", "api-key", "-n", "team-a", "--hosts", "h,api.example.com:443"); stdout !=
		"set secret api-key of namespace team-a, version 1, for h, api.example.com:443\n" {
		t.Error(stdout)
	}
	if _, stderr := want(exit.Usage, value+"\n", "secret", "set", "api-key", "-n", "team-a", "--hosts", ""); !strings.Contains(stderr, "--hosts: it is empty") {
		t.Error(stderr) // a variable that is not set would let it go anywhere
	}
	// A new value does not widen where it may go; that takes a word.
	for _, set := range []struct {
		args []string
		want string
	}{{nil, "version 2, for h, api.example.com:443"}, {[]string{"--hosts", "any"}, "version 3, for any host"},
		{nil, "version 4, for any host"}, {[]string{"--hosts", "h,api.example.com:443"}, "version 5, for h, api.example.com:443"}} {
		args := append([]string{"secret", "set", "api-key", "-n", "team-a"}, set.args...)
		if stdout, _ := want(exit.OK, value+"\n", args...); !strings.HasSuffix(stdout, set.want+"\n") {
			t.Errorf("%q: %s, want %s", set.args, stdout, set.want)
		}
	}
	if stdout, _ := want(exit.OK, "", "secret", "set", "api-key", "--from-file", file); !strings.Contains(stdout, "version 1") {
		t.Error(stdout)
	}
	want(exit.Usage, "", "secret", "set", "api-key")
	want(exit.Usage, "short", "secret", "set", "api-key")
	want(exit.Usage, "\xff\xfe not text", "secret", "set", "api-key")
	want(exit.Usage, "", "secret", "set", "api-key", "--from-file", file+"-none")
	submit := func(header string) string {
		t.Helper()
		_, stderr := want(exit.OK, "", "submit", "--schedule", "@manual", "--http", "https://h/", "--header", header)
		return stderr
	}
	if stderr := submit("Authorization: Bearer secret://api-key"); strings.Contains(stderr, "warning") {
		t.Error(stderr)
	}
	if stderr := submit("Authorization: Bearer spelled-out"); !strings.Contains(stderr, "carillon secret set") || strings.Contains(stderr, "spelled-out") {
		t.Error(stderr)
	}
	stdout, _ := want(exit.OK, "", "secret", "list", "-A")
	for _, text := range []string{"team-a", "default", "api-key", "h, api.example.com:443", "any", "admin socket"} {
		if !strings.Contains(stdout, text) {
			t.Errorf("no %q in\n%s", text, stdout)
		}
	}
	want(exit.OK, "", "secret", "list", "--json")
	if _, stderr := want(exit.Conflict, "", "secret", "delete", "api-key"); !strings.Contains(stderr, "force") {
		t.Error(stderr)
	}
	want(exit.OK, "", "secret", "delete", "api-key", "--force")
	want(exit.NotFound, "", "secret", "delete", "api-key")
	want(exit.OK, "", "audit", "-A", "--action", "secret")
	if text := all.String(); strings.Contains(text, "hunter2") {
		t.Error("the value was shown:\n" + text)
	}
}

func TestPlainClusterTakesNoSecret(t *testing.T) {
	s := newShell(t)
	if _, stderr := s.want(exit.Conflict, "hunter2hunter2", "secret", "set", "k"); !strings.Contains(stderr, "--secure") {
		t.Error(stderr)
	}
}
