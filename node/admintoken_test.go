package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// secure asks for tokens. Shell jobs would then need a user of their own, and with it root.
func secure(c *Config) { c.Secure, c.Executors = true, []job.Type{job.TypeHTTP} }

func readAdmin(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, AdminTokenFile))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func (n *testNode) whoami(token string) int {
	n.t.Helper()
	return n.call("GET", "/api/v1/whoami", nil, "Authorization", "Bearer "+token).status
}

// Wherever a node dies that begins a secure cluster, it leaves no token, or one that works after the next start.
func TestFirstTokenSurvivesACrash(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"half of admin.token", "before the rename of admin.token", "after the rename of admin.token"} {
		dir := t.TempDir()
		cfg := testConfig(t, dir)
		secure(&cfg)
		cfg.Machine.TokenStep = func(name string) error {
			if name == step {
				return faultpoint.ErrCutOff
			}
			return nil
		}
		if _, err := Open(cfg); !errors.Is(err, faultpoint.ErrCutOff) {
			t.Fatalf("%s: %v", step, err)
		}
		before, err := os.ReadFile(filepath.Join(dir, AdminTokenFile))
		n := start(t, dir, secure)
		token := readAdmin(t, dir)
		if err == nil && strings.TrimSpace(string(before)) != token {
			t.Errorf("%s: another token took the place of the one that was there", step)
		}
		if status := n.whoami(token); status != 200 {
			t.Errorf("%s: %d", step, status)
		}
		n.stop()
	}
	// The file is there, and the cluster has not begun.
	dir := t.TempDir()
	cfg := testConfig(t, dir)
	secure(&cfg)
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	token := readAdmin(t, dir)
	if fi, err := os.Stat(filepath.Join(dir, AdminTokenFile)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	second := start(t, dir, secure)
	if status := second.whoami(token); status != 200 || readAdmin(t, dir) != token {
		t.Errorf("%d", status)
	}
	second.stop()
	// Later starts write none, even if the file was put away.
	if err := os.Remove(filepath.Join(dir, AdminTokenFile)); err != nil {
		t.Fatal(err)
	}
	third := start(t, dir, secure)
	if _, err := os.Stat(filepath.Join(dir, AdminTokenFile)); err == nil {
		t.Error("a second token was made")
	}
	if status := third.whoami(token); status != 200 {
		t.Errorf("%d", status)
	}
}

// A file that is no token is not overwritten: it was put there by hand.
func TestFirstTokenThatIsDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, AdminTokenFile), []byte("ct1.none.x"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t, dir)
	secure(&cfg)
	if n, err := Open(cfg); err == nil || !strings.Contains(err.Error(), AdminTokenFile) {
		t.Errorf("%v", err)
		n.Close()
	}
}

// A restore does not let those in again who were revoked after the backup, unless the operator says so.
func TestRestoreSuspendsTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := start(t, dir, secure)
	token := readAdmin(t, dir)
	made := ok[wire.TokenCreated](n, "POST", "/api/v1/tokens", wire.TokenRequest{Name: "gone", Role: job.RoleViewer},
		"Authorization", "Bearer "+token)
	revoked := made.Text
	ok[wire.Token](n, "POST", "/api/v1/tokens/"+made.ID+":revoke", nil, "Authorization", "Bearer "+token)
	a := n.call("GET", "/api/v1/backup", nil, "Authorization", "Bearer "+token)
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	n.stop()
	if tok, err := keys.ParseToken(keys.APIToken, token); err != nil || bytes.Contains(a.body, []byte(tok.Text()[len(tok.Text())-48:])) {
		t.Errorf("the backup has the secret: %v", err)
	}
	for _, keep := range []bool{false, true} {
		c := restoreConfig(t, a.body)
		c.KeepTokens = keep
		r, err := datadir.Restore(c)
		if err != nil || (r.Suspended == 1) == keep {
			t.Fatalf("%+v, %v", r, err)
		}
		cfg := testConfig(t, c.DataDir)
		secure(&cfg)
		second := open(t, cfg)
		second.eventually("answers", func() bool { return second.Node.Ready() == nil })
		want := map[bool]int{false: 401, true: 200}[keep]
		if status := second.whoami(token); status != want {
			t.Errorf("kept: %v: %d", keep, status)
		}
		if !keep {
			// An admin brings it back. One that was revoked when the backup was made stays revoked.
			id := func(text string) string { return strings.Split(text, ".")[2] }
			resume := func(text string) error {
				_, err := second.service.ResumeToken(t.Context(), id(text), api.Request{Key: id(text)})
				return err
			}
			weak := api.WithIdentity(t.Context(), api.Identity{Token: "weak", Role: job.RoleAdmin})
			if _, err := second.service.ResumeToken(weak, "admin", api.Request{Key: "weak"}); job.CodeOf(err) != job.CodeForbidden ||
				second.whoami(token) != 401 {
				t.Errorf("an admin without shell brought back one with it: %v", err)
			}
			// By its name: of those that have it the suspended one is meant.
			again, err := second.service.ResumeToken(t.Context(), "admin", api.Request{Key: "by name"})
			if err != nil || again.ID != id(token) || again.Status != "active" || second.whoami(token) != 200 {
				t.Errorf("resumed by name: %+v, %v", again, err)
			}
			if err := resume(token); err != nil || second.whoami(token) != 200 {
				t.Errorf("resumed: %v, %d", err, second.whoami(token))
			}
			if err := resume(revoked); job.CodeOf(err) != job.CodeState || second.whoami(revoked) != 401 {
				t.Errorf("revoked: %v, %d", err, second.whoami(revoked))
			}
		}
		second.stop()
	}
}
