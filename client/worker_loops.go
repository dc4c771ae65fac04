package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// leaseShare is the worker's share of a lease. The leader counts the whole of it, and from later.
func leaseShare(lease time.Duration) time.Duration { return lease * 2 / 3 }

// pauses grow and are spread: workers that lost one leader together should not come back together.
type pauses struct{ next time.Duration }

func (b *pauses) wait(ctx context.Context) bool {
	b.next = min(max(2*b.next, pauseFirst), pauseLimit)
	return sleep(ctx, b.next/2+rand.N(b.next/2))
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// node is the one to ask, and failed goes on to the next one.
func (p *puller) node() (*Client, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nodes[p.at], p.at
}

func (p *puller) failed(at int, call string, err error) {
	p.log.Warn("call failed; trying the next node", "call", call, "node", p.nodes[at].Addr(), "error", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at != at {
		return
	}
	p.at = (at + 1) % len(p.nodes)
	if p.at != at && p.abandon != nil {
		p.abandon() // it waits on the same node. What its answer may have held comes with the next one of the session
	}
}

// polls asks for runs while there is room, until ctx ends.
func (p *puller) polls(ctx, base context.Context) {
	var b pauses
	for ctx.Err() == nil {
		p.mu.Lock()
		room := p.w.Concurrency - p.running
		p.mu.Unlock()
		if room <= 0 {
			select {
			case <-ctx.Done():
			case <-p.free:
			}
			continue
		}
		err := p.poll(ctx, base, room, workerPollWait)
		switch {
		case err == nil:
			b = pauses{}
		case ctx.Err() == nil:
			b.wait(ctx)
		}
	}
}

func (p *puller) poll(ctx, base context.Context, room int, wait time.Duration) error {
	node, at := p.node()
	p.mu.Lock()
	session := p.session
	p.mu.Unlock()
	if session == "" {
		// Only a session says which answers arrived, and the first answer is as easily lost as any other: what was in it would have to
		// wait for its lease to end, or be lost for good. So the first poll asks for nothing else.
		room, wait = 0, 0
	}
	sent := p.clock()
	call, cancel := context.WithTimeout(ctx, wait+workerPollGrace)
	defer cancel()
	p.mu.Lock()
	p.abandon = cancel
	p.mu.Unlock()
	r, err := node.PullPoll(call, p.w.Queue, job.PullPoll{Worker: p.w.Name, Session: session, Max: room, Wait: job.Duration(wait), Tags: p.w.Tags})
	if err != nil {
		if ctx.Err() == nil {
			p.failed(at, "poll", err)
		}
		if job.CodeOf(err) == job.CodeInvalid || job.CodeOf(err) == job.CodeStale {
			p.mu.Lock()
			p.session = "" // whatever is wrong with it, a poll without one is right
			p.mu.Unlock()
		}
		return err
	}
	p.mu.Lock()
	p.session = r.Session
	if r.Lease > 0 && p.lease != time.Duration(r.Lease) {
		p.lease = time.Duration(r.Lease)
		kick(p.leased)
	}
	p.mu.Unlock()
	switch {
	case len(r.Runs) == 0:
	case ctx.Err() != nil:
		p.giveBack(r.Runs)
	case p.clock()-sent > p.leaseNow()/confirmShare:
		p.confirm(ctx, base, r.Runs)
	default:
		for _, run := range r.Runs {
			p.start(base, run, sent)
		}
	}
	return nil
}

// confirmShare is the part of a lease that a poll may last without its answer being doubted.
const confirmShare = 6

// confirm asks whether runs are still ours before they are started. The leader counts their leases from when it sent the answer, and
// of a poll that waited it is not known when that was: this process may have slept since.
func (p *puller) confirm(ctx, base context.Context, runs []job.PullRun) {
	refs := make([]job.PullRef, len(runs))
	for i, r := range runs {
		refs[i] = job.PullRef{Claim: r.Claim, RunID: r.RunID, Fence: r.Fence}
	}
	sent := p.clock()
	answers, err := p.say(ctx, refs)
	if err != nil {
		p.giveBack(runs) // they were not started here
		return
	}
	for _, r := range runs {
		switch a := answers[r.Fence]; a.Status {
		case job.PullOK:
			p.start(base, r, sent)
		case job.PullCanceling:
			p.giveBack([]job.PullRun{r})
		default:
			p.log.Warn("a run was taken back before it was started", "run", r.RunID, "why", a.Why)
		}
	}
}

// say sends a heartbeat for some runs; the answers are by fence.
func (p *puller) say(ctx context.Context, refs []job.PullRef) (map[uint64]job.PullAnswer, error) {
	node, at := p.node()
	call, cancel := context.WithTimeout(ctx, max(p.leaseNow()/5, time.Second))
	defer cancel()
	r, err := node.PullHeartbeat(call, p.w.Queue, job.PullBeat{Worker: p.w.Name, Runs: refs})
	if err != nil {
		if ctx.Err() == nil {
			p.failed(at, "heartbeat", err)
		}
		return nil, err
	}
	out := make(map[uint64]job.PullAnswer, len(r.Runs))
	for _, a := range r.Runs {
		out[a.Fence] = a
	}
	return out, nil
}

// sayAnywhere asks the nodes in turn: a lease does not wait until the one that is stopped goes on.
func (p *puller) sayAnywhere(ctx context.Context, refs []job.PullRef) (sent time.Duration, answers map[uint64]job.PullAnswer, err error) {
	for range p.nodes {
		sent = p.clock()
		if answers, err = p.say(ctx, refs); err == nil || ctx.Err() != nil {
			break
		}
	}
	return sent, answers, err
}

func (p *puller) leaseNow() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lease
}

// giveBack returns runs that were not started.
func (p *puller) giveBack(runs []job.PullRun) {
	p.mu.Lock()
	for _, r := range runs {
		if p.set[r.Fence] != nil {
			continue
		}
		h := &pulledRun{run: Run{PullRun: r}, stop: func(error) {}, done: true, failed: true}
		h.result = job.PullResult{PullRef: h.ref(), Unstarted: true}
		p.set[r.Fence] = h
		p.pending = append(p.pending, h)
	}
	p.mu.Unlock()
	kick(p.results)
}

// collect asks for the rest when the worker stops, until an answer brings nothing: runs may have been in the answer to the poll that it gave up, or
// claimed for it by a leader that died over it. What it does not learn of stays with it until its lease ends.
func (p *puller) collect(ctx context.Context) {
	for ctx.Err() == nil && !p.collectOnce(ctx) {
		sleep(ctx, pauseFirst+rand.N(pauseFirst))
	}
	p.mu.Lock()
	p.collected = true
	p.mu.Unlock()
	kick(p.free)
}

// collectOnce says whether there is nothing more to come.
func (p *puller) collectOnce(ctx context.Context) bool {
	node, at := p.node()
	p.mu.Lock()
	session := p.session
	p.mu.Unlock()
	if session == "" {
		return true
	}
	call, cancel := context.WithTimeout(ctx, lastPollLimit)
	defer cancel()
	r, err := node.PullPoll(call, p.w.Queue, job.PullPoll{Worker: p.w.Name, Session: session, Tags: p.w.Tags})
	if err != nil {
		if ctx.Err() == nil {
			p.failed(at, "poll", err)
		}
		return refused(err) || job.CodeOf(err) == job.CodeStale
	}
	p.mu.Lock()
	p.session = r.Session
	p.mu.Unlock()
	p.giveBack(r.Runs)
	return len(r.Runs) == 0
}

// heartbeats names everything in hand, five times a lease.
func (p *puller) heartbeats(ctx context.Context) {
	for p.untilBeat(ctx) {
		for refs := range slices.Chunk(p.held(), job.MaxPullRuns) {
			sent, answers, err := p.sayAnywhere(ctx, refs)
			if err != nil {
				break
			}
			p.mu.Lock()
			for fence, a := range answers {
				h := p.set[fence]
				switch {
				case h == nil || h.done:
				case a.Status == job.PullOK:
					h.leaseEnd = max(h.leaseEnd, sent+leaseShare(p.lease))
				case a.Status == job.PullCanceling:
					h.stop(ErrCanceled)
					h.leaseEnd = max(h.leaseEnd, sent+leaseShare(p.lease))
				default:
					p.log.Warn("a run is not ours any more", "run", h.run.RunID, "why", a.Why)
					h.stop(ErrLeaseLost)
				}
			}
			p.mu.Unlock()
		}
	}
}

// untilBeat waits for the time of the next heartbeat, which comes sooner when the lease turns out to be shorter.
func (p *puller) untilBeat(ctx context.Context) bool {
	t := time.NewTimer(p.leaseNow() / 5)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-p.leased:
	}
	return true
}

