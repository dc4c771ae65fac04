package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// stopFor pretends that no node led for a while.
func (w *world) stopFor(d time.Duration) {
	w.t.Helper()
	w.stop()
	time.Sleep(d)
	w.lead()
}

func missedSpec(policy, window string, limit int) func(*job.Spec) {
	return func(s *job.Spec) { s.Missed = job.Missed{Policy: policy, Window: window, Max: limit} }
}

func TestMissedAfterATwoHourStop(t *testing.T) {
	// The stop is from 01:00:2x to 03:00:2x; half-hourly jobs miss 01:30, 02:00, 02:30 and (within grace) 03:00.
	tests := []struct {
		name, sched string
		edit        func(*job.Spec)
		want        []string
		next        time.Duration // after 2000-01-01; 0: none
	}{
		{"skip runs only what is within the grace", "*/30 * * * *", missedSpec(job.MissedSkip, "auto", 0), []string{"missed(outage)x3", "succeeded"}, 3*time.Hour + 30*time.Minute},
		{"run_once runs the latest", "*/30 * * * *", nil, []string{"missed(outage)x3", "succeeded"}, 3*time.Hour + 30*time.Minute},
		{"run_once outside the window runs none", "30 1,2 * * *", missedSpec(job.MissedRunOnce, "10m", 0), []string{"missed(outage)x2"}, 25*time.Hour + 30*time.Minute},
		{"run_all runs them one by one", "*/30 * * * *", missedSpec(job.MissedRunAll, "3h", 10), []string{"succeeded", "succeeded", "succeeded", "succeeded"}, 3*time.Hour + 30*time.Minute},
		{"run_all is cut by max", "*/30 * * * *", missedSpec(job.MissedRunAll, "3h", 2), []string{"missed(outage)x2", "succeeded", "succeeded"}, 3*time.Hour + 30*time.Minute},
		{"a one-off runs late", "2000-01-01T01:30:00Z", nil, []string{"succeeded"}, 0},
		{"a one-off with skip is recorded", "2000-01-01T01:30:00Z", missedSpec(job.MissedSkip, "auto", 0), []string{"missed(outage)x1"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.lead()
				id := w.create(tt.sched, tt.edit)
				time.Sleep(20 * time.Second)
				w.stopFor(2 * time.Hour)
				f := w.worker("w1", 4, nil).mustJoin()
				time.Sleep(10 * time.Second)
				w.wantHistory(id, tt.want...)
				var want int64
				if tt.next != 0 {
					want = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(tt.next).UnixMilli()
				}
				if _, p := w.state(id); p.At != want {
					t.Errorf("next at %d, want %d", p.At, want)
				}
				if times := f.ranOf(id); !slices.IsSorted(times) {
					t.Errorf("out of order: %v", times)
				}
			})
		})
	}
}

func TestCatchUpIsSerialised(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.create("*/30 * * * *", missedSpec(job.MissedRunAll, "3h", 10))
		time.Sleep(20 * time.Second)
		w.stopFor(2 * time.Hour)
		f := w.worker("w1", 4, func(f *fakeWorker) { f.handle = takes(30 * time.Second) }).mustJoin()
		time.Sleep(5 * time.Minute)
		runs := f.ran()
		if len(runs) != 4 {
			t.Fatalf("%d runs", len(runs))
		}
		for i := 1; i < len(runs); i++ {
			if d := runs[i].at.Sub(runs[i-1].at); d < 30*time.Second {
				t.Errorf("run %d began %s after the one before it", i, d)
			}
		}
		w.wantHistory(id, "succeeded", "succeeded", "succeeded", "succeeded")
	})
}

// A second failover in the middle of a catch-up must not change what is caught up.
func TestSecondFailoverDoesNotChangeTheMissedDecision(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		all := w.create("*/30 * * * *", missedSpec(job.MissedRunAll, "3h", 10))
		once := w.create("*/30 * * * *", nil)
		time.Sleep(20 * time.Second)
		w.stopFor(2 * time.Hour)
		time.Sleep(10 * time.Second) // no worker: everything is decided, nothing is claimed
		w.stopFor(10 * time.Minute)
		f := w.worker("w1", 4, nil).mustJoin()
		time.Sleep(10 * time.Second)
		if n := len(f.ranOf(all)); n != 4 {
			t.Errorf("run_all ran %d", n)
		}
		if n := len(f.ranOf(once)); n != 1 {
			t.Errorf("run_once ran %d", n)
		}
		w.wantHistory(once, "missed(outage)x3", "succeeded")
	})
}

