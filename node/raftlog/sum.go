package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/store"
)

// Damage says that something of raft's cannot be read, or is not what was written.
type Damage struct {
	What string // such as "entry 17"
	Err  error
}

func (d *Damage) Error() string { return fmt.Sprintf("%s of the log is damaged: %v", d.What, d.Err) }

func (d *Damage) Unwrap() error { return d.Err }

func damagedEntry(index uint64, err error) error { return &Damage{fmt.Sprintf("entry %d", index), err} }

var (
	errSum   = errors.New("its checksum is that of other contents")
	errNoSum = errors.New("it has no checksum")
	errOther = errors.New("something else is in its place")
	errHole  = errors.New("it is missing")
)

const sumSize = 8

// sum is the checksum of an entry: everything that its meaning depends on. The time at which a leader appended it is
// left out, because nothing is decided by it.
func sum(e *raft.Log) uint64 {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], e.Index)
	binary.BigEndian.PutUint64(head[8:], e.Term)
	head[16] = byte(e.Type)
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(head[:]) // it never fails
	_, _ = d.Write(e.Data)
	return d.Sum64()
}

// seal gives entries that a leader makes their checksums, before they are stored and sent. Those that came from a
// leader have theirs, which is verified.
func seal(entries []*raft.Log) error {
	var sums []byte
	for i, e := range entries {
		if len(e.Extensions) > 0 {
			if err := verify(e); err != nil {
				return err
			}
			continue
		}
		if sums == nil {
			sums = make([]byte, 0, sumSize*(len(entries)-i)) // one allocation for all of them
		}
		n := len(sums)
		sums = binary.BigEndian.AppendUint64(sums, sum(e))
		e.Extensions = sums[n:len(sums):len(sums)]
	}
	return nil
}

func verify(e *raft.Log) error {
	switch {
	case mutant.On(mutant.TrustLog):
	case len(e.Extensions) != sumSize:
		return damagedEntry(e.Index, errNoSum)
	case binary.BigEndian.Uint64(e.Extensions) != sum(e):
		return damagedEntry(e.Index, errSum)
	}
	return nil
}

// GetLog reads an entry and verifies it. An error other than raft.ErrLogNotFound says that it is damaged.
func (l *Log) GetLog(index uint64, out *raft.Log) error {
	if !l.cache.get(index, out) {
		if err := l.readLog(index, out); err != nil {
			return err
		}
	}
	if out.Index != index {
		return damagedEntry(index, errOther)
	}
	return verify(out)
}

func (l *Log) readLog(index uint64, out *raft.Log) error {
	err := unbroken(func() error { return l.file.GetLog(index, out) })
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return damagedEntry(index, err)
}

// unbroken turns a panic of bbolt into an error, and an access to memory behind the end of the file, to which a damaged
// page number leads, too.
func unbroken(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return read()
}

// The keys under which raft keeps its own values. A value that is not there counts as never written, so a key that is
// damaged must not be passed over: a node that forgot its vote could vote twice.
var (
	keyTerm     = []byte("CurrentTerm")
	keyVoteTerm = []byte("LastVoteTerm")
	keyVote     = []byte("LastVoteCand")
)

func valueSum(key, val []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(key)
	_, _ = d.Write([]byte{0})
	_, _ = d.Write(val)
	return d.Sum64()
}

// Set writes a value of raft, such as its vote, with a checksum.
func (l *Log) Set(key, val []byte) error {
	sealed := binary.BigEndian.AppendUint64(slices.Clone(val), valueSum(key, val))
	return l.unlessGone(l.write("write "+string(key), func() error { return l.file.Set(key, sealed) }))
}

// SetUint64 writes a number of raft, such as its term.
func (l *Log) SetUint64(key []byte, val uint64) error {
	return l.Set(key, binary.BigEndian.AppendUint64(nil, val))
}

// Get reads a value of raft and verifies it.
func (l *Log) Get(key []byte) (val []byte, err error) {
	err = unbroken(func() (err error) {
		val, err = l.file.Get(key)
		return err
	})
	n := len(val) - sumSize
	switch {
	case errors.Is(err, raftboltdb.ErrKeyNotFound):
		return nil, err
	case err == nil && n < 0:
		err = errNoSum
	case err == nil && binary.BigEndian.Uint64(val[n:]) != valueSum(key, val[:n]):
		err = errSum
	}
	if err != nil {
		return nil, &Damage{string(key), err}
	}
	return val[:n], nil
}

// GetUint64 reads a number of raft and verifies it.
func (l *Log) GetUint64(key []byte) (uint64, error) {
	val, err := l.Get(key)
	if err == nil && len(val) != 8 {
		err = &Damage{string(key), errOther}
	}
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(val), nil
}

// Verify reads the whole log and what raft keeps beside it.
func (l *Log) Verify() error {
	for _, key := range [][]byte{keyTerm, keyVoteTerm, keyVote} {
		if _, err := l.Get(key); err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
			return err
		}
	}
	first, err := l.FirstIndex()
	if err != nil || first == 0 {
		return err
	}
	last, err := l.LastIndex()
	for i := first; i <= last && err == nil; i++ {
		var e raft.Log
		// Where a snapshot was installed there may be a hole before it.
		if err = l.GetLog(i, &e); errors.Is(err, raft.ErrLogNotFound) {
			err = nil
		}
	}
	return err
}

// verifyNames refuses a file in which something has a name that is none of ours: what is under it would count as never
// written.
func verifyNames(path string) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil // whatever it is, the one who opens the file to use it says so
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			switch string(name) {
			case "logs":
				return nil
			case "conf":
				return b.ForEach(func(key, _ []byte) error {
					for _, k := range [][]byte{keyTerm, keyVoteTerm, keyVote} {
						if bytes.Equal(key, k) {
							return nil
						}
					}
					return store.Damaged(path, fmt.Sprintf("nothing is called %q", key))
				})
			}
			return store.Damaged(path, fmt.Sprintf("nothing is called %q", name))
		})
	})
}

// ForRaft is the log as raft reads it. Raft panics over an entry that it cannot read, or repeats for ever what failed;
// so damage is told, and the goroutine of raft that came upon it ends. Nothing of raft goes on from there: the replica
// takes no part any more.
type ForRaft struct {
	*Log
	Damaged func(error)
}

// GetLog reads an entry.
func (r ForRaft) GetLog(index uint64, out *raft.Log) error {
	err := r.Log.GetLog(index, out)
	if errors.Is(err, raft.ErrLogNotFound) && r.missing(index) {
		err = damagedEntry(index, errHole)
	}
	return r.check(err)
}

// missing says whether an entry must be there: it is not in the state yet, and newer ones were appended.
func (r ForRaft) missing(index uint64) bool {
	if r.guard.applied == nil {
		return false
	}
	applied, _ := r.guard.applied()
	return index > applied && index <= r.last.Load()
}

// Get reads a value of raft.
func (r ForRaft) Get(key []byte) ([]byte, error) {
	val, err := r.Log.Get(key)
	return val, r.check(err)
}

// GetUint64 reads a number of raft.
func (r ForRaft) GetUint64(key []byte) (uint64, error) {
	val, err := r.Log.GetUint64(key)
	return val, r.check(err)
}

func (r ForRaft) check(err error) error {
	if d, ok := errors.AsType[*Damage](err); ok {
		r.Damaged(d)
		runtime.Goexit()
	}
	return err
}
