package keys

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// One data directory begins a cluster with keys that were made beforehand, and may do so again; another one may not.
func TestBegun(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := Begins(dir, "one"); err != nil {
			t.Fatal(err)
		}
		if err := Begun(dir, "one"); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []func(string, string) error{Begins, Begun} {
		if err := f(dir, "two"); err == nil || !strings.Contains(err.Error(), "founded a cluster with the keys") {
			t.Errorf("a second cluster: %v", err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := Begun(filepath.Join(dir, "gone"), "one"); err != nil {
		t.Errorf("where nothing can be written: %v", err)
	}
}

func TestBegunByOneOfMany(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		all.Go(func() { errs[i] = Begun(dir, fmt.Sprint("instance-", i)) })
	}
	all.Wait()
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
			if data, err := os.ReadFile(filepath.Join(dir, BegunFile)); string(data) != fmt.Sprintf("instance-%d\n", i) {
				t.Errorf("%d may begin, and the file says %q (%v)", i, data, err)
			}
		}
	}
	if won != 1 {
		t.Errorf("%d of them may begin a cluster", won)
	}
}
