// Package disk watches how much room the data directory has, so that a cluster stops taking in work before its disks
// are full.
package disk

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// Limit is how much room must be left for jobs to be created. What is smaller counts; a part that is 0 does not.
// The default is 512 MiB or 5 %: enough for the log and the history to go on for a while, and not more than a small
// disk can spare.
type Limit struct {
	Bytes   uint64
	Percent float64 // of the file system
	Off     bool
}

const (
	// Every is how often the room is measured.
	Every = 3 * time.Second

	defaultMinFree        = 512 << 20
	defaultMinFreePercent = 5
)

// Defaults fills in what is not set.
func (l *Limit) Defaults() {
	if !l.Off && l.Bytes == 0 && l.Percent == 0 {
		l.Bytes, l.Percent = defaultMinFree, defaultMinFreePercent
	}
}

// Of is the limit on a file system of a size.
func (l Limit) Of(total uint64) uint64 {
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

// Watch looks at the room that the data directory has. A write that fails ends the process (and then the cluster,
// as the disks of its members fill at the same pace), so what makes the state grow for good is refused in time, and
// what is needed to work it off goes on.
type Watch struct {
	o     Options
	mu    sync.Mutex
	space wire.DiskSpace
}

// Options say what is watched.
type Options struct {
	Path   string
	Limit  Limit
	Every  time.Duration
	Statfs func(path string) (free, total uint64, err error) // nil: Statfs
	Warn   func(msg string, args ...any)
}

// New measures for the first time.
func New(o Options) *Watch {
	d := &Watch{o: o}
	if o.Statfs == nil {
		d.o.Statfs = Statfs
	}
	d.look()
	return d
}

// Run measures until ctx ends.
func (d *Watch) Run(ctx context.Context) {
	for wait.For(ctx, d.o.Every) {
		d.look()
	}
}

// look measures. What cannot be measured refuses nothing: the file system may not say, and a full one still ends the
// process.
func (d *Watch) look() {
	free, total, err := d.o.Statfs(d.o.Path)
	if err != nil {
		free, total = 0, 0
	}
	now := wire.DiskSpace{Free: free, Total: total, Limit: d.o.Limit.Of(total)}
	d.mu.Lock()
	was := d.space
	// Once low, it must have somewhat more than the limit: a disk that is about as full as that would change its mind
	// all the time.
	now.Low = total > 0 && (free < now.Limit || was.Low && free < now.Limit+now.Limit/10)
	d.space = now
	d.mu.Unlock()
	switch {
	case now.Low && !was.Low:
		d.o.Warn("disk almost full: this node creates no jobs while it leads, and hands over to a node with room",
			event.DiskLow, "data_dir", d.o.Path, "space", Text(now), "limit", job.Bytes(now.Limit).String())
	case was.Low && !now.Low:
		d.o.Warn("disk has room again", event.DiskRoom, "data_dir", d.o.Path, "space", Text(now))
	}
}

// Last is what was measured last.
func (d *Watch) Last() wire.DiskSpace {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.space
}

// SnapshotRoom is how large a snapshot of another node may be: it is kept until the state that it contains is on the
// disk beside it.
func (d *Watch) SnapshotRoom() uint64 {
	if free, total, err := d.o.Statfs(d.o.Path); err == nil && total > 0 {
		return free / 2
	}
	return math.MaxUint64
}

// CopyRoom is how large a copy of the state may be that is made for another node: below its limit this one would pass
// on its leadership.
func (d *Watch) CopyRoom() uint64 {
	free, total, err := d.o.Statfs(d.o.Path)
	if err != nil || total == 0 {
		return math.MaxUint64
	}
	if limit := d.o.Limit.Of(total); free > limit {
		return free - limit
	}
	return 0
}

// Text is a space as people read it.
func Text(d wire.DiskSpace) string {
	return fmt.Sprintf("%s free of %s", job.Bytes(d.Free), job.Bytes(d.Total))
}
