package checker

import (
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Explain tells what was seen of the job of a problem: of one occurrence if the problem is about one.
func (in *Input) Explain(p Problem) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, "    "+format+"\n", args...) }
	about := func(id job.ID, at job.Instant) bool { return id == p.Job && (p.Occurrence == 0 || at == p.Occurrence) }
	for _, j := range in.Final.Jobs {
		if j.ID == p.Job {
			say("job %s %q in %s, jitter %s, overlap %s, delivery %s, missed %+v, status %s, next %s, version %d",
				j.ID, j.Schedule, j.Timezone, time.Duration(j.Jitter), j.Overlap, j.Delivery, j.Missed, j.Status,
				j.NextRunAt, j.Version)
		}
	}
	for _, c := range in.Calls {
		if c.Job == p.Job {
			schedule := ""
			if c.Spec != nil {
				schedule = c.Spec.Schedule
			}
			if c.Kind == CallBackfill {
				schedule = fmt.Sprintf("of %s to %s, force %t, made %v", c.From, c.To, c.Force, c.Times)
			}
			if c.Kind == CallUpdate {
				schedule += fmt.Sprintf(", of version %d", c.Version)
				if c.Answer != nil {
					schedule += fmt.Sprintf(", answered with version %d", c.Answer.Version)
				}
			}
			say("call %s %s from %s to %s %s", c.Kind, c.Outcome, c.Invoke, c.Return, schedule)
		}
	}
	for _, h := range in.Final.History {
		switch {
		case about(h.JobID, h.ScheduledAt):
			say("record %d: %s %s attempt %d fence %d version %d worker %s claimed %s started %s finished %s %s: %s %q",
				h.Seq, h.ScheduledAt, h.Origin, h.Attempt, h.Fence, h.JobVersion, h.Worker, h.ClaimedAt, h.StartedAt,
				h.FinishedAt, h.Status, h.Reason, h.Error)
		case h.JobID == p.Job && h.Count > 0 &&
			(p.Occurrence == 0 || h.First <= p.Occurrence && p.Occurrence <= h.Last):
			say("record %d: %d from %s to %s %s: %s, at %s", h.Seq, h.Count, h.First, h.Last, h.Status, h.Reason,
				h.FinishedAt)
		}
	}
	for _, h := range in.Final.Open {
		if about(h.JobID, h.ScheduledAt) {
			say("open: %s attempt %d fence %d worker %s %s", h.ScheduledAt, h.Attempt, h.Fence, h.Worker, h.Status)
		}
	}
	for _, h := range in.Final.Pending {
		if h.JobID == p.Job {
			say("pending: %d from %s to %s %s: %s", h.Count, h.First, h.Last, h.Status, h.Reason)
		}
	}
	for _, h := range in.Handed {
		if about(h.Run.Job, job.Instant(h.Run.At)) {
			say("handed to %s (term %d) at %s: attempt %d fence %d", h.Worker, h.Term, h.At, h.Attempt, h.Fence)
		}
	}
	for _, e := range in.Effects {
		if about(e.Run.Job, job.Instant(e.Run.At)) {
			say("effect on %s from %s to %s: attempt %d fence %d %s", e.Worker, e.Start, e.End, e.Attempt, e.Fence,
				e.Outcome)
		}
	}
	if t := in.Final.Trimmed; t != nil {
		for _, f := range t.Floors {
			say("history trimmed up to %d at %s, of %d", f.Seq, f.At, f.Last)
		}
	}
	for _, o := range in.Outages {
		say("outage from %s to %s", o.From, o.To)
	}
	for _, f := range in.Faults {
		say("%s %s", f, f.Amount)
	}
	return b.String()
}
