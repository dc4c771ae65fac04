package sim

import (
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

var remote = map[string]string{"pool": "remote"}

// busySlot: few slots, and jobs that take about as long as the time between two of their occurrences. What runs is
// decided by what was open when an occurrence's time came, and not by when a slot is free.
func busySlot(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots, p.o.length = 30*time.Second, 0, 1, 3*time.Minute
	for _, overlap := range []string{job.OverlapSkip, job.OverlapSkip, job.OverlapSkip, job.OverlapQueue,
		job.OverlapReplace} {
		p.steady(1, 6*time.Second, time.Second, 7*time.Second, func(s *job.Spec) { s.Overlap = overlap })
		p.steady(1, 3*time.Second, 2*time.Second, 5*time.Second, func(s *job.Spec) { s.Overlap = overlap })
	}
	p.ask(rng, 12, "run", len(p.jobs), 5*time.Second, p.o.length)
	p.faults = append(p.faults,
		plannedFault{at: between(rng, time.Minute, 2*time.Minute), kind: "transfer", x: rng.Uint64()})
}

// catchUp: backfills, redriven letters and a leader that is gone for longer than the jobs' grace, beside schedules that
// go on.
func catchUp(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots = 30*time.Second, 1, 2
	none := 0
	for _, overlap := range []string{job.OverlapSkip, job.OverlapSkip, job.OverlapQueue, job.OverlapReplace} {
		p.steady(1, 6*time.Second, time.Second, 3*time.Second, func(s *job.Spec) {
			s.Workers, s.Overlap, s.Retry = remote, overlap, job.Retry{MaxRetries: &none}
			s.Missed = job.Missed{Policy: job.MissedRunAll, Grace: job.Duration(2 * time.Second), Max: 5}
		})
		p.jobs[len(p.jobs)-1].m.fail = 0.3
	}
	for range 10 {
		for _, kind := range []string{"backfill", "redrive"} {
			p.calls = append(p.calls,
				plannedCall{at: between(rng, 20*time.Second, p.o.length*3/4), kind: kind, job: rng.IntN(len(p.jobs)),
					node: rng.IntN(p.o.nodes), x: rng.Uint64()})
		}
	}
	for i := range 2 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(60+100*i)*time.Second + between(rng, 0, 10*time.Second), kind: "cut-half",
				a: i, lasts: between(rng, 15*time.Second, 30*time.Second), x: rng.Uint64()})
	}
}

// lastRun: jobs end by max_runs, and are paused, edited, resumed and deleted around that time.
func lastRun(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.length = 30*time.Second, 1, 2*time.Minute
	for i := range 16 {
		p.steady(1, 10*time.Second, 0, 2*time.Second, func(s *job.Spec) {
			s.MaxRuns, s.Overlap = 1+i%3, pick(rng, job.OverlapSkip, job.OverlapQueue, job.OverlapAllow,
				job.OverlapReplace)
		})
		at := time.Duration(5+10*(i%3))*time.Second + between(rng, 0, 10*time.Second)
		p.calls = append(p.calls,
			plannedCall{at: at, kind: "pause", job: i, node: rng.IntN(p.o.nodes), x: rng.Uint64()},
			plannedCall{at: at + between(rng, 20*time.Second, 40*time.Second),
				kind: pick(rng, "resume", "delete", "update", "run"), job: i, node: rng.IntN(p.o.nodes),
				x: rng.Uint64()})
	}
}

// bounds: max_runs and end_at are lowered and raised while occurrences wait for a slot. Not under queue: what is due
// becomes a run that waits at once, and with many of those at each edit the checker has too many ways to try.
func bounds(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots, p.o.length = 30*time.Second, 0, 1, 3*time.Minute
	for _, overlap := range []string{job.OverlapAllow, job.OverlapAllow, job.OverlapSkip, job.OverlapSkip,
		job.OverlapReplace} {
		p.steady(3, 4*time.Second, 2*time.Second, 6*time.Second, func(s *job.Spec) { s.Overlap = overlap })
	}
	p.ask(rng, 60, "bound", len(p.jobs), 15*time.Second, p.o.length)
	p.faults = append(p.faults,
		plannedFault{at: between(rng, time.Minute, 2*time.Minute), kind: "transfer", x: rng.Uint64()})
}

// pauses: there is more to do than there are slots, and jobs are paused and resumed while some of it waits.
func pauses(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots, p.o.length = 30*time.Second, 0, 1, 3*time.Minute
	for _, overlap := range []string{job.OverlapAllow, job.OverlapAllow, job.OverlapSkip, job.OverlapQueue,
		job.OverlapReplace} {
		p.steady(2, 5*time.Second, time.Second, 4*time.Second, func(s *job.Spec) { s.Overlap = overlap })
	}
	for i := range p.jobs {
		at := between(rng, 10*time.Second, 40*time.Second)
		for range 4 {
			until := at + between(rng, 2*time.Second, 20*time.Second)
			p.calls = append(p.calls,
				plannedCall{at: at, kind: "pause", job: i, node: rng.IntN(p.o.nodes), x: rng.Uint64()},
				plannedCall{at: until, kind: "resume", job: i, node: rng.IntN(p.o.nodes), x: rng.Uint64()})
			at = until + between(rng, 2*time.Second, 30*time.Second)
		}
	}
	p.faults = append(p.faults,
		plannedFault{at: between(rng, time.Minute, 2*time.Minute), kind: "transfer", x: rng.Uint64()})
}

// backfills: jobs that take most of the time between two of their occurrences, or all of it, are backfilled, and
// nothing is broken.
func backfills(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots, p.o.length = 30*time.Second, 1, 8, 4*time.Minute
	for _, overlap := range []string{job.OverlapSkip, job.OverlapSkip, job.OverlapQueue, job.OverlapReplace} {
		p.steady(1, 8*time.Second, 6*time.Second, 7*time.Second, func(s *job.Spec) { s.Overlap = overlap })
		p.steady(1, 8*time.Second, 3*time.Second, 5*time.Second, func(s *job.Spec) { s.Overlap = overlap })
	}
	p.steady(1, 6*time.Second, 6*time.Second, 8*time.Second, func(s *job.Spec) { s.Overlap = job.OverlapSkip })
	for i := range p.jobs {
		at := between(rng, 40*time.Second, 80*time.Second)
		for range 2 {
			p.calls = append(p.calls,
				plannedCall{at: at, kind: "backfill", job: i, node: rng.IntN(p.o.nodes), x: rng.Uint64()})
			at += between(rng, 40*time.Second, 80*time.Second)
		}
	}
}
