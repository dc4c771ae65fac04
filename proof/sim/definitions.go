package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// The tags that jobs select workers by.
var (
	nodeTags   = map[string]string{"pool": "node"}
	remoteTags = map[string]string{"pool": "remote"}
)

// distinguish gives each job a payload and a key template of its own, so that an attempt that got another job's can be
// told. The dice are its own, so that plans are otherwise what they were.
func (p *plan) distinguish(rng *rand.Rand) {
	for i := range p.jobs {
		s := &p.jobs[i].spec
		s.Payload = mark(s, s.Name)
		if chance(rng, 0.4) {
			s.IdempotencyKey = keyTemplate(rng)
		}
	}
}

// mark is a job's payload with a word in it.
func mark(s *job.Spec, word string) json.RawMessage {
	switch s.Type {
	case job.TypeShell:
		return json.RawMessage(fmt.Sprintf(`{"command":"echo %s"}`, word))
	case job.TypeQueue:
		return json.RawMessage(fmt.Sprintf(`{"queue":%q,"data":{"of":%q}}`, queueOf(s), word))
	}
	return json.RawMessage(fmt.Sprintf(`{"url":"http://target.example/%s"}`, word))
}

func queueOf(s *job.Spec) string {
	var q struct {
		Queue string `json:"queue"`
	}
	if err := json.Unmarshal(s.Payload, &q); err != nil {
		panic(err)
	}
	return q.Queue
}

func keyTemplate(rng *rand.Rand) string {
	return pick(rng, "{job_id}/{scheduled_at_unix_ms}", "{job_name}-{run_id}", "{run_id}") +
		fmt.Sprintf("-%x", rng.Uint32()&0xfff)
}

// redefine changes some of what an attempt is made of.
func (p *plan) redefine(rng *rand.Rand, s *job.Spec) {
	if chance(rng, 0.6) {
		s.Payload = mark(s, fmt.Sprintf("%s-%x", s.Name, rng.Uint32()&0xffff))
	}
	if chance(rng, 0.3) {
		s.Timeout = job.Duration((time.Duration(s.Timeout) * time.Duration(pick(rng, 1, 3,
			5)) / 2).Round(time.Millisecond))
	}
	if chance(rng, 0.3) {
		s.IdempotencyKey = pick(rng, "", keyTemplate(rng))
	}
	if p.o.workers > 0 && s.Type != job.TypeQueue && chance(rng, 0.3) {
		s.Workers = pick(rng, nil, remoteTags, nodeTags)
	}
	if retries := 0; chance(rng, 0.2) {
		if s.Delivery == job.DeliverAtMostOnce {
			s.Delivery = job.DeliverAtLeastOnce
		} else {
			s.Delivery, s.Retry.MaxRetries = job.DeliverAtMostOnce, &retries
		}
	}
}

// retryOtherwise changes how often and when failed attempts are repeated.
func retryOtherwise(rng *rand.Rand, s *job.Spec) {
	n := rng.IntN(5)
	s.Retry.MaxRetries = &n
	s.Retry.Backoff = pick(rng, job.BackoffImmediate, job.BackoffLinear, job.BackoffExponential)
	s.Retry.Base = job.Duration(between(rng, 500*time.Millisecond, 4*time.Second).Round(time.Millisecond))
}

// rerule changes what is done about attempts that fail or lose their worker.
func rerule(rng *rand.Rand, s *job.Spec) {
	if s.Delivery = job.DeliverAtLeastOnce; chance(rng, 0.4) {
		none := 0
		s.Delivery, s.Retry.MaxRetries = job.DeliverAtMostOnce, &none
		return
	}
	retryOtherwise(rng, s)
}

