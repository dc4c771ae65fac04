package datadir

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/store"
)

// CompactExt is what a file is called while it is being rewritten. Only a compaction reads one.
const CompactExt = ".compact"

// CompactedFile is what a compaction did to one file.
type CompactedFile struct {
	Name   string `json:"name"` // with its directory, if it is of another group than 0
	Before int64  `json:"before_bytes"`
	After  int64  `json:"after_bytes"`
	Kept   bool   `json:"kept"` // the old one stayed, because the new one would have been no smaller
}

// Compacted is what a compaction did.
type Compacted struct {
	DataDir string          `json:"data_dir"`
	NodeID  string          `json:"node_id"`
	Files   []CompactedFile `json:"files"`
}

// Compact rewrites the files of a data directory that no node has open, without the room that deleted things left:
// bbolt gives none of it back. A crash at any point leaves the old file or the new one, and both say the same.
func Compact(dir string, step faultpoint.Step) (c Compacted, err error) {
	d, lock, err := openStopped(dir, 0, (*Dir).Whole)
	if err != nil {
		return c, err
	}
	defer lock.Close()
	c.DataDir, c.NodeID = dir, d.NodeID
	for _, group := range d.groups() {
		for _, name := range []string{stateName, logName} {
			f, err := d.compact(GroupDir(group)+"/"+name, step)
			if err != nil {
				return c, err
			}
			if group == 0 {
				f.Name = name
			}
			c.Files = append(c.Files, f)
		}
	}
	return c, nil
}

func (d *Dir) compact(name string, step faultpoint.Step) (f CompactedFile, err error) {
	path := d.File(name)
	f.Name = name
	if f.Before, err = fileSize(path); err != nil {
		return f, err
	}
	fresh := path + CompactExt
	if err := store.Rewrite(path, fresh); err != nil {
		return f, fmt.Errorf("compact %s: %w; it was left as it is (there must be room for a copy of it)", path, err)
	}
	if err := step.At("written " + name); err != nil {
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
	if err := step.At("renamed " + name); err != nil {
		return f, err
	}
	return f, store.SyncDir(filepath.Dir(path))
}

func fileSize(path string) (int64, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}
