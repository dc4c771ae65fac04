package decide

import (
	"reflect"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

func ms(s string) int64 {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t.UnixMilli()
}

// hm is a time on the day of the tests.
func hm(s string) int64 {
	if len(s) == 5 {
		s += ":00"
	}
	return ms("2027-03-01T" + s + "Z")
}

func testSpec(sched string, edit func(*job.Spec)) *job.Spec {
	s := &job.Spec{Type: job.TypeShell, Schedule: sched, Payload: []byte(`{"command":"true"}`)}
	if edit != nil {
		edit(s)
	}
	s.Normalize()
	return s
}

func missedAs(policy, window string, limit int) func(*job.Spec) {
	return func(s *job.Spec) { s.Missed = job.Missed{Policy: policy, Window: window, Max: limit} }
}

var blackout11 = []*schedule.Blackout{func() *schedule.Blackout {
	b, err := schedule.Calendar{Daily: []string{"11:00-13:00"}}.Compile()
	if err != nil {
		panic(err)
	}
	return b
}()}

func TestMissedRule(t *testing.T) {
	outage := []store.Outage{{From: hm("10:00"), To: hm("12:00:30")}}
	gap := func(first, last string, n int64) fsm.Gap {
		return fsm.Gap{First: hm(first), Last: hm(last), Count: n, Status: job.RunMissed, Reason: job.ReasonOutage}
	}
	past := func(at string) fsm.Gap { // created after its time
		g := gap(at, at, 1)
		g.Reason = job.ReasonPast
		return g
	}
	claim := func(next string) Decision {
		return Decision{Claim: true, Next: fsm.When{At: hm(next), Ready: hm(next)}}
	}
	move := func(to string, g fsm.Gap, rows ...string) Decision {
		f := Decision{Next: fsm.When{At: hm(to), Ready: hm(to)}, Gap: g}
		for _, at := range rows {
			f.Rows = append(f.Rows, hm(at))
		}
		return f
	}
	// claimed is a claim that disposes of what is due behind it.
	claimed := func(next, first, last string, n int64) Decision {
		f := claim(next)
		f.Gap = fsm.Gap{First: hm(first), Last: hm(last), Count: n, Status: job.RunSkipped, Reason: job.ReasonWaiting}
		return f
	}
	due := func(f Decision) Decision { f.Due = true; return f }
	as := func(policy string, rest func(*job.Spec)) func(*job.Spec) {
		return func(s *job.Spec) {
			s.Overlap = policy
			if rest != nil {
				rest(s)
			}
		}
	}
	tests := []struct {
		name string
		spec *job.Spec
		at   string
		edit func(*Occurrence)
		now  string
		want Decision
	}{
		{"on time is claimed", testSpec("0 * * * *", nil), "13:00", nil, "13:00", claim("14:00")},
		{"backlog without an outage is claimed, however old", testSpec("0 * * * *", nil), "09:00", nil, "12:01", due(claimed("11:00", "10:00", "10:00", 1))},
		{"with overlap allow one by one", testSpec("0 * * * *", as(job.OverlapAllow, nil)), "09:00", nil, "12:01", due(claim("10:00"))},
		{"backlog after the takeover is claimed", testSpec("* * * * *", missedAs(job.MissedSkip, "auto", 0)), "12:01", nil, "12:59", claimed("13:00", "12:02", "12:59", 58)},
		{"due at the last stamp of the old leader is claimed", testSpec("0 * * * *", missedAs(job.MissedSkip, "auto", 0)), "10:00", nil, "12:01", due(claim("11:00"))},
		{"within grace is claimed", testSpec("0 * * * *", missedAs(job.MissedSkip, "auto", 0)), "12:00", nil, "12:01", claim("13:00")},
		{"a longer grace makes nothing missed", testSpec("0 * * * *", func(s *job.Spec) {
			s.Missed.Policy, s.Missed.Grace = job.MissedSkip, job.Duration(2*time.Hour)
		}), "11:00", nil, "12:01", claimed("13:00", "12:00", "12:00", 1)},

		{"skip records what is older than the grace, and goes on with what is not", testSpec("0 * * * *", missedAs(job.MissedSkip, "auto", 0)), "11:00", nil, "12:01",
			move("12:00", gap("11:00", "11:00", 1))},
		{"which runs", testSpec("0 * * * *", missedAs(job.MissedSkip, "auto", 0)), "12:00", nil, "12:01", claim("13:00")},
		{"skip goes on after the outage if all are older", testSpec("55 * * * *", missedAs(job.MissedSkip, "auto", 0)), "10:55", nil, "12:01",
			move("12:55", gap("10:55", "11:55", 2))},
		{"skip of the past does not swallow what came after the takeover", testSpec("*/10 * * * *", missedAs(job.MissedSkip, "auto", 0)), "11:50", nil, "12:25",
			move("12:00", gap("11:50", "11:50", 1))},

		{"run_once moves to the latest", testSpec("*/10 * * * *", nil), "10:10", nil, "12:01", move("12:00", gap("10:10", "11:50", 11))},
		{"run_once claims the latest", testSpec("55 * * * *", nil), "11:55", nil, "12:01", claim("12:55")},
		{"run_once of the only one inside the window", testSpec("55 11 * * *", nil), "11:55", nil, "12:01",
			Decision{Claim: true, Next: fsm.When{At: ms("2027-03-02T11:55:00Z"), Ready: ms("2027-03-02T11:55:00Z")}}},
		{"auto window is half the distance for rare jobs", testSpec("30 10 * * *", nil), "10:30", nil, "12:01",
			Decision{Claim: true, Next: fsm.When{At: ms("2027-03-02T10:30:00Z"), Ready: ms("2027-03-02T10:30:00Z")}}},
		{"run_once outside the window records all", testSpec("15 10,11 * * *", missedAs(job.MissedRunOnce, "30m", 0)), "10:15", nil, "12:01",
			Decision{Next: fsm.When{At: ms("2027-03-02T10:15:00Z"), Ready: ms("2027-03-02T10:15:00Z")}, Gap: gap("10:15", "11:15", 2)}},
		{"run_once looks behind a blackout", testSpec("*/10 * * * *", missedAs(job.MissedRunOnce, "2h", 0)), "10:10", func(o *Occurrence) { o.Blackouts = blackout11 }, "12:01",
			move("10:50", gap("10:10", "10:40", 4))},
		{"run_once finds nothing but blackout", testSpec("*/10 * * * *", missedAs(job.MissedRunOnce, "2h", 0)), "11:00", func(o *Occurrence) { o.Blackouts = blackout11 }, "12:01",
			move("12:10", gap("11:00", "12:00", 7))},

		{"run_all within max and window", testSpec("*/10 * * * *", missedAs(job.MissedRunAll, "1h", 100)), "11:10", nil, "12:01",
			move("12:10", fsm.Gap{}, "11:10", "11:20", "11:30", "11:40", "11:50", "12:00")},
		{"run_all is cut by the window", testSpec("*/10 * * * *", missedAs(job.MissedRunAll, "1h", 100)), "10:10", nil, "12:01",
			move("12:10", gap("10:10", "11:00", 6), "11:10", "11:20", "11:30", "11:40", "11:50", "12:00")},
		{"run_all is cut by max", testSpec("*/10 * * * *", missedAs(job.MissedRunAll, "10h", 3)), "10:10", nil, "12:01",
			move("12:10", gap("10:10", "11:30", 9), "11:40", "11:50", "12:00")},
		{"run_all goes up to a blackout", testSpec("*/10 * * * *", missedAs(job.MissedRunAll, "10h", 100)), "10:40", func(o *Occurrence) { o.Blackouts = blackout11 }, "12:01",
			move("11:00", fsm.Gap{}, "10:40", "10:50")},
		{"run_all in a blackout", testSpec("*/10 * * * *", missedAs(job.MissedRunAll, "10h", 100)), "11:00", func(o *Occurrence) { o.Blackouts = blackout11 }, "12:01",
			Decision{Next: fsm.When{At: hm("11:10"), Ready: hm("11:10")}, Gap: fsm.Gap{First: hm("11:00"), Last: hm("11:00"), Count: 1, Status: job.RunSkipped, Reason: job.ReasonBlackout}}},
		{"run_all beyond its deadline", testSpec("*/10 * * * *", func(s *job.Spec) {
			missedAs(job.MissedRunAll, "10h", 100)(s)
			s.Deadline = job.Duration(30 * time.Minute)
		}), "11:10", nil, "12:01",
			Decision{Next: fsm.When{At: hm("11:40"), Ready: hm("11:40")}, Gap: fsm.Gap{First: hm("11:10"), Last: hm("11:30"), Count: 3, Status: job.RunExpired, Reason: job.ReasonDeadline}}},
		{"run_all up to max_runs", testSpec("*/10 * * * *", func(s *job.Spec) {
			missedAs(job.MissedRunAll, "10h", 100)(s)
			s.MaxRuns = 5
		}), "11:10", func(o *Occurrence) { o.Runs = 3 }, "12:01", Decision{Rows: []int64{hm("11:10"), hm("11:20")}}},
		{"run_all of one", testSpec("55 * * * *", missedAs(job.MissedRunAll, "10h", 3)), "11:55", nil, "12:01", move("12:55", fsm.Gap{}, "11:55")},
		{"run_all outside the window", testSpec("15 10,11 * * *", missedAs(job.MissedRunAll, "30m", 5)), "10:15", nil, "12:01",
			Decision{Next: fsm.When{At: ms("2027-03-02T10:15:00Z"), Ready: ms("2027-03-02T10:15:00Z")}, Gap: gap("10:15", "11:15", 2)}},
		{"skip leaves what fell into an outage to be judged by that", testSpec("*/10 * * * *", nil), "09:30", nil, "12:01", due(claimed("10:10", "09:40", "10:00", 3))},
		{"skip leaves a blackout to be judged by that", testSpec("*/30 * * * *", nil), "12:30", func(o *Occurrence) { o.Blackouts, o.At = blackout11, hm("13:30") }, "15:10",
			claimed("15:30", "14:00", "15:00", 3)},
		{"skip before a blackout", testSpec("*/30 * * * *", nil), "10:00", func(o *Occurrence) { o.Blackouts = blackout11 }, "12:10", due(claim("10:30"))},
		{"replace moves to the newest", testSpec("*/10 * * * *", as(job.OverlapReplace, nil)), "12:10", nil, "12:55",
			move("12:50", fsm.Gap{First: hm("12:10"), Last: hm("12:40"), Count: 4, Status: job.RunCanceled, Reason: job.ReasonReplaced})},
		{"replace claims the newest", testSpec("*/10 * * * *", as(job.OverlapReplace, nil)), "12:50", nil, "12:55", claim("13:00")},
		{"queue claims the oldest", testSpec("*/10 * * * *", as(job.OverlapQueue, nil)), "12:10", nil, "12:55", due(claim("12:20"))},

		{"a one-off has no limit", testSpec("2027-03-01T10:30:00Z", nil), "10:30", nil, "12:01", Decision{Claim: true}},
		{"a one-off with skip is recorded", testSpec("2027-03-01T10:30:00Z", missedAs(job.MissedSkip, "auto", 0)), "10:30", nil, "12:01",
			Decision{Gap: gap("10:30", "10:30", 1)}},
		{"a one-off created in the past with skip is missed", testSpec("2027-03-01T10:30:00Z", missedAs(job.MissedSkip, "auto", 0)), "10:30",
			func(o *Occurrence) { o.Created, o.Updated = hm("12:00:31"), hm("12:00:31") }, "12:01", Decision{Gap: past("10:30")}},
		{"also without an outage", testSpec("2027-03-01T13:30:00Z", missedAs(job.MissedSkip, "auto", 0)), "13:30",
			func(o *Occurrence) { o.Created, o.Updated = hm("13:31:01"), hm("13:31:01") }, "13:31:01", Decision{Gap: past("13:30")}},
		{"within grace it runs", testSpec("2027-03-01T13:30:00Z", missedAs(job.MissedSkip, "auto", 0)), "13:30",
			func(o *Occurrence) { o.Created, o.Updated = hm("13:31"), hm("13:31") }, "13:40", Decision{Claim: true}},
		{"a one-off created in the past runs under run_once", testSpec("2027-03-01T10:30:00Z", nil), "10:30",
			func(o *Occurrence) { o.Created, o.Updated = hm("12:00:31"), hm("12:00:31") }, "12:01", Decision{Claim: true}},
		{"a one-off created in the past runs under run_all", testSpec("2027-03-01T10:30:00Z", missedAs(job.MissedRunAll, "1m", 3)), "10:30",
			func(o *Occurrence) { o.Created, o.Updated = hm("12:00:31"), hm("12:00:31") }, "12:01", Decision{Claim: true}},
		{"a backlogged one-off that is edited runs", testSpec("2027-03-01T12:30:00Z", missedAs(job.MissedSkip, "auto", 0)), "12:30",
			func(o *Occurrence) { o.Updated = hm("13:00") }, "13:01", Decision{Claim: true}},
		{"a one-off that is still there after it was moved into the past runs: the edit decided", testSpec("2027-03-01T10:30:00Z", missedAs(job.MissedSkip, "auto", 0)), "10:30",
			func(o *Occurrence) { o.Updated = hm("12:00:31") }, "12:01", Decision{Claim: true}},
		{"a one-off that was paused over its time and an outage runs at its resume", testSpec("2027-03-01T10:30:00Z", missedAs(job.MissedSkip, "auto", 0)), "10:30",
			func(o *Occurrence) { o.Ready = hm("12:10") }, "12:10", Decision{Claim: true}},
		{"also if the outage came after its time", testSpec("2027-03-01T09:30:00Z", missedAs(job.MissedSkip, "auto", 0)), "09:30",
			func(o *Occurrence) { o.Ready = hm("12:10") }, "12:10", Decision{Claim: true}},
		{"its deadline counts from its time", testSpec("2027-03-01T10:30:00Z", func(s *job.Spec) { s.Deadline = job.Duration(time.Hour) }), "10:30",
			func(o *Occurrence) { o.Ready = hm("12:10") }, "12:10",
			Decision{Gap: fsm.Gap{First: hm("10:30"), Last: hm("10:30"), Count: 1, Status: job.RunExpired, Reason: job.ReasonDeadline}}},

		{"nor does a recurring job that did not exist then miss anything", testSpec("0 * * * *", missedAs(job.MissedSkip, "auto", 0)), "11:00",
			func(o *Occurrence) { o.Created, o.Updated = hm("12:00:31"), hm("12:00:31") }, "12:01", claimed("13:00", "12:00", "12:00", 1)},

		{"deadline expires everything too old at once", testSpec("* * * * *", func(s *job.Spec) { s.Deadline = job.Duration(10 * time.Minute) }), "12:05", nil, "12:30",
			Decision{Next: fsm.When{At: hm("12:20"), Ready: hm("12:20")}, Gap: fsm.Gap{First: hm("12:05"), Last: hm("12:19"), Count: 15, Status: job.RunExpired, Reason: job.ReasonDeadline}}},
		{"deadline is met", testSpec("* * * * *", func(s *job.Spec) { s.Deadline = job.Duration(10 * time.Minute) }), "12:20", nil, "12:30", claimed("12:31", "12:21", "12:30", 10)},
		{"blackout skips one", testSpec("*/10 * * * *", nil), "12:10", func(o *Occurrence) { o.Blackouts = blackout11 }, "12:10",
			Decision{Next: fsm.When{At: hm("12:20"), Ready: hm("12:20")}, Gap: fsm.Gap{First: hm("12:10"), Last: hm("12:10"), Count: 1, Status: job.RunSkipped, Reason: job.ReasonBlackout}}},
		{"max_runs ends with the last run", testSpec("0 * * * *", func(s *job.Spec) { s.MaxRuns, s.Overlap = 3, job.OverlapReplace }), "13:00",
			func(o *Occurrence) { o.Runs = 2 }, "13:00", Decision{Claim: true, Last: true, Next: fsm.When{At: hm("14:00"), Ready: hm("14:00")}}},
		{"max_runs keeps a next one for a run that may be skipped", testSpec("0 * * * *", func(s *job.Spec) { s.MaxRuns = 3 }), "13:00",
			func(o *Occurrence) { o.Runs = 2 }, "13:00", Decision{Claim: true, Last: true, Next: fsm.When{At: hm("14:00"), Ready: hm("14:00")}}},
		{"max_runs and the end of the schedule", testSpec("0 * * * *", func(s *job.Spec) { s.MaxRuns, s.EndAt = 3, job.Instant(hm("13:30")) }), "13:00",
			func(o *Occurrence) { o.Runs = 2 }, "13:00", Decision{Claim: true}},
		{"max_runs reached", testSpec("0 * * * *", func(s *job.Spec) { s.MaxRuns = 3 }), "13:00", func(o *Occurrence) { o.Runs = 3 }, "13:00", Decision{}},
		{"end_at ends the series", testSpec("0 * * * *", func(s *job.Spec) { s.EndAt = job.Instant(hm("13:30")) }), "13:00", nil, "13:00", Decision{Claim: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sched, err := Compile(tt.spec, 1)
			if err != nil {
				t.Fatal(err)
			}
			o := &Occurrence{Spec: tt.spec, Sched: sched, At: hm(tt.at), Ready: hm(tt.at), Created: hm("00:00"), Updated: hm("00:00")}
			if tt.edit != nil {
				tt.edit(o)
			}
			got := decide(o, hm(tt.now), outage)
			if !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// A Decision that moves an occurrence is followed by a second look; it must end in a claim or at a time after the
// outage, and a second failover in between must not change it.
func TestMissedRuleEndsAndSurvivesASecondFailover(t *testing.T) {
	first := store.Outage{From: hm("10:00"), To: hm("12:00:30")}
	both := []store.Outage{first, {From: hm("12:00:40"), To: hm("12:20")}}
	for _, policy := range []string{job.MissedSkip, job.MissedRunOnce, job.MissedRunAll} {
		for _, expr := range []string{"* * * * *", "*/7 * * * *", "0 * * * *", "30 10 * * *", "2027-03-01T10:30:00Z", "@every 90s"} {
			for _, jitter := range []time.Duration{0, 20 * time.Minute} {
				spec := testSpec(expr, missedAs(policy, "auto", 5))
				spec.Jitter = job.Duration(jitter)
				sched, err := Compile(spec, 7)
				if err != nil {
					t.Fatal(err)
				}
				run := func(outages []store.Outage, now int64) (claims []int64) {
					w := NextAfter(spec, sched, 0, hm("10:00"))
					var accounted int64
					for steps := 0; w.At != 0 && w.Ready <= first.To; steps++ {
						if steps > 1000 {
							t.Fatalf("%s %s: no end", policy, expr)
						}
						f := decide(&Occurrence{Spec: spec, Sched: sched, At: w.At, Ready: w.Ready}, now, outages)
						if f.Gap.Count > 0 && f.Gap.Last <= accounted {
							t.Fatalf("%s %s: %d recorded twice", policy, expr, f.Gap.Last)
						}
						if f.Claim {
							claims = append(claims, w.At)
							accounted = w.At
						}
						if f.Gap.Count > 0 {
							accounted = f.Gap.Last
						}
						for _, at := range f.Rows {
							if at <= accounted {
								t.Fatalf("%s %s: %d has two decisions", policy, expr, at)
							}
							claims, accounted = append(claims, at), at
						}
						if !f.Claim && f.Next == w {
							t.Fatalf("%s %s: moved nowhere", policy, expr)
						}
						w = f.Next
					}
					return claims
				}
				a, b := run([]store.Outage{first}, hm("12:00:31")), run(both, hm("12:20:01"))
				if len(a) != len(b) {
					t.Errorf("%s %s: one leader claims %v, a second one %v", policy, expr, a, b)
				}
				// The sequence begins inside the outage, so skip runs only what is within grace of its end.
				switch n := len(a); {
				case policy == job.MissedRunOnce && n > 1, policy == job.MissedRunAll && n > 5:
					t.Errorf("%s %s: %d claims", policy, expr, n)
				}
			}
		}
	}
}

func TestExpiryOfOpenRuns(t *testing.T) {
	spec := testSpec("0 * * * *", func(s *job.Spec) { s.Deadline = job.Duration(time.Minute) })
	k := store.DueKey{Kind: store.KindExtra, Origin: job.OriginManual, At: 1000, Ready: 5000}
	if got := Expiry(spec, 0, k, 0); got != 61_000 {
		t.Errorf("manual: %d", got)
	}
	k.Origin = job.OriginBackfill
	if got := Expiry(spec, 0, k, 0); got != 65_000 {
		t.Errorf("backfill counts from when it may start: %d", got)
	}
	k.Origin = job.OriginSchedule
	if got := Expiry(spec, 2*time.Second, k, 0); got != 63_000 {
		t.Errorf("released: %d", got)
	}
	if got := Expiry(spec, 0, k, 1); got != 0 {
		t.Errorf("a run that started before has no deadline: %d", got)
	}
	k.Kind = store.KindRetry
	if got := Expiry(spec, 0, k, 0); got != 0 {
		t.Errorf("a retry has no deadline: %d", got)
	}
}
