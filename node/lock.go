package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"github.com/carillon-scheduler/carillon/dirlock"
)

func (c *Config) fileSystem(path string) (dirlock.Kind, string, error) {
	if f := c.hooks.fileSystem; f != nil {
		return f(path)
	}
	return dirlock.Inspect(path)
}

// checkFileSystem refuses a data directory on which the lock may be granted twice: two processes that write to the same log vote twice and
// lose what was acknowledged. It comes before the directory is made.
func (c *Config) checkFileSystem() error {
	switch kind, name, err := c.fileSystem(c.DataDir); {
	case err != nil:
		return dirError(c.DataDir, err)
	case kind == dirlock.Shared && !c.AllowNetworkFS:
		return dirlock.Refuse("data directory", c.DataDir, name, "--data-dir")
	}
	return nil
}

// lockDir takes the lock of the node's directory. The process ends if the directory is taken by another one: as after a failing write, what is
// in memory is no longer what is on the disk.
func (n *Node) lockDir() (*dirlock.Lock, error) {
	kind, _, err := n.cfg.fileSystem(n.dir.path)
	if err != nil {
		return nil, dirError(n.dir.path, err)
	}
	return takeLock(n.dir, dirlock.Options{
		Wait: n.cfg.Store.LockTimeout, Create: true, Kind: kind, Every: cmp.Or(n.cfg.hooks.beat, n.cfg.Machine.paced(dirlock.Beat)),
		Taken: func(e *dirlock.HeldError) {
			n.cfg.Fatal(fmt.Errorf("data directory %s was taken while this process did not write to its lock file: it is %w", n.dir.path, e))
		},
	})
}

// lockDir takes the lock of a directory for a command that works without a node, on any file system. It comes before the first look at the
// files: those of a living process change while they are read.
func lockDir(d *dataDir, o dirlock.Options) (_ *dirlock.Lock, err error) {
	if o.Kind, _, err = dirlock.Inspect(d.path); err != nil {
		return nil, dirError(d.path, err)
	}
	return takeLock(d, o)
}

func takeLock(d *dataDir, o dirlock.Options) (*dirlock.Lock, error) {
	lock, err := dirlock.Open(d.file(fileLock), o)
	switch held := new(dirlock.HeldError); {
	case errors.As(err, &held):
		return nil, fmt.Errorf("data directory %s is %w: stop that one, or choose another --data-dir", d.path, held)
	case errors.Is(err, fs.ErrPermission):
		return nil, dirError(d.path, err)
	}
	return lock, err
}
