package dirlock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// granted is a lock that every process is given, as on a file system that does not pass locks on.
func granted(*os.File) (bool, error) { return true, nil }

func on(host, boot string) *Self { return &Self{Host: host, Boot: boot, PID: 7, Flock: granted} }

func open(t *testing.T, path string, kind Kind, who *Self) (*Lock, time.Duration, error) {
	t.Helper()
	before := time.Now()
	l, err := Open(path, Options{Create: true, Kind: kind, Self: who})
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return l, time.Since(before), err
}

// die ends a holder as kill -9 does: the record stays as it is.
func (l *Lock) die() {
	close(l.stop)
	l.done.Wait()
	l.once.Do(func() { l.f.Close() })
}

// at sets when the record was changed, by the clock of the test.
func at(t *testing.T, path string, when time.Time) {
	t.Helper()
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

func TestWhoIsWatched(t *testing.T) {
	t.Parallel()
	watched, settled := watchFor(Beat), settleFor(Beat)
	for _, tc := range []struct {
		name  string
		kind  Kind
		by    *Self // who starts after the one on a, boot 1
		lives bool
		age   time.Duration // of the record when the second one starts
		held  bool
		took  time.Duration
	}{
		{name: "killed, same boot", by: on("a", "1")},
		{name: "another container, same boot", by: on("c", "1")},
		{name: "rebooted", by: on("a", "2")},
		{name: "the disk was moved to another machine", by: on("b", "2"), age: time.Minute},
		{name: "another host, a moment ago", by: on("b", "2"), took: watched},
		{name: "another host, and it beats", by: on("b", "2"), lives: true, held: true, took: Beat},
		{name: "shared: killed, same boot", kind: Shared, by: on("a", "1"), took: settled},
		{name: "shared: rebooted", kind: Shared, by: on("a", "2"), age: time.Hour, took: watched + settled},
		{name: "shared: another host", kind: Shared, by: on("b", "2"), age: -time.Hour, took: watched + settled},
		{name: "shared: another host, and it beats", kind: Shared, by: on("b", "2"), age: time.Hour, lives: true,
			held: true, took: Beat},
		{name: "shared: the same name, and it beats", kind: Shared, by: on("a", "2"), lives: true, held: true,
			took: Beat},
		{name: "shared: no boots are known", kind: Shared, by: on("a", ""), took: watched + settled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			synctest.Test(t, func(t *testing.T) {
				first, _, err := open(t, path, tc.kind, on("a", "1"))
				if err != nil {
					t.Fatal(err)
				}
				if !tc.lives {
					first.die()
				}
				at(t, path, time.Now().Add(-tc.age))
				_, took, err := open(t, path, tc.kind, tc.by)
				var held *HeldError
				if errors.As(err, &held) != tc.held || !tc.held && err != nil {
					t.Fatalf("got %v", err)
				}
				if tc.held && err.Error() != "in use by host a, pid 7" {
					t.Errorf("it says %q", err)
				}
				if took < tc.took || took > tc.took+lookAgain(Beat) {
					t.Errorf("it took %s of %s", took, tc.took)
				}
				if tc.held { // and the holder is not disturbed
					if by, other := first.other(); other {
						t.Errorf("the record is now that of %s", by)
					}
				}
			})
		})
	}
}

func TestCleanEndLeavesNothingToWatch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	synctest.Test(t, func(t *testing.T) {
		l, _, err := open(t, path, Shared, on("a", "1"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * Beat)
		for range 2 {
			if err := l.Close(); err != nil {
				t.Errorf("it does not close: %v", err)
			}
		}
		if _, took, err := open(t, path, Shared, on("b", "2")); err != nil || took > settleFor(Beat) {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// Of two that start at the same time, on a file system that grants the lock to both, one goes on.
func TestTwoStartAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	synctest.Test(t, func(t *testing.T) {
		got := make(chan error, 2)
		for _, host := range []string{"a", "b"} {
			go func() {
				l, err := Open(path, Options{Create: true, Kind: Shared, Self: on(host, host)})
				if err == nil {
					t.Cleanup(func() { l.Close() })
				}
				got <- err
			}()
		}
		one, two := <-got, <-got
		if (one == nil) == (two == nil) {
			t.Errorf("%v and %v", one, two)
		}
	})
}

// A holder that was frozen while another one watched learns that it has lost the directory, and leaves the record
// alone.
func TestHolderLearnsThatItWasReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	synctest.Test(t, func(t *testing.T) {
		taken := make(chan *HeldError, 1)
		frozen, err := Open(path, Options{Create: true, Kind: Shared, Self: on("a", "1"),
			Taken: func(e *HeldError) { taken <- e }})
		if err != nil {
			t.Fatal(err)
		}
		next := &Lock{path: path, f: frozen.f, o: Options{Kind: Shared}, me: Record{Host: "b", PID: 9, Boot: "2",
			Nonce: "n"}}
		if err := next.write(); err != nil {
			t.Fatal(err)
		}
		if e := <-taken; e.By.Host != "b" || e.By.PID != 9 {
			t.Errorf("it was told %v", e)
		}
		frozen.Close()
		data, err := os.ReadFile(path)
		if err != nil || parse(data).Host != "b" {
			t.Errorf("the record is %q, %v", data, err)
		}
	})
}

// The real lock names its holder at once, and the record stays small however long it beats.
func TestRealLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Open(path, Options{Create: true, Every: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if parse(data).Beat > 3 {
			break
		}
	}
	_, err = Open(path, Options{})
	host, _ := os.Hostname()
	if held := new(HeldError); !errors.As(err, &held) || held.By.PID != os.Getpid() || held.By.Host != host {
		t.Errorf("got %v", err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Size() != recordSize {
		t.Errorf("%v, %v", fi, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if l, err = Open(path, Options{}); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := Open(path+"x", Options{}); !os.IsNotExist(err) {
		t.Errorf("without a file: %v", err)
	}
}

// What is in the file may be anything: an empty one of a clean end, half a record, another text.
func TestStrangeRecords(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", "hello\n", strings.Repeat("x", 4096), `{"host":5}`} {
		path := filepath.Join(t.TempDir(), "lock")
		synctest.Test(t, func(t *testing.T) {
			for _, kind := range []Kind{Local, Shared} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				l, _, err := open(t, path, kind, on("a", "1"))
				if err != nil {
					t.Fatalf("%q: %v", text, err)
				}
				if by, other := l.other(); other {
					t.Errorf("%q: it names %s", text, by)
				}
				l.Close()
			}
		})
	}
}