func (p *puller) held() []job.PullRef {
	p.mu.Lock()
	defer p.mu.Unlock()
	refs := make([]job.PullRef, 0, len(p.set))
	for _, h := range p.set {
		refs = append(refs, h.ref())
	}
	return refs
}

// watchLeases stops what may have been given to another worker.
func (p *puller) watchLeases(ctx context.Context) {
	for wait := leaseTick; sleep(ctx, wait); {
		wait = leaseTick
		p.mu.Lock()
		now := p.clock()
		for _, h := range p.set {
			if left := h.leaseEnd - now; !h.done && left <= 0 {
				h.stop(ErrLeaseLost)
			} else if !h.done {
				wait = min(wait, left)
			}
		}
		wait = min(wait, max(p.lease/20, time.Millisecond))
		p.mu.Unlock()
	}
}

// reports hands in results until they are acknowledged.
func (p *puller) reports(ctx context.Context) {
	var b pauses
	limit := reportItems
	for ctx.Err() == nil {
		batch, failed := p.batch(limit)
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
			case <-p.results:
			}
			continue
		}
		node, at := p.node()
		call, cancel := context.WithTimeout(ctx, reportLimit)
		r, err := node.PullReport(call, p.w.Queue, job.PullReport{Worker: p.w.Name, Failed: failed, Runs: batch})
		cancel()
		switch {
		case err == nil:
			b, limit = pauses{}, reportItems
			p.acknowledge(r.Runs)
		case ctx.Err() != nil:
		case refused(err) && len(batch) > 1:
			limit = 1 // one of them is at fault; the others are not to wait for it
		case refused(err):
			p.log.Error("a result is refused, and given up", "run", batch[0].RunID, "error", err)
			p.acknowledge([]job.PullAnswer{{PullRef: batch[0].PullRef, Status: job.PullStale, Why: err.Error()}})
		default:
			p.failed(at, "report", err)
			b.wait(ctx)
		}
	}
}

