package harness

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Excuses is stricter than the checker about attempts that were lost and requests that were repeated. The checker, which has to do with
// sessions of all kinds, forgives a worker that was killed everything that it was given up to a lease later; here it is known when each
// process was dead, so an attempt may be lost only if it was claimed before that, or in the meantime and never begun.
func (b *Books) Excuses() []string {
	x := &excuses{b: b, byFence: map[uint64]*job.Run{}}
	seen := map[string][]Seen{}
	begun := map[uint64]bool{}
	for _, s := range b.Seen {
		seen[s.Run] = append(seen[s.Run], s)
		begun[s.Fence] = true
	}
	for i := range b.Final.History {
		r := &b.Final.History[i]
		x.byFence[r.Fence] = r
		if r.Reason == job.ReasonWorkerLost && !x.lost(r, begun[r.Fence]) {
			x.bad("%s attempt %d lost its worker %s between %s and %s, and that was neither killed nor cut off then", r.RunID, r.Attempt, r.Worker, r.ClaimedAt, r.FinishedAt)
		}
	}
	for run, all := range seen {
		slices.SortFunc(all, func(p, q Seen) int { return cmp.Compare(p.Fence, q.Fence) })
		x.repeats(run, all)
	}
	slices.Sort(x.problems)
	return x.problems
}

type excuses struct {
	b        *Books
	byFence  map[uint64]*job.Run
	problems []string
}

func (x *excuses) bad(format string, args ...any) {
	x.problems = append(x.problems, fmt.Sprintf(format, args...))
}

// hits says whether an outage took the worker's attempts away from it: a worker stops them by itself two thirds of a lease after it was last
// heard, and sends a sign of life every fifth of it. A shorter pause or cut is no excuse.
func (x *excuses) hits(o Outage, worker string) bool {
	lease := cmp.Or(x.b.Lease, 30*time.Second)
	return o.Node == worker && (!o.Paused && !o.Cut || o.Dead.Sub(o.Sent) >= lease*2/3-lease/5)
}

func (x *excuses) lost(r *job.Run, begun bool) bool {
	for _, o := range x.b.Faults {
		// The node's times are cut to milliseconds. A leader that does not know yet may claim for a worker that is dead; what the
		// target saw was claimed before.
		until := o.Dead
		if o.Ready.After(until) && !begun {
			until = o.Ready
		}
		if x.hits(o, r.Worker) && int64(r.ClaimedAt) <= until.UnixMilli() && int64(r.FinishedAt) >= o.Sent.UnixMilli() {
			return true
		}
	}
	return false
}

// repeats: the target saw a run again only because the worker that had sent it was killed, stood still or was cut off in between, or because
// it refused the one before. (That the first had ended by then is the checker's business.)
func (x *excuses) repeats(run string, seen []Seen) {
	for i := 1; i < len(seen); i++ {
		was, is := seen[i-1], seen[i]
		if !was.Answered.IsZero() && was.Status/100 != 2 {
			continue
		}
		worker := ""
		if r := x.byFence[was.Fence]; r != nil {
			worker = r.Worker
		}
		if !slices.ContainsFunc(x.b.Faults, func(o Outage) bool {
			return x.hits(o, worker) && !o.Dead.Add(arrivalSlack).Before(was.Arrived) && !o.Sent.After(is.Arrived)
		}) {
			x.bad("%s is doubled: sent at %s and again at %s, and its worker %s was neither killed nor cut off in between", run, was.Arrived.Format(clock), is.Arrived.Format(clock), worker)
		}
	}
}

const clock = "15:04:05.000"
