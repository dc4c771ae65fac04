package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/carillon-scheduler/carillon/internal/dirlock"
)

// CheckFileSystem refuses a data directory on which the lock may be granted twice: two processes that write to the same
// log vote twice and lose what was acknowledged. It comes before the directory is made.
func CheckFileSystem(path string, of dirlock.FileSystem, allowShared bool) error {
	switch kind, name, err := of(path); {
	case err != nil:
		return dirError(path, err)
	case kind == dirlock.Shared && !allowShared:
		return dirlock.Refuse("data directory", path, name, "--data-dir")
	}
	return nil
}

// LockOptions say how a node takes the lock of its directory.
type LockOptions struct {
	FileSystem dirlock.FileSystem
	Wait       time.Duration // for a holder that is about to end
	Beat       time.Duration // between two changes of the record in the lock file
	// Fatal is called if the directory is taken by another process. It ends this one: as after a failing write, what is
	// in memory is no longer what is on the disk.
	Fatal func(error)
}

// Lock takes the lock of a node's directory.
func (d *Dir) Lock(o LockOptions) (*dirlock.Lock, error) {
	return d.lock(o.FileSystem, dirlock.Options{Wait: o.Wait, Create: true, Every: o.Beat,
		Taken: func(e *dirlock.HeldError) {
			o.Fatal(fmt.Errorf("data directory %s was taken while this process did not write to its lock file: it is "+
				"%w",
				d.Path, e))
		}})
}

func (d *Dir) lock(of dirlock.FileSystem, o dirlock.Options) (lock *dirlock.Lock, err error) {
	if o.Kind, _, err = of(d.Path); err != nil {
		return nil, dirError(d.Path, err)
	}
	lock, err = dirlock.Open(d.File(LockFile), o)
	switch held := new(dirlock.HeldError); {
	case errors.As(err, &held):
		return nil, fmt.Errorf("data directory %s is %w: stop that one, or choose another --data-dir", d.Path, held)
	case errors.Is(err, fs.ErrPermission):
		return nil, dirError(d.Path, err)
	}
	return lock, err
}

// lockOffline takes the lock for a command that works without a node, on any file system. It comes before the first
// look at the files: those of a living process change while they are read.
func (d *Dir) lockOffline(o dirlock.Options) (*dirlock.Lock, error) {
	return d.lock(dirlock.Inspect, o)
}
