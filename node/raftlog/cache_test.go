package raftlog

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

type memoryFile struct{ *raft.InmemStore }

func (memoryFile) Close() error { return nil }

// Whatever happens to the log, what is read from memory is what is in the file.
func TestCacheIsWhatTheFileHas(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLog(memoryFile{raft.NewInmemStore()}, Options{Fatal: func(err error) { t.Error(err) }})
		last, term := uint64(rapid.IntRange(0, 2000).Draw(rt, "begins after")), uint64(1)
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				var logs []*raft.Log
				size := rapid.SampledFrom([]int{10, 100, 100_000}).Draw(rt, "size")
				for range rapid.IntRange(1, 1500/max(1, size/100)).Draw(rt, "entries") {
					last++
					logs = append(logs, &raft.Log{Index: last, Term: term, Data: bytes.Repeat([]byte{byte(last)},
						size)})
				}
				if err := l.StoreLogs(logs); err != nil {
					rt.Fatal(err)
				}
			},
			"truncate and go on in another term": func(rt *rapid.T) {
				_, end := bounds(t, l)
				if end == 0 {
					return
				}
				from := end - min(end-1, uint64(rapid.IntRange(0, 40).Draw(rt, "back")))
				if err := l.DeleteRange(from, end); err != nil {
					rt.Fatal(err)
				}
				last, term = from-1, term+1
			},
			"compact": func(rt *rapid.T) {
				first, end := bounds(t, l)
				if end < first+2 {
					return
				}
				if err := l.DeleteRange(first, first+uint64(rapid.Uint64Range(0, end-first-1).Draw(rt,
					"entries"))); err != nil {
					rt.Fatal(err)
				}
			},
			"": func(rt *rapid.T) {
				kept := 0
				for i := range uint64(60) {
					index := last + 2 - min(last+2, i*i)
					var mine, theirs raft.Log
					myErr, theirErr := l.GetLog(index, &mine), l.file.GetLog(index, &theirs)
					if (myErr == nil) != (theirErr == nil) || mine.Index != theirs.Index || mine.Term != theirs.Term ||
						!bytes.Equal(mine.Data, theirs.Data) {
						rt.Fatalf("entry %d: term %d, %v and not term %d, %v", index, mine.Term, myErr, theirs.Term,
							theirErr)
					}
				}
				for _, s := range l.cache.slots {
					if s != nil {
						kept += len(s.Data)
					}
				}
				if kept != l.cache.bytes || kept > cacheBytes {
					rt.Fatalf("%d bytes are kept and %d counted", kept, l.cache.bytes)
				}
			},
		})
	})
}
