package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

func onNFS(c *Config) {
	c.Machine.FileSystem = func(string) (dirlock.Kind, string, error) { return dirlock.Shared, "NFS", nil }
}

// stranger takes the lock file of a directory as a process on another machine does, whose lock this one does not see.
func stranger(t *testing.T, dir string, every time.Duration) {
	t.Helper()
	l, err := dirlock.Open(filepath.Join(dir, datadir.LockFile), dirlock.Options{Create: true, Every: every,
		Self: &dirlock.Self{Host: "far", Boot: "another", PID: 4711,
			Flock: func(*os.File) (bool, error) { return true, nil }}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

func TestNetworkFileSystemIsRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	cfg := testConfig(t, dir)
	onNFS(&cfg)
	n, err := Open(cfg)
	if err == nil {
		n.Close()
		t.Fatal("it was opened")
	}
	for _, want := range []string{dir, "NFS", "--data-dir", "--allow-network-fs"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
	cfg.AllowNetworkFS, cfg.Machine.LockBeat = true, 10*time.Millisecond
	if n, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	n.Close()
}

// The lock is granted, and the record of another machine beats.
func TestNodeRefusesADirectoryThatBeats(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, dir).stop()
	stranger(t, dir, 10*time.Millisecond)
	before := contents(t, dir)
	cfg := testConfig(t, dir)
	onNFS(&cfg)
	cfg.AllowNetworkFS = true
	n, err := Open(cfg)
	if err == nil {
		n.Close()
		t.Fatal("it was opened")
	}
	if !strings.Contains(err.Error(), "in use by host far, pid 4711: stop that one") {
		t.Error(err)
	}
	if after := contents(t, dir); len(after) != len(before) {
		t.Errorf("%d files, and %d before", len(after), len(before))
	}
}

// A node that was frozen for long finds another one in its directory, and ends before it writes on.
func TestNodeEndsWhenItsDirectoryIsTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ended := make(chan error, 1)
	start(t, dir, onNFS, func(c *Config) {
		c.AllowNetworkFS, c.Machine.LockBeat = true, 10*time.Millisecond
		c.Fatal = func(err error) { ended <- err }
	})
	f, err := os.OpenFile(filepath.Join(dir, datadir.LockFile), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	record := fmt.Sprintf("%-511s\n", `{"host":"far","pid":4711,"nonce":"x"}`)
	for {
		if _, err := f.WriteAt([]byte(record), 0); err != nil { // again and again: a beat may be on its way
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if !strings.Contains(err.Error(), "in use by host far, pid 4711") {
				t.Error(err)
			}
			return
		default:
			runtime.Gosched()
		}
	}
}
