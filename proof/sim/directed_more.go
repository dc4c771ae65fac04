package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// turns: runs of overlap: queue wait for each other, several at a time.
func turns(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots, p.o.length = 30*time.Second, 1, 16, 2*time.Minute
	p.steady(4, 5*time.Second, 4*time.Second, 9*time.Second, func(s *job.Spec) { s.Overlap = job.OverlapQueue })
	p.ask(rng, 20, "run", len(p.jobs), 5*time.Second, p.o.length)
}

// inherited: a worker is cut off when the leader changes, for less than its lease.
func inherited(p *plan, rng *rand.Rand) {
	p.o.ttl = 15 * time.Second
	p.steady(4, 20*time.Second, 20*time.Second, 50*time.Second,
		func(s *job.Spec) { s.Workers = map[string]string{"pool": "remote"} })
	for i := range 6 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(30+42*i)*time.Second + between(rng, 0, 5*time.Second), kind: "cut-transfer",
				a: i % p.o.workers, b: rng.IntN(p.o.nodes),
				lasts: p.o.ttl*2/3 - between(rng, 500*time.Millisecond, time.Second), x: rng.Uint64()})
	}
}

// remember: leaders change while requests are repeated, history is trimmed, one-offs go by themselves, calendars change
// and notifications are on their way to a receiver that takes its time.
func remember(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots = 30*time.Second, 1, 16
	p.o.historyAge, p.o.historyCount, p.o.hooks = 70*time.Second, 150, 2*time.Second
	p.calendars = []schedule.Calendar{{Name: "closed",
		Windows: []schedule.Window{{From: p.from(30 * time.Second).UTC().Truncate(time.Second),
			To: p.from(40 * time.Second).UTC().Truncate(time.Second)}}}}
	p.steady(2, 4*time.Second, 0, time.Second, func(s *job.Spec) { s.Calendars = []string{"closed"} })
	none := 0
	p.steady(3, 7*time.Second, 0, time.Second, func(s *job.Spec) {
		s.Retry, s.Notify = job.Retry{MaxRetries: &none}, &job.Notify{Webhook: hooksURL}
	})
	for i := range p.jobs[2:] {
		p.jobs[2+i].m.fail = 0.5
	}
	for i := range 5 {
		at := p.from(between(rng, 20*time.Second, 3*time.Minute)).UTC().Truncate(time.Second)
		p.steady(1, time.Second, 0, time.Second, func(s *job.Spec) {
			s.Schedule, s.Retention = at.Format(time.RFC3339), job.Duration(time.Duration(20+15*i)*time.Second)
		})
	}
	add := func(n int, kind string, jobs int) {
		p.ask(rng, n, kind, jobs, 10*time.Second, p.o.length)
	}
	add(20, "run", len(p.jobs))
	add(40, "repeat", 1)
	add(8, "calendar", 1)
	add(4, "rebirth", len(p.jobs))
	for i := range 8 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(20+32*i)*time.Second + between(rng, 0, 8*time.Second),
				kind: []string{"transfer", "kill-leader"}[i%2], b: rng.IntN(p.o.nodes),
				lasts: between(rng, time.Second, 5*time.Second), x: rng.Uint64()})
	}
}

// refused: a receiver of notifications cannot take some of them now, and others it does not want.
func refused(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots, p.o.refuses = 30*time.Second, 1, 16, 0.35
	none := 0
	p.steady(5, 11*time.Second, 0, time.Second, func(s *job.Spec) {
		s.Retry, s.Notify = job.Retry{MaxRetries: &none}, &job.Notify{Webhook: hooksURL}
	})
	for i := range p.jobs {
		p.jobs[i].m.fail = 0.5
	}
	p.ask(rng, 20, "run", len(p.jobs), 5*time.Second, p.o.length)
}

// limits: runs of a queue with a limit fail and are tried again, beside those by hand.
func limits(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots, p.o.length = 30*time.Second, 1, 16, 2*time.Minute
	queue := json.RawMessage(fmt.Sprintf(`{"queue":%q}`, queueNames[0]))
	retries := 3
	p.steady(4, 10*time.Second, 2*time.Second, 8*time.Second, func(s *job.Spec) {
		s.Type, s.Payload, s.Retry = job.TypeQueue, queue, job.Retry{MaxRetries: &retries,
			Backoff: job.BackoffImmediate}
	})
	for i := range p.jobs {
		p.jobs[i].m.fail = 0.6
	}
	p.calls = append(p.calls, plannedCall{kind: "limit", job: 2, x: rng.Uint64()})
	p.ask(rng, 20, "run", len(p.jobs), 5*time.Second, p.o.length)
}

// neverIdle: something is committed every second, and an idle leader would tell its followers what is committed only
// after that.
func neverIdle(p *plan, rng *rand.Rand) {
	p.o.workers, p.o.length, p.o.raft.CommitTimeout = 0, time.Minute, time.Second
	for range 8 {
		p.steady(1, 3*time.Second, 50*time.Millisecond, 200*time.Millisecond, func(*job.Spec) {})
	}
	p.faults = append(p.faults,
		plannedFault{at: between(rng, 20*time.Second, 40*time.Second), kind: "transfer", x: rng.Uint64()})
}
