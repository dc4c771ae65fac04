package checker

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// t0 is when the job of a scene is made: half a minute before its first occurrence.
var t0 = time.Date(2027, 1, 4, 0, 0, 30, 0, time.UTC).UnixMilli()

// minute is the n-th occurrence of a scene's job.
func minute(n int) int64 { return t0 + int64(n)*60_000 - 30_000 }

// scene is a history in the making.
type scene struct {
	in    *Input
	spec  job.Spec
	fence uint64
	seq   uint64
}

const (
	jobA   = job.ID(1)
	worker = "n1"
)

// newScene has one job that runs every minute, and nothing in its history yet.
func newScene(edit func(*job.Spec)) *scene {
	s := &scene{in: &Input{}, spec: job.Spec{Name: "a", Type: job.TypeHTTP, Schedule: "* * * * *"}}
	if edit != nil {
		edit(&s.spec)
	}
	s.spec.Normalize()
	spec := s.spec
	answer := &job.Job{ID: jobA, Spec: spec, Version: 1, CreatedAt: job.Instant(t0), UpdatedAt: job.Instant(t0)}
	s.call(Call{Kind: CallCreate, Name: "a", Job: jobA, Spec: &spec, Answer: answer}, t0)
	final := *answer
	final.Status = job.StatusScheduled
	s.in.Final.Jobs = []job.Job{final}
	s.in.Final.Recorded = map[uint64]job.Instant{}
	s.in.Final.Digests = map[string]string{"n1": "x", "n2": "x", "n3": "x"}
	return s
}

func (s *scene) call(c Call, at int64) *Call {
	if c.Job == 0 && c.Kind != CallCalendar {
		c.Job = jobA
	}
	c.Outcome, c.Invoke, c.Return = OK, job.Instant(at-5), job.Instant(at+5)
	s.in.Calls = append(s.in.Calls, c)
	return &s.in.Calls[len(s.in.Calls)-1]
}

func (s *scene) job() *job.Job { return &s.in.Final.Jobs[0] }

// attempt adds a claim, what the worker did with it, and its record.
func (s *scene) attempt(k job.RunKey, n int, on string, at, took int64, o EffectOutcome, st job.RunStatus,
	why job.Reason) {
	s.fence++
	s.seq++
	key := k.Job.String() + ":" + strconv.FormatInt(k.At/1000, 10)
	if k.Origin == job.OriginSchedule && k.At%1000 != 0 {
		key += fmt.Sprintf(".%03d", k.At%1000)
	}
	if k.Origin != job.OriginSchedule {
		key += ":" + k.Origin.String() + ":" + strconv.FormatInt(k.At, 10)
	}
	s.in.Effects = append(s.in.Effects,
		Effect{Worker: on, Run: k, Fence: s.fence, Attempt: n, Key: key, Start: job.Instant(at + 10),
			End: job.Instant(at + took), Outcome: o})
	s.in.Handed = append(s.in.Handed,
		Handed{Worker: on, Term: 2, Run: k, Fence: s.fence, Attempt: n, Key: key, At: job.Instant(at + 5)})
	s.in.Final.History = append(s.in.Final.History,
		job.Run{RunID: k.String(), JobID: k.Job, JobName: "a", ScheduledAt: job.Instant(k.At), Origin: k.Origin,
			ClaimedAt: job.Instant(at), StartedAt: job.Instant(at + 10), FinishedAt: job.Instant(at + took), Attempt: n,
			Status: st, Reason: why, Worker: on, Fence: s.fence, Seq: s.seq})
	s.in.Final.Recorded[s.seq] = job.Instant(at + took + 2)
	if st == job.RunDead {
		s.in.Final.Dead = append(s.in.Final.Dead,
			job.DeadLetter{Seq: s.seq, Run: s.in.Final.History[len(s.in.Final.History)-1]})
	}
}

func sched(at int64) job.RunKey { return job.RunKey{Job: jobA, At: at, Origin: job.OriginSchedule} }

// run is a run that goes well at once.
func (s *scene) run(n int) { s.runAt(sched(minute(n)), minute(n)) }

func (s *scene) runAt(k job.RunKey, at int64) {
	s.attempt(k, 1, worker, at, 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
}

// gap is a record of occurrences that did not run.
func (s *scene) gap(first, last, count int, st job.RunStatus, why job.Reason, recorded int64) {
	s.seq++
	s.in.Final.History = append(s.in.Final.History,
		job.Run{JobID: jobA, First: job.Instant(minute(first)), Last: job.Instant(minute(last)), Count: int64(count),
			Status: st,
			Reason: why, FinishedAt: job.Instant(recorded), Seq: s.seq})
}

// end closes the scene after minute n: half a minute later.
func (s *scene) end(n int) *Input {
	s.in.Final.At = job.Instant(minute(n) + 30_000)
	if s.job().Status == job.StatusScheduled && s.job().NextRunAt == 0 {
		s.job().NextRunAt = job.Instant(minute(n + 1))
	}
	return s.in
}

func (s *scene) fault(k FaultKind, node string, from, to int64) {
	s.in.Faults = append(s.in.Faults, Fault{Kind: k, Node: node, From: job.Instant(from), To: job.Instant(to)})
}

// outage cuts everything off between two times.
func (s *scene) outage(from, to int64) {
	s.fault(FaultKill, "n2", from, to-2000)
	s.in.Outages = append(s.in.Outages, Outage{job.Instant(from), job.Instant(to)})
}

func (s *scene) gone() { s.in.Final.Jobs = nil }

// update is an edit that was answered at a time.
func (s *scene) update(at int64, edit func(*job.Spec)) {
	version := s.job().Version + 1
	edit(&s.spec)
	s.spec.Normalize()
	spec := s.spec
	j := s.job()
	j.Spec, j.Version, j.UpdatedAt = spec, version, job.Instant(at)
	answer := *j
	s.call(Call{Kind: CallUpdate, Spec: &spec, Version: version - 1, Answer: &answer}, at)
}

func runs(s *scene, from, to int) {
	for n := from; n <= to; n++ {
		s.run(n)
	}
}

var closedCalendar = &schedule.Calendar{Name: "closed",
	Windows: []schedule.Window{{From: time.UnixMilli(minute(3)), To: time.UnixMilli(minute(5))}}}

// check holds the report of an input against the rule that is to be named; "" means that nothing is wrong.
func check(t *testing.T, in *Input, want Rule) {
	t.Helper()
	r := Check(in)
	if want == "" {
		if err := r.Err(); err != nil {
			t.Errorf("a right history is refused: %v", err)
		}
		return
	}
	if !slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Rule == want }) {
		t.Errorf("want a problem with the rule %q, got: %v", want, r.Err())
		return
	}
	for _, p := range r.Problems {
		if p.Rule == want && p.Job == 0 && want != RuleReplicas && want != RuleOutage &&
			!(want == RuleInvented || want == RuleTwice) {
			t.Errorf("the problem does not name the job: %s", p)
		}
	}
}
