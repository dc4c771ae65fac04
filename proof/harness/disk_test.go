package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func hexed(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\x%02x`, s[i])
	}
	return b.String()
}

// log makes strace output of lines in which 'text' stands for strace's hex.
func straceLog(lines ...string) string {
	var b strings.Builder
	for i, l := range lines {
		parts := strings.Split(l, "'")
		for j := 1; j < len(parts); j += 2 {
			parts[j] = hexed(parts[j])
		}
		pid, rest, _ := strings.Cut(strings.Join(parts, ""), " ")
		fmt.Fprintf(&b, "%s 1700000000.%06d %s\n", pid, i, rest)
	}
	return b.String()
}

// The log of a process that makes a file, writes two pages of which only the first is synced, sends a message, and
// renames a small file into place. Line numbers matter: the tests below cut at them.
var sample = []string{
	`1 openat(AT_FDCWD<'/tmp'>, "'/d/a'", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 7<'/d/a'>`,          // 1
	`1 openat(AT_FDCWD<'/tmp'>, "'/d'", O_RDONLY|O_CLOEXEC) = 8<'/d'>`,                          // 2
	`1 fsync(8<'/d'>)                          = 0`,                                             // 3
	`1 pwrite64(7<'/d/a'>, "'one'", 3, 0)  = 3`,                                                 // 4
	`1 fdatasync(7<'/d/a'> <unfinished ...>`,                                                    // 5
	`2 pwrite64(7<'/d/a'>, "'two'", 3, 4096 <unfinished ...>`,                                   // 6
	`1 <... fdatasync resumed>)               = 0`,                                              // 7
	`2 <... pwrite64 resumed>)                = 3`,                                              // 8
	`1 write(9<'socket:[77]'>, "'HTTP/1.1 201 Created job-1'", 26) = 26`,                        // 9
	`1 openat(AT_FDCWD<'/tmp'>, "'/d/b.tmp'", O_WRONLY|O_CREAT|O_TRUNC, 0600) = 10<'/d/b.tmp'>`, // 10
	`1 write(10<'/d/b.tmp'>, "'he'", 2)      = 2`,                                               // 11
	`1 write(10<'/d/b.tmp'>, "'llo'", 3)      = 3`,                                              // 12
	`1 fsync(10<'/d/b.tmp'>)                  = 0`,                                              // 13
	`1 renameat(AT_FDCWD<'/tmp'>, "'/d/b.tmp'", AT_FDCWD<'/tmp'>, "'/d/b'") = 0`,                // 14
	`1 fsync(8<'/d'>)                          = 0`,                                             // 15
	`1 fdatasync(7<'/d/a'>)                   = 0`,                                              // 16
	`1 ftruncate(7<'/d/a'>, 8192)             = 0`,                                              // 17
	`1 openat(AT_FDCWD<'/tmp'>, "'/d/no'", O_RDONLY) = -1 ENOENT (No such file or directory)`,   // 18
	`1 unlinkat(AT_FDCWD<'/tmp'>, "'/d/b'", 0) = 0`,                                             // 19
	`1 write(2<'/tmp/log'>, "'job-1'", 5)      = 5`,                                             // 20
	`1 +++ exited with 0 +++`,                                                                   // 21
	`2 fdatasync(7<'/d/a'> <unfinished ...>`,                                                    // 22: never returns
}

func readSample(t *testing.T) (*Trace, *Disk) {
	t.Helper()
	tr, err := ReadTrace(strings.NewReader(straceLog(sample...)), "/d")
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDisk(tr)
	if err != nil {
		t.Fatal(err)
	}
	return tr, d
}

func rebuilt(t *testing.T, d *Disk, cut int, tear *Tear) map[string]string {
	t.Helper()
	dst := t.TempDir()
	if err := d.Rebuild(cut, dst, tear); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	files, err := os.ReadDir(dst)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dst, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name()] = string(b)
	}
	return out
}

func TestDiskForgetsWhatWasNotSynced(t *testing.T) {
	_, d := readSample(t)
	two := "one" + strings.Repeat("\x00", 4093) + "two"
	for _, c := range []struct {
		cut  int
		want map[string]string
		why  string
	}{
		{1, map[string]string{}, "nothing happened"},
		{3, map[string]string{}, "the directory was not synced"},
		{4, map[string]string{"a": ""}, "made, and synced in its directory"},
		{6, map[string]string{"a": ""}, "the sync had not returned"},
		{7, map[string]string{"a": ""}, "the sync had not returned"},
		{8, map[string]string{"a": "one"}, "the first write was synced"},
		{14, map[string]string{"a": "one"},
			"the second write came after the sync began; b.tmp has a synced content but no synced name"},
		{15, map[string]string{"a": "one"}, "the rename was not synced"},
		{16, map[string]string{"a": "one", "b": "hello"}, "now it is"},
		{17, map[string]string{"a": two, "b": "hello"}, "the second write is synced"},
		{Never, map[string]string{"a": two, "b": "hello"}, "neither the size nor the unlink was synced"},
	} {
		got := rebuilt(t, d, c.cut, nil)
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
			t.Errorf("cut at %d: %q, want %q: %s", c.cut, got, c.want, c.why)
		}
	}
	if n := d.Unsynced(15); n != 1 {
		t.Errorf("%d writes are not synced at line 15, want 1", n)
	}
}

// TestDiskTears: with a Tear every mixture of what was not synced turns up, and what was synced always does.
func TestDiskTears(t *testing.T) {
	_, d := readSample(t)
	have := map[string]bool{}
	for seed := range uint64(40) {
		got := rebuilt(t, d, 15, &Tear{Rand: rand.New(rand.NewPCG(seed, 1)), Unit: 4096})
		if !strings.HasPrefix(got["a"], "one") {
			t.Fatalf("seed %d lost what was synced: %q", seed, got)
		}
		have[fmt.Sprint("two:", len(got["a"]) > 3)] = true
		_, b := got["b"]
		_, tmp := got["b.tmp"]
		have[fmt.Sprint("b:", b, tmp)] = true
	}
	for _, want := range []string{"two:true", "two:false", "b:true false", "b:false true", "b:false false"} {
		if !have[want] {
			t.Errorf("40 seeds never gave %s: %v", want, have)
		}
	}
	if have["b:true true"] {
		t.Error("a renamed file has both names")
	}
}

func TestTraceFindsWhatWasSaid(t *testing.T) {
	tr, _ := readSample(t)
	if e := tr.Said("job-1", 0); e == nil || e.Start != 9 {
		t.Errorf("job-1 was said at %v, want line 9", e)
	}
	if e := tr.Said("job-1", 9); e != nil {
		t.Errorf("a log file counts as the world: %v", e)
	}
	if e := tr.Said("job-2", 0); e != nil {
		t.Errorf("job-2 was never said: %v", e)
	}
	split, err := ReadTrace(strings.NewReader(straceLog(
		`1 write(9<'socket:[77]'>, "'created jo'", 10) = 10`,
		`1 write(8<'socket:[76]'>, "'b-1'", 3) = 3`,
		`1 write(9<'socket:[77]'>, "'b-1 and'", 7) = 7`)), "/d")
	if err != nil {
		t.Fatal(err)
	}
	if e := split.Said("job-1", 0); e == nil || e.Start != 3 {
		t.Errorf("job-1 was complete at %v, want line 3", e)
	}
}

// TestTraceRefusesWhatItDoesNotModel: silence about a call that changes files would make every rebuilt directory
// worthless.
func TestTraceRefusesWhatItDoesNotModel(t *testing.T) {
	for _, line := range []string{
		`1 fallocate(7<'/d/a'>, 0, 0, 100) = 0`,
		`1 copy_file_range(7<'/tmp/x'>, NULL, 8<'/d/a'>, NULL, 100, 0) = 100`,
		`1 writev(7<'/d/a'>, [{iov_base="'x'", iov_len=1}], 1) = 1`,
		`1 link("'/d/a'", "'/d/b'") = 0`,
		`1 pwrite64(7<'/d/a'>, "'x'"..., 100, 0) = 100`,
		`1 this is not strace`,
		`1 <... fsync resumed>) = 0`,
	} {
		tr, err := ReadTrace(strings.NewReader(straceLog(line)), "/d")
		if err == nil {
			_, err = NewDisk(tr)
		}
		if err == nil {
			t.Errorf("%s is accepted", line)
		}
	}
	for _, line := range []string{ // elsewhere it does not matter
		`1 fallocate(7<'/tmp/a'>, 0, 0, 100) = 0`,
		`1 sendfile(9<'socket:[7]'>, 7<'/d/a'>, NULL, 100) = 100`,
		`1 writev(7<'socket:[7]'>, [{iov_base="'x'", iov_len=1}], 1) = 1`,
		`1 ???( <unfinished ...>`, // killed at the door
		`1 ???() = ?`,
	} {
		if _, err := ReadTrace(strings.NewReader(straceLog(line)), "/d"); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// A disk that forgets the syncs of a class loses its files, and no others.
func TestForget(t *testing.T) {
	lines := []string{
		`1 openat(AT_FDCWD<'/tmp'>, "'/d/raft.db'", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 7<'/d/raft.db'>`,
		`1 openat(AT_FDCWD<'/tmp'>, "'/d/state.db'", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 8<'/d/state.db'>`,
		`1 openat(AT_FDCWD<'/tmp'>, "'/d'", O_RDONLY|O_CLOEXEC) = 9<'/d'>`,
		`1 fsync(9<'/d'>)                          = 0`,
		`1 pwrite64(7<'/d/raft.db'>, "'log'", 3, 0)  = 3`,
		`1 pwrite64(8<'/d/state.db'>, "'state'", 5, 0)  = 5`,
		`1 fdatasync(7<'/d/raft.db'>)                   = 0`,
		`1 fdatasync(8<'/d/state.db'>)                   = 0`,
	}
	tr, err := ReadTrace(strings.NewReader(straceLog(lines...)), "/d")
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDisk(tr)
	if err != nil {
		t.Fatal(err)
	}
	for class, want := range map[string]string{"": "log state", ClassLog: " state", ClassState: "log "} {
		got := rebuilt(t, d.Forget(class), tr.Lines+1, nil)
		if text := got["raft.db"] + " " + got["state.db"]; text != want {
			t.Errorf("without the syncs of %q: %q, want %q (%v)", class, text, want, got)
		}
	}
	if n := len(tr.Changes()); n != 7 {
		t.Errorf("%d changes, want 7", n)
	}
}

func TestAcked(t *testing.T) {
	answer := func(last string, ok string) string {
		return `1 write(5<TCP:[1]>, "'` + "\x85" + `\xa4Term` + "\x02" + "\xa7LastLog" + last + "\xa7Success" + ok +
			`'", 9) = 9`
	}
	tr, err := ReadTrace(strings.NewReader(straceLog(answer("\x05", "\xc3"), answer("\x09", "\xc2"),
		answer("\xcd\x01\x02", "\xc3"), answer("\x07", "\xc3"))), "/d")
	if err != nil {
		t.Fatal(err)
	}
	at, index := tr.Acked()
	if fmt.Sprint(at, index) != "[1 3] [5 258]" {
		t.Errorf("%v %v", at, index)
	}
}

// The admin socket is no file: what is done to it is not a part of the disk, cannot be made to fail, and is not copied.
func TestTheSocketIsNoFile(t *testing.T) {
	tr, err := ReadTrace(strings.NewReader(straceLog(
		`1 mkdirat(AT_FDCWD<'/tmp'>, "'/d/.sock'", 0700) = 0`,
		`1 renameat(AT_FDCWD<'/tmp'>, "'/d/.sock/a'", AT_FDCWD<'/tmp'>, "'/d/admin.sock'") = 0`,
		`1 unlinkat(AT_FDCWD<'/tmp'>, "'/d/admin.sock'", 0) = 0`)), "/d")
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDisk(tr)
	if err != nil {
		t.Fatal(err)
	}
	if got := rebuilt(t, d, tr.Lines+1, nil); len(got) != 0 {
		t.Errorf("the disk has %v", got)
	}
	for path, want := range map[string]string{"/d/admin.sock": "", "/d/.sock": "", "/d/.sock/a": "", "/d/.socks": ClassDir,
		"/d/admin.sock.tmp": ClassDir} {
		if got := Class("/d", path); got != want {
			t.Errorf("%s is of class %q, want %q", path, got, want)
		}
	}
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	ln, err := net.Listen("unix", filepath.Join(from, "admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := os.MkdirAll(filepath.Join(from, "snapshots"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "snapshots", "a"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CopyDir(to, from); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "snapshots", "a")); err != nil || string(b) != "kept" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(to, "admin.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket was copied: %v", err)
	}
}
