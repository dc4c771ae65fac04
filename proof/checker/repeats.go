package checker

import (
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// requestSlack is how long a key may outlive its time: the leader removes expired ones now and then.
const requestSlack = 10 * 60_000

// anew says whether a call with a key that was used before may be, or surely is, another request: the outcome of the
// first one is forgotten some time after keepRequest, and what comes then is done again. Before that time it never is,
// under any leader. In between, and for a call without an answer, either may have happened, unless the answer tells.
func (c *checker) anew(first *change, call *Call) (may, sure bool) {
	late := max(int64(call.Invoke), int64(call.Return)) + c.clock
	if call.Outcome != OK { // it may be done after its caller has given up
		late += requestSlack
	}
	if !first.sure || late < first.lo+keepRequest.Milliseconds() {
		return false, false
	}
	if call.Outcome != OK {
		return true, false
	}
	last := first
	if first.again != nil { // the answer may be that of this one
		last = first.again
	}
	switch {
	case int64(call.Invoke)-c.clock > c.removed(last):
		return true, true
	case differs(first.Call, call) != "":
		return true, first.again == nil
	case call.Kind == CallCreate || call.Kind == CallRun:
		return false, false // it is named by its answer, and that is the first one's
	}
	return true, false
}

// removed is by when the key of a request is surely gone. Nothing is removed while no node leads.
func (c *checker) removed(ch *change) int64 {
	by := ch.hi + keepRequest.Milliseconds() + requestSlack
	for _, o := range c.in.Outages {
		if int64(o.From) <= by && int64(o.To) > ch.hi+keepRequest.Milliseconds() {
			by = max(by, int64(o.To)+requestSlack)
		}
	}
	return by
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
