package checker

import (
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// requestSlack is how long a key may outlive its time: the leader removes expired ones now and then.
const requestSlack = 10 * 60_000

// anew says that a request with a key that was used before is another one: the first one's outcome has been forgotten
// by then, and its answer shows that. Before that time it never is, under any leader.
func (c *checker) anew(first *change, call *Call) bool {
	if !first.sure || call.Outcome != OK || int64(call.Return)+c.clock < first.lo+keepRequest.Milliseconds() {
		return false
	}
	if int64(call.Invoke)-c.clock > first.hi+keepRequest.Milliseconds()+requestSlack {
		return true
	}
	return differs(first.Call, call) != ""
}

// sameAnswer: a repeated request is answered by the first outcome.
func (c *checker) sameAnswer(first *change, call *Call) {
	if !first.sure || call.Outcome != OK || first.Kind != call.Kind {
		return
	}
	if what := differs(first.Call, call); what != "" {
		c.rep.Problems = append(c.rep.Problems, Problem{Rule: RuleRequest, Job: first.Job, Name: first.Name,
			Text: fmt.Sprintf("the %s with key %q was answered at %s, and again at %s with %s", call.Kind, call.Request,
				first.Return, call.Return, what)})
	}
}

// differs says in what two answers to one request differ.
func differs(a, b *Call) string {
	switch {
	case a.Kind == CallCreate && a.Job != 0 && b.Job != 0 && a.Job != b.Job:
		return "another job: " + a.Job.String() + " and " + b.Job.String()
	case a.Kind == CallRun && a.Run != (job.RunKey{}) && b.Run != (job.RunKey{}) && a.Run != b.Run:
		return "another run: " + a.Run.String() + " and " + b.Run.String()
	case a.Kind == CallBackfill && (!slices.Equal(a.Times, b.Times) || !slices.Equal(a.Skipped, b.Skipped)):
		return "other occurrences"
	case (a.Kind == CallCancel || a.Kind == CallRedrive || a.Kind == CallPurge) && a.Count != b.Count:
		return "another count"
	}
	return ""
}