func TestBacklogIsNeverMissed(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.create("*/5 * * * *", func(s *job.Spec) {
			s.Missed.Policy = job.MissedSkip
			s.Overlap = job.OverlapQueue // with skip, the overlap policy would have its say about occurrences that come together
		})
		time.Sleep(2 * time.Hour) // led all the time, but no worker could run it
		if why := w.s.WaitReason(id); why != "no worker has executor shell enabled" {
			t.Errorf("wait reason %q", why)
		}
		f := w.worker("w1", 1, nil).mustJoin()
		time.Sleep(10 * time.Second)
		if n := len(f.ranOf(id)); n != 24 {
			t.Errorf("%d of 24 ran", n)
		}
		// A failover without an outage worth the name changes nothing.
		f.leave()
		time.Sleep(11 * time.Minute)
		w.stopFor(5 * time.Second)
		f = w.worker("w2", 1, nil).mustJoin()
		time.Sleep(5 * time.Second)
		if n := len(f.ranOf(id)); n != 2 {
			t.Errorf("%d of 2 ran after the failover", n)
		}
	})
}

func TestPastOneOffSimplyRuns(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		time.Sleep(20 * time.Second)
		w.stopFor(2 * time.Hour)
		f := w.worker("w1", 1, nil).mustJoin()
		id := w.create("2000-01-01T02:00:00Z", missedSpec(job.MissedRunOnce, "1m", 0)) // inside the outage, but asked for after it
		time.Sleep(time.Second)
		if n := len(f.ranOf(id)); n != 1 {
			t.Errorf("ran %d times: %v", n, w.summary(id))
		}
	})
}

func TestDeadlineExpiresWithoutAWorker(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.create("*/10 * * * *", func(s *job.Spec) { s.Deadline = job.Duration(2 * time.Minute) })
		man := w.create("@manual", func(s *job.Spec) { s.Deadline = job.Duration(2 * time.Minute) })
		w.trigger(man)
		time.Sleep(33 * time.Minute)
		w.wantHistory(id, "expired(deadline)x3")
		w.wantHistory(man, "expired(deadline)")
		f := w.worker("w1", 1, nil).mustJoin()
		time.Sleep(20 * time.Minute)
		if n := len(f.ranOf(id)); n != 2 {
			t.Errorf("%d ran in time", n)
		}
	})
}

func TestBlackoutSkipsWithARecord(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.do(&fsm.Calendar{Head: w.head(), Name: "night", Data: []byte(`{"name":"night","daily":["01:10-01:40"]}`)})
		f := w.worker("w1", 1, nil).mustJoin()
		id := w.create("*/10 * * * *", func(s *job.Spec) { s.Calendars = []string{"night", "nosuch"} })
		time.Sleep(55 * time.Minute)
		if got := f.ranOf(id); len(got) != 2 {
			t.Errorf("ran at %v", got)
		}
		w.wantHistory(id, "skipped(blackout)x3", "succeeded", "succeeded")
		// A changed calendar counts from the next occurrence on.
		w.do(&fsm.Calendar{Head: w.head(), Name: "night", Data: []byte(`{"name":"night","daily":["02:00-02:15"]}`)})
		time.Sleep(20 * time.Minute)
		w.wantHistory(id, "skipped(blackout)x3", "succeeded", "succeeded", "skipped(blackout)x2")
	})
}

func TestMaxRunsEndsTheJob(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, nil).mustJoin()
		id := w.create("* * * * *", func(s *job.Spec) { s.MaxRuns = 3 })
		time.Sleep(10 * time.Minute)
		if n := len(f.ranOf(id)); n != 3 {
			t.Errorf("ran %d times", n)
		}
		if s, p := w.state(id); !p.Parked || s.Runs != 3 {
			t.Errorf("%+v %+v", s, p)
		}
	})
}

// What the claim of the last run names as next is for the case that it is skipped; a job that is done shows so at once.
func TestJobEndsWithItsLastRun(t *testing.T) {
	for _, overlap := range []string{job.OverlapSkip, job.OverlapQueue, job.OverlapAllow, job.OverlapReplace} {
		run(t, func(t *testing.T, w *world) {
			w.lead()
			w.worker("w1", 1, nil).mustJoin()
			id := w.create("*/2 * * * *", func(s *job.Spec) { s.MaxRuns, s.Overlap = 1, overlap })
			time.Sleep(2 * time.Minute)
			if s, p := w.state(id); !p.Parked || s.Runs != 1 {
				t.Errorf("%s: %+v %+v", overlap, s, p)
			}
			w.wantHistory(id, "succeeded")
		})
	}
}

// The outcome of the claim is not known where the job could be ended: it ends when its next occurrence would be due.
func TestJobEndsWithALastRunOfAnEarlierLeader(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 1, nil).mustJoin()
		id := w.create("*/2 * * * *", func(s *job.Spec) { s.MaxRuns = 1 })
		w.setFault(func(cmd fsm.Command) (error, bool) {
			if _, ok := cmd.(*fsm.Claim); ok {
				return errAmbiguous, true
			}
			return nil, true
		})
		time.Sleep(2 * time.Minute)
		w.setFault(nil)
		f.leave()
		w.lead()
		f.mustJoin()
		time.Sleep(2 * time.Minute)
		if s, p := w.state(id); !p.Parked || s.Runs != 1 {
			t.Errorf("%+v %+v", s, p)
		}
		w.wantHistory(id, "succeeded")
	})
}

