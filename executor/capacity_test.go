package executor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

func TestReportsAreBatched(t *testing.T) {
	const n = 2500
	inBubble(t, func(o *Options, b *bench) { o.Slots, b.runner.auto = n+1, true }, func(b *bench) {
		hold := make(chan struct{})
		b.leader.hook(func(ctx context.Context, call string) error {
			if call == "report" {
				<-hold
			}
			return nil
		})
		fences := []uint64{1}
		b.leader.assign(work(1)...)
		synctest.Wait()
		for f := uint64(2); f <= n; f++ {
			fences = append(fences, f)
		}
		b.leader.assign(work(fences[1:]...)...)
		synctest.Wait()
		close(hold)
		synctest.Wait()
		var sizes []int
		for _, r := range b.leader.log().reports {
			sizes = append(sizes, len(r.Results))
		}
		if !slices.Equal(sizes, []int{1, 1000, 1000, 499}) {
			t.Fatalf("reports of %v results", sizes)
		}
		if most := b.leader.log().most["report"]; most != 1 {
			t.Fatalf("%d reports at a time", most)
		}
		if got := len(b.leader.log().results); got != n {
			t.Fatalf("%d results", got)
		}
	})
}

func TestReportsAreBoundedInBytes(t *testing.T) {
	const n = 200
	output := strings.Repeat("x", job.MaxOutputBytes)
	inBubble(t, func(o *Options, _ *bench) {
		o.Slots = n
		o.Runners[job.TypeQueue] = runnerFunc(func(ctx context.Context, _ job.Assignment) job.Result {
			wait.For(ctx, time.Second) // so that all end before the first report
			return job.Result{Outcome: job.OutcomeSucceeded, Output: output}
		})
	}, func(b *bench) {
		hold := make(chan struct{})
		b.leader.hook(func(_ context.Context, call string) error {
			if call == "report" {
				<-hold
			}
			return nil
		})
		var fences []uint64
		for f := range uint64(n) {
			fences = append(fences, f+1)
		}
		b.leader.assign(work(fences...)...)
		b.after(2 * time.Second)
		close(hold)
		synctest.Wait()
		reports := b.leader.log().reports
		for i, r := range reports {
			size := len(r.Results) * job.MaxOutputBytes
			if whole := i > 0 && i < len(reports)-1; size > maxReportBytes || whole && size < maxReportBytes*3/4 {
				t.Errorf("report %d has %d results with %d bytes", i, len(r.Results), size)
			}
		}
		if got := len(b.leader.log().results); got != n || len(reports) < 3 {
			t.Errorf("%d results in %d reports", got, len(reports))
		}
	})
}

func TestPollsFollowCapacity(t *testing.T) {
	inBubble(t, func(o *Options, _ *bench) { o.Slots, o.Prefetch = 2, 1 }, func(b *bench) {
		if p := last(b.leader.log().polls); p.Free != 3 {
			t.Fatalf("first poll %+v", p)
		}
		b.leader.assign(work(1, 2, 3, 4, 5)...)
		b.wantStarted(1, 2)
		b.after(10 * time.Millisecond)
		if n := len(b.leader.log().polls); n != 1 {
			t.Fatalf("%d polls from a worker that is full", n)
		}
		// Full for long: it polls for cancels only.
		b.after(time.Second)
		if p := last(b.leader.log().polls); p.Free != 0 || p.Acked != 3 {
			t.Fatalf("poll %+v", p)
		}
		b.leader.cancel(2)
		b.wantResult(2, job.OutcomeCanceled, "canceled: stopped")
		// Capacity freed: the next assignment came at once, not at the end of a long poll; the prefetched one took the slot.
		b.wantStarted(1, 2, 3)
		if p := last(b.leader.log().polls); len(b.leader.log().sent) != 4 {
			t.Fatalf("%d assignments, last poll %+v", len(b.leader.log().sent), p)
		}
		b.after(time.Second)
		before := time.Now()
		b.runner.finish(t, 1, success)
		b.wantStarted(1, 2, 3, 4)
		if len(b.leader.log().sent) != 5 || time.Now() != before {
			t.Fatalf("%d assignments after %v", len(b.leader.log().sent), time.Since(before))
		}
		if most := b.leader.log().most["poll"]; most != 1 {
			t.Fatalf("%d polls at a time", most)
		}
		for i, p := range b.leader.log().polls {
			if p.Free < 0 || p.Free > 3 {
				t.Fatalf("poll %d: %+v", i, p)
			}
		}
	})
}

// A leader that answers an empty poll at once is not polled in a tight loop.
func TestEmptyAnswers(t *testing.T) {
	inBubble(t, func(o *Options, b *bench) { o.Groups = OneGroup(eagerLeader{b.leader}) }, func(b *bench) {
		b.after(20 * time.Second)
		if got := len(b.leader.log().polls); got < 100 || got > 410 {
			t.Fatalf("%d polls in 20 s", got)
		}
	})
}

type eagerLeader struct{ *fakeLeader }

func (l eagerLeader) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	p.Wait = 0
	return l.fakeLeader.Poll(ctx, p)
}

func TestPrefetchedRunInOrder(t *testing.T) {
	inBubble(t, func(o *Options, b *bench) { o.Slots, o.Prefetch = 1, 50 }, func(b *bench) {
		var fences []uint64
		for f := uint64(1); f <= 50; f++ {
			fences = append(fences, f)
		}
		b.leader.assign(work(fences...)...)
		for _, f := range fences {
			synctest.Wait()
			b.wantBusy(1)
			b.runner.finish(t, f, success)
		}
		synctest.Wait()
		b.runner.mu.Lock()
		defer b.runner.mu.Unlock()
		if !slices.Equal(b.runner.order, fences) {
			t.Fatalf("order %v", b.runner.order)
		}
	})
}
