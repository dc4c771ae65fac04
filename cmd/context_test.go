package cmd

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/login"
	"github.com/carillon-scheduler/carillon/node"
)

// A value that is typed comes before that of a context that is typed, that before the environment, that before the
// current context, and that before the default.
func TestPrecedence(t *testing.T) {
	token := func(n byte) string { return keys.NewToken(keys.APIToken, keys.Hash{n}).Text() }
	typed, variable, current, other := token(1), token(2), token(3), token(4)
	dir := t.TempDir()
	c := login.Config{Current: "current", Contexts: map[string]login.Context{
		"current": {Addr: "current:1", Token: current, Namespace: "current", CAFile: "/current.pem"},
		"other":   {Addr: "other:1", Token: other, Namespace: "other", CAFile: "/other.pem"},
		"bare":    {Addr: "bare:1"},
	}}
	if err := c.Write(filepath.Join(dir, "config.yaml")); err != nil {
		t.Fatal(err)
	}
	type reached struct{ addr, token, namespace, ca string }
	ask := func(env map[string]string, args ...string) (got reached) {
		t.Helper()
		a := &app{now: newApp().now, loc: newApp().loc, env: func(k string) string {
			if k == login.EnvDir && env[k] == "" {
				return dir
			}
			return env[k]
		}}
		root := a.root()
		root.SetOut(&bytes.Buffer{})
		root.SetErr(&bytes.Buffer{})
		cmd, rest, err := root.Find(append([]string{"jobs", "list"}, args...))
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Fatal(err)
		}
		if err := root.PersistentPreRunE(cmd, nil); err != nil {
			t.Fatal(err)
		}
		if got.token, err = a.credentials.find(a); err != nil {
			t.Fatal(err)
		}
		got.addr, got.namespace = a.addr, a.spaces.asked()
		if _, err := a.client().Whoami(t.Context()); err != nil && strings.HasPrefix(err.Error(), "--ca-file: open ") {
			got.ca, _, _ = strings.Cut(strings.TrimPrefix(err.Error(), "--ca-file: open "), ":")
		}
		return got
	}
	flags := []string{"--token", typed, "-n", "typed", "--ca-file", "/typed.pem"}
	vars := func(more ...string) map[string]string {
		m := map[string]string{"CARILLON_TOKEN": variable, "CARILLON_NAMESPACE": "variable", "CARILLON_CA_FILE": "/variable.pem"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		want reached
	}{
		"typed":                      {vars("CARILLON_ADDR", "variable:1"), append(flags, "--addr", "typed:1"), reached{"typed:1", typed, "typed", "/typed.pem"}},
		"typed, with a context":      {vars("CARILLON_ADDR", "variable:1"), append(flags, "--addr", "typed:1", "--context", "other"), reached{"typed:1", typed, "typed", "/typed.pem"}},
		"context typed":              {vars("CARILLON_ADDR", "variable:1"), []string{"--context", "other"}, reached{"other:1", other, "other", "/other.pem"}},
		"context typed, says little": {vars("CARILLON_ADDR", "variable:1"), []string{"--context", "bare"}, reached{"bare:1", variable, "variable", "/variable.pem"}},
		"context of the environment": {map[string]string{"CARILLON_CONTEXT": "other"}, nil, reached{"other:1", other, "other", "/other.pem"}},
		"context typed before that":  {map[string]string{"CARILLON_CONTEXT": "bare"}, []string{"--context", "other"}, reached{"other:1", other, "other", "/other.pem"}},
		"environment":                {vars("CARILLON_ADDR", "variable:1", "CARILLON_CONTEXT", "other"), nil, reached{"variable:1", variable, "variable", "/variable.pem"}},
		"environment, no address":    {vars(), nil, reached{"current:1", variable, "variable", "/variable.pem"}},
		"current context":            {nil, nil, reached{"current:1", current, "current", "/current.pem"}},
		"another address, typed":     {nil, []string{"--addr", "127.0.0.1:1"}, reached{"127.0.0.1:1", "", "", ""}},
		"another address, variable":  {map[string]string{"CARILLON_ADDR": "127.0.0.1:1"}, nil, reached{"127.0.0.1:1", "", "", ""}},
		"one more address":           {nil, []string{"--addr", "current:1,127.0.0.1:1", "--ca-file", "/typed.pem"}, reached{"current:1,127.0.0.1:1", "", "", "/typed.pem"}},
		"default":                    {map[string]string{login.EnvDir: t.TempDir()}, []string{"--ca-file", "/typed.pem"}, reached{"127.0.0.1:7400", "", "", "/typed.pem"}},
	} {
		if got := ask(c.env, c.args...); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Logins are kept side by side, one of them is the current one, and none of the commands about them shows a token.
func TestContexts(t *testing.T) {
	s, admin := secureShell(t)
	plain := newShell(t)
	addr := s.addr
	s.addr = "" // no CARILLON_ADDR
	var all strings.Builder
	want := func(code int, stdin string, says string, args ...string) {
		t.Helper()
		stdout, stderr := s.want(code, stdin, args...)
		all.WriteString(stdout + stderr)
		if !strings.Contains(stdout+stderr, says) {
			t.Errorf("%v: %q is not in\n%s%s", args, says, stdout, stderr)
		}
	}
	want(exit.OK, "", "no contexts", "context")
	want(exit.NotFound, "", "there is no current context", "context", "show")
	want(exit.OK, admin, "saved as context default in ", "login", addr)
	want(exit.OK, "", "saved as context play in ", "login", plain.addr, "--context", "play", "-n", "team-a")
	want(exit.Usage, "", "name of a context", "login", plain.addr, "--context", "a b")
	want(exit.Usage, "", "it is empty", "--context", "", "jobs")
	want(exit.OK, "", "*  play     "+plain.addr, "context", "list")
	want(exit.OK, "", "   default  "+addr, "context")
	want(exit.OK, "", "needs no token", "whoami")
	want(exit.OK, "", "role admin", "whoami", "--context", "default")
	s.env["CARILLON_CONTEXT"] = "default"
	want(exit.OK, "", "role admin", "whoami")
	want(exit.OK, "", "*  default  "+addr, "context")
	want(exit.OK, "", "CARILLON_CONTEXT is set to default", "context", "use", "play")
	delete(s.env, "CARILLON_CONTEXT")
	want(exit.OK, "", "the context is default now", "context", "use", "default")
	want(exit.OK, "", "kept", "context", "show")
	want(exit.OK, "", `"token":true`, "context", "show", "--json")
	want(exit.OK, "", `"contexts":[{`, "context", "--json")
	want(exit.OK, "", "team-a", "context", "show", "play")
	want(exit.NotFound, "", "there are default, play", "context", "show", "nosuch")
	want(exit.NotFound, "", "nosuch", "context", "use", "nosuch")
	want(exit.NotFound, "", "nosuch", "context", "remove", "nosuch")
	want(exit.Usage, "", `there is no context "nosuch"`, "--context", "nosuch", "jobs")
	want(exit.Usage, "", "is not an address of the context default", "--context", "default", "--addr", plain.addr, "whoami")
	want(exit.OK, "", "default\nplay\n:4", "__complete", "context", "use", "")
	want(exit.OK, "", "is deleted here", "logout")
	want(exit.OK, "", "has no token", "logout")
	want(exit.Failure, "", "needs a token", "jobs")
	if out, _ := s.want(exit.OK, "", "context", "-o", "name"); !strings.Contains("\n"+out, "\ndefault\n") || strings.Contains(out, "NAME") {
		t.Errorf("%q", out)
	}
	if out, _ := s.want(exit.OK, "", "context", "show", "default", "-q"); out != "default\n" {
		t.Errorf("%q", out)
	}
	want(exit.OK, "", "there is no current context now: commands go to "+client.DefaultAddr, "context", "remove", "default")
	want(exit.OK, "", "removed play", "context", "rm", "play")
	want(exit.OK, "", "no contexts", "context")
	if strings.Contains(all.String(), admin) || strings.Contains(all.String(), "ct1.") {
		t.Error("a token was shown")
	}
}

// A context that was named and is not there is not replaced by another cluster, whatever else is given.
func TestContextThatIsNotThere(t *testing.T) {
	s := newShell(t)
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer srv.Close()
	s.addr = srv.Listener.Addr().String()
	s.env = map[string]string{"CARILLON_CONFIG_DIR": t.TempDir(), "CARILLON_CONTEXT": "nosuch",
		"CARILLON_TOKEN": keys.NewToken(keys.APIToken, keys.Hash{}).Text()}
	s.want(exit.Usage, "", "jobs")
	if asked != 0 {
		t.Error("another cluster was asked")
	}
	s.want(exit.OK, "", "version")
}

// What others can read is not used, and is not repaired silently either: the token in it may be known to them.
func TestContextsThatOthersCanRead(t *testing.T) {
	s, admin := secureShell(t)
	addr := s.addr
	s.addr = ""
	s.want(exit.OK, admin, "login", addr)
	if err := os.Chmod(login.File(s.app().env), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"jobs"}, {"context"}, {"logout"}, {"login", addr, "--token", admin}} {
		if _, stderr := s.want(exit.Usage, "", args...); !strings.Contains(stderr, "hint: make it private: chmod 600") {
			t.Errorf("%v: %s", args, stderr)
		}
	}
}

// A socket is kept by its whole path: in another directory the same words would lead to a stranger's.
func TestLoginAtASocket(t *testing.T) {
	s, dir := keyedShell(t)
	t.Chdir(dir)
	s.addr = ""
	s.want(exit.OK, "", "login", "unix:"+node.AdminSocket)
	t.Chdir(t.TempDir())
	if out, _ := s.want(exit.OK, "", "context", "show"); !strings.Contains(out, "unix:"+filepath.Join(dir, node.AdminSocket)) {
		t.Error(out)
	}
	s.want(exit.OK, "", "whoami")
}
