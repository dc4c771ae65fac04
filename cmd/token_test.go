package cmd

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/login"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
)

// secureShell is a shell in front of a node that asks for tokens, with the admin's.
func secureShell(t *testing.T) (s *shell, admin string) {
	t.Helper()
	n := apitest.Start(t, apitest.Secure)
	s = &shell{t: t, addr: n.Addr(), env: map[string]string{"CARILLON_CONFIG_DIR": filepath.Join(t.TempDir(), "c")},
		node: func() *apitest.Node { return n }}
	data, err := os.ReadFile(filepath.Join(n.Dir, node.AdminTokenFile))
	if err != nil {
		t.Fatal(err)
	}
	return s, strings.TrimSpace(string(data))
}

func (s *shell) want(code int, stdin string, args ...string) (stdout, stderr string) {
	s.t.Helper()
	stdout, stderr, got := s.run(stdin, args...)
	if got != code {
		s.t.Fatalf("%v: exit code %d, want %d\n%s%s", args, got, code, stdout, stderr)
	}
	return stdout, stderr
}

// The token that a cluster begins with makes others, which are listed and revoked; where a token comes from, and that
// none is shown.
func TestTokenCommands(t *testing.T) {
	s, admin := secureShell(t)
	_, stderr := s.want(exit.Failure, "", "jobs")
	if !strings.Contains(stderr, "needs a token with the role viewer") || !strings.Contains(stderr, "carillon login") {
		t.Error(stderr)
	}
	file := filepath.Join(t.TempDir(), "admin.token")
	if err := os.WriteFile(file, []byte(admin+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []struct {
		args []string
		env  [2]string
	}{
		{args: []string{"--token", admin}}, {args: []string{"--token-file", file}},
		{env: [2]string{"CARILLON_TOKEN", admin}}, {env: [2]string{"CARILLON_TOKEN_FILE", file}},
	} {
		if from.env[0] != "" {
			s.env[from.env[0]] = from.env[1]
		}
		stdout, stderr := s.want(exit.OK, "", append(from.args, "whoami")...)
		if stdout != "admin, role admin, may create and edit shell jobs\n" {
			t.Errorf("%v: %s", from, stdout)
		}
		if warned := strings.Contains(stderr, "--token can be seen"); warned != (len(from.args) > 0 && from.args[0] == "--token") {
			t.Errorf("%v: %q", from, stderr)
		}
		delete(s.env, from.env[0])
	}
	s.env["CARILLON_TOKEN"] = admin
	_, stderr = s.want(exit.Usage, "", "token", "create", "ci")
	if !strings.Contains(stderr, "--role") {
		t.Error(stderr)
	}
	text, stderr := s.want(exit.OK, "", "token", "create", "ci", "--role", "viewer", "--ttl", "48h")
	if tok, err := keys.ParseToken(keys.APIToken, text); err != nil || strings.Count(text, "\n") != 1 || !strings.Contains(stderr, "token "+tok.ID+" (ci): role viewer, expires in ") {
		t.Errorf("%s%s%v", text, stderr, err)
	}
	out := filepath.Join(t.TempDir(), "worker.token")
	stdout, stderr := s.want(exit.OK, "", "token", "create", "mailer", "--role", "worker", "--queues", "mail", "--types", "queue", "--tags", "a=b", "--slots", "4", "--out", out)
	fi, err := os.Stat(out)
	if err != nil || fi.Mode().Perm() != 0o600 || stdout != "" || strings.Contains(stderr, "ct1.") {
		t.Errorf("%v, %v: %s%s", fi, err, stdout, stderr)
	}
	if want := "the token is in " + out + ", readable only by you, and is not shown again; use it with: carillon worker --join " +
		s.addr + " --token-file " + out + "\n"; !strings.HasSuffix(stderr, want) {
		t.Errorf("%q does not say %q", stderr, want)
	}
	// It is handed what jobs contain: those of the namespace that it was made in, unless somebody says more.
	if !strings.Contains(stderr, "(mailer): role worker in namespace default,") {
		t.Error(stderr)
	}
	s.env["CARILLON_NAMESPACE"] = "team-b"
	for flag, want := range map[string]string{"": "role worker in namespace team-b,", "-A": "role worker, it", "-nteam-c": "role worker in namespace team-c,"} {
		args := []string{"token", "create", "worker" + flag, "--role", "worker"}
		if flag != "" {
			args = append(args, flag)
		}
		if _, stderr := s.want(exit.OK, "", args...); !strings.Contains(stderr, want) {
			t.Errorf("%s: %s", flag, stderr)
		}
		s.want(exit.OK, "", "token", "revoke", args[2])
	}
	delete(s.env, "CARILLON_NAMESPACE")
	s.want(exit.Usage, "", "token", "create", "x", "--role", "worker", "-A", "-n", "team-a")
	for _, limit := range []string{"--queues", "--types", "--tags", "--secrets"} { // empty is not "no limit"
		if _, stderr := s.want(exit.Usage, "", "token", "create", "x", "--role", "worker", limit, ""); !strings.Contains(stderr, limit+": it is empty") {
			t.Error(stderr)
		}
	}
	s.want(exit.Usage, "", "token", "create", "x", "--role", "viewer", "-A")
	viewer := filepath.Join(t.TempDir(), "viewer.token")
	_, stderr = s.want(exit.OK, "", "token", "create", "screen", "--role", "viewer", "-n", "team-a", "--out", viewer)
	if !strings.Contains(stderr, "(screen): role viewer in namespace team-a, it does not expire") ||
		!strings.Contains(stderr, "use it with: carillon login "+s.addr+" --token-file "+viewer) {
		t.Error(stderr)
	}
	s.want(exit.OK, "", "token", "revoke", "screen")
	s.want(exit.Conflict, "", "token", "create", "another", "--role", "worker", "--out", out) // and none is made
	stdout, _ = s.want(exit.OK, "", "token", "list")
	for _, want := range []string{"admin ", "admin+shell", "ci ", "mailer", "active", "bootstrap"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "another") || strings.Contains(stdout, "ct1.") {
		t.Error(stdout)
	}
	stdout, _ = s.want(exit.OK, "", "token", "list", "--json")
	var listed client.Token
	var all struct{ Tokens []client.Token }
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || len(all.Tokens) != 7 {
		t.Fatalf("%s, %v", stdout, err)
	}
	for _, k := range all.Tokens {
		if k.Name == "mailer" {
			listed = k
		}
	}
	if listed.Role != job.RoleWorker || listed.Slots != 4 || listed.Tags["a"] != "b" || listed.CreatedBy != "admin" {
		t.Errorf("%+v", listed)
	}
	// Whether the text, the id or the name is given.
	s.want(exit.OK, "", "token", "revoke", strings.TrimSpace(text))
	s.want(exit.OK, "", "token", "revoke", "mailer")
	s.want(exit.NotFound, "", "token", "revoke", "nobody")
	s.env["CARILLON_TOKEN"] = strings.TrimSpace(text)
	if _, stderr := s.want(exit.Failure, "", "whoami"); !strings.Contains(stderr, "was revoked at") {
		t.Error(stderr)
	}
}

// Who revokes their own token is answered, and warned if no admin is left who could make another one.
func TestRevokeOwnToken(t *testing.T) {
	s, admin := secureShell(t)
	s.env["CARILLON_TOKEN"] = admin
	second, _ := s.want(exit.OK, "", "token", "create", "second", "--role", "admin")
	stdout, stderr := s.want(exit.OK, "", "token", "revoke", "admin")
	if !strings.HasPrefix(stdout, "revoked ") || !strings.Contains(stderr, "the token that you used") ||
		strings.Contains(stderr, "admin.sock") {
		t.Error(stdout, stderr)
	}
	s.env["CARILLON_TOKEN"] = strings.TrimSpace(second)
	stdout, stderr = s.want(exit.OK, "", "token", "revoke", "second")
	if !strings.HasPrefix(stdout, "revoked ") || !strings.Contains(stderr, "admin.sock token create") {
		t.Error(stdout, stderr)
	}
	s.want(exit.Failure, "", "whoami")
}

// A login keeps address and token; what was kept for one address is not shown to another.
func TestLogin(t *testing.T) {
	s, admin := secureShell(t)
	addr := s.addr
	s.addr = "" // no CARILLON_ADDR
	if _, stderr := s.want(exit.Usage, admin[:len(admin)-1]+"\n", "login", addr); strings.Contains(stderr, admin[40:]) || !strings.Contains(stderr, "copy all of it") {
		t.Error(stderr)
	}
	other := keys.NewToken(keys.APIToken, keys.Hash{}).Text()
	s.want(exit.Failure, other, "login", addr)
	if _, err := os.Stat(login.File(s.app().env)); err == nil {
		t.Error("a token was kept that is not one")
	}
	stdout, _ := s.want(exit.OK, admin+"\n", "login", addr)
	if !strings.Contains(stdout, "role admin") || strings.Contains(stdout, admin) {
		t.Error(stdout)
	}
	if fi, err := os.Stat(login.File(s.app().env)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	s.want(exit.OK, "", "jobs")
	if stdout, _ := s.want(exit.OK, "", "whoami"); !strings.Contains(stdout, "role admin") {
		t.Error(stdout)
	}
	var seen []string
	curious := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		http.Error(w, "no", http.StatusNotFound)
	}))
	defer curious.Close()
	s.run("", "--addr", curious.Listener.Addr().String(), "jobs")
	if len(seen) == 0 || seen[0] != "" {
		t.Errorf("the token was shown to another address: %q", seen)
	}
	// What is damaged is said, and what needs no token works on.
	if err := os.WriteFile(login.File(s.app().env), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr := s.want(exit.Usage, "", "--addr", addr, "jobs"); !strings.Contains(stderr, "log in again") {
		t.Error(stderr)
	}
	s.want(exit.OK, "", "version")
}

// A cluster that needs no token is logged in to by its address alone.
func TestLoginToAPlainCluster(t *testing.T) {
	s := newShell(t)
	s.env["CARILLON_CONFIG_DIR"] = t.TempDir()
	stdout, _ := s.want(exit.OK, "", "login", s.addr)
	if !strings.Contains(stdout, "needs no token") {
		t.Error(stdout)
	}
}
