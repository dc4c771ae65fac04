package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// fakeGroups is a cluster whose groups have a leader each.
type fakeGroups struct {
	mu      sync.Mutex
	leaders []*fakeLeader
	shown   int // how many of them there are yet
	changed chan struct{}
}

func newFakeGroups(n int) *fakeGroups {
	g := &fakeGroups{shown: n, changed: make(chan struct{})}
	for i := range n {
		l := newFakeLeader()
		l.group, l.counts = uint32(i), true
		g.leaders = append(g.leaders, l)
	}
	return g
}

func (g *fakeGroups) Leader(n uint32) Leader { return g.leaders[n] }
func (g *fakeGroups) List() (out []uint32, _ <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.shown {
		out = append(out, uint32(i))
	}
	return out, g.changed
}

func (g *fakeGroups) grow(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.changed)
	g.shown, g.changed = n, make(chan struct{})
}

// inGroups runs f with a worker of several groups.
func inGroups(t *testing.T, n int, change func(*Options, *fakeGroups), f func(*bench, *fakeGroups)) {
	t.Helper()
	var g *fakeGroups
	inBubble(t, func(o *Options, b *bench) {
		g = newFakeGroups(n)
		o.Groups = g
		if change != nil {
			change(o, g)
		}
	}, func(b *bench) { f(b, g) })
}

// of makes assignments of a group: the fences are numbers of that group.
func of(group int, fences ...uint64) []job.Assignment {
	out := work(fences...)
	for i := range out {
		out[i].Run.Job = job.ID(group)<<(64-job.GroupBits) | 7
	}
	return out
}

// from is ten fences which no other group of a test has.
func from(first uint64) (out []uint64) {
	for f := range uint64(10) {
		out = append(out, first+f)
	}
	return out
}

// startedOf counts what was started of some fences.
func (b *bench) startedOf(fences []uint64) (n int) {
	synctest.Wait()
	for _, f := range b.runner.started() {
		if slices.Contains(fences, f) {
			n++
		}
	}
	return n
}

// wantCredit fails if leaders may count on more slots than there are.
func (b *bench) wantCredit() {
	b.t.Helper()
	synctest.Wait()
	w := b.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := w.openLocked()
	for _, g := range w.groups {
		sum += g.granted
	}
	if sum > w.capacity() {
		b.t.Fatalf("%d slots, but %d granted or in use", w.capacity(), sum)
	}
}

// With work in all groups each has its share of the slots, and with work in one that has them all.
func TestGroupsShareSlots(t *testing.T) {
	inGroups(t, 2, func(o *Options, _ *fakeGroups) { o.Slots = 6 }, func(b *bench, g *fakeGroups) {
		b.after(time.Second)
		b.wantCredit()
		for i, l := range g.leaders {
			l.assign(of(i, from(uint64(i+1)*100)...)...)
		}
		b.after(time.Second)
		b.wantCredit()
		if b.wantBusy(6); b.startedOf(from(100)) != 3 || b.startedOf(from(200)) != 3 {
			t.Fatalf("started %v", b.runner.started())
		}
		for _, f := range []uint64{100, 101, 102} {
			b.runner.finish(t, f, success)
			b.after(time.Second)
			b.wantBusy(6)
			b.wantCredit()
		}
		if b.startedOf(from(100)) != 6 || b.startedOf(from(200)) != 3 {
			t.Fatalf("started %v", b.runner.started())
		}
	})
}

// Credit that is idle elsewhere goes where work waits, and comes back when there is work again.
func TestIdleCreditMoves(t *testing.T) {
	for _, slots := range []int{1, 2, 3, 7} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			inGroups(t, 3, func(o *Options, _ *fakeGroups) { o.Slots = slots }, func(b *bench, g *fakeGroups) {
				b.after(time.Second)
				g.leaders[2].assign(of(2, from(300)...)...)
				b.after(3 * time.Second)
				b.wantBusy(slots)
				g.leaders[0].assign(of(0, from(100)...)...)
				b.after(time.Second)
				b.wantCredit()
				b.runner.finish(t, 300, success)
				b.after(time.Second)
				b.wantBusy(slots)
				if b.startedOf(from(100)) != 1 {
					t.Fatalf("the slot went to the group that has all: %v", b.runner.started())
				}
				b.wantCredit()
			})
		})
	}
}

