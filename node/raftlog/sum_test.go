package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// flip changes one bit of the bytes that a file has in only one place.
func flip(t *testing.T, path string, where []byte, at int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.LastIndex(data, where)
	if i < 0 {
		t.Fatalf("%q is not in %s", where, path)
	}
	data[i+at] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is read back is what was written, or it is not read: neither by raft nor by anybody else, and what raft was
// about to do with it does not go on.
func TestDamagedEntriesAreNotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "raft.db")
	open := func() *Log {
		t.Helper()
		l, err := Open(path, Options{NoSync: true, LockTimeout: time.Second, Fatal: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	var logs []*raft.Log
	for i := uint64(1); i <= 40; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 3, Data: append([]byte("the job of entry "), byte('a'+i))})
	}
	if err := l.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.SetUint64(keyTerm, 3), l.Set(keyVote, []byte("node-seven")), l.Verify(), l.Close()); err != nil {
		t.Fatal(err)
	}
	flip(t, path, []byte("the job of entry d"), 4)
	l = open()
	for i := uint64(1); i <= 40; i++ {
		var e raft.Log
		if err := l.GetLog(i, &e); (err != nil) != (i == 3) {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	if err := l.Verify(); err == nil || !strings.Contains(err.Error(), "entry 3") {
		t.Errorf("the whole log: %v", err)
	}
	var told error
	went, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		var e raft.Log
		_ = ForRaft{l, func(err error) { told = err }}.GetLog(3, &e)
		went = true
	}()
	<-ended
	if d := new(Damage); went || !errors.As(told, &d) {
		t.Errorf("raft went on: %v, and was told %v", went, told)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	flip(t, path, []byte("node-seven"), 2)
	l = open()
	if vote, err := l.Get(keyVote); err == nil {
		t.Errorf("voted for %q", vote)
	}
	if term, err := l.GetUint64(keyTerm); err != nil || term != 3 {
		t.Errorf("term %d, %v", term, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, path, []byte("LastVoteCand"), 3)
	if l, err := Open(path, Options{NoSync: true, LockTimeout: time.Second}); err == nil {
		l.Close()
		t.Error("a vote that is not found counts as none")
	}
}

// Entries arrive with the leader's checksum; one that was changed on the way is not stored.
func TestDamagedEntriesAreNotStored(t *testing.T) {
	t.Parallel()
	leader := testLog(t, func(err error) { t.Error(err) })
	fill(t, leader, 1, 3, 1)
	var sent []*raft.Log
	for i := uint64(1); i <= 3; i++ {
		e := new(raft.Log)
		if err := leader.GetLog(i, e); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, e)
	}
	var told error
	follower := testLog(t, func(err error) { told = err })
	if err := follower.StoreLogs(sent[:2]); err != nil {
		t.Fatal(err)
	}
	changed := *sent[2]
	changed.Data = append([]byte{1}, changed.Data[1:]...)
	if err := follower.StoreLogs([]*raft.Log{&changed}); err == nil || told == nil {
		t.Errorf("%v, and %v was told", err, told)
	}
	if _, last := bounds(t, follower); last != 2 {
		t.Errorf("the log ends at %d", last)
	}
}

// An entry that is gone though it was not applied yet is damage too; one that a snapshot stands for is not.
func TestMissingEntries(t *testing.T) {
	t.Parallel()
	l := testLog(t, func(err error) { t.Error(err) })
	fill(t, l, 1, 10, 1)
	l.Guard(func() (uint64, uint64) { return 6, 1 }, nil)
	l.file = &holes{l.file}
	l.cache.clear()
	var told []error
	r := ForRaft{l, func(err error) { told = append(told, err) }}
	var e raft.Log
	if err := r.GetLog(5, &e); !errors.Is(err, raft.ErrLogNotFound) || told != nil {
		t.Errorf("%v, and %v was told", err, told)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.GetLog(8, &e)
		t.Error("raft goes on")
	}()
	<-ended
	if len(told) != 1 || !strings.Contains(told[0].Error(), "entry 8") {
		t.Errorf("told %v", told)
	}
}

// holes has no entries.
type holes struct{ file }

func (*holes) GetLog(uint64, *raft.Log) error { return raft.ErrLogNotFound }

func BenchmarkSeal(b *testing.B) {
	logs := make([]*raft.Log, 64)
	for i := range logs {
		logs[i] = &raft.Log{Index: uint64(i), Data: binary.BigEndian.AppendUint64(make([]byte, 500), 1)}
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, e := range logs {
			e.Extensions = nil
		}
		if err := seal(logs); err != nil {
			b.Fatal(err)
		}
	}
}
