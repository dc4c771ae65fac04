package scheduler

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// startsOf are the times at which runs of a job began, in seconds after a moment, with how late each was.
func startsOf(f *fakeWorker, id job.ID, from time.Time) (at []int, worst time.Duration) {
	for _, s := range f.ran() {
		if s.Run.Job == id {
			at = append(at, int(s.at.Sub(from)/time.Second))
			worst = max(worst, s.at.Sub(time.UnixMilli(s.Run.At)))
		}
	}
	return at, worst
}

// minute sleeps to the beginning of a minute and returns it.
func (w *world) minute() time.Time {
	from := w.clock.Now().Truncate(time.Minute).Add(time.Minute)
	time.Sleep(from.Sub(w.clock.Now()))
	return from
}

const everyOther = "*/2 * * * * *"

// A job every 2 s that takes 5 s has every third occurrence run, at its own time, also where a slot becomes free only
// when the run ends: what was open at an occurrence's time counts, and not what is open when a slot is free.
func TestSkipIsJudgedAtTheOccurrencesOwnTime(t *testing.T) {
	for _, slots := range []int{1, 4} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			f := w.worker("w1", slots, func(f *fakeWorker) { f.handle = takes(5 * time.Second) }).mustJoin()
			from := w.minute()
			id := w.create(everyOther, nil)
			time.Sleep(59 * time.Second)
			at, worst := startsOf(f, id, from)
			if want := []int{2, 8, 14, 20, 26, 32, 38, 44, 50, 56}; !slices.Equal(at, want) || worst > 100*time.Millisecond {
				t.Errorf("%d slots: began at %v, at most %s late, want %v", slots, at, worst, want)
			}
			want := strings.Repeat("succeeded skipped(overlap)x2 ", 9) + "skipped(overlap)x1"
			if got := strings.Join(w.summary(id), " "); got != want {
				t.Errorf("%d slots: %s", slots, got)
			}
		})
	}
}

// The one slot is taken by another job until 7 s. The occurrence of 2 s waits for it, and those of 4 s and 6 s find it
// waiting.
func TestOccurrencesBehindOneThatWaitsForASlot(t *testing.T) {
	for overlap, want := range map[string]struct {
		starts  []int
		history string
		open    int
	}{
		job.OverlapSkip:    {[]int{7, 14}, "skipped(waiting)x2 succeeded skipped(overlap)x3 skipped(overlap)x2", 1},
		job.OverlapQueue:   {[]int{7, 12, 17}, "succeeded succeeded", 7},
		job.OverlapReplace: {[]int{7, 8, 10, 12, 14, 16, 18}, "canceled(replaced)x2 canceled(replaced) canceled(replaced) canceled(replaced) canceled(replaced) canceled(replaced) canceled(replaced)", 1},
	} {
		t.Run(overlap, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				other := job.ID(0)
				f := w.worker("w1", 1, func(f *fakeWorker) {
					f.handle = func(ctx context.Context, a job.Assignment) job.Result {
						if a.Run.Job == other {
							return takes(7*time.Second)(ctx, a)
						}
						return takes(5*time.Second)(ctx, a)
					}
				}).mustJoin()
				from := w.minute()
				other = w.create("@manual", nil)
				w.trigger(other)
				id := w.create(everyOther, func(s *job.Spec) { s.Overlap = overlap })
				time.Sleep(18900 * time.Millisecond)
				if at, _ := startsOf(f, id, from); !slices.Equal(at, want.starts) {
					t.Errorf("began at %v, want %v", at, want.starts)
				}
				if got := strings.Join(w.summary(id), " "); got != want.history {
					t.Errorf("history %q, want %q", got, want.history)
				}
				if n := len(w.rows(id)); n != want.open {
					t.Errorf("%d open runs, want %d", n, want.open)
				}
			})
		})
	}
}

// The queue's bound holds, whatever the workers do, and what waits is taken in order.
func TestQueueIsBoundedOnAOneSlotWorker(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, func(f *fakeWorker) { f.handle = takes(5 * time.Second) }).mustJoin()
		id := w.create(everyOther, func(s *job.Spec) { s.Overlap = job.OverlapQueue })
		time.Sleep(400 * time.Second)
		runs := f.ranOf(id)
		if !slices.IsSorted(runs) || len(runs) < 79 {
			t.Errorf("%d runs, in order: %v", len(runs), slices.IsSorted(runs))
		}
		if n := len(w.rows(id)); n != job.MaxWaiting+1 {
			t.Errorf("%d open runs", n)
		}
		if got := strings.Join(w.summary(id), " "); !strings.Contains(got, "skipped(queue_full)") || strings.Contains(got, "skipped(overlap)") {
			t.Error(got)
		}
	})
}

// A long outage of the workers makes thousands of occurrences due behind one: they are disposed of together.
func TestThousandsOfOccurrencesBehindOne(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	for overlap, want := range map[string]string{
		job.OverlapSkip: "succeeded skipped(waiting)x7199", job.OverlapReplace: "canceled(replaced)x7199 succeeded",
	} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			id := w.create("* * * * * *", func(s *job.Spec) { s.Overlap = overlap })
			time.Sleep(2*time.Hour + 100*time.Millisecond)
			w.worker("w1", 1, nil).mustJoin()
			time.Sleep(time.Second)
			got := w.summary(id)
			if len(got) < 2 || strings.Join(got[:2], " ") != want {
				t.Errorf("%s: %v", overlap, got)
			}
			if n := len(applied[fsm.Claim](w)); n > 4 {
				t.Errorf("%s: %d claims", overlap, n)
			}
		})
	}
}