// A worker with fewer slots than groups serves all of them.
func TestGroupsTakeTurns(t *testing.T) {
	var mu sync.Mutex
	ran := make([]int, 3)
	inGroups(t, 3, func(o *Options, _ *fakeGroups) {
		o.Slots = 1
		o.Runners[job.TypeQueue] = runnerFunc(func(_ context.Context, a job.Assignment) job.Result {
			time.Sleep(time.Second) // of the bubble
			mu.Lock()
			defer mu.Unlock()
			ran[a.Run.Job.Group()]++
			return success
		})
	}, func(b *bench, g *fakeGroups) {
		for i, l := range g.leaders {
			l.assign(of(i, from(1)...)...)
		}
		b.after(15 * time.Second)
		b.wantCredit()
		mu.Lock()
		defer mu.Unlock()
		if slices.Min(ran) < 3 {
			t.Errorf("of the groups there ran %v", ran)
		}
	})
}

// Fences are numbers of a group: what one leader says of a fence is not about the other's attempt.
func TestSameFenceOfTwoLeaders(t *testing.T) {
	var mu sync.Mutex
	causes := map[uint8]error{}
	inGroups(t, 2, func(o *Options, _ *fakeGroups) {
		o.Runners[job.TypeQueue] = runnerFunc(func(ctx context.Context, a job.Assignment) job.Result {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			causes[a.Run.Job.Group()] = context.Cause(ctx)
			return failure("stopped")
		})
	}, func(b *bench, g *fakeGroups) {
		for i, l := range g.leaders {
			l.assign(of(i, 5)...)
		}
		b.after(time.Second)
		b.wantBusy(2)
		for i, l := range g.leaders {
			beats := l.log().beats
			if b.after(10 * time.Second); len(l.log().beats) == len(beats) {
				t.Fatalf("group %d: no heartbeat", i)
			}
			held := last(l.log().beats).Held
			if len(held) != 1 || int(held[0].Run.Job.Group()) != i {
				t.Fatalf("group %d hears that %+v is held", i, held)
			}
		}
		g.leaders[1].cancel(5)
		b.after(time.Second)
		mu.Lock()
		if len(causes) != 1 || !errors.Is(causes[1], ErrCanceled) {
			t.Errorf("group 1 canceled its attempt, and these ended: %v", causes)
		}
		mu.Unlock()
		if _, ok := g.leaders[0].log().results[5]; ok || g.leaders[1].log().results[5].Outcome != job.OutcomeCanceled {
			t.Errorf("reported to the leaders: %v, %v", g.leaders[0].results, g.leaders[1].results)
		}
	})
}

// Safety does not rest on credit: what leaders assign without any goes back.
func TestSurplusGoesBack(t *testing.T) {
	inGroups(t, 2, func(o *Options, _ *fakeGroups) { o.Slots, o.Prefetch = 2, 1 }, func(b *bench, g *fakeGroups) {
		for i, l := range g.leaders {
			l.mu.Lock()
			l.owed = 10 // it gives them whatever is offered
			l.mu.Unlock()
			l.assign(of(i, from(uint64(i+1)*100)...)...)
		}
		b.after(10 * time.Second)
		b.wantBusy(2)
		if n := len(b.runner.started()); n != 2 {
			t.Errorf("%d started", n)
		}
		returned := 0
		for _, l := range g.leaders {
			for f, r := range l.log().results {
				if returned++; r.Outcome != job.OutcomeReturned {
					t.Errorf("fence %d: %+v", f, r)
				}
			}
		}
		if returned != 17 { // two run and one is queued
			t.Errorf("%d of 20 returned", returned)
		}
	})
}

