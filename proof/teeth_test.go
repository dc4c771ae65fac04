package proof

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// forgery changes what was collected of real processes into something that they cannot have done. It says false if
// there is nothing of the kind in this history.
type forgery struct {
	rule   checker.Rule // that must be named
	always bool         // every rich history of a load on a cluster offers it
	forge  func(b *forged) bool
}

// ruleEvidence stands for what is found before the checker is asked.
const ruleEvidence checker.Rule = "evidence"

// forged is a copy of the evidence that may be written in.
type forged struct {
	harness.Evidence
	lost int // attempts that ended with their worker
}

func copied(b *harness.Evidence, lost int) *forged {
	f := &forged{*b, lost}
	f.Calls, f.Seen, f.Faults, f.Vacant = slices.Clone(b.Calls), slices.Clone(b.Seen), slices.Clone(b.Faults),
		slices.Clone(b.Vacant)
	x := &f.Final
	x.Jobs, x.History, x.Pending, x.Open, x.Dead, x.Digests = slices.Clone(x.Jobs), slices.Clone(x.History),
		slices.Clone(x.Pending), slices.Clone(x.Open), slices.Clone(x.Dead), maps.Clone(x.Digests)
	return f
}

// plain is a record from the middle of the history, of a run that succeeded at once: of a job of the load with this
// overlap policy, and one that fits.
func (f *forged) plain(overlap string, fits ...func(r *job.Run) bool) int {
	h := f.Final.History
	for k := range h {
		i := (len(h)/2 + k) % len(h)
		r := &h[i]
		if r.RunID == "" || r.Attempt != 1 || r.Status != job.RunSucceeded || r.Origin != job.OriginSchedule ||
			!strings.HasPrefix(r.JobName, "every-") {
			continue
		}
		if j := f.job(r.JobID); j != nil && j.Overlap == overlap && f.seen(r.Fence) >= 0 && !f.troubled(r) &&
			!slices.ContainsFunc(fits, func(fits func(*job.Run) bool) bool { return !fits(r) }) {
			return i
		}
	}
	return -1
}

// troubled says that there was a fault while a run was under way: much may be said of such a run.
func (f *forged) troubled(r *job.Run) bool {
	return slices.ContainsFunc(f.Faults, func(o harness.Outage) bool {
		return o.Sent.Add(-time.Second).Before(r.FinishedAt.Time()) &&
			(o.Ready.IsZero() || o.Ready.Add(time.Second).After(r.ClaimedAt.Time()))
	})
}

func (f *forged) job(id job.ID) *job.Job {
	i := slices.IndexFunc(f.Final.Jobs, func(j job.Job) bool { return j.ID == id })
	if i < 0 {
		return nil
	}
	return &f.Final.Jobs[i]
}

func (f *forged) seen(fence uint64) int {
	return slices.IndexFunc(f.Seen, func(s harness.Seen) bool { return s.Fence == fence })
}

// after is when the next run of the same job was claimed; 0: there is none. It may be far away: a job that nobody led
// for a while fires again when somebody does.
func (f *forged) after(r *job.Run) (next job.Instant) {
	for _, h := range f.Final.History {
		if h.JobID == r.JobID && h.RunID != "" && h.RunID != r.RunID && h.Fence > r.Fence &&
			(next == 0 || h.ClaimedAt < next) {
			next = h.ClaimedAt
		}
	}
	return next
}

// gap is a record of occurrences of the load that did not run.
func (f *forged) gap() int {
	return slices.IndexFunc(f.Final.History, func(r job.Run) bool {
		return r.RunID == "" && r.Reason == job.ReasonOverlap && strings.HasPrefix(r.JobName, "every-")
	})
}

// forget removes a run from the history and from what the target saw.
func (f *forged) forget(id string) {
	f.Final.History = slices.DeleteFunc(f.Final.History, func(r job.Run) bool { return r.RunID == id })
	f.Seen = slices.DeleteFunc(f.Seen, func(s harness.Seen) bool { return s.Run == id })
}