// A backfill runs in the gaps of the live schedule: no occurrence is skipped because of it, and none waits for longer
// than one of its runs.
func TestBackfillLeavesTheLiveScheduleAlone(t *testing.T) {
	for _, overlap := range []string{job.OverlapSkip, job.OverlapQueue, job.OverlapReplace} {
		for _, slots := range []int{1, 4} {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				each := 1200 * time.Millisecond // so that one of each kind does not fit in between
				if overlap == job.OverlapReplace {
					each = 700 * time.Millisecond // the next one would end what began late
				}
				f := w.worker("w1", slots, func(f *fakeWorker) { f.handle = takes(each) }).mustJoin()
				w.minute()
				id := w.create(everyOther, func(s *job.Spec) { s.Overlap = overlap })
				time.Sleep(5 * time.Second)
				fill := &fsm.Backfill{Head: w.head(), Job: uint64(id)}
				for i := range int64(30) {
					fill.At = append(fill.At, w.clock.Now().Add(-time.Hour).Truncate(time.Minute).UnixMilli()+i*2000)
				}
				if o := w.do(fill).Items[0]; o.Code != fsm.CodeOK || o.Count != 30 {
					t.Fatalf("%+v", o)
				}
				time.Sleep(590 * time.Second) // one starts after five times without room
				live, filled := 0, 0
				for _, s := range f.ran() {
					if s.Run.Origin == job.OriginBackfill {
						filled++
					} else if live++; s.at.Sub(time.UnixMilli(s.Run.At)) > 1300*time.Millisecond {
						t.Errorf("%s, %d slots: %s began %s late", overlap, slots, s.Run, s.at.Sub(time.UnixMilli(s.Run.At)))
					}
				}
				if live < 297 || filled != 30 {
					t.Errorf("%s, %d slots: %d live runs and %d of the backfill", overlap, slots, live, filled)
				}
				for _, r := range w.summary(id) {
					if r != "succeeded" {
						t.Errorf("%s, %d slots: %s", overlap, slots, r)
					}
				}
			})
		}
	}
}

// A backfill beside a schedule: none of the live occurrences is lost, under any policy, whether there is room for it
// between two of them or not; where there is, none is late either.
func TestBackfillLetsTheScheduleGoFirst(t *testing.T) {
	const n = 5
	for _, overlap := range []string{job.OverlapSkip, job.OverlapQueue, job.OverlapReplace, job.OverlapAllow} {
		for _, tt := range []struct {
			takes time.Duration
			late  time.Duration // the most by which a live run may be late
		}{
			{time.Second, 100 * time.Millisecond}, // it fits between two occurrences
			{3 * time.Second, 3 * time.Second},    // it does not
		} {
			t.Run(overlap+"/"+tt.takes.String(), func(t *testing.T) {
				run(t, func(t *testing.T, w *world) {
					w.lead()
					f := w.worker("w1", 8, func(f *fakeWorker) { f.handle = takes(tt.takes) }).mustJoin()
					id := w.create("@every 4s", func(s *job.Spec) { s.Overlap = overlap })
					time.Sleep(30 * time.Second)
					h := w.head()
					fill := &fsm.Backfill{Head: h, Job: uint64(id)}
					for i := range int64(n) {
						fill.At = append(fill.At, h.Now-3_600_000+4000*i)
					}
					if o := w.do(fill).Items[0]; o.Count != n {
						t.Fatalf("backfill: %+v", o)
					}
					time.Sleep(5 * time.Minute)
					live, filled := 0, 0
					for _, a := range f.ran() {
						if a.Run.Origin == job.OriginBackfill {
							filled++
							continue
						}
						live++
						if late := a.at.Sub(time.UnixMilli(a.Run.At)); late > tt.late {
							t.Errorf("%s began %s late", a.Run, late)
						}
					}
					for _, r := range w.history(id) {
						if r.Status != job.RunSucceeded {
							t.Errorf("recorded: %s (%s) %+v", r.Status, r.Reason, r.Interval)
						}
					}
					if filled != n || live < 82 {
						t.Errorf("%d live runs, and %d of the backfill", live, filled)
					}
				})
			})
		}
	}
}

// A job that takes longer than its period skips what it would have skipped without a backfill, and the backfill ends.
func TestBackfillOfAJobWithoutGaps(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 8, func(f *fakeWorker) { f.handle = takes(5 * time.Second) }).mustJoin()
		id := w.create("@every 4s", func(s *job.Spec) { s.Overlap = job.OverlapSkip })
		time.Sleep(30 * time.Second)
		h := w.head()
		w.do(&fsm.Backfill{Head: h, Job: uint64(id), At: []int64{h.Now - 3_600_000, h.Now - 3_596_000}})
		began := len(f.ran())
		time.Sleep(4 * time.Minute)
		live, filled := 0, 0
		for _, a := range f.ran()[began:] {
			if a.Run.Origin == job.OriginBackfill {
				filled++
			} else {
				live++
			}
		}
		// Every other occurrence runs: 30 in four minutes.
		if filled != 2 || live < 29 || live > 31 {
			t.Errorf("%d live runs, and %d of the backfill", live, filled)
		}
	})
}
