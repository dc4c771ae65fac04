package checker

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// TestDefinitionAtTheClaim: what an attempt was given is held against the definition in force when it was claimed.
func TestDefinitionAtTheClaim(t *testing.T) {
	first := func(s *job.Spec) {
		s.Payload, s.Timeout, s.Workers = json.RawMessage(`{"url":"http://h/1"}`), job.Duration(30*time.Second),
			map[string]string{"pool": "a"}
		s.IdempotencyKey = "{job_id}/{scheduled_at_unix}/1"
	}
	second := func(s *job.Spec) {
		s.Payload, s.Timeout, s.Workers = json.RawMessage(`{"url":"http://h/2"}`), job.Duration(60*time.Second),
			map[string]string{"pool": "b"}
		s.IdempotencyKey = "{job_id}/{scheduled_at_unix}/2"
	}
	tags := map[string]map[string]string{worker: {"pool": "a"}, "n2": {"pool": "b"}}
	// history is a minute with the first definition and one with the second, which was put between them.
	history := func(change func(in *Input)) *Input {
		s := newScene(first)
		s.in.Tags = tags
		s.run(1)
		s.update(minute(1)+20_000, second)
		s.runAt(sched(minute(2)), minute(2))
		in := s.end(2)
		for i, n := range []string{"1", "2"} {
			e, h := &in.Effects[i], &in.Final.History[i]
			e.Key = keyFor(&job.Spec{IdempotencyKey: "{job_id}/{scheduled_at_unix}/" + n}, e.Run)
			e.Got = &Received{Type: job.TypeHTTP, Payload: json.RawMessage(`{ "url": "http://h/` + n + `" }`),
				Timeout: job.Duration((30 + 30*time.Duration(i)) * time.Second), Delivery: job.DeliverAtLeastOnce}
			e.Worker, h.JobVersion, h.Key = []string{worker, "n2"}[i], uint64(i+1), e.Key
			h.Worker = e.Worker
			in.Handed[i].Key, in.Handed[i].Worker = e.Key, e.Worker
		}
		if change != nil {
			change(in)
		}
		return in
	}
	for _, tt := range []struct {
		name   string
		change func(in *Input)
		want   Rule
	}{
		{"right", nil, ""},
		{"the versions are not known",
			func(in *Input) { in.Final.History[0].JobVersion, in.Final.History[1].JobVersion = 0, 0 }, ""},
		{"another job's payload",
			func(in *Input) { in.Effects[1].Got.Payload = json.RawMessage(`{"url":"http://h/other"}`) }, RuleDefinition},
		{"another job's type", func(in *Input) { in.Effects[1].Got.Type = job.TypeShell }, RuleDefinition},
		{"the payload before the edit", func(in *Input) { in.Effects[1].Got = in.Effects[0].Got }, RuleDefinition},
		{"the payload of an edit to come", func(in *Input) { in.Effects[0].Got = in.Effects[1].Got }, RuleDefinition},
		{"the timeout of an edit to come", func(in *Input) { in.Effects[0].Got.Timeout = in.Effects[1].Got.Timeout },
			RuleDefinition},
		{"another delivery", func(in *Input) { in.Effects[0].Got.Delivery = job.DeliverAtMostOnce }, RuleDefinition},
		{"a worker that the job does not select", func(in *Input) {
			in.Effects[1].Worker, in.Final.History[1].Worker, in.Handed[1].Worker = worker, worker, worker
		}, RuleDefinition},
		{"the key of the template before the edit", func(in *Input) {
			in.Effects[1].Key = keyFor(&job.Spec{IdempotencyKey: "{job_id}/{scheduled_at_unix}/1"}, in.Effects[1].Run)
			in.Final.History[1].Key, in.Handed[1].Key = in.Effects[1].Key, in.Effects[1].Key
		}, RuleKey},
		{"another key than is recorded", func(in *Input) { in.Final.History[1].Key = "x" }, RuleDefinition},
		{"an old version", func(in *Input) { in.Final.History[1].JobVersion = 1 }, RuleDefinition},
		{"a version to come", func(in *Input) { in.Final.History[0].JobVersion = 2 }, RuleDefinition},
		{"one fence with two payloads", func(in *Input) {
			in.Handed[1].Got = in.Effects[1].Got
			again := in.Handed[1]
			again.Got = in.Effects[0].Got
			in.Handed = append(in.Handed, again)
		}, RuleFence},
		{"the edit has no answer", func(in *Input) {
			in.Calls[1].Outcome, in.Calls[1].Answer, in.Calls[1].Return = Unknown, nil, 0
			in.Effects[0].Got = in.Effects[1].Got
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) { check(t, history(tt.change), tt.want) })
	}
}

