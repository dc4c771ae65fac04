package harness

import (
	"cmp"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Excuses is stricter than the checker about attempts that were lost. The checker, which has to do with sessions of all
// kinds, forgives a worker that was killed everything that it was given up to a lease later; here it is known when each
// process was dead, so an attempt may be lost only if it was claimed before that, or in the meantime and never begun.
func (b *Evidence) Excuses() (problems []string) {
	begun := map[uint64]bool{}
	for _, s := range b.Seen {
		begun[s.Fence] = true
	}
	for i := range b.Final.History {
		if r := &b.Final.History[i]; r.Reason == job.ReasonWorkerLost && !b.lost(r, begun[r.Fence]) {
			problems = append(problems,
				fmt.Sprintf("%s attempt %d lost its worker %s between %s and %s, and that was neither "+
					"killed nor cut off then", r.RunID, r.Attempt, r.Worker, r.ClaimedAt, r.FinishedAt))
		}
	}
	return problems
}

func (b *Evidence) lost(r *job.Run, begun bool) bool {
	for _, o := range b.Faults {
		// The node's times are cut to milliseconds. A leader that does not know yet may claim for a worker that is
		// dead; what the target saw was claimed before.
		until := o.Dead
		if o.Ready.After(until) && !begun {
			until = o.Ready
		}
		if b.hits(o, r.Worker) && int64(r.ClaimedAt) <= until.UnixMilli() && int64(r.FinishedAt) >= o.Sent.UnixMilli() {
			return true
		}
	}
	return false
}

// hits says whether an outage took the worker's attempts away from it: a worker stops them by itself two thirds of a
// lease after it was last heard, and sends a sign of life every fifth of it. A shorter pause or cut is no excuse.
func (b *Evidence) hits(o Outage, worker string) bool {
	lease := cmp.Or(b.Lease, 30*time.Second)
	return o.Node == worker && (!o.Paused && !o.Cut || o.Dead.Sub(o.Sent) >= lease*2/3-lease/5)
}
