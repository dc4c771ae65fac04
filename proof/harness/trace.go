package harness

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

// StraceArgs makes strace write down everything that a process does to files. The rarer calls are there so that the
// reader can refuse a trace with something in it that Disk does not model, rather than overlook it.
func StraceArgs(log string) []string {
	return []string{"strace", "-f", "-y", "-ttt", "-xx", "-s", "2000000", "--seccomp-bpf", "-o", log, "-e",
		"trace=openat,open,creat,write,pwrite64,writev,pwritev,pwritev2,copy_file_range,sendfile,fallocate," +
			"fsync,fdatasync,sync_file_range," +
			"truncate,ftruncate,rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat"}
}

// Never is the end of a call that never returned.
const Never = math.MaxInt

// Event is one system call. Start and End are lines of the log: strace sees a call end before the caller does, so
// whatever happens because of it stands further down. That makes positions a better clock than any time.
type Event struct {
	Start, End int
	Time       time.Time // of its start
	Call       string
	Path       string // of its first file descriptor, or its first path
	Path2      string // rename: the new path
	FD         int
	Flags      string // open
	Off, Size  int64  // pwrite64, ftruncate
	Data       []byte // write
	Ret        int64
	OK         bool
}

// Trace is what a process did, in the order of the log.
type Trace struct {
	Dir    string // only files below it matter
	Events []Event
	Lines  int

	said []*stream // made when first asked for
}

// ReadTrace reads a log that StraceArgs made.
func ReadTrace(r io.Reader, dir string) (*Trace, error) {
	t := &Trace{Dir: filepath.Clean(dir)}
	in := bufio.NewReaderSize(r, 1<<20)
	type half struct {
		line int
		at   time.Time
		text string
	}
	begun := map[string]half{} // by thread
	for {
		line, err := in.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if errors.Is(err, io.EOF) {
			break // without its newline a line is not whole: strace was killed while it wrote it
		}
		t.Lines++
		pid, stamp, text, ok := cutPrefix(strings.TrimSuffix(line, "\n"))
		if !ok {
			return nil, fmt.Errorf("line %d: %.80q is no strace output", t.Lines, line)
		}
		if strings.HasPrefix(text, "+++") || strings.HasPrefix(text, "---") {
			continue
		}
		if before, unfinished := strings.CutSuffix(text, "<unfinished ...>"); unfinished {
			begun[pid] = half{t.Lines, stamp, strings.TrimSpace(before)}
			continue
		}
		h := half{t.Lines, stamp, ""}
		if strings.HasPrefix(text, "<... ") {
			i := strings.Index(text, "resumed>")
			if i < 0 || begun[pid].line == 0 {
				return nil, fmt.Errorf("line %d: a call is resumed that was not begun: %.80q", t.Lines, text)
			}
			h = begun[pid]
			delete(begun, pid)
			text = h.text + text[i+len("resumed>"):]
		}
		if err := t.add(h.line, t.Lines, h.at, text); err != nil {
			return nil, fmt.Errorf("line %d: %w", t.Lines, err)
		}
	}
	for _, h := range begun {
		if err := t.add(h.line, Never, h.at, h.text+") = ?"); err != nil {
			return nil, fmt.Errorf("line %d: %w", h.line, err)
		}
	}
	return t, nil
}

func cutPrefix(line string) (pid string, at time.Time, rest string, ok bool) {
	pid, rest, ok = strings.Cut(line, " ")
	if !ok {
		return
	}
	stamp, rest, ok := strings.Cut(strings.TrimLeft(rest, " "), " ")
	if !ok {
		return
	}
	sec, frac, _ := strings.Cut(stamp, ".")
	s, err1 := strconv.ParseInt(sec, 10, 64)
	us, err2 := strconv.ParseInt(frac, 10, 64)
	return pid, time.Unix(s, us*1000), rest, err1 == nil && err2 == nil
}

