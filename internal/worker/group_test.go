package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// fakeGroups is a cluster whose groups have a leader each.
type fakeGroups struct {
	leaders []*fakeLeader
	known   atomic.Pointer[[]uint32]
}

func (g *fakeGroups) groups() Groups {
	return Groups{Leader: func(n uint32) Leader { return g.leaders[n] }, Every: time.Second,
		List: func(context.Context) ([]uint32, error) { return *g.known.Load(), nil }}
}

// know is what the cluster says from now on.
func (b *bench) know(g *fakeGroups, numbers ...uint32) {
	g.known.Store(&numbers)
	b.after(2 * time.Second)
}

// inGroups runs f with a worker of some groups, of which shown are there from the beginning.
func inGroups(t *testing.T, n, shown int, change func(*Options), f func(*bench, *fakeGroups)) {
	t.Helper()
	g := &fakeGroups{}
	inBubble(t, func(o *Options, _ *bench) {
		var numbers []uint32
		for i := range uint32(n) {
			g.leaders, numbers = append(g.leaders, newFakeLeader(i)), append(numbers, i)
		}
		numbers = numbers[:shown]
		g.known.Store(&numbers)
		if o.Groups = g.groups(); change != nil {
			change(o)
		}
	}, func(b *bench) {
		b.after(time.Minute)
		f(b, g)
	})
}

func pool(slots int) func(*Options) {
	return func(o *Options) { o.Slots = slots }
}

// startedOf counts what was started of some fences.
func (b *bench) startedOf(fences []uint64) int {
	return len(slices.DeleteFunc(b.runner.started(), func(f uint64) bool { return !slices.Contains(fences, f) }))
}

// A slot that is freed goes to the group that has the fewest, while both have work; with work in one that has them all.
func TestGroupsShareSlots(t *testing.T) {
	inGroups(t, 2, 2, pool(6), func(b *bench, g *fakeGroups) {
		one, two := upTo(100, 109), upTo(200, 209)
		g.leaders[0].assign(of(0, one...)...)
		g.leaders[1].assign(of(1, two...)...)
		b.after(time.Second)
		b.wantBusy(6)
		for _, f := range b.runner.started()[:3] {
			b.runner.end(success, f)
			b.after(time.Second)
			b.wantBusy(6)
		}
		for i, of := range [][]uint64{one, two} {
			running := b.startedOf(of)
			for _, r := range g.leaders[i].log().results {
				if r.Outcome == job.OutcomeSucceeded {
					running--
				}
			}
			if running != 3 {
				b.Errorf("group %d has %d of 6 slots", i, running)
			}
		}
	})
}

// Slots that are idle elsewhere go where work waits, and come back when there is work again.
func TestIdleSlotsMove(t *testing.T) {
	for _, slots := range []int{1, 2, 3, 7} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			inGroups(t, 3, 3, pool(slots), func(b *bench, g *fakeGroups) {
				g.leaders[2].assign(of(2, upTo(300, 309)...)...)
				b.after(3 * time.Second)
				b.wantBusy(slots)
				g.leaders[0].assign(of(0, upTo(100, 109)...)...)
				b.after(time.Second)
				b.runner.end(success, 300)
				b.after(time.Second)
				b.wantBusy(slots)
				if b.startedOf(upTo(100, 109)) != 1 {
					b.Fatalf("the slot went to the group that has all: %v", b.runner.started())
				}
			})
		})
	}
}

// A worker with fewer slots than groups serves all of them.
func TestGroupsTakeTurns(t *testing.T) {
	var ran [3]atomic.Int32
	one := func(o *Options) {
		o.Slots = 1
		o.Do = func(_ context.Context, a job.Assignment) job.Result {
			time.Sleep(time.Second) // of the bubble
			ran[a.Run.Job.Group()].Add(1)
			return success
		}
	}
	inGroups(t, 3, 3, one, func(b *bench, g *fakeGroups) {
		for i, l := range g.leaders {
			l.assign(of(i, upTo(1, 10)...)...)
		}
		b.after(15 * time.Second)
		for i := range ran {
			if n := ran[i].Load(); n < 3 {
				b.Errorf("of group %d there ran %d", i, n)
			}
		}
	})
}

