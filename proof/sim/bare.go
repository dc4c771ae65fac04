package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
)

// bareCalls adds requests without a key to some plans, and has the receiver of notifications refuse some. The dice are
// its own.
func (p *plan) bareCalls(rng *rand.Rand) {
	if chance(rng, 0.5) {
		p.o.refuses = 0.3
	}
	if !chance(rng, 0.4) {
		return
	}
	p.ask(rng, 5+rng.IntN(20), "bare-run", len(p.jobs), 0, p.o.length)
}

// bare: many ask for runs without a key, through any node, while leaders come and go and answers get lost.
func bare(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots, p.o.latency = 30*time.Second, 1, 16, 60*time.Millisecond
	p.steady(4, time.Second, 0, time.Second, func(s *job.Spec) { s.Schedule = job.ScheduleManual })
	p.ask(rng, 100, "bare-run", len(p.jobs), 5*time.Second, p.o.length)
	for i := range 18 {
		at := time.Duration(12+15*i)*time.Second + between(rng, 0, 5*time.Second)
		p.ask(rng, 20, "bare-run", len(p.jobs), at-300*time.Millisecond, at) // on their way then, or answered
		p.faults = append(p.faults,
			plannedFault{at: at, a: rng.IntN(p.o.nodes),
				kind: pick(rng, "kill-leader", "kill-leader", "kill-leader", "one-way", "transfer"),
				b:    rng.IntN(p.o.nodes), lasts: between(rng, time.Second, 5*time.Second), x: rng.Uint64()})
	}
}

// bareRun asks for a run once, as a program does that knows nothing of keys. The node that it asks makes one, under
// which it repeats the request while leaders come and go: it is done once, or not at all.
func (c *cluster) bareRun(pc plannedCall, id job.ID) {
	call := checker.Call{Kind: checker.CallRun, Job: id, Invoke: c.t.instant()}
	if pc.node == c.leader() { // the answers of one that does not lead tell more: it is there to repeat the request
		pc.node = (pc.node + 1) % len(c.servers)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		connected.Store(true)
	}})
	url := fmt.Sprintf("http://%s/api/v1/jobs/%s:run", c.servers[pc.node].host.Addr, id)
	rq, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(""))
	if err != nil {
		panic(err)
	}
	rq.GetBody = nil // nothing but the node repeats it
	res, err := c.http.Do(rq)
	var answer struct { // a run, or a problem
		RunID string   `json:"run_id"`
		Code  job.Code `json:"code"`
	}
	if err == nil {
		err = json.NewDecoder(res.Body).Decode(&answer)
		res.Body.Close()
	}
	switch {
	case err != nil && !connected.Load():
		call.Outcome = checker.Refused
	case err != nil, answer.Code == job.CodeOutcomeUnknown, answer.Code == job.CodeInternal:
	case res.StatusCode/100 == 2:
		call.Outcome = checker.OK
		if call.Run, err = job.ParseRunKey(answer.RunID); err != nil {
			c.problem("a request without a key was answered with the run %q", answer.RunID)
		}
	default:
		call.Outcome = checker.Refused
	}
	call.Return = c.t.instant()
	c.rec.mu.Lock()
	c.rec.calls = append(c.rec.calls, call)
	c.rec.mu.Unlock()
	c.event("call without a key: %s at %s: %s %s %s %v", id, call.Invoke, call.Outcome, call.Run, answer.Code, err)
}
