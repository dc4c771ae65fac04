package scheduler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// crowd is a real store with many due jobs, a log that only applies, and a worker that takes one run at a time.
type crowd struct {
	t    *testing.T
	st   *store.Store
	log  *batchLog
	next uint64
	s    *Scheduler
	is   job.Poll
}

func newCrowd(t *testing.T) *crowd {
	st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{t: t, st: st, log: &batchLog{f: fsm.New(st, fsm.Options{}), queue: make(chan *testFuture, 256)}}
	done := make(chan struct{})
	go func() { c.log.run(); close(done) }()
	t.Cleanup(func() {
		close(c.log.queue)
		<-done
		st.Close()
	})
	return c
}

// add makes n one-off jobs of a queue that are due at a time.
func (c *crowd) add(n int, queue, priority string, at int64) {
	c.t.Helper()
	spec := job.Spec{Type: job.TypeQueue, Schedule: "@hourly", Priority: priority,
		Payload: fmt.Appendf(nil, `{"queue":%q}`, queue)}
	spec.Normalize()
	def := store.Definition{Spec: spec, Version: 1, CreatedAt: at, UpdatedAt: at}
	data := def.Append(nil)
	var last Future
	for i := 0; i < n; {
		cmd := &fsm.Create{Head: fsm.Head{Now: at, Term: 1}}
		for ; i < n && len(cmd.Items) < 1000; i++ {
			c.next++
			cmd.Items = append(cmd.Items, fsm.CreateItem{Job: c.next, Def: data, Next: fsm.When{At: at, Ready: at}})
		}
		last = c.log.Propose(cmd)
	}
	if _, err := last.Wait(); err != nil {
		c.t.Fatal(err)
	}
}

// lead begins the leadership, with one worker that has one slot.
func (c *crowd) lead() {
	c.t.Helper()
	c.s = New(Options{Store: c.st, Proposer: c.log, Term: 1})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.s.Run(ctx) }()
	c.t.Cleanup(func() { cancel(); <-done })
	for c.s.Ready() != nil {
		time.Sleep(time.Millisecond)
	}
	c.is = job.Poll{Worker: "w", Secret: "s", Types: []job.Type{job.TypeQueue}, Slots: 1}
	c.poll()
}

func (c *crowd) poll() []job.Assignment {
	c.t.Helper()
	r, err := c.s.Poll(context.Background(), c.is)
	if err != nil {
		c.t.Fatal(err)
	}
	c.is.Session, c.is.Free = r.Session, 1
	c.is.Wait, c.is.Hold = job.Duration(time.Second), job.Duration(time.Second)
	return r.Runs
}

// take waits for the next run and leaves it in hand.
func (c *crowd) take() job.Assignment {
	c.t.Helper()
	for range 60 {
		if r := c.poll(); len(r) == 1 {
			return r[0]
		}
	}
	c.t.Fatal("nothing came for a minute")
	return job.Assignment{}
}

func (c *crowd) done(a job.Assignment) {
	c.t.Helper()
	if _, err := c.s.Report(context.Background(), job.Report{Session: c.is.Session,
		Results: []job.Result{{Ref: job.Ref{Fence: a.Fence}, Outcome: job.OutcomeSucceeded}}}); err != nil {
		c.t.Fatal(err)
	}
}

// seen waits until the loop has read what is due: what it does not know yet cannot be first. A turn runs what was
// posted, reads, and claims.
func (c *crowd) seen() {
	for range 2 {
		turned := make(chan struct{})
		c.s.post(func() { close(turned) })
		<-turned
	}
}

// many is how much a test takes if it may be long, and how much otherwise.
func many(long, short int) int {
	if os.Getenv("CARILLON_LONG") != "" {
		return long
	}
	return short
}

// A critical run that becomes due is the next one claimed, however many of low priority wait; and those still get one
// slot in 64.
func TestABacklogOfLowPriorityStarvesNoLane(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	c := newCrowd(t)
	n := many(1_000_000, 10_000)
	c.add(n, "bulk", "low", time.Now().Add(-time.Hour).UnixMilli())
	c.lead()
	holding := c.take()
	low := c.next // jobs up to here are low
	for range 5 {
		c.add(1, "urgent", "critical", time.Now().UnixMilli())
		began := time.Now()
		c.seen()
		// The slot frees while the backlog is there and the critical run is due.
		c.done(holding)
		first := c.take()
		t.Logf("claimed %s after it was due, of %d that wait", time.Since(began).Round(time.Microsecond), n)
		if first.Run.Job != job.ID(c.next) {
			t.Fatalf("%s was claimed before the critical one, %s", first.Run.Job, job.ID(c.next))
		}
		c.done(first)
		if holding = c.take(); uint64(holding.Run.Job) > low {
			t.Fatalf("%s again", holding.Run.Job)
		}
	}
	const slots = 640
	c.add(slots+10, "urgent", "critical", time.Now().UnixMilli())
	c.seen()
	got, longest, since := 0, 0, 0
	for range slots {
		c.done(holding)
		holding = c.take()
		if since++; uint64(holding.Run.Job) <= low {
			got, longest, since = got+1, max(longest, since), 0
		}
	}
	t.Logf("the low lane got %d of %d slots, one in %d at the latest", got, slots, longest)
	if got < slots/64-1 || got > slots/64+1 || longest > 64 {
		t.Errorf("the low lane got %d of %d slots, and waited for up to %d", got, slots, longest)
	}
}

// A queue with a huge backlog does not hold up another one of the same priority: what the other one gets is claimed in
// turn.
func TestASmallQueueBesideAHugeOne(t *testing.T) {
	c := newCrowd(t)
	c.add(many(100_000, 10_000), "huge", "normal", time.Now().Add(-time.Hour).UnixMilli())
	c.lead()
	big := c.next
	holding := c.take()
	var worst time.Duration
	for round := range 5 {
		c.add(10, "small", "normal", time.Now().UnixMilli())
		began := time.Now()
		c.seen()
		seen, huge, after := 0, 0, 0
		for last := uint64(0); seen < 10; {
			c.done(holding)
			holding = c.take()
			if id := uint64(holding.Run.Job); id > big {
				if id <= last {
					t.Fatalf("run %d of the small queue before %d", last, id)
				}
				last = id
				seen++
				worst = max(worst, time.Since(began))
				after = huge
			} else {
				huge++
			}
		}
		// At most the rest of the huge one's share comes first, and none in between.
		if after > quantum {
			t.Errorf("round %d: %d runs of the huge queue came before the last of ten of the small one", round, after)
		}
	}
	t.Logf("the last of ten was claimed at most %s after they were due, one slot, runs of no length",
		worst.Round(time.Microsecond))
}
