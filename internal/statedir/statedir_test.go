package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/dirlock"
)

func TestStateDirOnANetworkFileSystem(t *testing.T) {
	was := inspectDir
	inspectDir = func(string) (dirlock.Kind, string, error) { return dirlock.Shared, "SMB2", nil }
	t.Cleanup(func() { inspectDir = was })
	path := filepath.Join(t.TempDir(), "state")
	_, err := Open(path, false, nil)
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{path, "SMB2", "--state-dir", "--allow-network-fs"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
}

func TestStateDirNamesItsHolder(t *testing.T) {
	path := t.TempDir()
	d, err := Open(path, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, false, nil); err == nil || !strings.Contains(err.Error(), "in use by host "+host) {
		t.Errorf("got %v", err)
	}
}

// The process before was killed, and a child that it had just forked still has its lock: the next one waits for that instead of giving up.
func TestStateDirWaitsForTheProcessBefore(t *testing.T) {
	path := t.TempDir()
	before, err := Open(path, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, before.Close)
	d, err := Open(path, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}
