package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// moveCalls adds edits of who may run a job to some plans. The dice are its own, so that the others are what they were
// without them.
func (p *plan) moveCalls(rng *rand.Rand) {
	if chance(rng, 0.4) {
		p.ask(rng, 4+rng.IntN(16), "move", len(p.jobs), 0, p.o.length)
	}
}

// move changes who may run a job: its type, its queue, the workers that it selects. There is always somebody who does.
func (p *plan) move(rng *rand.Rand, s *job.Spec) {
	s.Type, s.Workers = pick(rng, job.TypeHTTP, job.TypeShell, job.TypeQueue), nil
	queue := pick(rng, queueNames...)
	if p.o.onlyByQueue && s.Type == job.TypeQueue {
		i := slices.IndexFunc(p.o.queueWorkers, func(pl plannedQueueWorker) bool {
			return pl.queue == queue &&
				cmp.Or(pl.space, job.DefaultNamespace) == cmp.Or(s.Namespace, job.DefaultNamespace)
		})
		if i < 0 {
			s.Type = job.TypeHTTP
		}
	}
	if s.Type == job.TypeQueue {
		s.Payload = json.RawMessage(fmt.Sprintf(`{"queue":%q}`, queue))
	} else if p.o.workers > 0 {
		s.Workers = pick(rng, nil, remoteTags, nodeTags)
	}
	s.Payload = mark(s, fmt.Sprintf("%s-%x", s.Name, rng.Uint32()&0xffff))
}

// moved: jobs that are due every few seconds go to where nobody takes them, and some seconds later to where somebody
// does. Nothing is broken and slots are free, so they are claimed at once. In the end the leadership is handed over:
// the next leader would find what this one has lost sight of, late.
func moved(p *plan, rng *rand.Rand) {
	p.fits(6 * time.Second)
	p.jobs = p.jobs[:0]
	p.o.length, p.o.onlyByQueue = 3*time.Minute, true
	for _, q := range queueNames {
		p.o.queueWorkers = append(p.o.queueWorkers, plannedQueueWorker{queue: q, hands: 20})
	}
	p.steady(6, 3*time.Second, 0, 300*time.Millisecond, func(*job.Spec) {})
	p.steady(2, 3*time.Second, 0, 300*time.Millisecond, func(s *job.Spec) { s.Priority = "low" })
	p.steady(1, 3*time.Second, 0, 300*time.Millisecond, func(s *job.Spec) {
		s.Schedule = p.from(30 * time.Second).UTC().Format(time.RFC3339)
	})
	p.faults = []plannedFault{{at: p.o.length - 5*time.Second, kind: "transfer", x: rng.Uint64()}}
	call := func(at time.Duration, kind string, job int) {
		p.calls = append(p.calls,
			plannedCall{at: at, kind: kind, job: job, node: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
	for i := range p.jobs {
		for at := 5 * time.Second; at < p.o.length-30*time.Second; at += 25 * time.Second {
			stranded := at + between(rng, 0, 4*time.Second)
			call(stranded, "strand", i)
			call(stranded+between(rng, 4*time.Second, 12*time.Second), "move", i)
			if i%3 == 0 {
				call(stranded+between(rng, 14*time.Second, 16*time.Second), "move", i)
			}
		}
	}
}