// append writes a record at the end, with the target as a witness.
func (f *forged) append(r job.Run, k job.RunKey, s harness.Seen) {
	last := f.Final.History[len(f.Final.History)-1]
	for _, h := range f.Final.History {
		r.Fence, r.ClaimedAt = max(r.Fence, h.Fence+1), max(r.ClaimedAt, h.ClaimedAt)
	}
	r.Seq, r.RunID, r.ScheduledAt, r.Origin = last.Seq+1, k.String(), job.Instant(k.At), k.Origin
	r.StartedAt, r.FinishedAt = r.ClaimedAt, r.ClaimedAt+20
	f.Final.History = append(f.Final.History, r)
	s.Run, s.ScheduledAt, s.Fence, s.Attempt = r.RunID, r.ScheduledAt.String(), r.Fence, r.Attempt
	s.Arrived, s.Answered = r.ClaimedAt.Time().Add(5*time.Millisecond), r.ClaimedAt.Time().Add(10*time.Millisecond)
	f.Seen = append(f.Seen, s)
}

// of makes a forgery of one record and its request.
func of(overlap string, change func(f *forged, r *job.Run, s *harness.Seen)) func(*forged) bool {
	return func(f *forged) bool {
		i := f.plain(overlap)
		if i < 0 {
			return false
		}
		r := &f.Final.History[i]
		change(f, r, &f.Seen[f.seen(r.Fence)])
		return true
	}
}

func ofGap(change func(f *forged, r *job.Run)) func(*forged) bool {
	return func(f *forged) bool {
		i := f.gap()
		if i >= 0 {
			change(f, &f.Final.History[i])
		}
		return i >= 0
	}
}

func key(r *job.Run) job.RunKey {
	return job.RunKey{Job: r.JobID, At: int64(r.ScheduledAt), Origin: r.Origin}
}