// TestTimeoutOfTheClaim: an attempt is stopped at the timeout that it was started with, whatever an edit makes of the
// job meanwhile.
func TestTimeoutOfTheClaim(t *testing.T) {
	for _, tt := range []struct {
		name        string
		before, now time.Duration
		took        int64
		want        Rule
	}{
		{"its own", 20 * time.Second, 20 * time.Second, 20_010, ""},
		{"its own, and the job has a shorter one by now", 20 * time.Second, 5 * time.Second, 20_010, ""},
		{"its own, and the job has a longer one by now", 20 * time.Second, time.Minute, 20_010, ""},
		{"that of a later edit", 20 * time.Second, 5 * time.Second, 8_010, RuleDefinition},
	} {
		t.Run(tt.name, func(t *testing.T) {
			retries := 3
			s := newScene(func(s *job.Spec) {
				s.Timeout, s.Retry = job.Duration(tt.before), job.Retry{MaxRetries: &retries, Backoff: job.BackoffImmediate}
			})
			s.in.QueueWorkers = []string{worker}
			s.attempt(sched(minute(1)), 1, worker, minute(1), tt.took, TimedOut, job.RunFailed, job.ReasonTimeout)
			s.update(minute(1)+3000, func(s *job.Spec) { s.Timeout = job.Duration(tt.now) })
			s.attempt(sched(minute(1)), 2, worker, minute(1)+tt.took+10, 1000, Succeeded, job.RunSucceeded, 0)
			check(t, s.end(1), tt.want)
		})
	}
}

// TestAnswerUnheard: a worker that stands still while its target answers, until the timeout is over, may record either.
// One that did not stand still, or not for as long, may not.
func TestAnswerUnheard(t *testing.T) {
	for _, tt := range []struct {
		name          string
		outcome       EffectOutcome
		on            string // that stood still
		took, timeout int64
		want          Rule
	}{
		{"failed for good", Permanent, worker, 2_000, 1_000, ""},
		{"succeeded", Succeeded, worker, 2_000, 1_000, ""},
		{"within its timeout", Permanent, worker, 2_000, 20_000, RuleOutcome},
		{"another worker stood still", Permanent, "n3", 2_000, 1_000, RuleOutcome},
		{"another worker stood still, and it succeeded", Succeeded, "n3", 2_000, 1_000, RuleOutcome},
	} {
		t.Run(tt.name, func(t *testing.T) {
			retries := 3
			s := newScene(func(s *job.Spec) {
				s.Timeout = job.Duration(time.Duration(tt.timeout) * time.Millisecond)
				s.Retry = job.Retry{MaxRetries: &retries, Backoff: job.BackoffImmediate}
			})
			s.fault(FaultPause, tt.on, minute(1)+100, minute(1)+1_900)
			s.attempt(sched(minute(1)), 1, worker, minute(1), tt.took, tt.outcome, job.RunFailed, job.ReasonTimeout)
			s.in.Effects[0].End = job.Instant(minute(1) + 90)
			s.attempt(sched(minute(1)), 2, worker, minute(1)+tt.took+10, 500, Succeeded, job.RunSucceeded, 0)
			check(t, s.end(1), tt.want)
		})
	}
}