// add parses `call(arg, arg) = result`. Every string is in hex, so commas and brackets are strace's own.
func (t *Trace) add(start, end int, at time.Time, text string) error {
	call, rest, ok := strings.Cut(text, "(")
	if call == "???" { // its thread was killed before strace could ask which call it is, and so before it did anything
		return nil
	}
	bracket := strings.LastIndex(rest, ") = ")
	if !ok || bracket < 0 {
		// A line may be padded: `close(3)      = 0`.
		if bracket = strings.LastIndex(rest, ")"); !ok || bracket < 0 || !strings.Contains(rest[bracket:], "= ") {
			return fmt.Errorf("%.80q is no system call", text)
		}
	}
	_, result, _ := strings.Cut(rest[bracket:], "= ")
	args := strings.Split(rest[:bracket], ", ")
	e := Event{Start: start, End: end, Time: at, Call: call, FD: -1}
	retPath := ""
	if result = strings.TrimSpace(result); result != "?" && !strings.HasPrefix(result, "? ") {
		word, _, _ := strings.Cut(result, " ")
		fd, path, err := fdArg(word)
		if err != nil {
			return fmt.Errorf("result %q: %w", result, err)
		}
		e.Ret, retPath = int64(fd), path
		e.OK = fd >= 0
	}
	if err := t.args(&e, args, retPath); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	inside := t.inside(e.Path) || e.Path2 != "" && t.inside(e.Path2)
	switch call {
	case "write", "writev": // to sockets they matter too: they tell the world
	case "openat", "pwrite64", "fsync", "fdatasync", "ftruncate", "rename", "renameat", "renameat2", "unlink",
		"unlinkat", "mkdir", "mkdirat":
		if !inside {
			return nil
		}
	default:
		if inside {
			return fmt.Errorf("%s of %s is not modelled", call, e.Path)
		}
		return nil
	}
	if call == "writev" && inside {
		return fmt.Errorf("writev of %s is not modelled", e.Path)
	}
	t.Events = append(t.Events, e)
	return nil
}

// Changes are the calls that did something to the directory or to a file in it, and those that made that safe.
func (t *Trace) Changes() (changes []Event) {
	for _, e := range t.Events {
		if e.OK && t.inside(e.Path) &&
			(e.Call != "openat" || strings.Contains(e.Flags, "O_CREAT") || strings.Contains(e.Flags, "O_TRUNC")) {
			changes = append(changes, e)
		}
	}
	return changes
}

// Syncs says whether a call makes something safe.
func (e *Event) Syncs() bool { return e.Call == "fsync" || e.Call == "fdatasync" }

// Acked is where a raft server told its leader that its log reaches to some index: every place at which that grew, in
// order. The text is what raft's own transport writes: msgpack, one answer a write.
func (t *Trace) Acked() (at []int, index []uint64) {
	var most uint64
	for i := range t.Events {
		e := &t.Events[i]
		if e.Call != "write" || filepath.IsAbs(e.Path) || !bytes.Contains(e.Data, []byte("\xa7Success\xc3")) {
			continue
		}
		_, rest, ok := bytes.Cut(e.Data, []byte("\xa7LastLog"))
		if n := msgpackUint(rest); ok && n > most {
			most = n
			at, index = append(at, e.Start), append(index, n)
		}
	}
	return at, index
}

// msgpackUint reads a number that is not negative; 0 if there is none.
func msgpackUint(b []byte) (n uint64) {
	size := 0
	switch {
	case len(b) == 0:
		return 0
	case b[0] < 0x80:
		return uint64(b[0])
	case b[0] >= 0xcc && b[0] <= 0xcf: // unsigned of 1, 2, 4, 8 bytes
		size = 1 << (b[0] - 0xcc)
	case b[0] >= 0xd0 && b[0] <= 0xd3: // signed
		size = 1 << (b[0] - 0xd0)
	}
	if len(b) <= size {
		return 0
	}
	for _, c := range b[1 : 1+size] {
		n = n<<8 | uint64(c)
	}
	return n
}

func (t *Trace) inside(path string) bool { return path == t.Dir || strings.HasPrefix(path, t.Dir+"/") }

