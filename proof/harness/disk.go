package harness

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Disk is a data directory as a trace wrote it, with the knowledge of what was synced when. Rebuild makes the directory
// as a machine would find it that lost its power at some point: kill -9 leaves the page cache alone, so only this says
// anything about fsync.
//
// What it takes for granted, and what not:
//   - A write, or a change of size, counts once a fsync or fdatasync of that file began after it and returned.
//     (fdatasync writes the
//     size too when the data could not be read without it.)
//   - A name (create, rename, unlink, mkdir) counts once its directory was fsynced. ext4 promises more: a fsync of a
//     new file commits the
//     journal, and the entry with it; and it writes out a file before a rename over another one commits. POSIX and
//     other file systems
//     do not, so the product must not lean on it, and this model does not either.
//   - Nothing else: a write that was not synced may be there, in whole, in part or not at all, in any order (Tear).
type Disk struct {
	dir   string
	files []*inode
	names []nameOp
	syncs map[string][]span // of directories
}

type span struct{ start, end int }

// covers says whether a sync before the cut makes something durable that was done at the end of a call.
func covers(syncs []span, done, cut int) bool {
	for _, s := range syncs {
		if s.start > done && s.end < cut {
			return true
		}
	}
	return false
}

// inode is a file, whatever its name.
type inode struct {
	name  string // its first one
	ops   []fileOp
	syncs []span
	size  int64 // as the process sees it
}

type fileOp struct {
	span
	off  int64
	data []byte
	cut  bool // a change of size to off
}

// nameOp is a change of a directory.
type nameOp struct {
	span
	path string
	file *inode // nil: removed, or a directory
	dir  bool
	from string // rename: where the name was before
}

// NewDisk reads what a trace did to its directory, which must have been empty at the beginning.
func NewDisk(t *Trace) (*Disk, error) {
	d := &Disk{dir: t.Dir, syncs: map[string][]span{}}
	events := slices.Clone(t.Events)
	slices.SortStableFunc(events, func(a, b Event) int { return a.Start - b.Start })
	live := map[string]*inode{}
	pos := map[int]int64{} // of a file descriptor, for plain writes
	for _, e := range events {
		if !t.inside(e.Path) && !t.inside(e.Path2) || !e.OK && e.End != Never || isSocket(t.Dir, e.Path) {
			continue
		}
		at := span{e.Start, e.End}
		f := live[e.Path]
		if e.OK && int64(len(e.Data)) > e.Ret {
			e.Data = e.Data[:e.Ret] // a short write
		}
		switch e.Call {
		case "openat":
			if err := d.open(e, live); err != nil {
				return nil, err
			}
			pos[e.FD] = 0
			if f := live[e.Path]; f != nil && strings.Contains(e.Flags, "O_APPEND") {
				pos[e.FD] = f.size
			}
			continue
		case "rename", "renameat", "renameat2":
			if f == nil || filepath.Dir(e.Path) != filepath.Dir(e.Path2) {
				return nil, fmt.Errorf("rename of %s to %s is not modelled", e.Path, e.Path2)
			}
			delete(live, e.Path)
			live[e.Path2] = f
			d.names = append(d.names, nameOp{span: at, path: e.Path2, file: f, from: e.Path})
			continue
		case "unlink", "unlinkat":
			delete(live, e.Path)
			d.names = append(d.names, nameOp{span: at, path: e.Path})
			continue
		case "mkdir", "mkdirat":
			d.names = append(d.names, nameOp{span: at, path: e.Path, dir: true})
			continue
		case "fsync", "fdatasync":
			if f == nil {
				d.syncs[e.Path] = append(d.syncs[e.Path], at)
				continue
			}
			f.syncs = append(f.syncs, at)
			continue
		}
		if f == nil {
			return nil, fmt.Errorf("%s of %s, which was never opened", e.Call, e.Path)
		}
		switch e.Call {
		case "pwrite64":
			f.write(at, e.Off, e.Data)
		case "write":
			f.write(at, pos[e.FD], e.Data)
			pos[e.FD] += int64(len(e.Data))
		case "ftruncate":
			f.ops = append(f.ops, fileOp{span: at, off: e.Size, cut: true})
			f.size = e.Size
		}
	}
	return d, nil
}

