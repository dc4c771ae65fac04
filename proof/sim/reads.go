package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
)

// readCalls adds reads to some plans. The dice are its own.
func (p *plan) readCalls(rng *rand.Rand) {
	if chance(rng, 0.5) {
		p.ask(rng, 30+rng.IntN(60), "read", len(p.jobs), 0, p.o.length)
	}
}

// oldReads: jobs are edited and read through all nodes, one of which believes that it leads when it was replaced.
func oldReads(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers = 15*time.Second, 1
	p.o.queueWorkers = []plannedQueueWorker{{queue: queueNames[0], hands: 4}}
	p.steady(5, 5*time.Second, 0, time.Second, func(*job.Spec) {})
	p.ask(rng, 120, "redefine", len(p.jobs), 5*time.Second, p.o.length)
	p.ask(rng, 600, "read", len(p.jobs), 0, p.o.length)
	for i := range 4 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(20+65*i)*time.Second + between(rng, 0, 10*time.Second), kind: "deaf-leader",
				lasts: between(rng, 15*time.Second, 30*time.Second), x: rng.Uint64()})
	}
}

// readJob reads a job through a node, once.
func (c *cluster) readJob(pc plannedCall, id job.ID) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	r := checker.Read{Node: c.servers[pc.node].id, Job: id, Invoke: c.t.instant()}
	j, err := c.clients[pc.node].GetJob(ctx, id.String())
	r.Version, r.Return = j.Version, c.t.instant()
	if err != nil && job.CodeOf(err) != job.CodeNotFound {
		return // it says that it cannot know
	}
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	c.rec.reads = append(c.rec.reads, r)
}
