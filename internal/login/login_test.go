package login_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/login"
)

func TestContextComesBack(t *testing.T) {
	dir := t.TempDir()
	vars := map[string]string{}
	env := func(k string) string { return vars[k] }
	if path := login.File(env); path != "" {
		t.Errorf("without a home it is at %q", path)
	}
	vars["HOME"] = dir
	path := login.File(env)
	if want := filepath.Join(dir, ".config", "carillon", "context.json"); path != want {
		t.Errorf("%q", path)
	}
	if c, err := login.Read(env); err != nil || c != (login.Context{}) {
		t.Errorf("%+v, %v", c, err)
	}
	tok := keys.NewToken(keys.APIToken, keys.Hash{1})
	want := login.For("a:1", tok)
	if err := login.Write(path, want); err != nil {
		t.Fatal(err)
	}
	if got, err := login.Read(env); err != nil || got != want || got.Token != tok.Text() || got.CA == "" {
		t.Errorf("%+v, %v", got, err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	vars["XDG_CONFIG_HOME"] = filepath.Join(dir, "x")
	if path := login.File(env); path != filepath.Join(dir, "x", "carillon", "context.json") {
		t.Errorf("%q", path)
	}
	vars[login.Env] = filepath.Join(dir, "damaged")
	if err := os.WriteFile(vars[login.Env], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := login.Read(env); err == nil {
		t.Errorf("%+v", c)
	}
}
