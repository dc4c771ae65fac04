// Package raftlog keeps raft's log, term and vote on disk, the newest entries in memory, and the log within its bounds.
package raftlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/store"
)

// Options say how a log is opened.
type Options struct {
	NoSync      bool          // no fsync: for tests only
	LockTimeout time.Duration // how long to wait for another process that has the file open; 0: for ever
	ReadOnly    bool
	// Fatal is told of every write that failed, and must not return outside of tests. Raft would go on: it steps down
	// and may be elected again, with a log on disk that is not the one in its memory. nil: the error is only returned.
	Fatal func(error)
	// BeforeWrite is called before every write; an error is that of the disk. nil: nothing.
	BeforeWrite func() error
}

// file is what raft-boltdb offers.
type file interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// Log is raft's log, term and vote. Every write is durable when it returns.
type Log struct {
	file
	fatal       func(error)
	beforeWrite func() error
	appended    appended
	cache       cache
	guard       guard
	last        atomic.Uint64 // the newest entry that was appended since the file was opened; 0: none
}

// guard says what of the log is in the state; see Log.Guard.
type guard struct {
	applied func() (index, term uint64)
	differs func(first, applied uint64)
}

// Open opens the log file and makes it if it is not there. Its freelist is not synced: it would be rewritten at every
// commit.
func Open(path string, o Options) (_ *Log, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = store.Damaged(path, r)
		}
	}()
	if !o.ReadOnly {
		if err := store.Create(path); err != nil {
			return nil, fmt.Errorf("create %s: %w", path, err)
		}
	}
	if fi, err := os.Stat(path); err == nil && fi.Size() > 0 {
		if err := verifyNames(path); err != nil {
			return nil, err
		}
	}
	f, err := raftboltdb.New(raftboltdb.Options{
		Path:   path,
		NoSync: o.NoSync,
		BoltOptions: &bolt.Options{
			Timeout:        o.LockTimeout,
			FreelistType:   bolt.FreelistMapType,
			NoFreelistSync: true,
			ReadOnly:       o.ReadOnly,
		},
		MsgpackUseNewTimeFormat: true,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%s is in use by another process: stop that one, or choose another --data-dir", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, store.Damaged(path, err)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return newLog(f, o), nil
}

func newLog(f file, o Options) *Log {
	l := &Log{file: f, fatal: o.Fatal, beforeWrite: o.BeforeWrite}
	if l.fatal == nil {
		l.fatal = func(error) {}
	}
	if last, err := f.LastIndex(); err == nil {
		l.last.Store(last)
	}
	return l
}

// write makes one write, unless the disk refuses it.
func (l *Log) write(what string, do func() error) error {
	if l.beforeWrite != nil {
		if err := l.beforeWrite(); err != nil {
			return l.failed(what, err)
		}
	}
	return l.failed(what, do())
}

func (l *Log) failed(what string, err error) error {
	if err != nil {
		err = fmt.Errorf("raft log: %s: %w", what, err)
		l.fatal(err)
	}
	return err
}

// unlessGone keeps raft from panicking over its term or vote in a simulated process that is dead and cut off.
func (l *Log) unlessGone(err error) error {
	if err != nil && l.beforeWrite != nil && errors.Is(l.beforeWrite(), faultpoint.ErrProcessGone) {
		return nil
	}
	return err
}

// StoreLog appends an entry.
func (l *Log) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs appends entries.
func (l *Log) StoreLogs(entries []*raft.Log) error {
	// What a leader sent and is damaged is refused. Raft may have cut off the end of the log to put it there, and would
	// go on with another end in its memory than on the disk; so it is as if the disk had failed.
	if err := seal(entries); err != nil {
		return l.failed("append", err)
	}
	l.appended.count(entries)
	err := l.write("append", func() error { return l.file.StoreLogs(entries) })
	if err != nil {
		l.cache.clear() // what is in the file now is unknown
		return err
	}
	l.cache.add(entries)
	if n := len(entries); n > 0 {
		l.last.Store(entries[n-1].Index)
	}
	return nil
}

// Term is raft's own term, 0 in a log that was never written to.
func Term(s raft.StableStore) (uint64, error) {
	term, err := s.GetUint64(keyTerm)
	if err != nil && err.Error() != "not found" { // raft itself tells them apart by the text
		return 0, err
	}
	return term, nil
}

// SetTerm sets raft's own term, before raft starts.
func SetTerm(s raft.StableStore, term uint64) error { return s.SetUint64(keyTerm, term) }

// ErrApplied says that raft was to cut off what is in the state.
var ErrApplied = errors.New("raft log: applied entries cannot be removed")

// Guard keeps the end of the log that is in the state from being cut off. Raft cuts off entries that another leader
// has others in place of, and none that were committed; so one that was applied and is to go says that a majority has
// forgotten it, and that this replica's state is another one than theirs. differs is told, by raft's own goroutine.
// applied is the last entry that the state machine was given. It is called before raft starts.
func (l *Log) Guard(applied func() (index, term uint64), differs func(first, applied uint64)) {
	l.guard = guard{applied, differs}
}

// cutsApplied says whether entries from first on are in the state. A state that came with a snapshot may be further on
// than its log, whose end is then from before it, and of other terms.
func (l *Log) cutsApplied(first uint64) (applied uint64, cuts bool) {
	if l.guard.applied == nil {
		return 0, false
	}
	applied, term := l.guard.applied()
	return applied, first <= applied && l.Has(applied, term)
}

// Has says whether an entry of a term is in the log.
func (l *Log) Has(index, term uint64) bool {
	var e raft.Log
	return l.GetLog(index, &e) == nil && e.Term == term
}

// deleteChunk bounds one transaction of a compaction: appends wait for it.
const deleteChunk = 4096

// DeleteRange removes entries. raft-boltdb deletes under a cursor, which can leave keys behind, so the result is read
// back. A compaction is cut into pieces from the old end; a truncation of the new end is not, because half of one would
// leave a hole.
func (l *Log) DeleteRange(first, last uint64) error {
	end, err := l.LastIndex()
	if err != nil {
		return l.failed("read", err)
	}
	if last >= end {
		if applied, cuts := l.cutsApplied(first); cuts {
			l.guard.differs(first, applied)
			return fmt.Errorf("%w: from entry %d, and %d is in the state", ErrApplied, first, applied)
		}
	}
	l.cache.clear()
	if last >= end {
		l.last.Store(min(l.last.Load(), first-1))
		return l.write("truncate", func() error { return l.deleteAll(first, last) })
	}
	for first <= last {
		to := min(first+deleteChunk-1, last)
		if err := l.write("compact", func() error { return l.deleteAll(first, to) }); err != nil {
			return err
		}
		first = to + 1
	}
	return nil
}

func (l *Log) deleteAll(first, last uint64) error {
	for range 64 {
		if err := l.file.DeleteRange(first, last); err != nil {
			return err
		}
		left, err := l.leftIn(first, last)
		if err != nil || !left {
			return err
		}
	}
	return fmt.Errorf("entries %d to %d cannot be removed", first, last)
}

// leftIn says whether an end of the log still lies in a range. What is deleted is always at one end.
func (l *Log) leftIn(first, last uint64) (bool, error) {
	lo, err := l.FirstIndex()
	if err != nil {
		return false, err
	}
	hi, err := l.LastIndex()
	if err != nil {
		return false, err
	}
	return lo != 0 && (lo >= first && lo <= last || hi >= first && hi <= last), nil
}
