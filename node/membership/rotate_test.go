package membership

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// What a node knows of its cluster is written when its CA is replaced and when a leader lets it in. They
// share a temporary file: two at once would put a half-written one in place, and the later would undo the earlier.
func TestIdentityIsSavedByOneAtATime(t *testing.T) {
	st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var busy atomic.Bool
	var saved datadir.ClusterIdentity
	m := &Members{identity: datadir.ClusterIdentity{ClusterID: "c1", CA: "ca 0"}}
	m.o.Save = func(c datadir.ClusterIdentity) error {
		if !busy.CompareAndSwap(false, true) {
			t.Error("two write at once")
		}
		runtime.Gosched()
		saved = c
		busy.Store(false)
		return nil
	}
	m.o.Store, m.o.Logger = st, slog.New(slog.DiscardHandler)
	for i := range 50 {
		ca, index := fmt.Sprint("ca ", i+1), uint64(i+1)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := m.noteCA(ca); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := m.joined(wire.JoinReply{ClusterID: "c1", Index: index}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if saved.CA != ca || saved.Index != index || m.identity.CA != ca || m.identity.Index != index {
			t.Fatalf("saved: %+v; known: %+v", saved, m.identity)
		}
	}
}
