package checker

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// TestNotices: a job dies in its second minute and works again in its fourth.
func TestNotices(t *testing.T) {
	none := 0
	for _, tc := range []struct {
		name string
		tell func(in *Input, failure, recovery Notified)
		want Rule
	}{
		{"each change once", func(in *Input, f, r Notified) { in.Notified = []Notified{f, r} }, ""},
		{"a failure twice", func(in *Input, f, r Notified) { in.Notified = []Notified{f, f, r} }, RuleNotice},
		{"a failure that was none", func(in *Input, f, r Notified) {
			f.Run = sched(minute(3)).String()
			in.Notified = []Notified{f, r}
		}, RuleNotice},
		{"a recovery before the failure", func(in *Input, f, r Notified) { in.Notified = []Notified{r, f} }, RuleNotice},
		{"a recovery with the wrong run", func(in *Input, f, r Notified) {
			r.Run = sched(minute(5)).String()
			in.Notified = []Notified{f, r}
		}, RuleNotice},
		{"a failure without a notification", func(in *Input, f, r Notified) { in.Notified = []Notified{r} }, RuleNotice},
		{"a failure that its leader took with it", func(in *Input, f, r Notified) {
			in.Notified = []Notified{r}
			in.Faults = []Fault{{Kind: FaultKill, Node: "n3", From: job.Instant(minute(2) + 500),
				To: job.Instant(minute(2) + 5000)}}
		}, ""},
		{"a failure that was refused, and came again", func(in *Input, f, r Notified) {
			first := f
			first.Refused = true
			f.At += 5000
			in.Notified = []Notified{first, f, r}
		}, ""},
		{"one that was refused, and did not come again", func(in *Input, f, r Notified) {
			f.Refused = true
			in.Notified = []Notified{f}
		}, RuleNotice},
		{"a recovery before the failure that was refused", func(in *Input, f, r Notified) {
			f.Refused = true
			in.Notified = []Notified{f, r}
		}, RuleNotice},
		{"the same, and its leader changed meanwhile", func(in *Input, f, r Notified) {
			f.Refused = true
			in.Notified = []Notified{f, r}
			in.Faults = []Fault{{Kind: FaultLeader, Node: "n3", From: job.Instant(minute(3)),
				To: job.Instant(minute(3) + 500)}}
		}, ""},
		{"one that was refused a moment ago", func(in *Input, f, r Notified) {
			f.Refused = true
			f.At = job.Instant(minute(6))
			in.Notified = []Notified{f}
		}, ""},
		{"another cluster's job", func(in *Input, f, r Notified) {
			r.Job = 77
			in.Notified = []Notified{f, r}
		}, RuleNotice},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(func(s *job.Spec) {
				s.Retry = job.Retry{MaxRetries: &none}
				s.Notify = &job.Notify{Webhook: "http://hooks.example/"}
			})
			s.run(1)
			for _, n := range []int{2, 3} {
				s.attempt(sched(minute(n)), 1, worker, minute(n), 1000, Failed, job.RunDead, job.ReasonExhausted)
			}
			runs(s, 4, 6)
			told := func(n int, failure bool) Notified {
				return Notified{At: job.Instant(minute(n) + 1100), Key: fmt.Sprint("k", n), Job: jobA, Failure: failure,
					Run: sched(minute(n)).String()}
			}
			tc.tell(s.in, told(2, true), told(4, false))
			if tc.name == "another cluster's job" { // which the problem cannot name
				if r := Check(s.end(6)); len(r.Problems) != 2 || r.Problems[0].Rule != RuleNotice {
					t.Error(r.Err())
				}
				return
			}
			check(t, s.end(6), tc.want)
		})
	}
}