func (d *Disk) open(e Event, live map[string]*inode) error {
	if strings.Contains(e.Flags, "SYNC") || strings.Contains(e.Flags, "O_TMPFILE") {
		return fmt.Errorf("open of %s with %s is not modelled", e.Path, e.Flags)
	}
	at := span{e.Start, e.End}
	f := live[e.Path]
	if f == nil && strings.Contains(e.Flags, "O_CREAT") {
		f = &inode{name: e.Path}
		live[e.Path] = f
		d.files = append(d.files, f)
		d.names = append(d.names, nameOp{span: at, path: e.Path, file: f})
		return nil
	}
	if f != nil && strings.Contains(e.Flags, "O_TRUNC") {
		f.ops = append(f.ops, fileOp{span: at, cut: true})
		f.size = 0
	}
	return nil
}

func (f *inode) write(at span, off int64, data []byte) {
	f.ops = append(f.ops, fileOp{span: at, off: off, data: data})
	f.size = max(f.size, off+int64(len(data)))
}

// Forget is the disk of a product that never syncs the files of a class. It is there to show that a test would notice.
func (d *Disk) Forget(class string) *Disk {
	c := &Disk{dir: d.dir, syncs: map[string][]span{}}
	same := map[*inode]*inode{}
	for _, f := range d.files {
		g := *f
		if Class(d.dir, f.name) == class {
			g.syncs = nil
		}
		same[f] = &g
		c.files = append(c.files, &g)
	}
	for _, n := range d.names {
		n.file = same[n.file]
		c.names = append(c.names, n)
	}
	for dir, at := range d.syncs {
		if Class(d.dir, dir) != class {
			c.syncs[dir] = at
		}
	}
	return c
}

// Tear decides about what was not synced when the power went. A nil Tear loses all of it.
type Tear struct {
	Rand *rand.Rand
	Unit int // of what is written at once: a page (4096) or a sector (512)
}

// Rebuild makes the directory as it was at a position of the trace in dst, which must be empty. Nothing that began at
// or after cut has happened.
func (d *Disk) Rebuild(cut int, dst string, tear *Tear) error {
	names := d.namesAt(cut, tear)
	paths := make([]string, 0, len(names))
	for p := range names {
		paths = append(paths, p)
	}
	slices.Sort(paths) // directories before what is in them
	for _, p := range paths {
		to := filepath.Join(dst, strings.TrimPrefix(p, d.dir))
		op := names[p]
		if _, err := os.Stat(filepath.Dir(to)); err != nil {
			continue // its directory did not survive
		}
		if op.dir {
			if err := os.Mkdir(to, 0o700); err != nil {
				return err
			}
			continue
		}
		if err := op.file.writeTo(to, cut, tear); err != nil {
			return err
		}
	}
	return nil
}

// namesAt is the namespace that survives a cut.
func (d *Disk) namesAt(cut int, tear *Tear) map[string]nameOp {
	names := map[string]nameOp{}
	broken := map[string]bool{} // directories whose journal ends: what came later is not there either
	for _, op := range d.names {
		if op.start >= cut {
			continue
		}
		dir := filepath.Dir(op.path)
		if !covers(d.syncs[dir], op.end, cut) {
			if tear == nil || broken[dir] || tear.Rand.IntN(3) == 0 {
				broken[dir] = true
				continue
			}
		}
		if op.from != "" {
			delete(names, op.from)
		}
		if op.file == nil && !op.dir {
			delete(names, op.path)
		} else {
			names[op.path] = op
		}
	}
	return names
}

// writeTo makes the file as a cut leaves it.
func (f *inode) writeTo(path string, cut int, tear *Tear) error {
	w, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer w.Close()
	for _, op := range f.ops {
		if op.start >= cut {
			break
		}
		durable := covers(f.syncs, op.end, cut)
		switch {
		case !durable && tear == nil:
		case op.cut:
			if durable || tear.Rand.IntN(2) == 0 {
				err = w.Truncate(op.off)
			}
		case durable:
			_, err = w.WriteAt(op.data, op.off)
		default:
			err = tear.write(w, op)
		}
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// write lets some units of a write reach the disk. Units are where the disk has them, not where the write begins.
func (t *Tear) write(w *os.File, op fileOp) error {
	unit := int64(t.Unit)
	for lo := int64(0); lo < int64(len(op.data)); {
		hi := min(int64(len(op.data)), (op.off+lo)/unit*unit+unit-op.off)
		if t.Rand.IntN(2) == 0 {
			if _, err := w.WriteAt(op.data[lo:hi], op.off+lo); err != nil {
				return err
			}
		}
		lo = hi
	}
	return nil
}

// Unsynced counts the writes and changes of size before a cut that no sync covers.
func (d *Disk) Unsynced(cut int) int {
	n := 0
	for _, f := range d.files {
		for _, op := range f.ops {
			if op.start < cut && !covers(f.syncs, op.end, cut) {
				n++
			}
		}
	}
	return n
}
