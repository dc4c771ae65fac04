package decide

import (
	"reflect"
	"testing"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// A time that the clock goes over leaves a record under dst_gap: skip, and a run under run_after.
func TestTimeThatDoesNotExist(t *testing.T) {
	before, gap, after := ms("2026-03-07T07:30:00Z"), ms("2026-03-08T07:00:00Z"), ms("2026-03-09T06:30:00Z")
	outage := []store.Outage{{From: before + 1, To: gap + 3_600_000}}
	at := func(t int64) fsm.When { return fsm.When{At: t, Ready: t} }
	skip := func(s *job.Spec) { s.Timezone, s.DSTGap, s.Overlap = "America/New_York", "skip", job.OverlapAllow }
	skipped := Decision{Next: at(after), Gap: fsm.Gap{First: gap, Last: gap, Count: 1, Status: job.RunSkipped, Reason: job.ReasonDSTGap}}
	for _, tt := range []struct {
		name    string
		spec    *job.Spec
		at, now int64
		outages []store.Outage
		want    Decision
	}{
		{"it is skipped", testSpec("30 2 * * *", skip), gap, gap, nil, skipped},
		{"the one before leads to it", testSpec("30 2 * * *", skip), before, before, nil, Decision{Claim: true, Next: at(gap)}},
		{"run_after runs it", testSpec("30 2 * * *", func(s *job.Spec) { skip(s); s.DSTGap = "run_after" }), gap, gap, nil,
			Decision{Claim: true, Next: at(after)}},
		{"the end of the gap is a time of its own", testSpec("0,30 2,3 * * *", skip), gap, gap, nil,
			Decision{Claim: true, Next: at(gap + 30*60_000)}},
		{"it is not caught up with", testSpec("30 2 * * *", skip), gap, gap + 3_600_000, outage,
			Decision{Next: at(after), Gap: fsm.Gap{First: gap, Last: gap, Count: 1, Status: job.RunMissed, Reason: job.ReasonOutage}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sched, err := Compile(tt.spec, 1)
			if err != nil {
				t.Fatal(err)
			}
			o := &Occurrence{Spec: tt.spec, Sched: sched, At: tt.at, Ready: tt.at, Created: 1, Updated: 1}
			if got := decide(o, tt.now, tt.outages); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}
