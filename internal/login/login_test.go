package login_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/login"
	"github.com/carillon-scheduler/carillon/job"
)

func TestWhereContextsAre(t *testing.T) {
	vars := map[string]string{}
	env := func(k string) string { return vars[k] }
	for _, c := range []struct{ name, value, want string }{
		{"", "", ""},
		{"HOME", "/h", "/h/.config/carillon/config.yaml"},
		{"XDG_CONFIG_HOME", "/x", "/x/carillon/config.yaml"},
		{login.EnvDir, "/c", "/c/config.yaml"},
	} {
		vars[c.name] = c.value
		if got := login.File(env); got != filepath.FromSlash(c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestContextsComeBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	env := func(k string) string { return map[string]string{login.EnvDir: dir}[k] }
	if c, err := login.Read(env); err != nil || len(c.Contexts) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	tok := keys.NewToken(keys.APIToken, keys.Hash{1})
	want := login.For("a:1", tok)
	want.Namespace = "team-a"
	c := login.Config{Current: "x", Contexts: map[string]login.Context{"x": want, "y": {Addr: "b:1"}}}
	for range 2 { // the second replaces the first
		if err := c.Write(login.File(env)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := login.Read(env)
	if err != nil || got.Contexts["x"] != want || want.Token != tok.Text() || want.CA == "" || len(got.Contexts) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if fi, err := os.Stat(login.File(env)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	for name, addr := range map[string]string{"": "a:1", "x": "a:1", "y": "b:1"} {
		if k, err := got.Choose(name); err != nil || k.Addr != addr {
			t.Errorf("%q: %+v, %v", name, k, err)
		}
	}
	if _, err := got.Choose("z"); job.CodeOf(err) != job.CodeInvalid || !strings.Contains(err.Error(), "x, y") {
		t.Error(err)
	}
	if _, err := got.Get("z"); job.CodeOf(err) != job.CodeNotFound {
		t.Error(err)
	}
}

func TestAddressesOfAContext(t *testing.T) {
	c := login.Context{Addr: "a:1, b:1"}
	for addr, want := range map[string]bool{"a:1": true, "b:1,a:1": true, "a:1,c:1": false, "c:1": false, "": false,
		"a:1,": false} {
		if c.Covers(addr) != want {
			t.Errorf("%q: %v", addr, !want)
		}
	}
}

// A file that cannot be right is refused, and what is said of it has no token in it.
func TestContextsThatAreRefused(t *testing.T) {
	secret := keys.NewToken(keys.APIToken, keys.Hash{1}).Text()
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		says string
	}{
		"damaged":       {"contexts: {a: {token: " + secret + ", addr: [}}", 0o600, "log in again"},
		"unknown field": {"contexts:\n  a:\n    token: " + secret + "\n    adr: x\n", 0o600, "adr"},
		"two tokens":    {"contexts: {a: {token: " + secret + ", token-file: f}}", 0o600, "token-file"},
		"two CAs":       {"contexts: {a: {ca: x, ca-file: f}}", 0o600, "ca-file"},
		"no hash":       {"contexts: {a: {ca: x}}", 0o600, "SHA-256"},
		"namespace":     {"contexts: {a: {namespace: Team A}}", 0o600, "namespace"},
		"name":          {"contexts: {'a b': {addr: x}}", 0o600, "not a valid name"},
		"group":         {"contexts: {a: {addr: x}}", 0o640, "chmod 600"},
		"others":        {"contexts: {a: {addr: x}}", 0o604, "chmod 600"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		got, err := login.Read(func(k string) string { return map[string]string{login.EnvDir: dir}[k] })
		if job.CodeOf(err) != job.CodeInvalid || len(got.Contexts) != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		} else if said := err.Error(); !strings.Contains(said, c.says) || strings.Contains(said, secret) {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// A context is used in every directory, and by its owner only: what it names is named whole, and what is no file of
// theirs is not read.
func TestContextsThatLeadElsewhere(t *testing.T) {
	for name, text := range map[string]string{
		"a socket":     "contexts: {a: {addr: 'unix:admin.sock'}}",
		"a token file": "contexts: {a: {addr: 'x:1', token-file: t}}",
		"a CA":         "contexts: {a: {addr: 'x:1', ca-file: ca.pem}}",
		"brackets":     "contexts: " + strings.Repeat("[", 60000),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := login.Read(func(v string) string { return map[string]string{login.EnvDir: dir}[v] }); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("contexts: {a: {addr: 'x:1'}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	env := func(v string) string { return map[string]string{login.EnvDir: dir}[v] }
	if runtime.GOOS != "windows" {
		if c, err := login.Read(env); err == nil {
			t.Errorf("a directory that others can write: %+v", c)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if c, err := login.Read(env); err != nil || c.Contexts["a"].Addr != "x:1" {
		t.Errorf("%+v, %v", c, err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "config.yaml")), os.Mkdir(filepath.Join(dir, "config.yaml"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if c, err := login.Read(env); err == nil {
		t.Errorf("a directory: %+v", c)
	}
	addr, err := login.Absolute("unix:admin.sock,x:1")
	if here, _ := os.Getwd(); err != nil || addr != "unix:"+filepath.Join(here, "admin.sock")+",x:1" {
		t.Errorf("%s, %v", addr, err)
	}
}
