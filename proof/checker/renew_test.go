package checker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// fillOne is a backfill of one time, without force, that runs at once.
func fillOne(s *scene, k job.RunKey, at int64) {
	t := job.Instant(k.At)
	s.call(Call{Kind: CallBackfill, From: t, To: t, Times: []job.Instant{t}}, at)
	s.runAt(k, at)
}

// filledAgain: a time is backfilled after minute 1 and again, without force, after minute 8. By then the history, which
// lasts four minutes, has been trimmed: the first backfill is record 2, the runs of minutes 2 to 8 are the records 3 to
// 9.
func filledAgain(s *scene, floor uint64, when int64) (*Input, job.RunKey) {
	k := job.RunKey{Job: jobA, At: minute(0), Origin: job.OriginBackfill}
	s.run(1)
	fillOne(s, k, minute(1)+10_000)
	runs(s, 2, 8)
	fillOne(s, k, minute(8)+10_000)
	runs(s, 9, 9)
	in := s.end(9)
	floors := []Floor{{At: job.Instant(when), Seq: floor, Last: 9}}
	in.Final.Trimmed = &Trimmed{MaxAge: 4 * time.Minute, Late: time.Hour, Kept: map[uint64]bool{}, Floors: floors}
	for _, h := range in.Final.History {
		in.Final.Trimmed.Kept[h.Seq] = h.Seq > floor
	}
	return in, k
}

// TestRenewed: a backfill without force runs a time again only if the history held nothing of it any more.
func TestRenewed(t *testing.T) {
	before := minute(8) + 5000
	again := func(floor uint64, when int64) func(*scene) *Input {
		return func(s *scene) *Input { in, _ := filledAgain(s, floor, when); return in }
	}
	for _, tc := range []struct {
		name string
		spec func(*job.Spec)
		make func(*scene) *Input
		want Rule
	}{
		{"its records were trimmed", nil, again(3, before), ""},
		{"at most once", atMostOnce, again(3, before), ""},
		{"its last record is above the floor", nil, again(1, before), RuleTwice},
		{"and its attempts begin anew", nil, again(1, before), RuleAttempt},
		{"at most once, and above the floor", atMostOnce, again(1, before), RuleOnce},
		{"trimmed after the request", nil, again(3, minute(8)+20_000), RuleTwice},
		{"history that is not trimmed", nil, func(s *scene) *Input {
			in, _ := filledAgain(s, 3, before)
			in.Final.Trimmed = nil
			return in
		}, RuleTwice},
		{"it was asked for once only", nil, func(s *scene) *Input {
			in, _ := filledAgain(s, 3, before)
			in.Calls = in.Calls[:len(in.Calls)-1]
			return in
		}, RuleTwice},
		{"the second request left it out", nil, func(s *scene) *Input {
			in, _ := filledAgain(s, 3, before)
			last := &in.Calls[len(in.Calls)-1]
			last.Times, last.Skipped = nil, last.Times
			return in
		}, RuleTwice},
		{"one request runs it twice", nil, func(s *scene) *Input {
			in, k := filledAgain(s, 3, before)
			s.runAt(k, minute(9)+10_000)
			in.Final.Trimmed.Kept[s.seq] = true
			return in
		}, RuleTwice},
		{"a retry takes the place of an attempt that was not over", retries(3, 0), func(s *scene) *Input {
			in, _ := filledAgain(s, 3, before)
			in.Effects[1].Outcome, in.Final.History[1].Status = Failed, job.RunFailed
			return in
		}, RuleAttempt},
		{"its record is the newest of its job", nil, func(s *scene) *Input {
			k := job.RunKey{Job: jobA, At: minute(0), Origin: job.OriginBackfill}
			s.call(Call{Kind: CallPause}, minute(1)-20_000)
			for _, at := range []int64{minute(1), minute(8)} {
				fillOne(s, k, at)
			}
			s.job().Status = job.StatusPaused
			in := s.end(9)
			floors := []Floor{{At: job.Instant(before - 60_000), Seq: 1, Last: 1}}
			in.Final.Trimmed = &Trimmed{MaxAge: 4 * time.Minute, Late: time.Hour, Kept: map[uint64]bool{2: true}, Floors: floors}
			return in
		}, RuleTwice},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, tc.make(newScene(tc.spec)), tc.want) })
	}
}

// TestCanceledBackfillAgain: a backfill leaves out what ran. What was canceled before a worker had it did not, so each
// further request makes a run of it, and no more than that.
func TestCanceledBackfillAgain(t *testing.T) {
	for _, tc := range []struct {
		name      string
		requested int
		left      bool // the last request left it out
		force     bool
		want      Rule
	}{
		{"asked for each time", 3, false, false, ""},
		{"with force", 3, false, true, ""},
		{"asked for only twice", 2, false, false, RuleTwice},
		{"the last request left it out", 3, true, false, RuleTwice},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(nil)
			runs(s, 1, 3)
			k := job.RunKey{Job: jobA, At: minute(0), Origin: job.OriginBackfill}
			at := []job.Instant{job.Instant(k.At)}
			for i := range int64(3) {
				now := minute(3) + 10_000*(i+1)
				if int(i) < tc.requested {
					c := Call{Kind: CallBackfill, From: at[0], To: at[0], Times: at, Force: tc.force}
					if tc.left && i == 2 {
						c.Times, c.Skipped = nil, at
					}
					s.call(c, now)
				}
				s.call(Call{Kind: CallCancel, Count: 1}, now+2000)
				s.seq++
				s.in.Final.Recorded[s.seq] = job.Instant(now + 2000)
				s.in.Final.History = append(s.in.Final.History,
					job.Run{RunID: k.String(), JobID: jobA, ScheduledAt: at[0], Origin: k.Origin, Seq: s.seq,
						FinishedAt: job.Instant(now + 2000), Status: job.RunCanceled, Reason: job.ReasonCanceled})
			}
			check(t, s.end(3), tc.want)
		})
	}
}
