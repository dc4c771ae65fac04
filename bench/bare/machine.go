package main

import (
	"encoding/binary"
	"io"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// machine does what a claim and a completion write, in the layout of the product: due by time, runs by scheduled time,
// history at the right edge. Keys and values have the sizes of the product's.
type machine struct {
	db  *bbolt.DB
	seq uint64
}

var due, open_, history, meta = []byte("due"), []byte("runs"), []byte("history"), []byte("meta")

const (
	at, next  = 1_800_000_000_000, 1_800_086_400_000
	stateSize = 72
	runSize   = 40
	histSize  = 60
)

func dueKey(t int64, job uint64) []byte {
	k := make([]byte, 26)
	binary.BigEndian.PutUint64(k[1:], uint64(t))
	binary.BigEndian.PutUint64(k[9:], job)
	binary.BigEndian.PutUint64(k[18:], uint64(t))
	return k
}

func runKey(job uint64) []byte {
	k := make([]byte, 17)
	binary.BigEndian.PutUint64(k, at)
	binary.BigEndian.PutUint64(k[8:], job)
	return k
}

func (m *machine) fill(jobs int) error {
	for from := 0; from < jobs || from == 0; from += 50_000 {
		err := m.db.Update(func(tx *bbolt.Tx) error {
			for _, name := range [][]byte{due, open_, history, meta} {
				if _, err := tx.CreateBucketIfNotExists(name); err != nil {
					return err
				}
			}
			b := tx.Bucket(due)
			for i := from; i < min(jobs, from+50_000); i++ {
				if err := b.Put(dueKey(at, uint64(i)), make([]byte, stateSize)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ApplyBatch is one transaction, with the applied index inside it.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	err := m.db.Update(func(tx *bbolt.Tx) error {
		for _, l := range logs {
			if l.Type != raft.LogCommand {
				continue
			}
			if err := m.apply(tx, l.Data); err != nil {
				return err
			}
		}
		return tx.Bucket(meta).Put([]byte("applied"), binary.BigEndian.AppendUint64(nil, logs[len(logs)-1].Index))
	})
	if err != nil {
		panic(err)
	}
	return make([]any, len(logs))
}

func (m *machine) apply(tx *bbolt.Tx, data []byte) error {
	from, n := uint64(binary.BigEndian.Uint32(data[1:])), uint64(binary.BigEndian.Uint32(data[5:]))
	d, r, h := tx.Bucket(due), tx.Bucket(open_), tx.Bucket(history)
	h.FillPercent = 0.9
	for j := from; j < from+n; j++ {
		var err error
		if data[0] == 'c' {
			if d.Get(dueKey(at, j)) != nil {
				err = d.Delete(dueKey(at, j))
			}
			if err == nil {
				err = d.Put(dueKey(next, j), make([]byte, stateSize))
			}
			if err == nil {
				err = r.Put(runKey(j), make([]byte, runSize))
			}
		} else {
			if r.Get(runKey(j)) != nil {
				err = r.Delete(runKey(j))
			}
			if err == nil {
				err = d.Put(dueKey(next, j), make([]byte, stateSize))
			}
			m.seq++
			if err == nil {
				err = h.Put(binary.BigEndian.AppendUint64(nil, m.seq), make([]byte, histSize))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Apply is never called: raft prefers ApplyBatch.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// Snapshot and Restore are not part of what is measured.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return nothing{}, nil }

// Restore takes nothing in.
func (m *machine) Restore(r io.ReadCloser) error { return r.Close() }

type nothing struct{}

func (nothing) Persist(s raft.SnapshotSink) error { return s.Close() }
func (nothing) Release()                          {}