// Fences are numbers of a group: what one leader says of a fence is not about the other's attempt.
func TestSameFenceOfTwoLeaders(t *testing.T) {
	var mu sync.Mutex
	causes := map[uint8]error{}
	note := func(o *Options) {
		o.Do = func(ctx context.Context, a job.Assignment) job.Result {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			causes[a.Run.Job.Group()] = context.Cause(ctx)
			return job.Result{Outcome: job.OutcomeFailed, Error: "stopped"}
		}
	}
	inGroups(t, 2, 2, note, func(b *bench, g *fakeGroups) {
		for i, l := range g.leaders {
			l.assign(of(i, 5)...)
		}
		b.after(10 * time.Second)
		b.wantBusy(2)
		for i, l := range g.leaders {
			if beats := l.log().beats; len(beats) == 0 || len(last(beats).Runs) != 1 {
				b.Fatalf("group %d hears %+v", i, beats)
			}
		}
		g.leaders[1].stop(job.StopCanceled, 5)
		b.after(time.Second)
		if len(causes) != 1 || causes[1] != ErrCanceled { //nolint:errorlint // they are not wrapped
			b.Errorf("group 1 canceled its attempt, and these ended: %v", causes)
		}
		if len(g.leaders[0].log().results) != 0 || g.leaders[1].log().results[5].Outcome != job.OutcomeCanceled {
			b.Errorf("reported to the leaders: %v, %v", g.leaders[0].results, g.leaders[1].results)
		}
	})
}

// Safety does not rest on what leaders are offered: what they assign beyond that goes back.
func TestSurplusGoesBack(t *testing.T) {
	inGroups(t, 2, 2, pool(2), func(b *bench, g *fakeGroups) {
		for i, l := range g.leaders {
			l.do(func() { l.owed = 10 })
			l.assign(of(i, upTo(uint64(i+1)*100, uint64(i+1)*100+9)...)...)
		}
		b.after(10 * time.Second)
		b.wantBusy(2)
		returned := 0
		for _, l := range g.leaders {
			for f, r := range l.log().results {
				if returned++; r.Outcome != job.OutcomeReturned {
					b.Errorf("fence %d: %+v", f, r)
				}
			}
		}
		if n := len(b.runner.started()); n != 2 || returned != 18 {
			b.Errorf("%d started, %d of 20 returned", n, returned)
		}
	})
}

// A group whose leader is gone loses its lease, its attempts and its share. The others notice only the last.
func TestLeaseOfOneGroup(t *testing.T) {
	inGroups(t, 2, 2, pool(4), func(b *bench, g *fakeGroups) {
		g.leaders[0].assign(of(0, 1)...)
		g.leaders[1].assign(of(1, 201)...)
		b.wantStarted(1, 201)
		g.leaders[1].hook(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }) // it is frozen
		g.leaders[0].assign(of(0, upTo(2, 7)...)...)
		b.after(5 * time.Second)
		if b.startedOf(upTo(1, 7)) < 2 {
			b.Fatalf("group 0 does not go on: %v", b.runner.started())
		}
		b.after(30 * time.Second)
		b.wantStopped(201, ErrLeaseLost)
		b.wantStopped(1, nil)
		b.wantBusy(4)
		g.leaders[1].hook(nil)
		b.after(30 * time.Second)
	})
}

func TestDrainOfGroups(t *testing.T) {
	inGroups(t, 3, 3, pool(3), func(b *bench, g *fakeGroups) {
		for i, l := range g.leaders {
			l.assign(of(i, uint64(i+1)*100)...)
		}
		b.after(2 * time.Second)
		b.wantBusy(3)
		g.leaders[2].hook(failing("", errNet))
		b.stop()
		b.after(time.Second)
		b.runner.end(success, b.runner.started()...)
		const want = "stopped with 1 results that no leader acknowledged"
		if err := <-b.ended; job.CodeOf(err) != job.CodeOutcomeUnknown || err.Error() != want {
			b.Errorf("%v", err)
		}
		for i, l := range g.leaders[:2] {
			if n := len(l.log().results); n != 1 {
				b.Errorf("group %d: %d results", i, n)
			}
		}
	})
}

// A cluster that had one group gets more: what runs goes on, and the slots are shared from then on.
func TestGroupsGrow(t *testing.T) {
	inGroups(t, 3, 1, pool(4), func(b *bench, g *fakeGroups) {
		one := g.leaders[0]
		one.assign(of(0, upTo(1, 6)...)...)
		b.wantStarted(1, 2, 3, 4)
		if p := last(one.log().polls); p.Shared || p.Told {
			b.Fatalf("a cluster of one group is polled as one of several: %+v", p)
		}
		b.know(g, 0, 1, 2)
		g.leaders[2].assign(of(2, 301, 302)...)
		b.after(time.Second)
		if p := last(one.log().polls); !p.Shared {
			b.Fatalf("polled with %+v", p)
		}
		b.wantBusy(4)
		b.runner.end(success, 1)
		b.after(time.Second)
		b.wantStarted(1, 2, 3, 4, 301)
		for f := uint64(2); f <= 4; f++ {
			b.wantStopped(f, nil)
		}
	})
}