// args takes from the arguments what the call needs.
func (t *Trace) args(e *Event, args []string, retPath string) (err error) {
	get := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	num := func(i int) int64 {
		n, perr := strconv.ParseInt(get(i), 0, 64)
		if perr != nil {
			err = perr
		}
		return n
	}
	path := func(dir, i int) string {
		p, perr := unhex(get(i))
		if perr != nil {
			err = perr
			return ""
		}
		if dir >= 0 && !filepath.IsAbs(string(p)) {
			_, base, _ := fdArg(get(dir))
			return filepath.Join(base, string(p))
		}
		return filepath.Clean(string(p))
	}
	switch e.Call {
	case "openat":
		e.Path, e.Flags = path(0, 1), get(2)
		if retPath != "" {
			e.Path = retPath
		}
		e.FD = int(e.Ret)
	case "unlinkat", "mkdirat":
		e.Path = path(0, 1)
	case "unlink", "mkdir", "open", "creat", "truncate", "rmdir":
		e.Path = path(-1, 0)
	case "rename", "link":
		e.Path, e.Path2 = path(-1, 0), path(-1, 1)
	case "renameat", "renameat2", "linkat":
		e.Path, e.Path2 = path(0, 1), path(2, 3)
	case "writev":
		e.FD, e.Path, err = fdArg(get(0))
		for _, a := range args[1:] {
			if _, hexed, ok := strings.Cut(a, "iov_base="); ok {
				part, _ := unhex(hexed)
				e.Data = append(e.Data, part...)
			}
		}
	case "copy_file_range":
		_, e.Path, err = fdArg(get(2))
	default:
		if e.FD, e.Path, err = fdArg(get(0)); err != nil {
			return err
		}
		switch e.Call {
		case "write", "pwrite64":
			e.Data, err = unhex(get(1))
			if e.Call == "pwrite64" {
				e.Off = num(3)
			}
		case "ftruncate":
			e.Size = num(1)
		}
	}
	return err
}

// fdArg reads `7<\x2f\x61>`, `7<…>(deleted)`, `AT_FDCWD<…>` and plain numbers.
func fdArg(s string) (fd int, path string, err error) {
	n, rest, has := strings.Cut(s, "<")
	if n == "AT_FDCWD" {
		fd = -100
	} else if fd, err = strconv.Atoi(n); err != nil {
		return 0, "", err
	}
	if !has {
		return fd, "", nil
	}
	rest, after, _ := strings.Cut(rest, ">")
	b, err := unhex(rest)
	if after != "" { // a file without a name belongs to no directory any more
		return fd, "", err
	}
	return fd, string(b), err
}

// unhex reads strace's `"\x00\x01"`, with or without the quotes.
func unhex(s string) ([]byte, error) {
	s = strings.Trim(s, `"`)
	if strings.HasSuffix(s, "...") {
		return nil, errors.New("a string was cut off")
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, `\x`, ""))
	if err != nil && !strings.Contains(s, `\x`) {
		return []byte(s), nil // sockets and pipes are named in clear: TCP:[…]
	}
	return b, err
}

// Said finds the first time after a position that the process sent something: the write to anything but a file with
// which the text was complete. What goes out on a connection is read as one stream, because a buffer may be flushed in
// the middle of a word.
func (t *Trace) Said(text string, after int) *Event {
	var first *Event
	for _, s := range t.streams() {
		for from := 0; ; {
			i := strings.Index(s.text[from:], text)
			if i < 0 {
				break
			}
			end := from + i + len(text)
			e := s.at(end)
			if e.Start > after {
				if first == nil || e.Start < first.Start {
					first = e
				}
				break
			}
			from = end
		}
	}
	return first
}

// stream is everything that was written to one socket.
type stream struct {
	text   string
	ends   []int // where in the text each write ends
	events []*Event
}

// at is the write that contains the byte before a position.
func (s *stream) at(end int) *Event {
	return s.events[sort.SearchInts(s.ends, end)]
}

func (t *Trace) streams() []*stream {
	if t.said != nil {
		return t.said
	}
	parts := map[string]*stream{}
	texts := map[*stream]*strings.Builder{}
	for i := range t.Events {
		e := &t.Events[i]
		if e.Call != "write" && e.Call != "writev" || e.Path == "" || filepath.IsAbs(e.Path) || len(e.Data) == 0 {
			continue
		}
		s := parts[e.Path]
		if s == nil {
			s = &stream{}
			parts[e.Path] = s
			texts[s] = &strings.Builder{}
			t.said = append(t.said, s)
		}
		texts[s].Write(e.Data)
		s.ends = append(s.ends, texts[s].Len())
		s.events = append(s.events, e)
	}
	for _, s := range t.said {
		s.text = texts[s].String()
	}
	return t.said
}