var forgeries = map[string]forgery{
	"a record is dropped": {checker.RuleCommitted, true,
		of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) {
			seq := r.Seq
			f.Final.History = slices.DeleteFunc(f.Final.History, func(h job.Run) bool { return h.Seq == seq })
		})},
	"a run is dropped": {checker.RuleLost, true,
		of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) { f.forget(r.RunID) })},
	"the last run of a job is dropped": {checker.RuleLost, true,
		of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) {
			id, last := r.JobID, ""
			for _, h := range f.Final.History {
				if h.JobID == id && h.RunID != "" {
					last = h.RunID
				}
			}
			f.forget(last)
		})},
	"a run is invented": {checker.RuleInvented, true, of(job.OverlapAllow, func(f *forged, r *job.Run, s *harness.Seen) {
		f.append(*r, job.RunKey{Job: r.JobID, At: int64(r.ScheduledAt) + 137, Origin: job.OriginSchedule}, *s)
	})},
	"a run by hand is invented": {checker.RuleInvented, true,
		of(job.OverlapAllow, func(f *forged, r *job.Run, s *harness.Seen) {
			f.append(*r, job.RunKey{Job: r.JobID, At: int64(r.ScheduledAt) + 137, Origin: job.OriginManual}, *s)
		})},
	"a run is done again": {checker.RuleTwice, true, of(job.OverlapAllow, func(f *forged, r *job.Run, s *harness.Seen) {
		again := *r
		again.Attempt = 2
		f.append(again, key(r), *s)
	})},
	"a request is repeated": {checker.RuleLive, true, of(job.OverlapAllow, func(f *forged, _ *job.Run, s *harness.Seen) {
		again := *s
		again.Arrived, again.Answered = s.Answered.Add(time.Second), s.Answered.Add(1010*time.Millisecond)
		f.Seen = append(f.Seen, again)
	})},
	"the faults are forgotten": {checker.RuleLive, false, func(f *forged) bool {
		f.Faults, f.Vacant = nil, nil
		return f.lost > 0
	}},
	"an attempt is lost without a fault": {checker.RuleLive, true,
		of(job.OverlapAllow, func(f *forged, r *job.Run, s *harness.Seen) {
			r.Status, r.Reason = job.RunFailed, job.ReasonWorkerLost
			s.Answered, s.Gone, s.Status = time.Time{}, s.Answered, 0
			again := *r
			again.Status, again.Reason, again.Attempt = job.RunSucceeded, job.ReasonNone, 2
			second := *s
			second.Answered, second.Gone, second.Status = s.Gone, time.Time{}, 200
			f.append(again, key(r), second)
			f.Faults, f.Vacant = nil, nil
		})},
	"another key": {checker.RuleKey, true,
		of(job.OverlapAllow, func(_ *forged, _ *job.Run, s *harness.Seen) { s.Key += "x" })},
	"the target refused": {checker.RuleOutcome, true,
		of(job.OverlapAllow, func(_ *forged, _ *job.Run, s *harness.Seen) { s.Status = 500 })},
	"the target saw none": {checker.RuleOutcome, true, of(job.OverlapAllow, func(f *forged, r *job.Run, s *harness.Seen) {
		f.Seen = slices.Delete(f.Seen, f.seen(r.Fence), f.seen(r.Fence)+1)
	})},
	"started unclaimed": {checker.RuleCommitted, true,
		of(job.OverlapAllow,
			func(_ *forged, r *job.Run, s *harness.Seen) { s.Arrived = r.ClaimedAt.Time().Add(-time.Second) })},
	"claimed too early": {checker.RuleEarly, true,
		of(job.OverlapAllow, func(_ *forged, r *job.Run, _ *harness.Seen) { r.ClaimedAt = r.ScheduledAt - 1 })},
	"a fence is shared": {checker.RuleFence, true, of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) {
		i := slices.IndexFunc(f.Final.History, func(h job.Run) bool { return h.Fence != 0 && h.Fence != r.Fence })
		r.Fence = f.Final.History[i].Fence
	})},
	"sent somewhere else": {ruleEvidence, true,
		of(job.OverlapAllow, func(_ *forged, _ *job.Run, s *harness.Seen) { s.Token = "manual-0" })},
	"sent for another run": {ruleEvidence, true,
		of(job.OverlapAllow, func(_ *forged, _ *job.Run, s *harness.Seen) { s.ScheduledAt = "2027-01-01T00:00:00Z" })},
	"sent by another worker": {checker.RuleFence, false, func(f *forged) bool {
		i := f.plain(job.OverlapAllow)
		if len(f.Workers) < 2 || i < 0 {
			return false
		}
		s := &f.Seen[f.seen(f.Final.History[i].Fence)]
		for from := range f.Workers {
			if from != s.From {
				s.From = from
				break
			}
		}
		return true
	}},
	"recorded as failed": {checker.RuleOutcome, true, of(job.OverlapAllow, func(_ *forged, r *job.Run, _ *harness.Seen) {
		r.Status, r.Reason = job.RunDead, job.ReasonExhausted
	})},
	"a dead letter of no run": {checker.RuleDead, true, of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) {
		f.Final.Dead = append(f.Final.Dead, job.DeadLetter{Seq: r.Seq, Run: *r})
	})},
	"open after its end": {checker.RuleTwice, true, of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) {
		open := *r
		open.Seq, open.Status, open.FinishedAt = 0, job.RunPending, 0
		f.Final.Open = append(f.Final.Open, open)
	})},
	"ran and did not run": {checker.RuleTwice, true, of(job.OverlapSkip, func(f *forged, r *job.Run, _ *harness.Seen) {
		last := f.Final.History[len(f.Final.History)-1]
		f.Final.History = append(f.Final.History,
			job.Run{Seq: last.Seq + 1, JobID: r.JobID, JobName: r.JobName, Status: job.RunSkipped, Reason: job.ReasonOverlap,
				First: r.ScheduledAt, Last: r.ScheduledAt, Count: 1, FinishedAt: r.FinishedAt})
	})},
	"two at once": {checker.RuleOverlap, true, func(f *forged) bool {
		i := f.plain(job.OverlapSkip, func(r *job.Run) bool { return f.after(r) != 0 })
		if i < 0 {
			return false
		}
		r := &f.Final.History[i]
		late := f.after(r) + 5000
		r.FinishedAt, f.Seen[f.seen(r.Fence)].Answered = late, late.Time()
		return true
	}},
	"a gap is dropped": {checker.RuleLost, false, ofGap(func(f *forged, r *job.Run) {
		seq := r.Seq
		f.Final.History = slices.DeleteFunc(f.Final.History, func(h job.Run) bool { return h.Seq == seq })
	})},
	"paused without a request": {checker.RuleReason, false,
		ofGap(func(_ *forged, r *job.Run) { r.Reason = job.ReasonPaused })},
	"missed under a leader": {checker.RuleMissed, false, ofGap(func(f *forged, r *job.Run) {
		r.Status, r.Reason, f.Vacant = job.RunMissed, job.ReasonOutage, nil
	})},
	"one too many in a gap": {checker.RuleInvented, false, ofGap(func(_ *forged, r *job.Run) { r.Count++ })},
	"claimed without a leader": {checker.RuleOutage, true,
		of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) {
			f.Vacant = []checker.Outage{{From: r.ClaimedAt - 700, To: r.ClaimedAt + 700}}
		})},
	"an acknowledged run by hand is dropped": {checker.RuleLost, true, func(f *forged) bool {
		i := slices.IndexFunc(f.Calls,
			func(c checker.Call) bool { return c.Kind == checker.CallRun && c.Outcome == checker.OK })
		if i >= 0 {
			f.forget(f.Calls[i].Run.String())
		}
		return i >= 0
	}},
	"an acknowledged job is dropped": {checker.RuleLost, true,
		of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) {
			id := r.JobID
			f.Final.Jobs = slices.DeleteFunc(f.Final.Jobs, func(j job.Job) bool { return j.ID == id })
		})},
	"an acknowledged edit is dropped": {checker.RuleCall, true,
		of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) { f.job(r.JobID).Version = 1 })},
	"a job that was never created": {ruleEvidence, true,
		of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) {
			other := *f.job(r.JobID)
			other.ID, other.Name, other.Payload = 1<<40, "other", []byte(`{"url":"http://x/other"}`)
			f.Final.Jobs = append(f.Final.Jobs, other)
		})},
	"a job made twice": {ruleEvidence, true, of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) {
		other := *f.job(r.JobID)
		other.ID, other.Name = 1<<40, "other"
		f.Final.Jobs = append(f.Final.Jobs, other)
	})},
	"another next run": {checker.RuleNext, true,
		of(job.OverlapAllow, func(f *forged, r *job.Run, _ *harness.Seen) { f.job(r.JobID).NextRunAt = f.Final.At + 1000 })},
	"a replica that differs": {checker.RuleReplicas, true, func(f *forged) bool {
		f.Final.Digests["n1"] = "another"
		return true
	}},
}