// refused says whether an error is about what was sent.
func refused(err error) bool {
	switch job.CodeOf(err) {
	case job.CodeInvalid, job.CodeMalformed, job.CodeUnknownField, job.CodeTooLarge:
		return true
	}
	return false
}

// batch is the next results to report: all of them successes, or all failures.
func (p *puller) batch(limit int) (out []job.PullResult, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := 0
	for _, h := range p.pending {
		if len(out) == 0 {
			failed = h.failed
		} else if h.failed != failed {
			continue
		}
		size += 256 + len(h.result.Error) + 2*len(h.result.Output)
		if len(out) == limit || len(out) > 0 && size > reportBytes {
			break
		}
		out = append(out, h.result)
	}
	return out, failed
}

// acknowledge forgets what was committed or refused.
func (p *puller) acknowledge(answers []job.PullAnswer) {
	p.mu.Lock()
	for _, a := range answers {
		if a.Status == job.PullStale {
			p.log.Warn("a result came too late", "run", a.RunID, "fence", a.Fence, "why", a.Why)
		}
		delete(p.set, a.Fence)
		p.pending = slices.DeleteFunc(p.pending, func(h *pulledRun) bool { return h.run.Fence == a.Fence })
	}
	p.mu.Unlock()
	kick(p.free)
}
