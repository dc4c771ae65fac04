package apitest_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
)

// socketDir is a directory whose path is short enough for a socket.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func openIn(t testing.TB, dir string, change ...func(*node.Config)) *apitest.Node {
	t.Helper()
	n, err := apitest.Open(dir, change...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Who can open the socket in the data directory is an admin, whatever the cluster asks of others.
func TestAdminSocket(t *testing.T) {
	for name, mode := range map[string]func(*node.Config){"plain": func(*node.Config) {}, "secure": apitest.Secure} {
		t.Run(name, func(t *testing.T) {
			dir := socketDir(t)
			path := filepath.Join(dir, node.AdminSocket)
			// What a process left that was killed is in no one's way.
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			ln.SetUnlinkOnClose(false)
			ln.Close()
			n := openIn(t, dir, mode)
			if fi, err := os.Lstat(path); err != nil || fi.Mode() != fs.ModeSocket|0o600 {
				t.Fatalf("%v, %v", fi, err)
			}
			c := client.New("unix:" + path)
			who, err := c.Whoami(t.Context())
			if err != nil || who.Role != job.RoleAdmin || who.Secure != (name == "secure") {
				t.Errorf("%+v, %v", who, err)
			}
			if _, err := c.CreateJob(t.Context(), job.Spec{Name: "sh", Type: job.TypeShell, Schedule: "@hourly", Payload: []byte(`{"command":"date"}`)}); err != nil {
				t.Error(err)
			}
			if _, body, err := c.Backup(t.Context()); err != nil {
				t.Error(err)
			} else {
				body.Close()
			}
			if err := n.Stop(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the socket is still there: %v", err)
			}
			_, err = client.New("unix:"+path, client.WithAttempts(1)).Whoami(t.Context())
			if err == nil || !strings.Contains(err.Error(), "unix:"+path) {
				t.Errorf("%v", err)
			}
		})
	}
}

// The socket of a follower is as good as that of the leader.
func TestAdminSocketOfAFollower(t *testing.T) {
	t.Parallel()
	underOneLeader(t, adminSocketOfAFollower)
}

func adminSocketOfAFollower(t *tenure) {
	dirs := map[string]string{"n1": socketDir(t), "n2": socketDir(t), "n3": socketDir(t)}
	nodes := t.cluster(3, apitest.Secure, func(c *node.Config) { c.DataDir = dirs[c.NodeID] })
	for _, dir := range dirs {
		made, err := client.New("unix:"+filepath.Join(dir, node.AdminSocket)).CreateToken(t.Context(), client.TokenRequest{Name: filepath.Base(dir), Role: job.RoleAdmin})
		if err != nil || !strings.HasPrefix(made.Text, "ct1.") || !strings.HasPrefix(made.CreatedBy, "admin socket of n") {
			t.Errorf("%+v, %v", made, err)
		}
	}
	if all := nodes[0].State().Tokens(); len(all) != 4 { // with the one that the cluster began with
		t.Errorf("%d tokens", len(all))
	}
}

// A path that is too long for a socket is no reason not to start.
func TestAdminSocketWithoutRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	var log bytes.Buffer
	n := openIn(t, dir, func(c *node.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if s := log.String(); !strings.Contains(s, "admin socket not opened") || !strings.Contains(s, "use a shorter --data-dir") {
		t.Error(s)
	}
}
