package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/raftlog"
	"github.com/carillon-scheduler/carillon/store"
)

// applied is what the state of a stopped node says.
func applied(t *testing.T, dir string) store.Counters {
	t.Helper()
	s, err := store.Open(filepath.Join(dir, datadir.StateFile), store.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Counters()
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// contents is every file of a directory, to see that a refusal changed nothing.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(dir, func(path string, fi os.FileInfo, err error) error {
		// a killed node leaves the socket of its admin
		if err != nil || !fi.Mode().IsRegular() || fi.Name() == datadir.LockFile {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBadDirectories(t *testing.T) {
	realTime(t)
	t.Parallel()
	// A node that has lived for a while, and copies of its files from earlier.
	home, early := t.TempDir(), t.TempDir()
	job := map[string]any{"type": "queue", "schedule": "@manual", "payload": map[string]any{"queue": "q"}}
	small := func(c *Config) { c.Raft.SnapshotThreshold, c.Raft.TrailingLogs = 4, 5 }
	n := start(t, home, small)
	n.create(job)
	n.stop()
	if err := os.Mkdir(filepath.Join(early, datadir.GroupDir(0)), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{datadir.LogFile, datadir.StateFile} {
		copyFile(t, filepath.Join(home, f), filepath.Join(early, f))
	}
	n = start(t, home, small)
	for range 20 {
		n.create(job)
	}
	if err := n.group.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	n.stop()

	mangle := func(file string, f func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, file)
			data, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, f(data), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	garbage := func(from int) func([]byte) []byte {
		return func(b []byte) []byte {
			for i := from; i < len(b); i++ {
				b[i] = byte(i*7 + 13)
			}
			return b
		}
	}
	half := func(b []byte) []byte { return b[:3*4096] }
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		cfg   func(*Config)
		want  []string
	}{
		{name: "newer format of the directory", spoil: mangle(datadir.NodeFile,
			func(b []byte) []byte { return []byte(strings.Replace(string(b), `"format": 1`, `"format": 99`, 1)) }),
			want: []string{"format 99", "newer carillon"}},
		{name: "damaged node.json", spoil: mangle(datadir.NodeFile, func(b []byte) []byte { return b[:10] }),
			want: []string{"node.json is damaged"}},
		{name: "no node.json", spoil: func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir,
				datadir.NodeFile))
		}, want: []string{"no node.json"}},
		{name: "another node", cfg: func(c *Config) { c.NodeID = "n2" },
			want: []string{`belongs to node "n1"`, "--node-id n1"}},
		{name: "state overwritten", spoil: mangle(datadir.StateFile, garbage(0)),
			want: []string{"state.db is damaged", "backup"}},
		{name: "state with bad pages", spoil: mangle(datadir.StateFile, garbage(4096*2)),
			want: []string{"state.db is damaged", "backup"}},
		{name: "state cut off", spoil: mangle(datadir.StateFile, half),
			want: []string{"state.db is damaged", "cut off"}},
		{name: "log overwritten", spoil: mangle(datadir.LogFile, garbage(0)),
			want: []string{"raft.db is damaged", "backup"}},
		{name: "log with bad pages", spoil: mangle(datadir.LogFile, garbage(4096*2)),
			want: []string{"raft.db is damaged", "backup"}},
		{name: "log cut off", spoil: mangle(datadir.LogFile, half), want: []string{"raft.db is damaged", "cut off"}},
		{name: "log lost", spoil: func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, datadir.LogFile)) },
			want: []string{"has lost its raft.db"}},
		{name: "log from earlier", spoil: func(t *testing.T, dir string) {
			copyFile(t, filepath.Join(early, datadir.LogFile), filepath.Join(dir, datadir.LogFile))
		},
			want: []string{"is inconsistent"}},
		{name: "state from earlier", spoil: func(t *testing.T, dir string) {
			copyFile(t, filepath.Join(early, datadir.StateFile), filepath.Join(dir, datadir.StateFile))
		},
			want: []string{"replaced by an older or newer copy"}},
		{name: "state lost", spoil: func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, datadir.StateFile)) },
			want: []string{"a file was lost"}},
		{name: "empty without bootstrap", spoil: func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}, cfg: func(c *Config) { c.Bootstrap = false }, want: []string{"belongs to no cluster", "--bootstrap", "--join"}},
		{name: "a file", cfg: func(c *Config) { c.DataDir = filepath.Join(c.DataDir, datadir.NodeFile) },
			want: []string{"not a directory", "--data-dir"}},
		{name: "port in use", cfg: func(c *Config) { c.Listen = "256.0.0.1:1" },
			want: []string{"listen on", "--listen"}},
		{name: "no node id", cfg: func(c *Config) { c.NodeID = "" }, want: []string{"--node-id"}},
		{name: "unknown executor", cfg: func(c *Config) { c.Executors = append(c.Executors, "carrier-pigeon") },
			want: []string{"carrier-pigeon"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(dir, os.DirFS(home)); err != nil {
				t.Fatal(err)
			}
			if tc.spoil != nil {
				tc.spoil(t, dir)
			}
			cfg := testConfig(t, dir)
			if tc.cfg != nil {
				tc.cfg(&cfg)
			}
			var before map[string]string
			if _, err := os.Stat(dir); err == nil {
				before = contents(t, dir)
			}
			bad, err := Open(cfg)
			if err == nil {
				bad.Close()
				t.Fatal("it was opened")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
			for path, data := range before {
				if strings.HasSuffix(path, datadir.LogFile) || strings.HasSuffix(path, datadir.StateFile) {
					continue // bbolt writes a header when it opens a file
				}
				if after, err := os.ReadFile(path); err != nil || string(after) != data {
					t.Errorf("%s was changed", path)
				}
			}
			// And it works again once it is put right, on the spoilt copy only if nothing was lost.
			if tc.spoil == nil {
				cfg := testConfig(t, dir)
				good, err := Open(cfg)
				if err != nil {
					t.Fatalf("after the refusal: %v", err)
				}
				good.Close()
			}
		})
	}
}

func TestDirectoryInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, dir)
	other := testConfig(t, dir)
	if n, err := Open(other); err == nil {
		n.Close()
		t.Fatal("it was opened twice")
	} else if !strings.Contains(err.Error(), "in use by host ") {
		t.Error(err)
	}
	if _, err := datadir.Check(dir); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("check: %v", err)
	}
}

func TestNoPermission(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may do everything")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(testConfig(t, filepath.Join(dir, "x"))); err == nil ||
		!strings.Contains(err.Error(), "no permission") {
		t.Error(err)
	}
}

// Raft writes the term and then the configuration; a crash in between must not make the directory useless.
func TestInterruptedBootstrap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := datadir.Open(dir, "n1", "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Claim(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(d.File(datadir.LogFile)), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := raftlog.Open(d.File(datadir.LogFile), raftlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := raftlog.SetTerm(l, 1); err != nil {
		t.Fatal(err)
	}
	l.Close()
	start(t, dir)
}
