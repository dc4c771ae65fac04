package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// otherSpace is the second namespace of the plans that have one.
const otherSpace = "team-b"

// spaces are the namespaces of a plan.
func (p *plan) spaces() []string {
	if !p.o.spaces {
		return []string{job.DefaultNamespace}
	}
	return []string{job.DefaultNamespace, otherSpace}
}

// placeOf takes apart what checker.In made.
func placeOf(name string) (space, plain string) {
	if space, plain, ok := strings.Cut(name, "/"); ok {
		return space, plain
	}
	return "", name
}

// namespaces puts every other job of some plans into another namespace, under the name of the one before it, with
// queues, calendars and queue workers of the same names on either side. The dice are its own, so that the others are
// what they were without them.
func (p *plan) namespaces(rng *rand.Rand) {
	if !chance(rng, 0.4) {
		return
	}
	p.twins()
	if p.o.workers > 1 && chance(rng, 0.5) {
		p.o.kept = true
	}
}

// twins makes pairs of the jobs of a plan.
func (p *plan) twins() {
	p.o.spaces = true
	for i := 1; i < len(p.jobs); i += 2 {
		s := &p.jobs[i].spec
		s.Namespace, s.Name = otherSpace, p.jobs[i-1].spec.Name
	}
	for _, c := range p.calendars {
		c.Namespace = otherSpace
		p.calendars = append(p.calendars, c)
	}
	for _, pl := range p.o.queueWorkers {
		pl.space = otherSpace
		p.o.queueWorkers = append(p.o.queueWorkers, pl)
	}
}

// namesakes: two namespaces have jobs and queues of the same names, and nothing else in common: one of the queues is
// paused or full while the other is not, and queue workers of both come and go, over changes of the leader.
func namesakes(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.onlyByQueue = 6*time.Second, true
	p.o.queueWorkers = []plannedQueueWorker{{queue: queueNames[0], hands: 4}, {queue: queueNames[0], hands: 2}}
	queue := json.RawMessage(fmt.Sprintf(`{"queue":%q}`, queueNames[0]))
	p.steady(6, 7*time.Second, time.Second, 6*time.Second, func(s *job.Spec) {
		s.Type, s.Payload = job.TypeQueue, queue
	})
	p.steady(4, 9*time.Second, time.Second, 3*time.Second,
		func(s *job.Spec) { s.Workers = map[string]string{"pool": "remote"} })
	p.twins()
	p.o.kept = true
	for range 12 {
		p.calls = append(p.calls, plannedCall{at: between(rng, 5*time.Second, p.o.length), kind: "queue", job: 0,
			node: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
	for i := range 8 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(20+30*i)*time.Second + between(rng, 0, 10*time.Second),
				kind: []string{"cut-queue-worker", "deaf-queue-worker", "transfer", "kill-queue-worker"}[i%4],
				a:    rng.IntN(4), b: rng.IntN(p.o.nodes),
				lasts: p.o.ttl + between(rng, 0, 5*time.Second), x: rng.Uint64()})
	}
}