// A history in which a job fires again after a minute only, and last of all another one that fired once, still offers a
// run that is open when the next one is claimed.
func TestForgedOverlap(t *testing.T) {
	f := &forged{}
	for i, at := range []job.Instant{1000, 2000, 62_000, 63_000} {
		id := job.ID(1 + i%3) // 1, 2, 3, 1
		f.Final.History = append(f.Final.History, job.Run{Seq: uint64(i + 1), RunID: fmt.Sprint("r", i), JobID: id, JobName: "every-0", Attempt: 1,
			Status: job.RunSucceeded, Origin: job.OriginSchedule, ScheduledAt: at, ClaimedAt: at + 10, FinishedAt: at + 50, Fence: uint64(i + 1)})
		f.Seen = append(f.Seen, harness.Seen{Fence: uint64(i + 1), Answered: (at + 40).Time()})
		f.Final.Jobs = append(f.Final.Jobs, job.Job{ID: id, Spec: job.Spec{Overlap: job.OverlapSkip}})
	}
	if !forgeries["two at once"].forge(f) {
		t.Fatal("this history does not offer it")
	}
	first, last := f.Final.History[0], f.Final.History[3]
	if first.FinishedAt < last.ClaimedAt+1000 || f.Seen[0].Answered.Before(last.ClaimedAt.Time()) {
		t.Errorf("one ends at %v, the other is claimed at %v", first.FinishedAt, last.ClaimedAt)
	}
}

// teeth forges the history that was just accepted in every way that it offers, and sees each refused: what is collected
// of real processes does reach the checker. A history that is rich enough must offer all those that every load has.
func (l *load) teeth(b *harness.Evidence, r checker.Report, rich bool) {
	l.t.Helper()
	if l.t.Failed() {
		return
	}
	began, tried := time.Now(), 0
	for _, name := range slices.Sorted(maps.Keys(forgeries)) {
		x := forgeries[name]
		f := copied(b, r.LostWorkers)
		if !x.forge(f) {
			if x.always && rich {
				l.t.Errorf("%s: this history does not offer it", name)
			}
			continue
		}
		in, problems := f.Input()
		tried++
		found := x.rule == ruleEvidence && len(problems) > 0
		rep := checker.Check(&in)
		for _, p := range rep.Problems {
			found = found || p.Rule == x.rule
		}
		if !found {
			l.t.Errorf("%s: the rule %q is not named: %v, %v", name, x.rule, problems, rep.Err())
		}
	}
	l.t.Logf("%d of %d forgeries of this history are refused (%s)", tried, len(forgeries),
		time.Since(began).Round(time.Millisecond))
}
