package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
)

// yearPlan is a whole year of a few jobs in every zone whose clocks are set in it, at times that are left out or come
// twice, with a fault every few weeks.
func yearPlan(seed uint64) *plan {
	rng := rand.New(rand.NewPCG(seed, 11))
	p := &plan{seed: seed}
	p.o = options{
		profile: "year", nodes: 3, slots: 8, pace: 3600, ttl: 12 * time.Hour, latency: time.Millisecond,
		raft: node.RaftConfig{Heartbeat: time.Hour, CommitTimeout: 30 * time.Minute,
			SnapshotInterval: 30 * 24 * time.Hour, SnapshotThreshold: 500},
		members: node.MembersConfig{Interval: 3 * time.Hour},
		base: time.Date(2027, 1, 1, 0, 0, 0, 0,
			time.UTC).Add(-time.Duration(rng.Int64N(int64(20 * time.Hour)))).Truncate(time.Millisecond),
		length: 366 * 24 * time.Hour,
	}
	seen := map[string]bool{}
	add := func(s job.Spec) {
		p.jobs = append(p.jobs, p.finish(rng, len(p.jobs), s, time.Minute, 40*time.Minute))
	}
	for _, c := range changes {
		if seen[c.zone] {
			continue
		}
		seen[c.zone] = true
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			panic(err)
		}
		h := at.Add(-time.Minute).In(mustZone(c.zone)).Hour()
		add(job.Spec{Timezone: c.zone, Schedule: fmt.Sprintf("%d %d,%d * * *", rng.IntN(60), h, (h+1)%24),
			DSTGap: pick(rng, "run_after", "skip"), DSTOverlap: pick(rng, "", "first", "both")})
	}
	add(job.Spec{Timezone: "Europe/Berlin", Schedule: "@every 9h"})
	add(job.Spec{Timezone: "America/New_York", Schedule: "30 2 L * *"})
	for i := range p.jobs {
		// Each lives for the whole year.
		s := &p.jobs[i].spec
		s.StartAt, s.EndAt, s.MaxRuns = 0, 0, 0
	}
	p.calls = p.planCalls(rng, len(p.jobs), 24, 1)
	for i := range p.calls {
		if p.calls[i].kind == "delete" {
			p.calls[i].kind = "run"
		}
	}
	p.faults = p.planFaults(rng, 20, time.Hour, 60*time.Hour)
	return p
}
