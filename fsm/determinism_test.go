package fsm

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm/snapshots"
)

// past is a log of random commands and what they were answered with, one entry a batch.
type past struct {
	*world
	replies []any
	want    string // the digest that all roads must lead to
}

func makePast(t *testing.T, seed uint64, n int) *past {
	t.Helper()
	p := &past{world: newWorld(t)}
	g, m := newGen(p.world, seed), newModel(p.world)
	for range n {
		cmd := g.next()
		r := p.do(cmd)[0]
		m.saw(cmd, r)
		p.replies = append(p.replies, r)
	}
	p.want = fullDigest(t, p.world)
	return p
}

func fullDigest(t *testing.T, w *world) string {
	t.Helper()
	d, err := w.st.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// replay applies entries in batches of random sizes and returns the answers.
func (w *world) replay(rnd *rand.Rand, logs []*raft.Log) (out []any) {
	for len(logs) > 0 {
		n := min(1+rnd.IntN(20), len(logs))
		out = append(out, w.f.ApplyBatch(logs[:n])...)
		logs = logs[n:]
	}
	return out
}

// The same entries give the same state and the same answers, whatever the batches, snapshots and crashes on the way.
func TestApplyIsDeterministic(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			p := makePast(t, seed, 250)
			rnd := rand.New(rand.NewPCG(seed, 2))

			t.Run("batches", func(t *testing.T) {
				w := newWorld(t)
				if out := w.replay(rnd, p.log); !reflect.DeepEqual(out, p.replies) {
					t.Error("the answers differ")
				}
				if fullDigest(t, w) != p.want {
					t.Error("the states differ")
				}
			})
			t.Run("snapshot", func(t *testing.T) {
				a, b := newWorld(t), newWorld(t)
				k := len(p.log) / 2
				a.replay(rnd, p.log[:k])
				b.replay(rnd, p.log[:k/3]) // it has an older state of its own
				install(t, a, b, uint64(k))
				// Raft goes on behind the snapshot's index; that the state is further on must not matter.
				b.replay(rnd, p.log[k-10:])
				if fullDigest(t, b) != p.want {
					t.Error("the states differ")
				}
				b.check()
			})
			t.Run("crash", func(t *testing.T) {
				w := newWorld(t)
				k := len(p.log) / 2
				w.replay(rnd, p.log[:k])
				// A batch that never commits.
				batch, err := w.st.Begin()
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range p.log[k : k+10] {
					cmd, err := Decode(l.Data)
					if err == nil {
						_, err = apply(batch, cmd, l.Term)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				batch.Rollback()
				if err := w.st.Close(); err != nil {
					t.Fatal(err)
				}
				w.open()
				w.check()
				w.replay(rnd, p.log[k-20:])
				if fullDigest(t, w) != p.want {
					t.Error("the states differ")
				}
			})
		})
	}
}

// install moves a's state into b through snapshot stores, as raft does.
func install(t *testing.T, a, b *world, index uint64) {
	t.Helper()
	from, to := newSnapshots(t, a), newSnapshots(t, b)
	meta := takeSnapshot(t, from, index, 1)
	receive(t, from, to, meta)
	_, rc, err := to.Open(meta.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.f.Restore(rc); err != nil {
		t.Fatal(err)
	}
}

func newSnapshots(t testing.TB, w *world) *snapshots.Store {
	t.Helper()
	s, err := snapshots.New(filepath.Join(filepath.Dir(w.path), "snapshots"), w.st)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
