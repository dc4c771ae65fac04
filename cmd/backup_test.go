package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// realBackup is the backup of a node that lived for a moment.
func realBackup(t *testing.T) []byte {
	t.Helper()
	n, err := node.Open(node.Config{NodeID: "n1", Listen: "127.0.0.1:0", DataDir: t.TempDir(), Bootstrap: true,
		Version: "test",
		Raft:    node.RaftConfig{Heartbeat: 50 * time.Millisecond},
		Store:   node.StoreConfig{MmapSize: 16 << 20, NoSync: true}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- n.Run(t.Context()) }()
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		<-done
	}()
	c := client.New(n.Addr())
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, body, err := c.Backup(t.Context())
		if err == nil {
			var out bytes.Buffer
			_, err = datadir.CopyBackup(&out, body)
			body.Close()
			if err == nil {
				return out.Bytes()
			}
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		names = append(names, f.Name())
	}
	return names
}

// copied is a backend whose backups contain what the test says.
type copied struct {
	api.Backend
	data *[]byte
}

func (c copied) Backup(context.Context) (client.BackupInfo, io.ReadCloser, error) {
	info := client.BackupInfo{ClusterID: "c1", Index: 7, Age: 1500 * time.Millisecond, Size: int64(len(*c.data))}
	return info, io.NopCloser(bytes.NewReader(*c.data)), nil
}

func TestBackupCommand(t *testing.T) {
	s := newShell(t)
	good := realBackup(t)
	data := good
	s.wrap = func(b api.Backend) api.Backend { return copied{b, &data} }
	dir := t.TempDir()
	file := filepath.Join(dir, "c.bak")
	out, errOut, code := s.run("", "backup", file)
	if code != 0 || !strings.Contains(out, "0 jobs") || !strings.Contains(out, "behind the leader") {
		t.Fatalf("%d %s%s", code, out, errOut)
	}
	if data, err := os.ReadFile(file); err != nil || !bytes.Equal(data, good) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
	if _, errOut, code := s.run("", "backup", file); code != exit.Conflict || !strings.Contains(errOut, "--force") {
		t.Errorf("%d %s", code, errOut)
	}
	out, errOut, code = s.run("", "backup", file, "--force", "--json")
	var r backupResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.File != file || r.Bytes != int64(len(good)) ||
		r.Index == 0 || r.ClusterID == "" || r.AgeMS != 1500 {
		t.Errorf("%d %s%s %v", code, out, errOut, err)
	}
	// To standard output goes the copy and nothing else.
	out, errOut, code = s.run("", "backup", "-")
	if code != 0 || out != string(good) || !strings.Contains(errOut, "0 jobs") {
		t.Errorf("%d, %d bytes, %s", code, len(out), errOut)
	}
	if _, errOut, code := s.run("", "backup", filepath.Join(dir, "none", "x.bak")); code != exit.Usage ||
		!strings.Contains(errOut, "no directory") {
		t.Errorf("%d %s", code, errOut)
	}
	if _, errOut, code := s.run("", "backup", dir); code != exit.Usage || !strings.Contains(errOut, "not a regular file") {
		t.Errorf("%d %s", code, errOut)
	}

	// What is cut off or damaged leaves no file, and not even the one before it is touched.
	flipped := bytes.Clone(good)
	flipped[len(good)/2] ^= 1
	for name, bad := range map[string][]byte{"cut": good[:len(good)-7], "nothing": nil, "flipped": flipped,
		"text": []byte("hello")} {
		data = bad
		for _, args := range [][]string{{"backup", filepath.Join(dir, "new.bak")}, {"backup", file, "--force"}} {
			if out, errOut, code := s.run("", args...); code != exit.Unavailable || !strings.Contains(errOut, "not complete") {
				t.Errorf("%s: %d %s%s", name, code, out, errOut)
			}
		}
		if _, _, code := s.run("", "backup", "-"); code == 0 {
			t.Errorf("%s to standard output", name)
		}
	}
	if got := list(t, dir); len(got) != 1 || got[0] != "c.bak" {
		t.Errorf("%v", got)
	}
	if data, _ := os.ReadFile(file); !bytes.Equal(data, good) {
		t.Error("the old backup was touched")
	}
	// Not a node at all.
	s.addr = "127.0.0.1:1"
	if _, _, code := s.run("", "backup", filepath.Join(dir, "new.bak")); code != exit.Unavailable {
		t.Error(code)
	}
}

