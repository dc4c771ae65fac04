package harness

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/node/datadir"
)

// Entry is one entry of the replicated log.
type Entry struct {
	Index, Term uint64
	Appended    time.Time // on the clock of the leader that wrote it
}

// LogEnd is the last index of the log of a node that does not run. Before it there may be a hole, behind which a
// snapshot was installed.
func LogEnd(dir string) (last uint64, err error) {
	s, err := openLog(dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.LastIndex()
}

func openLog(dir string) (*raftboltdb.BoltStore, error) {
	return raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, datadir.LogFile), MsgpackUseNewTimeFormat: true,
		BoltOptions: &bolt.Options{Timeout: time.Second, ReadOnly: true}})
}

// RaftLog reads the log of a node that does not run, as far as it was not compacted.
func RaftLog(dir string) (log []Entry, err error) {
	s, err := openLog(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	first, err := s.FirstIndex()
	if err != nil {
		return nil, err
	}
	last, err := s.LastIndex()
	for i := first; i <= last && i > 0 && err == nil; i++ {
		var l raft.Log
		err = s.GetLog(i, &l)
		log = append(log, Entry{l.Index, l.Term, l.AppendedAt})
	}
	return log, err
}