// A group whose leader is gone loses its lease, its attempts and its credit. The others notice only the last.
func TestLeaseOfOneGroup(t *testing.T) {
	inGroups(t, 2, func(o *Options, _ *fakeGroups) { o.Slots = 4 }, func(b *bench, g *fakeGroups) {
		b.after(time.Second)
		g.leaders[0].assign(of(0, 1)...)
		g.leaders[1].assign(of(1, 201)...)
		b.wantStarted(1, 201)
		g.leaders[1].hook(func(ctx context.Context, _ string) error {
			<-ctx.Done() // it is frozen
			return ctx.Err()
		})
		g.leaders[0].assign(of(0, 2, 3, 4, 5, 6, 7)...)
		b.after(5 * time.Second)
		if b.startedOf(from(1)) < 2 {
			t.Fatalf("group 0 does not go on: %v", b.runner.started())
		}
		b.after(30 * time.Second)
		if !errors.Is(b.runner.cause(201), ErrLeaseLost) || b.runner.cause(1) != nil {
			t.Fatalf("ended: %v and %v", b.runner.cause(201), b.runner.cause(1))
		}
		b.wantBusy(4)
		if b.startedOf(from(1)) != 4 {
			t.Errorf("its credit did not come back: %v", b.runner.started())
		}
		g.leaders[1].hook(nil)
		b.after(30 * time.Second)
		b.runner.finish(t, 1, success)
		b.after(10 * time.Second)
		if r, ok := g.leaders[1].log().results[201]; !ok || r.Outcome != job.OutcomeFailed {
			t.Errorf("not handed in: %+v", r)
		}
		b.wantCredit()
	})
}

// What was granted to a leader that is gone is not granted to others before its lease has ended, or the next leader has
// answered: it may have claimed.
func TestCreditOfALostSession(t *testing.T) {
	inGroups(t, 2, func(o *Options, _ *fakeGroups) { o.Slots = 2 }, func(b *bench, g *fakeGroups) {
		b.after(time.Second)
		g.leaders[1].hook(func(context.Context, string) error { return errNet })
		g.leaders[1].depose()
		g.leaders[0].assign(of(0, 1, 2)...)
		b.after(10 * time.Second)
		b.wantStarted(1)
		g.leaders[1].hook(nil)
		b.after(10 * time.Second) // the next leader has nothing
		b.wantStarted(1, 2)
	})
}