// A worker that took the control group for the only one leaves it for those that have jobs.
func TestControlGroupIsLeft(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprint(busy), func(t *testing.T) {
			inGroups(t, 3, 1, pool(4), func(b *bench, g *fakeGroups) {
				if busy {
					g.leaders[0].assign(of(0, 1)...)
					b.wantStarted(1)
				}
				b.know(g, 1, 2)
				b.know(g, 0) // of one who is behind
				b.after(time.Minute)
				before := g.leaders[0].log()
				g.leaders[0].assign(of(0, 2)...)
				g.leaders[1].assign(of(1, 101, 102, 103, 104)...)
				b.after(time.Minute)
				after := g.leaders[0].log()
				if !busy && len(after.polls)+len(after.beats) > len(before.polls)+len(before.beats) {
					b.Error("the control group is asked for work")
				}
				if b.wantBusy(4); !busy {
					b.wantStarted(101, 102, 103, 104)
				} else {
					b.wantStopped(1, nil)
				}
			})
		})
	}
}

// A worker ends when all groups refused it for good, not when one did; one that is forked is to all.
func TestRefusedByGroups(t *testing.T) {
	refuse := failing("", job.Errorf(job.CodeForbidden, "", "the token was revoked"))
	inGroups(t, 2, 2, func(o *Options) { o.MaxRefusals = 3 }, func(b *bench, g *fakeGroups) {
		g.leaders[0].hook(refuse)
		b.after(time.Minute)
		g.leaders[1].assign(of(1, 1)...)
		b.wantStarted(1)
		g.leaders[1].hook(refuse)
		if err := <-b.ended; job.CodeOf(err) != job.CodeForbidden {
			b.Errorf("ended with %v", err)
		}
	})
	inGroups(t, 2, 2, nil, func(b *bench, g *fakeGroups) {
		g.leaders[1].assign(of(1, 1)...)
		b.wantStarted(1)
		g.leaders[0].fork()
		b.after(11 * time.Second)
		b.wantStopped(1, ErrLeaseLost)
		b.after(10 * time.Second)
		for i, l := range g.leaders {
			if p := last(opened(l)); p.Secret == "s" {
				b.Errorf("group %d: opened with %+v", i, p)
			}
		}
	})
}

// A worker of eight leaders, which die and come back, never has more granted or running than it has slots, and no slot
// is idle while a leader that can be reached has work.
func TestEightLeadersDieAndComeBack(t *testing.T) {
	const leaders, slots, lease = 8, 64, 30 * time.Second
	inGroups(t, leaders, leaders, pool(slots), func(b *bench, g *fakeGroups) {
		random := rand.New(rand.NewPCG(8, 64))
		var fence uint64
		pass := func(d time.Duration) {
			b.after(d)
		}
		full := func(round int, when string) {
			b.Helper()
			waiting := 0
			for _, l := range g.leaders {
				l.mu.Lock()
				if l.before == nil {
					waiting += len(l.next)
				}
				l.mu.Unlock()
			}
			if busy := b.worker.Standing().Busy; busy > slots || busy < slots && waiting > 0 {
				b.Fatalf("round %d, %s: %d attempts on %d slots, and %d runs wait", round, when, busy, slots, waiting)
			}
		}
		for round := range 60 {
			dies := g.leaders[random.IntN(leaders)]
			dies.hook(failing("", errNet))
			dies.depose()
			for range random.IntN(4) {
				i := random.IntN(leaders)
				for range random.IntN(slots) {
					fence += 1000 // leaders have the numbers between
					g.leaders[i].assign(of(i, uint64(i)<<32|fence)...)
				}
			}
			for _, f := range b.runner.started() {
				if random.IntN(2) == 0 {
					b.runner.end(success, f)
				}
			}
			if round%3 == 0 { // it comes back before the lease ends
				pass(2 * time.Second)
			} else {
				pass(lease + 2*time.Second)
				full(round, "without the leader")
			}
			dies.hook(nil)
			pass(10 * time.Second)
			full(round, "with all")
		}
		started := b.runner.started()
		if slices.Sort(started); len(slices.Compact(slices.Clone(started))) != len(started) {
			b.Error("a fence was started twice")
		}
	})
}
