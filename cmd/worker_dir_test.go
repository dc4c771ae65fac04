package cmd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/dirlock"
)

func TestStateDirOnANetworkFileSystem(t *testing.T) {
	was := inspectDir
	inspectDir = func(string) (dirlock.Kind, string, error) { return dirlock.Shared, "SMB2", nil }
	t.Cleanup(func() { inspectDir = was })
	path := filepath.Join(t.TempDir(), "state")
	_, err := openStateDir(path, false, nil)
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
	d, err := openStateDir(path, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openStateDir(path, false, nil); err == nil || !strings.Contains(err.Error(), "in use by host "+host) {
		t.Errorf("got %v", err)
	}
}
