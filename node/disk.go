package node

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/service"
)

// DiskLimit is how much room must be left for jobs to be created. What is smaller counts; a part that is 0 does not.
// The default is 512 MiB or 5 %: enough for the log and the history to go on for a while, and not more than a small
// disk can spare.
type DiskLimit struct {
	Bytes   uint64
	Percent float64 // of the file system
	Off     bool
}

const (
	defaultMinFree        = 512 << 20
	defaultMinFreePercent = 5
	diskEvery             = 3 * time.Second
)

func (l *DiskLimit) defaults() {
	if !l.Off && l.Bytes == 0 && l.Percent == 0 {
		l.Bytes, l.Percent = defaultMinFree, defaultMinFreePercent
	}
}

// of is the limit on a file system of a size.
func (l DiskLimit) of(total uint64) uint64 {
	part := uint64(float64(total) * l.Percent / 100)
	switch {
	case l.Off:
		return 0
	case l.Percent == 0:
		return l.Bytes
	case l.Bytes == 0:
		return part
	}
	return min(l.Bytes, part)
}

// diskWatch looks at the room that the data directory has. A write that fails ends the process (and then the cluster,
// as the disks of its members fill at the same pace), so what makes the state grow for good is refused in time, and
// what is needed to work it off goes on.
type diskWatch struct {
	path   string
	limit  DiskLimit
	statfs func(path string) (free, total uint64, err error)
	every  time.Duration
	warn   func(msg string, args ...any)

	mu    sync.Mutex
	space wire.DiskSpace
}

// copySpace measures the room for the copy that a backup makes.
func (c *Config) copySpace() func(path string) (free, total uint64, err error) {
	if c.Machine.CopySpace != nil {
		return c.Machine.CopySpace
	}
	return statfs
}

func newDiskWatch(n *Node) *diskWatch {
	d := &diskWatch{path: n.dir.Path, limit: n.cfg.MinFreeDisk, statfs: statfs, every: cmp.Or(n.cfg.Machine.DiskEvery,
		n.cfg.Machine.Pace.Of(diskEvery)), warn: n.cfg.Logger.Warn}
	if f := n.cfg.Machine.DiskSpace; f != nil {
		d.statfs = func(string) (uint64, uint64, error) { return f() }
	}
	d.look()
	return d
}

func (d *diskWatch) run(ctx context.Context) {
	for wait.For(ctx, d.every) {
		d.look()
	}
}

// look measures. What cannot be measured refuses nothing: the file system may not say, and a full one still ends the
// process.
func (d *diskWatch) look() {
	free, total, err := d.statfs(d.path)
	if err != nil {
		free, total = 0, 0
	}
	now := wire.DiskSpace{Free: free, Total: total, Limit: d.limit.of(total)}
	d.mu.Lock()
	was := d.space
	// Once low, it must have somewhat more than the limit: a disk that is about as full as that would change its mind
	// all the time.
	now.Low = total > 0 && (free < now.Limit || was.Low && free < now.Limit+now.Limit/10)
	d.space = now
	d.mu.Unlock()
	switch {
	case now.Low && !was.Low:
		d.warn("disk almost full: this node creates no jobs while it leads, and hands over to a node with room",
			"data_dir", d.path, "space", service.SpaceText(now), "limit", job.Bytes(now.Limit).String())
	case was.Low && !now.Low:
		d.warn("disk has room again", "data_dir", d.path, "space", service.SpaceText(now))
	}
}

func (d *diskWatch) last() wire.DiskSpace {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.space
}

// ownDisk is the room of this node's own directory, nil if that is not known.
func (n *Node) ownDisk() *wire.DiskSpace {
	d := n.disk.last()
	if d.Total == 0 {
		return nil
	}
	return &d
}
