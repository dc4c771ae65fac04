package chain

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/store"
)

func TestHashIsOfTheWholeEntry(t *testing.T) {
	one := next(5, &raft.Log{Index: 21, Term: 1, Data: []byte("a")}, false)
	for name, other := range map[string]uint64{
		"another term":     next(5, &raft.Log{Index: 21, Term: 2, Data: []byte("a")}, false),
		"another index":    next(5, &raft.Log{Index: 22, Term: 1, Data: []byte("a")}, false),
		"other bytes":      next(5, &raft.Log{Index: 21, Term: 1, Data: []byte("b")}, false),
		"passed over":      next(5, &raft.Log{Index: 21, Term: 1, Data: []byte("a")}, true),
		"others before it": next(4, &raft.Log{Index: 21, Term: 1, Data: []byte("a")}, false),
	} {
		if one == other {
			t.Errorf("%s: the same hash", name)
		}
	}
}

func TestRecentIsBounded(t *testing.T) {
	var r Recent
	r.Reset(store.Counters{Index: 1, Chain: 1})
	for i := uint64(2); i <= most+100; i++ { // the hash is that before it: these are no commands
		r.Add(i, &raft.Log{Index: 2 * i, Type: raft.LogConfiguration}, false)
	}
	if oldest, newest := r.Bounds(); len(r.ring) != most || oldest != 2*101 || newest != 2*(most+100) {
		t.Errorf("%d from %d to %d", len(r.ring), oldest, newest)
	}
	for _, i := range []uint64{101, 102, 5000, most, most + 99} {
		for _, index := range []uint64{2 * i, 2*i + 1} {
			if chain, ok := r.At(index); !ok || chain != i {
				t.Errorf("%d: %d, %v", index, chain, ok)
			}
		}
	}
	for _, index := range []uint64{2*101 - 1, 2*(most+100) + 1} {
		if chain, ok := r.At(index); ok {
			t.Errorf("%d: %d", index, chain)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for name, size := range map[string]int{"40B": 40, "4KiB": 4 << 10, "256KiB": 256 << 10} {
		b.Run(name, func(b *testing.B) {
			l := &raft.Log{Term: 1, Type: raft.LogCommand, Data: make([]byte, size)}
			var r Recent
			b.ReportAllocs()
			chain := uint64(0)
			for b.Loop() {
				l.Index++
				chain = r.Add(chain, l, false)
			}
		})
	}
}
