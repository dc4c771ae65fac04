package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
)

// directed are plans that have one thing happen again and again which storms meet only now and then. A seed moves their
// times a little.
var directed = map[string]func(*plan, *rand.Rand){
	"late-result": lateResult,
	"late-leader": lateLeader,
	"deaf-leader": deafLeader,
	"backlog":     backlog,
	"swings":      swings,
	"racing":      racing,
	"late-queue":  lateQueue,
	"wrong-clock": wrongClock,
	"drift":       drift,
	"low-disk":    lowDisk,
	"planned":     planned,
	"hung-heir":   hungHeir,
	"edits":       edits,
	"moved":       moved,
	"verdicts":    verdicts,
	"retried":     retried,
	"bare":        bare,
	"refused":     refused,
	"old-reads":   oldReads,
	"never-idle":  neverIdle,
	"clones":      clones,
	"jumpy":       jumpy,
	"clocks":      clocks,
	"nudged":      nudged,
	"busy-slot":   busySlot,
	"pauses":      pauses,
	"bounds":      bounds,
	"catch-up":    catchUp,
	"backfills":   backfills,
	"last-run":    lastRun,
	"turns":       turns,
	"inherited":   inherited,
	"remember":    remember,
	"limits":      limits,
	"restored":    restored,
	"recovered":   recovered,
	"put-back":    putBack,
	"frozen":      frozen,
	"flood":       flood,
	"namesakes":   namesakes,
	"names":       names,

	"stale-home":     staleHome,
	"late-release":   lateRelease,
	"aborted-create": abortedCreate,
	"one-lease":      oneLease,
	"lost-offers":    lostOffers,
	"grow":           growStorm,
	"grow-behind":    growBehind,
	"grow-begin":     growBegin,
	"grow-keys":      growKeys,
}

func directedPlan(name string, seed uint64) *plan {
	make, ok := directed[name]
	if !ok {
		panic(fmt.Sprintf("there is no plan %q", name))
	}
	rng := rand.New(rand.NewPCG(seed, 14))
	p := &plan{seed: seed, name: name}
	p.o = options{
		profile: "storm", nodes: 3, workers: 3, slots: 4, pace: 1, latency: time.Millisecond, length: 5 * time.Minute,
		raft: node.RaftConfig{Heartbeat: 500 * time.Millisecond, CommitTimeout: 50 * time.Millisecond,
			SnapshotInterval: time.Hour},
		members: node.MembersConfig{Interval: 4 * time.Second},
		base: time.Date(2027, 6, 1, 12, 0, 0, 0,
			time.UTC).Add(between(rng, 0, time.Minute)).Truncate(time.Millisecond),
	}
	make(p, rng)
	p.distinguish(rand.New(rand.NewPCG(seed, 15)))
	for i := range p.jobs {
		p.calls = append(p.calls, plannedCall{kind: "create", job: i, node: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
	return p
}

// steady adds jobs that fire every few seconds whatever else they have under way, and take some time.
func (p *plan) steady(n int, every, least, most time.Duration, change func(*job.Spec)) {
	retries := 3
	for range n {
		s := job.Spec{Name: fmt.Sprintf("job-%d", len(p.jobs)), Type: job.TypeHTTP,
			Payload:  json.RawMessage(`{"url":"http://target.example/"}`),
			Schedule: fmt.Sprintf("@every %s", every), Overlap: job.OverlapAllow,
			Timeout:   job.Duration(5 * time.Minute),
			Retry:     job.Retry{MaxRetries: &retries, Backoff: job.BackoffImmediate},
			Retention: job.Duration(1000 * 24 * time.Hour)}
		change(&s)
		p.jobs = append(p.jobs, plannedJob{s, behaviour{least: least, most: most}})
	}
}

// lateResult: a worker is cut off for a little longer than its lease. Some of what it did ended before it gave up;
// those results come when each of these runs has been claimed anew and is under way somewhere else, or is lost.
func lateResult(p *plan, rng *rand.Rand) {
	p.o.ttl = 15 * time.Second
	p.steady(3, 16*time.Second, time.Second, 30*time.Second,
		func(s *job.Spec) { s.Workers = map[string]string{"pool": "remote"} })
	none := 0
	p.steady(2, 16*time.Second, time.Second, 30*time.Second, func(s *job.Spec) {
		s.Workers, s.Delivery, s.Retry = map[string]string{"pool": "remote"}, job.DeliverAtMostOnce,
			job.Retry{MaxRetries: &none}
	})
	for i := range 6 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(20+45*i)*time.Second + between(rng, 0, 5*time.Second), kind: "cut-worker",
				a:     i % p.o.workers,
				lasts: p.o.ttl + between(rng, 3*time.Second, 6*time.Second), x: rng.Uint64()})
	}
}

// lateLeader: a leader whose disk hangs goes on believing that it leads after another one was elected, and speaks to a
// worker that has been with that one meanwhile.
func lateLeader(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers = 30*time.Second, 1
	p.steady(5, 4*time.Second, 0, 300*time.Millisecond,
		func(s *job.Spec) { s.Workers = map[string]string{"pool": "remote"} })
	p.steady(1, 3*time.Second, 0, 300*time.Millisecond, func(*job.Spec) {})
	for i := range 3 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(20+90*i)*time.Second + between(rng, 0, 5*time.Second), kind: "late-leader",
				x: rng.Uint64()})
	}
}

