package node

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/carillon-scheduler/carillon/store"
)

// logStore is where raft keeps its log, its term and its vote.
type logStore interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// openLog opens the log file. Like the state file it has no synced freelist: that would be rewritten at every commit (pitfalls 10).
func openLog(path string, o StoreConfig, readOnly bool) (_ logStore, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = damaged(path, r)
		}
	}()
	if !readOnly {
		if err := store.Create(path); err != nil {
			return nil, fmt.Errorf("create %s: %w", path, err)
		}
	}
	s, err := raftboltdb.New(raftboltdb.Options{
		Path:   path,
		NoSync: o.NoSync,
		BoltOptions: &bolt.Options{
			Timeout:        o.LockTimeout,
			FreelistType:   bolt.FreelistMapType,
			NoFreelistSync: true,
			ReadOnly:       readOnly,
		},
		MsgpackUseNewTimeFormat: true,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, inUse(path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, damaged(path, err)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

func damaged(path string, why any) error {
	return fmt.Errorf("%s is damaged (%v): restore a backup, or remove the data directory and let the node rejoin", path, why)
}

func inUse(path string) error {
	return fmt.Errorf("%s is in use by another process: stop that one, or choose another --data-dir", path)
}

// durableLog ends the process when a write fails. Raft would go on: it steps down and may be elected again, with a log on disk that
// is not the one in its memory.
type durableLog struct {
	logStore
	fatal    func(error)
	before   func() error // of every write; nil: nothing
	appended appended
	recent   recentLogs
}

// write makes one write, unless the disk refuses it.
func (d *durableLog) write(what string, do func() error) error {
	if d.before != nil {
		if err := d.before(); err != nil {
			return d.failed(what, err)
		}
	}
	return d.failed(what, do())
}

func (d *durableLog) failed(what string, err error) error {
	if err != nil {
		err = fmt.Errorf("raft log: %s: %w", what, err)
		d.fatal(err)
	}
	return err
}

// survive keeps raft from panicking over its term or vote in a process that is simulated, dead already and heard by nobody.
func (d *durableLog) survive(err error) error {
	if err != nil && d.before != nil && errors.Is(d.before(), ErrProcessGone) {
		return nil
	}
	return err
}

func (d *durableLog) StoreLog(l *raft.Log) error { return d.StoreLogs([]*raft.Log{l}) }

func (d *durableLog) StoreLogs(logs []*raft.Log) error {
	size := 0
	for _, l := range logs {
		size += len(l.Data)
	}
	d.appended.bytes.Add(uint64(size))
	d.appended.entries.Add(uint64(len(logs)))
	err := d.write("append", func() error { return d.logStore.StoreLogs(logs) })
	if err != nil {
		d.recent.forget() // nobody knows what is there now
		return err
	}
	d.recent.add(logs)
	return nil
}

// GetLog reads an entry.
func (d *durableLog) GetLog(index uint64, out *raft.Log) error {
	if d.recent.get(index, out) {
		return nil
	}
	return d.logStore.GetLog(index, out)
}

func (d *durableLog) Set(key, val []byte) error {
	return d.survive(d.write("write "+string(key), func() error { return d.logStore.Set(key, val) }))
}

func (d *durableLog) SetUint64(key []byte, val uint64) error {
	return d.survive(d.write("write "+string(key), func() error { return d.logStore.SetUint64(key, val) }))
}

// deleteChunk bounds one transaction of a compaction: appends wait for it.
const deleteChunk = 4096

// DeleteRange removes entries. raft-boltdb deletes under a cursor, which can leave keys behind (pitfalls 13), so what it did is looked
// at. A compaction is cut into pieces from the old end; a truncation of the new end is not, because half of one would leave a hole.
func (d *durableLog) DeleteRange(first, last uint64) error {
	end, err := d.LastIndex()
	if err != nil {
		return d.failed("read", err)
	}
	d.recent.forget()
	if last >= end {
		return d.write("truncate", func() error { return d.deleteAll(first, last) })
	}
	for first <= last {
		to := min(first+deleteChunk-1, last)
		if err := d.write("compact", func() error { return d.deleteAll(first, to) }); err != nil {
			return err
		}
		first = to + 1
	}
	return nil
}

func (d *durableLog) deleteAll(first, last uint64) error {
	for range 64 {
		if err := d.logStore.DeleteRange(first, last); err != nil {
			return err
		}
		left, err := d.leftIn(first, last)
		if err != nil || !left {
			return err
		}
	}
	return fmt.Errorf("entries %d to %d cannot be removed", first, last)
}

// leftIn says whether an end of the log still lies in a range. What is deleted is always at one end.
func (d *durableLog) leftIn(first, last uint64) (bool, error) {
	lo, err := d.FirstIndex()
	if err != nil {
		return false, err
	}
	hi, err := d.LastIndex()
	if err != nil {
		return false, err
	}
	return lo != 0 && (lo >= first && lo <= last || hi >= first && hi <= last), nil
}
