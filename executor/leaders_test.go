package executor

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

// A worker of eight leaders, which die and come back, never has more granted or running than it has slots, and no slot
// is idle while a leader that can be reached has work.
func TestEightLeadersDieAndComeBack(t *testing.T) {
	const leaders, slots, lease = 8, 64, 30 * time.Second
	inGroups(t, leaders, func(o *Options, _ *fakeGroups) { o.Slots = slots }, func(b *bench, g *fakeGroups) {
		random := rand.New(rand.NewPCG(8, 64))
		var last uint64
		pass := func(d time.Duration) {
			for range d / time.Second {
				b.after(time.Second)
				b.wantCredit()
			}
		}
		full := func(round int, when string) {
			t.Helper()
			waiting := 0
			for _, l := range g.leaders {
				l.mu.Lock()
				if l.before == nil {
					waiting += len(l.next)
				}
				l.mu.Unlock()
			}
			if busy, _ := b.worker.Stats(); busy > slots || busy < slots && waiting > 0 {
				t.Fatalf("round %d, %s: %d attempts run on %d slots, and %d runs wait", round, when, busy, slots, waiting)
			}
		}
		for round := range 60 {
			dies := g.leaders[random.IntN(leaders)]
			dies.hook(func(context.Context, string) error { return errNet })
			dies.depose()
			for range random.IntN(4) {
				i := random.IntN(leaders)
				for range random.IntN(slots) {
					last++
					g.leaders[i].assign(of(i, last)...)
				}
			}
			for _, f := range b.runner.started() {
				if b.runner.cause(f) == nil && random.IntN(2) == 0 {
					b.runner.end(f)
				}
			}
			if round%3 == 0 { // it comes back before the lease ends
				pass(2 * time.Second)
			} else {
				pass(lease)
				full(round, "without the leader")
			}
			dies.hook(nil)
			pass(10 * time.Second)
			full(round, "with all")
		}
		for f := range last {
			if n := b.runner.ran(f + 1); n > 1 {
				t.Errorf("fence %d was started %d times", f+1, n)
			}
		}
	})
}
