package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// keyedShell talks to a node with keys by its admin socket.
func keyedShell(t *testing.T) (*shell, string) {
	t.Helper()
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
	return &shell{t: t, addr: "unix:" + filepath.Join(dir, node.AdminSocket), node: func() *apitest.Node { return n },
		env: map[string]string{"CARILLON_CONFIG_DIR": dir}}, dir
}

func TestRotateCommands(t *testing.T) {
	t.Parallel()
	s, _ := keyedShell(t)
	var before, after client.Rotation
	read := func(into *client.Rotation, args ...string) {
		t.Helper()
		stdout, _ := s.want(exit.OK, "", append(args, "--json")...)
		if err := json.Unmarshal([]byte(stdout), into); err != nil {
			t.Fatal(err)
		}
	}
	read(&before, "cluster", "rotate-ca", "--abort")
	if stdout, _ := s.want(exit.OK, "", "cluster", "rotate-ca", "--wait"); !strings.HasPrefix(stdout, "the CA is ") ||
		strings.Contains(stdout, before.CA) {
		t.Error(stdout)
	}
	read(&after, "cluster", "rotate-ca", "--abort")
	if after.CA == before.CA || after.Next != "" {
		t.Errorf("%+v, %+v", before, after)
	}
	if stdout, _ := s.want(exit.OK, "", "cluster", "rotate-ca", "--abort"); !strings.Contains(stdout, "no rotation is under way") {
		t.Error(stdout)
	}
	for _, args := range [][]string{{"--wait", "--abort"}, {"--wait", "--distrust-old"}, {"--abort", "--distrust-old"}, {"x"}} {
		s.want(exit.Usage, "", append([]string{"cluster", "rotate-ca"}, args...)...)
	}
	stdout, _ := s.want(exit.OK, "", "cluster", "rotate-ca", "--distrust-old")
	for _, want := range []string{"API tokens", "ca.pem", "secrets", "admin.sock"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in %s", want, stdout)
		}
	}
	s.want(exit.Conflict, "", "cluster", "remove", "n1", "--compromised") // the last voter
}

