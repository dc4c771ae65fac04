package node

import (
	"fmt"
	"os"

	"github.com/carillon-scheduler/carillon/store"
)

// compactExt is what a file is called while it is being rewritten. Nothing but a compaction reads one.
const compactExt = ".compact"

// CompactedFile is what a compaction did to one file.
type CompactedFile struct {
	Name          string
	Before, After int64 // bytes
	Kept          bool  // the old one stayed, because the new one would have been no smaller
}

// Compacted is what a compaction did.
type Compacted struct {
	NodeID string
	Files  []CompactedFile
}

// CompactDir rewrites the files of a data directory that no node has open, without the room that deleted things left: bbolt gives none of
// it back (pitfalls 12). A crash at any point leaves the old file or the new one, and both say the same. step, if not nil, is called
// between the steps; tests cut there.
func CompactDir(dir string, step func(string) error) (c Compacted, err error) {
	d, lock, err := openStopped(dir, 0, (*dataDir).whole)
	if err != nil {
		return c, err
	}
	defer lock.Close()
	if step == nil {
		step = func(string) error { return nil }
	}
	c.NodeID = d.NodeID
	for _, name := range []string{fileState, fileRaft} {
		f, err := d.compact(name, step)
		if err != nil {
			return c, err
		}
		c.Files = append(c.Files, f)
	}
	return c, nil
}

func (d *dataDir) compact(name string, step func(string) error) (f CompactedFile, err error) {
	path := d.file(name)
	f.Name = name
	if f.Before, err = fileSize(path); err != nil {
		return f, err
	}
	fresh := path + compactExt
	if err := store.Rewrite(path, fresh); err != nil {
		return f, fmt.Errorf("compact %s: %w; it was left as it is (there must be room for a copy of it)", path, err)
	}
	if err := step("written " + name); err != nil {
		return f, err
	}
	if f.After, err = fileSize(fresh); err != nil {
		return f, err
	}
	if f.After >= f.Before {
		f.Kept, f.After = true, f.Before
		return f, os.Remove(fresh)
	}
	if err := os.Rename(fresh, path); err != nil {
		return f, err
	}
	if err := step("renamed " + name); err != nil {
		return f, err
	}
	return f, store.SyncDir(d.path)
}

func fileSize(path string) (int64, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// whole refuses a directory that something was cut off in.
func (d *dataDir) whole() error {
	switch {
	case d.Recovering:
		return fmt.Errorf("a recovery of data directory %s was cut off: run `carillon cluster recover` again", d.path)
	case d.Restoring:
		return fmt.Errorf("a restore into data directory %s was cut off: run the same `carillon restore` again", d.path)
	}
	return nil
}

// dropCutOff removes what a compaction left that was cut off.
func (d *dataDir) dropCutOff() {
	for _, name := range []string{fileState, fileRaft} {
		os.Remove(d.file(name) + compactExt)
	}
}