// Whether a run of the job is open is decided in apply, after the occurrence was read: one by hand may have been on its
// way. The occurrence that is skipped for it was to be the last run; it does not count, so another one must follow.
func TestRunByHandDoesNotUseUpMaxRuns(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.create("* * * * *", func(s *job.Spec) { s.MaxRuns = 1 })
		h := w.head()
		time.Sleep(time.Minute) // it is due, and waits for a worker
		if o := w.do(&fsm.Trigger{Head: h, Job: uint64(id)}).Items[0]; o.Code != fsm.CodeOK {
			t.Fatalf("%+v", o)
		}
		f := w.worker("w1", 4, nil).mustJoin()
		time.Sleep(10 * time.Minute)
		if n := len(f.ranOf(id)); n != 2 {
			t.Errorf("ran %d times: %v", n, w.summary(id))
		}
		if s, p := w.state(id); !p.Parked || s.Runs != 1 {
			t.Errorf("%+v %+v", s, p)
		}
		w.wantHistory(id, "succeeded", "skipped(overlap)x1", "succeeded")
	})
}

func TestSkippedOccurrencesDoNotUseUpMaxRuns(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		f := w.worker("w1", 4, func(f *fakeWorker) { f.handle = takes(150 * time.Second) }).mustJoin()
		id := w.create("* * * * *", func(s *job.Spec) { s.MaxRuns = 2 })
		time.Sleep(20 * time.Minute)
		if n := len(f.ranOf(id)); n != 2 {
			t.Errorf("ran %d times: %v", n, w.summary(id))
		}
		if _, p := w.state(id); !p.Parked {
			t.Errorf("still due: %+v", p)
		}
	})
}

func TestOneOffIsCleanedUpAfterItsRetention(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		w.worker("w1", 1, nil).mustJoin()
		w.create("2000-01-01T02:00:00Z", func(s *job.Spec) { s.Retention = job.Duration(time.Hour) })
		time.Sleep(90 * time.Minute)
		if n := w.st.Counters().Jobs; n != 1 {
			t.Fatalf("%d jobs", n)
		}
		time.Sleep(time.Hour)
		if n := w.st.Counters().Jobs; n != 0 {
			t.Errorf("%d jobs are left", n)
		}
	})
}

// What was missed in an outage is missed also where its job was paused before anybody decided, and other leaders came and
// went until the resume: nothing was due then that could have fallen into the outage.
func TestWhatWasMissedOutlivesAPause(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.create("*/30 * * * *", missedSpec(job.MissedSkip, "auto", 0))
		time.Sleep(20 * time.Second)
		w.setFault(func(cmd fsm.Command) (error, bool) {
			switch cmd.(type) {
			case *fsm.Advance, *fsm.Claim, *fsm.Admit:
				return notApplied(cmd)
			}
			return nil, true
		})
		w.stopFor(2 * time.Hour)
		w.pause(id)
		w.setFault(nil)
		w.stopFor(5 * time.Minute)
		w.resume(id)
		w.worker("w1", 4, nil).mustJoin()
		time.Sleep(10 * time.Second)
		w.wantHistory(id, "missed(outage)x3", "succeeded") // the last one is younger than the grace
	})
}

// Outcomes of requests that have expired go as fast as they come, also where no history is due: what is kept of them
// would grow without end, and a key would be taken for that of a request of long ago.
func TestOutcomesOfRequestsAreForgottenInTime(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		id := w.create("@manual", nil)
		const n = 4*trimLimit + 1
		key := func(i int) string { return fmt.Sprint("r", i) }
		for i := range n {
			w.do(&fsm.Pause{Head: w.head(), Job: uint64(id), Request: fsm.Request{ID: key(i), Fingerprint: 1, Expires: w.head().Now + 1}})
		}
		time.Sleep(2 * trimAnyway)
		left := 0
		if err := w.st.View(func(v *store.View) error {
			for i := range n {
				if v.Request(key(i)) != nil {
					left++
				}
			}
			return nil
		}); err != nil || left > 0 {
			t.Errorf("%d of %d are left, %v", left, n, err)
		}
	})
}

func TestHistoryIsTrimmed(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.opts.HistoryMaxAge = 10 * time.Minute
		w.lead()
		w.worker("w1", 1, nil).mustJoin()
		id := w.create("* * * * *", nil)
		time.Sleep(time.Hour)
		if n := len(w.history(id)); n < 9 || n > 12 {
			t.Errorf("%d records are kept for ten minutes", n)
		}
		w.stop()
		w.opts.HistoryMaxAge, w.opts.HistoryMaxCount = 0, 5
		w.lead()
		time.Sleep(time.Minute)
		if n := len(w.history(id)); n < 4 || n > 6 {
			t.Errorf("%d records are kept of five", n)
		}
	})
}