// A node that is removed in good order still has the keys of the cluster, which is said of a secure one only.
func TestRemovedNodeHasKeys(t *testing.T) {
	for _, ca := range []string{"", "a"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"node":"n1","ca":"`+ca+`"}`)
		}))
		s := &shell{t: t, addr: srv.URL}
		stdout, _ := s.want(exit.OK, "", "cluster", "remove", "n3")
		if !strings.HasPrefix(stdout, "n3 is no longer a member") || strings.Contains(stdout, "keys/cluster.pem") != (ca != "") ||
			strings.Contains(stdout, "remove n3 --compromised") != (ca != "") {
			t.Errorf("CA %q: %s", ca, stdout)
		}
		srv.Close()
	}
}

// A rotation that would lock out tokens that are in use names them and is not begun; the list of tokens says how near
// that is.
func TestRotateNamesWhomItLocksOut(t *testing.T) {
	t.Parallel()
	s, _ := keyedShell(t)
	s.want(exit.OK, "", "token", "create", "gone", "--role", "viewer")
	s.want(exit.OK, "", "token", "revoke", "gone")
	standing := func(name string) string {
		t.Helper()
		stdout, _ := s.want(exit.OK, "", "token", "list", "--json")
		var all struct{ Tokens []client.Token }
		if err := json.Unmarshal([]byte(stdout), &all); err != nil {
			t.Fatal(err)
		}
		for _, k := range all.Tokens {
			if k.Name == name {
				return k.CA
			}
		}
		return ""
	}
	if got := standing("admin"); got != "current" {
		t.Error(got)
	}
	for i, want := range []string{"former", "former", "former", "leaving"} {
		s.want(exit.OK, "", "cluster", "rotate-ca", "--wait")
		if got := standing("admin"); got != want {
			t.Errorf("after %d rotations it is %s", i+1, got)
		}
	}
	s.want(exit.OK, "", "token", "create", "ci", "--role", "viewer")
	_, stderr := s.want(exit.Conflict, "", "cluster", "rotate-ca", "--wait")
	if !strings.Contains(stderr, ": admin (") || strings.Contains(stderr, "ci (") || strings.Contains(stderr, "gone (") ||
		!strings.Contains(stderr, "--force") {
		t.Error(stderr)
	}
	if stdout, _ := s.want(exit.OK, "", "token", "list"); !strings.Contains(stdout, "leaving") {
		t.Error(stdout)
	}
	s.want(exit.OK, "", "cluster", "rotate-ca", "--wait", "--force")
	if got := standing("admin"); got != "forgotten" {
		t.Error(got)
	}
}

// The node that is asked for how far a rotation is may be behind the leader, which has begun it.
func TestRotateWaits(t *testing.T) {
	t.Parallel()
	const (
		behind   = `{"node":"n2","ca":"a"}`
		underway = `{"node":"n2","ca":"a","rotation":{"ca":"a","next":"b"}}`
		another  = `{"node":"n2","ca":"a","rotation":{"ca":"a","next":"c"}}`
		done     = `{"node":"n2","ca":"b"}`
	)
	for name, test := range map[string]struct {
		answers []string
		code    int
		says    string
	}{
		"to its end":       {[]string{behind, underway, done}, exit.OK, "the CA is b\n"},
		"at its end":       {[]string{done}, exit.OK, "the CA is b\n"},
		"until given up":   {[]string{behind, underway, behind}, exit.Conflict, "given up"},
		"until superseded": {[]string{underway, another}, exit.Conflict, "given up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var looks atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodPost {
					io.WriteString(w, `{"ca":"a","next":"b"}`)
					return
				}
				io.WriteString(w, test.answers[min(int(looks.Add(1)), len(test.answers))-1])
			}))
			defer srv.Close()
			s := &shell{t: t, addr: srv.URL}
			stdout, stderr := s.want(test.code, "", "cluster", "rotate-ca", "--wait")
			if !strings.Contains(stdout+stderr, test.says) || int(looks.Load()) != len(test.answers) {
				t.Errorf("%d looks, %q, %q", looks.Load(), stdout, stderr)
			}
		})
	}
}

// Keys are taken along on the machine of a node only, locked by a passphrase, which restores them.
func TestBackupWithKeys(t *testing.T) {
	t.Parallel()
	s, dir := keyedShell(t)
	s.want(exit.OK, "hunter2 hunter2", "secret", "set", "k")
	tmp := t.TempDir()
	file, pass := filepath.Join(tmp, "c.bak"), filepath.Join(tmp, "pass")
	if err := os.WriteFile(pass, []byte("correct horse battery staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(more ...string) []string { return append([]string{"backup", file, "--with-keys"}, more...) }
	for want, args := range map[string][]string{
		"--data-dir":               with("--passphrase-file", pass),
		"never over the network":   with("--data-dir", dir, "--passphrase-file", pass, "--addr", "127.0.0.1:1"),
		"--passphrase-file":        with("--data-dir", dir),
		"--passphrase-file: open ": with("--data-dir", dir, "--passphrase-file", pass+"x"),
		"--data-dir and --passphrase-file need --with-keys": {"backup", file, "--passphrase-file", pass},
		"--passphrase-file needs --with-keys":               {"restore", file, "--data-dir", filepath.Join(tmp, "d"), "--node-id", "n1", "--passphrase-file", pass},
		"cannot come from standard input":                   {"restore", "-", "--data-dir", filepath.Join(tmp, "d"), "--node-id", "n1", "--with-keys"},
		"there is no passphrase":                            {"restore", file, "--data-dir", filepath.Join(tmp, "d"), "--node-id", "n1", "--with-keys"},
		"its keys cannot be read":                           with("--data-dir", tmp, "--passphrase-file", pass, "--addr", s.addr),
		"a passphrase needs at least":                       with("--data-dir", dir, "--passphrase-file", shortFile(t)),
	} {
		if _, stderr := s.want(exit.Usage, "", args...); !strings.Contains(stderr, want) {
			t.Errorf("%v: %s", args, stderr)
		}
	}
	if got := list(t, tmp); len(got) != 1 {
		t.Errorf("%v", got)
	}
	// By a file, by standard input, and to standard output; whatever address is kept for other commands.
	s.addr, s.env["CARILLON_ADDR"] = "127.0.0.1:1", "127.0.0.1:1"
	if stdout, stderr := s.want(exit.OK, "", with("--data-dir", dir, "--passphrase-file", pass)...); !strings.Contains(stdout, "0 jobs") || stderr != "" {
		t.Error(stdout, stderr)
	}
	s.want(exit.OK, "another long passphrase", with("--data-dir", dir, "--force")...)
	out, _ := s.want(exit.OK, "", "backup", "-", "--with-keys", "--data-dir", dir, "--passphrase-file", pass)
	data, err := os.ReadFile(filepath.Join(dir, keys.Dir, keys.ClusterFile))
	if err != nil || strings.Contains(out, string(data[40:90])) {
		t.Errorf("the keys are in the backup as they are: %v", err)
	}
	if want := fmt.Sprintf("Kdf: scrypt %d ", keys.DefaultCost); keys.DefaultCost < 17 || !strings.Contains(out, want) {
		t.Errorf("the passphrase can be guessed for less than by %q", want)
	}
	s.addr = "unix:" + filepath.Join(dir, node.AdminSocket)
	if stdout, _ := s.want(exit.OK, "", "audit", "-A", "--action", "backup.keys", "--json"); strings.Count(stdout, `"backup.keys"`) != 3 {
		t.Error(stdout)
	}

	restore := func(name string, more ...string) []string {
		return append([]string{"restore", file, "--data-dir", filepath.Join(tmp, name), "--node-id", "n1"}, more...)
	}
	if _, stderr := s.want(exit.Usage, "", restore("d1", "--with-keys", "--passphrase-file", pass)...); !strings.Contains(stderr, "the passphrase is wrong") {
		t.Error(stderr) // the file was replaced by one with another passphrase
	}
	stdout, _ := s.want(exit.OK, "another long passphrase\n", restore("d1", "--with-keys", "--json")...)
	var r datadir.Restored
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || r.Keys != datadir.KeysRestored || r.Secrets != 1 || r.CA == "" {
		t.Errorf("%s, %v", stdout, err)
	}
	if stdout, _ := s.want(exit.OK, "", restore("d2")...); !strings.Contains(stdout, "were not restored") {
		t.Error(stdout)
	}
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	// And alone.
	keysTo := filepath.Join(tmp, "keys")
	alone := []string{"cluster", "init", "--from-backup", file, "--out", keysTo, "--passphrase-file", pass}
	if stdout, _ := s.want(exit.OK, "", alone...); !strings.Contains(stdout, "cluster.pem") {
		t.Error(stdout)
	}
	if got, err := os.ReadFile(filepath.Join(keysTo, keys.ClusterFile)); err != nil || string(got) != string(data) {
		t.Errorf("other keys: %v", err)
	}
	s.want(exit.Usage, "", alone...)
	s.want(exit.Usage, "", append(alone[:4:4], "--out", keysTo+"2", "--once")...)
	s.want(exit.Usage, "", "cluster", "init", "--out", keysTo+"2", "--passphrase-file", pass)
	s.want(exit.Usage, "", "cluster", "init", "--out", keysTo+"2", "--from-backup", pass, "--passphrase-file", pass)
	if stdout, _ := s.want(exit.OK, "", restore("d3", "--with-keys", "--passphrase-file", pass)...); !strings.Contains(stdout, "--secure") {
		t.Error(stdout)
	}
}

func shortFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(path, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