// TestEditsTogether: edits that are on their way together are committed in the order that their answers tell, not in
// the one in which they were sent. An answer shows the job as it was when the answer was written: its own version, or a
// later one that came in between.
func TestEditsTogether(t *testing.T) {
	payload := func(word string) json.RawMessage { return json.RawMessage(`{"url":"http://h/` + word + `"}`) }
	claim := minute(2) + 50
	type edit struct {
		word  string // in its payload
		until int64  // when it was answered
		shown uint64 // the version in its answer
		shows string // the payload in its answer
	}
	type given struct {
		version uint64
		word    string
	}
	// a is sent before b, and committed after it.
	own := []edit{{"a", claim + 50, 3, "a"}, {"b", claim - 40, 2, "b"}}
	later := []edit{{"a", claim + 50, 3, "a"}, {"b", claim + 50, 3, "a"}}
	// Nothing but what attempts were given tells the order of a and b.
	three := []edit{{"a", claim + 50, 4, "c"}, {"b", claim + 50, 4, "c"}, {"c", claim + 50, 4, "c"}}
	for _, tt := range []struct {
		name  string
		edits []edit
		given []given // claimed one after the other
		want  Rule
	}{
		{"the first one's", own, []given{{2, "b"}}, ""},
		{"the first one's, and then the second one's", own, []given{{2, "b"}, {3, "a"}}, ""},
		{"the first one's version with the payload of the second", own, []given{{2, "a"}}, RuleDefinition},
		{"the second one's version with the payload of the first", own, []given{{3, "b"}}, RuleDefinition},
		{"the second one's, and then the first one's", own, []given{{3, "a"}, {2, "b"}}, RuleDefinition},
		{"a version before an edit that was answered", own, []given{{1, "0"}}, RuleDefinition},
		{"both answered with the later one", later, []given{{1, "0"}, {2, "b"}, {3, "a"}}, ""},
		{"both answered with the later one, and given in the other order", later, []given{{2, "a"}}, RuleDefinition},
		{"three, a before b", three, []given{{2, "a"}, {3, "b"}}, ""},
		{"three, b before a", three, []given{{2, "b"}, {3, "a"}}, ""},
		{"three, a before b and b before a", three, []given{{2, "b"}, {3, "b"}}, RuleDefinition},
		{"both answered with a version of their own, and it is the same",
			[]edit{{"a", claim, 2, "a"}, {"b", claim, 2, "b"}}, nil, RuleCall},
		{"answered with an earlier version than any that it may have made",
			[]edit{{"a", claim, 2, "a"}, {"b", claim, 1, "0"}}, nil, RuleCall},
		{"answered with its own version, and what it asked for is not in it",
			[]edit{{"a", claim, 2, "x"}}, nil, RuleCall},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) { s.Payload, s.Overlap = payload("0"), job.OverlapAllow })
			s.run(1)
			for i, e := range tt.edits {
				spec, shown := s.spec, *s.job()
				spec.Payload, shown.Payload = payload(e.word), payload(e.shows)
				shown.Version, shown.UpdatedAt = e.shown, 0
				c := s.call(Call{Kind: CallUpdate, Spec: &spec, Answer: &shown}, minute(2))
				c.Invoke, c.Return = job.Instant(minute(2)-100+int64(i)), job.Instant(e.until)
			}
			j := s.job()
			j.Version, j.UpdatedAt = uint64(1+len(tt.edits)), 0
			for i, g := range tt.given {
				k := job.RunKey{Job: jobA, At: minute(2) + int64(i), Origin: job.OriginManual}
				s.call(Call{Kind: CallRun, Run: k}, minute(2)+int64(i))
				s.attempt(k, 1, worker, claim+int64(i), 1000, Succeeded, job.RunSucceeded, 0)
				s.in.Final.History[len(s.in.Final.History)-1].JobVersion = g.version
				s.in.Effects[len(s.in.Effects)-1].Got = &Received{Type: job.TypeHTTP, Payload: payload(g.word),
					Timeout: job.DefaultTimeout, Delivery: job.DeliverAtLeastOnce}
			}
			s.attempt(sched(minute(2)), 1, worker, minute(2)+200, 1000, Succeeded, job.RunSucceeded, 0)
			check(t, s.end(2), tt.want)
		})
	}
}

// TestZoneOfTheSchedule: an edit to a schedule that names its zone is answered with that zone.
func TestZoneOfTheSchedule(t *testing.T) {
	s := newScene(nil)
	s.run(1)
	s.update(minute(1)+20_000, func(s *job.Spec) {
		s.Schedule, s.Timezone = "DTSTART;TZID=Europe/Berlin:20270104T010000\nRRULE:FREQ=MINUTELY", "Europe/Berlin"
	})
	asked := s.spec
	asked.Timezone = ""
	s.in.Calls[1].Spec = &asked
	s.run(2)
	check(t, s.end(2), "")
}

// TestEditWhileTakenBack: an edit of the schedule drops what is due. What was claimed for a worker that never heard of
// it is a run, which another worker has later; all that is left of the first claim is since when it is ready again.
func TestEditWhileTakenBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		back int64 // when it is ready again, after its time
		want Rule
	}{{"taken back", 40_000, ""}, {"claimed only after the edit", 0, RuleTwice}} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(nil)
			runs(s, 1, 2)
			s.update(minute(3)+20_000, func(spec *job.Spec) { spec.Schedule = "*/5 * * * *" })
			s.runAt(sched(minute(3)), minute(3)+45_000)
			h := &s.in.Final.History[2]
			h.ReadyAt, h.JobVersion = h.ScheduledAt+job.Instant(tc.back), 2
			check(t, s.end(4), tc.want)
		})
	}
}