func TestRestoreAndCompactCommands(t *testing.T) {
	s := newShell(t)
	good := realBackup(t)
	dir := t.TempDir()
	file, data := filepath.Join(dir, "c.bak"), filepath.Join(dir, "data")
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--data-dir": {"restore", file, "--node-id", "n1"},
		"--node-id":  {"restore", file, "--data-dir", data},
		"no such":    {"restore", file + "x", "--data-dir", data, "--node-id", "n1"},
		"error: --node-id: \"n 1\" cannot be a node id": {"restore", file, "--data-dir", data, "--node-id", "n 1"},
		"error: --advertise: ": {"restore", file, "--data-dir", data, "--node-id", "n1",
			"--advertise", "7400"},
		"hint: use host:port": {"restore", file, "--data-dir", data, "--node-id", "n1",
			"--advertise", "0.0.0.0:7400"},
	} {
		if _, errOut, code := s.run("", args...); code != exit.Usage || !strings.Contains(errOut, want) {
			t.Errorf("%v: %d %s", args, code, errOut)
		}
	}
	if _, errOut, code := s.run("hello", "restore", "-", "--data-dir", data, "--node-id", "n1"); code == 0 ||
		!strings.Contains(errOut, "standard input is not a backup") {
		t.Errorf("%d %s", code, errOut)
	}
	out, errOut, code := s.run("", "restore", file, "--data-dir", data, "--node-id", "n1", "--advertise", "h:7400")
	if code != 0 || !strings.Contains(out, "carillon cluster release") || !strings.Contains(out, "epoch 1") {
		t.Fatalf("%d %s%s", code, out, errOut)
	}
	if _, errOut, code := s.run("", "restore", file, "--data-dir", data, "--node-id", "n1"); code == 0 ||
		!strings.Contains(errOut, "not empty") {
		t.Errorf("%d %s", code, errOut)
	}
	out, errOut, code = s.run(string(good), "restore", "-", "--data-dir", data+"2", "--node-id", "n2", "--epoch", "9",
		"--json")
	var r datadir.Restored
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Epoch != 9 || r.NodeID != "n2" ||
		r.ClusterID == r.FromCluster || r.Index == 0 {
		t.Errorf("%d %s%s %v", code, out, errOut, err)
	}
	for _, d := range []string{data, data + "2"} {
		if out, errOut, code := s.run("", "check", d); code != 0 {
			t.Errorf("%d %s%s", code, out, errOut)
		}
	}

	if _, errOut, code := s.run("", "compact"); code != exit.Usage || !strings.Contains(errOut, "--data-dir") {
		t.Errorf("%d %s", code, errOut)
	}
	if out, errOut, code := s.run("", "compact", "--data-dir", data); code != 0 || !strings.Contains(out, "state.db: ") ||
		!strings.Contains(out, "raft.db: ") {
		t.Errorf("%d %s%s", code, out, errOut)
	}
	out, _, code = s.run("", "compact", "--data-dir", data, "--json")
	var c datadir.Compacted
	if err := json.Unmarshal([]byte(out), &c); err != nil || code != 0 || len(c.Files) != 2 ||
		c.Files[0].After > c.Files[0].Before || c.NodeID != "n1" {
		t.Errorf("%d %s %v", code, out, err)
	}
}

// onHold is a backend that is released once.
type onHold struct {
	api.Backend
	hold **client.HoldStatus
}

func (h onHold) Release(ctx context.Context, rq api.Request) (client.ReleaseResult, error) {
	r, err := h.Backend.Release(ctx, rq)
	r.Released, *h.hold = *h.hold != nil, nil
	return r, err
}

func TestReleaseCommand(t *testing.T) {
	s := newShell(t)
	hold := &client.HoldStatus{FromCluster: "old", Remedy: "run `carillon cluster release`"}
	s.wrap = func(b api.Backend) api.Backend {
		return onHold{restated{b, func(st *client.Status) { st.Hold = hold }}, &hold}
	}
	if out, _, code := s.run("", "status"); code != 0 ||
		!strings.Contains(out, "backup of old; nothing runs: run `carillon cluster release`") {
		t.Errorf("%d %s", code, out)
	}
	if out, errOut, code := s.run("", "cluster", "release"); code != 0 || !strings.HasPrefix(out, "released") {
		t.Errorf("%d %s%s", code, out, errOut)
	}
	if out, errOut, code := s.run("", "cluster", "release"); code != 0 || out != "the cluster is not on hold\n" {
		t.Errorf("%d %s%s", code, out, errOut)
	}
	out, _, code := s.run("", "cluster", "release", "--json")
	var r client.ReleaseResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Released {
		t.Errorf("%d %s %v", code, out, err)
	}
	if out, _, _ := s.run("", "status"); strings.Contains(out, "hold") {
		t.Error(out)
	}
}

// No token of a backup is good for anything until one is resumed, so that the hints name the way in without one.
func TestRestoreNamesTheAdminSocket(t *testing.T) {
	s, admin := secureShell(t)
	s.env["CARILLON_TOKEN"] = admin
	file, data := filepath.Join(t.TempDir(), "b"), filepath.Join(t.TempDir(), "d")
	s.want(exit.OK, "", "backup", file)
	stdout, _ := s.want(exit.OK, "", "restore", file, "--data-dir", data, "--node-id", "n1")
	for _, command := range []string{"cluster release", "token resume ID"} {
		if !strings.Contains(stdout, "`carillon --addr unix:"+filepath.Join(data, node.AdminSocket)+" "+command+"`") {
			t.Errorf("no way to %s in %s", command, stdout)
		}
	}
	stdout, _ = s.want(exit.OK, "", "restore", file, "--data-dir", data+"2", "--node-id", "n1", "--keep-tokens")
	if strings.Contains(stdout, "unix:") || !strings.Contains(stdout, "`carillon cluster release`") {
		t.Error(stdout)
	}
}