// verdicts: what is done about attempts that fail or lose their worker changes all the time, while they do.
func verdicts(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.slots = 6*time.Second, 8
	p.steady(6, 8*time.Second, time.Second, 6*time.Second, func(s *job.Spec) { s.Workers = remoteTags })
	for i := range p.jobs {
		p.jobs[i].m.fail = 0.6
	}
	p.ask(rng, 200, "rerule", len(p.jobs), 5*time.Second, p.o.length)
	for i := range 16 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(15+17*i)*time.Second + between(rng, 0, 5*time.Second),
				kind: pick(rng, "kill-worker", "cut-worker", "cut-worker"), a: i % p.o.workers,
				lasts: p.o.ttl + between(rng, time.Second, 4*time.Second), x: rng.Uint64()})
	}
}

// retried: attempts fail and lose their workers, and jobs are paused, resumed and redriven while their runs wait for
// the next try.
func retried(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.slots = 6*time.Second, 8
	two := 2
	p.steady(6, 20*time.Second, time.Second, 5*time.Second, func(s *job.Spec) {
		s.Workers = remoteTags
		s.Retry = job.Retry{MaxRetries: &two, Backoff: pick(rng, job.BackoffLinear, job.BackoffExponential),
			Base: job.Duration(between(rng, 4*time.Second, 9*time.Second).Round(time.Millisecond))}
		s.Overlap = pick(rng, job.OverlapAllow, job.OverlapAllow, job.OverlapQueue)
	})
	for i := range p.jobs {
		p.jobs[i].m.fail = 0.6
	}
	call := func(at time.Duration, kind string, job int) {
		p.calls = append(p.calls, plannedCall{at: at, kind: kind, job: job, node: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
	for i := range 48 {
		at := time.Duration(10+6*i)*time.Second + between(rng, 0, 5*time.Second)
		which := rng.IntN(len(p.jobs))
		call(at, "pause", which)
		call(at+between(rng, time.Second, 12*time.Second), "resume", which)
	}
	for range 40 {
		call(between(rng, 40*time.Second, p.o.length), "redrive", rng.IntN(len(p.jobs)))
	}
	for i := range 14 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(15+19*i)*time.Second + between(rng, 0, 5*time.Second),
				kind: pick(rng, "kill-worker", "cut-worker", "cut-worker"), a: i % p.o.workers,
				lasts: p.o.ttl + between(rng, time.Second, 4*time.Second), x: rng.Uint64()})
	}
}

// edits: what attempts are made of changes all the time, while workers of both kinds have them in hand, do not hear of
// them at once, and leaders change.
func edits(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.onlyByQueue = 15*time.Second, 2, true
	p.o.queueWorkers = []plannedQueueWorker{{queue: queueNames[0], hands: 6}, {queue: queueNames[0], hands: 6}}
	queue := json.RawMessage(fmt.Sprintf(`{"queue":%q}`, queueNames[0]))
	p.steady(4, 10*time.Second, 6*time.Second, 15*time.Second,
		func(s *job.Spec) { s.Type, s.Payload = job.TypeQueue, queue })
	p.steady(4, 5*time.Second, 0, 3*time.Second, func(s *job.Spec) { s.Workers = remoteTags })
	for range 300 {
		p.calls = append(p.calls,
			plannedCall{at: between(rng, 5*time.Second, p.o.length),
				kind: pick(rng, "redefine", "redefine", "redefine", "run"),
				job:  rng.IntN(len(p.jobs)), node: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
	for i := range 9 {
		at := time.Duration(15+30*i) * time.Second
		p.faults = append(p.faults,
			plannedFault{at: at, kind: pick(rng, "deaf-queue-worker", "cut-worker", "cut-worker"), a: i % 2,
				lasts: between(rng, 8*time.Second, 10*time.Second), x: rng.Uint64()},
			plannedFault{at: at + between(rng, 4*time.Second, 6*time.Second),
				kind: pick(rng, "kill-leader", "transfer", "swing"), b: rng.IntN(p.o.nodes), lasts: 3 * time.Second,
				x: rng.Uint64()})
	}
}