// A slot is offered to one leader at a time: one that is taken back for another is not before the answer to the poll that
// offers less. Until then the leader may have claimed on it.
func TestCreditComesBackWithTheAnswer(t *testing.T) {
	inGroups(t, 2, func(o *Options, _ *fakeGroups) { o.Slots = 2 }, func(b *bench, g *fakeGroups) {
		b.after(time.Second)
		answer := make(chan struct{})
		g.leaders[0].hook(func(ctx context.Context, call string) error {
			if call == "poll" {
				select {
				case <-answer:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
		g.leaders[1].assign(of(1, 201, 202, 203)...)
		b.after(3 * time.Second) // less than a poll takes before it counts as lost
		if p := last(g.leaders[0].log().polls); p.Free != 0 || p.Number < 2 {
			t.Fatalf("the slot that is idle is not asked back: %+v", p)
		}
		b.wantStarted(201)
		if free := last(g.leaders[1].log().polls).Free; free != 0 {
			t.Errorf("the leader of group 1 is offered %d slots, and that of group 0 may still count on one", free)
		}
		close(answer)
		b.after(time.Second)
		b.wantStarted(201, 202)
		b.wantCredit()
	})
}

func TestDrainOfGroups(t *testing.T) {
	inGroups(t, 3, func(o *Options, _ *fakeGroups) { o.Slots, o.Prefetch = 3, 3 }, func(b *bench, g *fakeGroups) {
		b.after(time.Second)
		for i, l := range g.leaders {
			first := uint64(i+1) * 100
			l.assign(of(i, first, first+1)...)
		}
		b.after(2 * time.Second)
		b.wantBusy(3)
		g.leaders[2].hook(func(context.Context, string) error { return errNet })
		b.stop()
		b.after(time.Second)
		for _, f := range b.runner.started() {
			b.runner.finish(t, f, success)
		}
		err := <-b.ended
		if want := "executor: stopped with 2 results that no leader acknowledged"; err == nil || err.Error() != want {
			t.Errorf("%v", err)
		}
		for i, l := range g.leaders[:2] {
			if n := len(l.log().results); n != 2 {
				t.Errorf("group %d: %d results", i, n)
			}
		}
	})
}

// A cluster that had one group gets more: what runs goes on, and the slots are shared from then on.
func TestGroupsGrow(t *testing.T) {
	inGroups(t, 3, func(o *Options, g *fakeGroups) { g.shown, o.Slots = 1, 4 }, func(b *bench, g *fakeGroups) {
		one := g.leaders[0]
		one.assign(of(0, 1, 2)...)
		b.wantStarted(1, 2)
		for _, p := range one.log().polls {
			if p.Number != 0 || p.Told {
				t.Fatalf("a cluster of one group is polled with credit: %+v", p)
			}
		}
		if r := last(one.log().registers); r.Credit {
			t.Fatalf("registered with credit at the only group")
		}
		one.assign(of(0, 3, 4, 5, 6)...)
		b.wantStarted(1, 2, 3, 4)
		g.grow(3)
		b.after(time.Second)
		if r := last(one.log().registers); !r.Credit || len(r.Held) != 4 {
			t.Fatalf("registered as %+v", r)
		}
		g.leaders[2].assign(of(2, 301, 302)...)
		b.after(time.Second)
		b.wantBusy(4)
		b.wantCredit()
		b.runner.finish(t, 1, success)
		b.after(time.Second)
		b.wantStarted(1, 2, 3, 4, 301)
		for f := range uint64(3) {
			if err := b.runner.cause(f + 2); err != nil {
				t.Errorf("fence %d ended: %v", f+2, err)
			}
		}
	})
}

// A worker that took the control group for the only one leaves it for those that have jobs.
func TestControlGroupIsLeft(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprint(busy), func(t *testing.T) {
			var list *GroupList
			inGroups(t, 3, func(o *Options, g *fakeGroups) {
				list = NewGroupList([]uint32{0}, g.Leader)
				o.Groups, o.Slots = list, 4
			}, func(b *bench, g *fakeGroups) {
				if busy {
					g.leaders[0].assign(of(0, 1)...)
					b.wantStarted(1)
				}
				list.Know([]uint32{1, 2})
				list.Know([]uint32{0}) // of one who is behind
				b.after(time.Minute)
				before := g.leaders[0].log()
				g.leaders[0].assign(of(0, 2)...)
				g.leaders[1].assign(of(1, 101, 102, 103, 104)...)
				b.after(time.Minute)
				if after := g.leaders[0].log(); !busy && len(after.polls)+len(after.beats) > len(before.polls)+len(before.beats) {
					t.Error("the control group is asked for work")
				}
				if b.wantBusy(4); !busy {
					b.wantStarted(101, 102, 103, 104)
				}
				b.wantCredit()
			})
		})
	}
}

// A worker ends when all groups refused it for good, not when one did.
func TestRefusedByGroups(t *testing.T) {
	refuse := func(context.Context, string) error { return job.Errorf(job.CodeForbidden, "", "the token was revoked") }
	inGroups(t, 2, func(o *Options, _ *fakeGroups) { o.MaxRefusals = 3 }, func(b *bench, g *fakeGroups) {
		g.leaders[0].hook(refuse)
		b.after(time.Minute)
		g.leaders[1].assign(of(1, 1)...)
		b.wantStarted(1)
		g.leaders[1].hook(refuse)
		if err := <-b.ended; job.CodeOf(err) != job.CodeForbidden {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestGroupsUnderFaults(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { simulate(t, seed, 3, true) }) })
	}
}

// Without faults no assignment is in excess: leaders claim what they have credit for at any time, and no more.
func TestGroupsWithoutFaults(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { simulate(t, seed, 3, false) }) })
	}
}

// simGroups are the groups as a worker sees them. The last one comes later.
type simGroups struct {
	sims   []*sim
	worker string
	grown  chan struct{}
}

func (g simGroups) Leader(n uint32) Leader { return link{g.sims[n], g.worker} }
func (g simGroups) List() (out []uint32, _ <-chan struct{}) {
	for i := range g.sims[:len(g.sims)-1] {
		out = append(out, uint32(i))
	}
	if !wait.Closed(g.grown) {
		return out, g.grown
	}
	return append(out, uint32(len(g.sims)-1)), nil
}

// Run hands an attempt to its group.
func (g simGroups) Run(ctx context.Context, a job.Assignment) job.Result {
	return g.sims[a.Run.Job.Group()].run(g.worker)(ctx, a)
}