// deafLeader: a leader whose disk hangs is cut off from the other nodes, and the only one that some workers of either
// kind can reach. Another one is elected, which hears nothing of these workers and gives their runs to others.
func deafLeader(p *plan, rng *rand.Rand) {
	p.o.ttl = 15 * time.Second
	p.o.queueWorkers = slices.Repeat([]plannedQueueWorker{{queue: queueNames[0], hands: 4}}, 3)
	p.o.onlyByQueue = true
	p.steady(3, 20*time.Second, 30*time.Second, 60*time.Second,
		func(s *job.Spec) { s.Workers = map[string]string{"pool": "remote"} })
	p.steady(3, 20*time.Second, 30*time.Second, 60*time.Second, func(s *job.Spec) {
		s.Type, s.Payload = job.TypeQueue, json.RawMessage(fmt.Sprintf(`{"queue":%q}`, queueNames[0]))
	})
	p.steady(1, 3*time.Second, 0, 300*time.Millisecond, func(*job.Spec) {})
	for i := range 2 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(50+120*i)*time.Second + between(rng, 0, 10*time.Second), kind: "deaf-leader",
				a: i, lasts: between(rng, 30*time.Second, 60*time.Second), x: rng.Uint64()})
	}
}

// backlog: there is more to do than there are slots, for longer than any job's grace, and nothing is broken.
func backlog(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots, p.o.length = 30*time.Second, 0, 1, 2*time.Minute
	for _, policy := range []string{job.MissedSkip, job.MissedRunOnce, job.MissedRunAll} {
		p.steady(2, 6*time.Second, time.Second, 6*time.Second, func(s *job.Spec) {
			s.Overlap = pick(rng, job.OverlapAllow, job.OverlapQueue)
			s.Missed = job.Missed{Policy: policy, Grace: job.Duration(time.Second)}
		})
	}
}

// swings: the leadership goes away and comes back to the same node, again and again, while there is much to do.
func swings(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers = 30*time.Second, 1
	p.steady(6, 2*time.Second, 0, time.Second,
		func(s *job.Spec) { s.Overlap = pick(rng, job.OverlapAllow, job.OverlapSkip, job.OverlapQueue) })
	for i := range 7 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(10+40*i)*time.Second + between(rng, 0, 5*time.Second), kind: "swing",
				b: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
	p.ask(rng, 60, "run", len(p.jobs), 5*time.Second, p.o.length)
}

// racing: heartbeats and assignments are on their way at the same time, and take long.
func racing(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.latency, p.o.length, p.o.raft.Heartbeat = 6*time.Second, 200*time.Millisecond, 2*time.Minute,
		2*time.Second
	p.steady(8, between(rng, 2*time.Second, 3*time.Second).Round(time.Second), time.Second, 3*time.Second,
		func(s *job.Spec) { s.Workers = map[string]string{"pool": "remote"} })
}

// lateQueue: queue workers are cut off, or do not hear the answers to their polls, for a little longer than a lease.
// What they ended meanwhile, and what they were given, is late: another worker has it.
func lateQueue(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.onlyByQueue = 6*time.Second, 0, true
	p.o.queueWorkers = slices.Repeat([]plannedQueueWorker{{queue: queueNames[0], hands: 4}}, 3)
	queue := json.RawMessage(fmt.Sprintf(`{"queue":%q}`, queueNames[0]))
	p.steady(5, 8*time.Second, time.Second, 12*time.Second, func(s *job.Spec) {
		s.Type, s.Payload = job.TypeQueue, queue
	})
	none := 0
	p.steady(1, 8*time.Second, time.Second, 12*time.Second, func(s *job.Spec) {
		s.Type, s.Payload = job.TypeQueue, queue
		s.Delivery, s.Retry = job.DeliverAtMostOnce, job.Retry{MaxRetries: &none}
	})
	for i := range 13 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(20+20*i)*time.Second + between(rng, 0, 5*time.Second),
				kind: []string{"cut-queue-worker", "deaf-queue-worker"}[i%2], a: i % 3,
				lasts: p.o.ttl + between(rng, 2*time.Second, 5*time.Second), x: rng.Uint64()})
	}
	// A worker that holds nothing sends no heartbeats, and so waits longer for a late answer to its poll.
	other := plannedQueueWorker{queue: queueNames[1], hands: 1}
	p.o.queueWorkers = append(p.o.queueWorkers, other, other)
	p.steady(2, 9*time.Second, 100*time.Millisecond, time.Second, func(s *job.Spec) {
		s.Type, s.Payload = job.TypeQueue, json.RawMessage(fmt.Sprintf(`{"queue":%q}`, queueNames[1]))
	})
	for i := range 13 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(20+20*i)*time.Second + between(rng, 0, 5*time.Second),
				kind: "deaf-queue-worker", a: 3 + i%2,
				lasts: p.o.ttl + between(rng, 2*time.Second, 5*time.Second), x: rng.Uint64()})
	}
}
