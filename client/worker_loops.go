package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// node is the one to ask, and failed goes on to the next one.
func (p *puller) node() (*Client, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nodes[p.at], p.at
}

func (p *puller) failed(ctx context.Context, at int, call string, err error) {
	if ctx.Err() != nil {
		return
	}
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

// polls asks for runs while there is room, until ctx ends, or until the cluster has refused the token for good.
func (p *puller) polls(ctx context.Context) error {
	b, unwanted, refusals := worker.Backoff{Max: pauseLimit}, worker.Backoff{Max: worker.RefusedPause}, 0
	for ctx.Err() == nil {
		p.mu.Lock()
		room := p.w.Concurrency - p.set.Busy
		p.mu.Unlock()
		if room <= 0 {
			select {
			case <-ctx.Done():
			case <-p.set.Room:
			}
			continue
		}
		r, sent, err := p.poll(ctx, room, workerPollWait, workerPollGrace)
		switch {
		case unwelcome(err):
			if refusals++; refusals >= worker.MaxRefusals {
				return err
			}
			unwanted.Wait(ctx)
			continue
		case err != nil:
			refusals = 0
			b.Wait(ctx)
			continue
		case ctx.Err() != nil:
			p.giveBack(r.Runs...)
		case len(r.Runs) > 0 && p.clock()-sent > p.leaseNow()/confirmShare:
			p.confirm(ctx, r.Runs)
		default:
			p.take(r.Runs, sent, job.Result{})
		}
		b.Reset()
		unwanted.Reset()
		refusals = 0
	}
	return nil
}

// unwelcome says that the cluster does not let the token in, or not there.
func unwelcome(err error) bool {
	code := job.CodeOf(err)
	return code == job.CodeUnauthenticated || code == job.CodeForbidden
}

// poll asks once for runs, and says when. What is in the answer is the caller's to start or to give back.
func (p *puller) poll(ctx context.Context, room int, pause, grace time.Duration) (job.PullReply, time.Duration, error) {
	node, at := p.node()
	p.mu.Lock()
	session, sent := p.session, p.clock()
	if session == "" {
		// Only a session says which answers arrived, and the first answer is as easily lost as any other: what was in
		// it would have to wait for its lease to end, or be lost for good. So the first poll asks for nothing else.
		room, pause = 0, 0
	}
	call, cancel := context.WithTimeout(ctx, pause+grace)
	defer cancel()
	p.abandon = cancel
	p.mu.Unlock()
	r, err := node.PullPoll(call, p.w.Queue, job.PullPoll{Worker: p.w.Name, Session: session, Max: room,
		Wait: job.Duration(pause), Tags: p.w.Tags})
	if err != nil {
		p.failed(ctx, at, "poll", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case refused(err) || job.CodeOf(err) == job.CodeStale:
		p.session = "" // whatever is wrong with it, a poll without one is right
	case err == nil:
		p.session = r.Session
		if r.Lease > 0 && p.lease != time.Duration(r.Lease) {
			p.lease = time.Duration(r.Lease)
			wait.Wake(p.leased)
		}
	}
	return r, sent, err
}

// collect asks for the rest when the worker stops, until an answer brings nothing: runs may have been in the answer to
// the poll that it gave up, or claimed for it by a leader that died over it. What it does not learn of stays with it
// until its lease ends.
func (p *puller) collect(ctx context.Context) {
	for ctx.Err() == nil && p.sessionNow() != "" {
		r, _, err := p.poll(ctx, 0, 0, worker.LastPollTimeout)
		p.giveBack(r.Runs...)
		if err == nil && len(r.Runs) == 0 {
			break
		}
		p.mu.Lock()
		p.set.HearLocked(err)
		p.mu.Unlock()
		wait.For(ctx, collectPause+rand.N(collectPause))
	}
	p.mu.Lock()
	p.collected = true
	p.mu.Unlock()
	p.set.Changed()
}

// confirmShare is the part of a lease that a poll may last without its answer being doubted.
const confirmShare = 6

// confirm asks whether runs are still ours before they are started. The leader counts their leases from when it sent
// the answer, and of a poll that waited it is not known when that was: this process may have slept since.
func (p *puller) confirm(ctx context.Context, runs []job.PullRun) {
	refs := make([]job.PullRef, len(runs))
	for i, r := range runs {
		refs[i] = refOf(r)
	}
	sent, answers, err := p.say(ctx, refs, 1)
	if err != nil {
		p.giveBack(runs...) // they were not started here
		return
	}
	for _, r := range runs {
		switch a := answers[keyOf(r.RunID, r.Fence)]; a.Status {
		case job.PullOK:
			p.take([]job.PullRun{r}, sent, job.Result{})
		case job.PullCanceling:
			p.giveBack(r)
		default:
			p.log.Warn("a run was taken back before it was started", "run", r.RunID, "why", a.Why)
		}
	}
}

type pullAnswers map[worker.Key]job.PullAnswer

// say sends a heartbeat for some runs and says when; the answers are by run. It asks so many nodes in turn: a lease
// does not wait until the one that is stopped goes on.
func (p *puller) say(ctx context.Context, refs []job.PullRef, nodes int) (time.Duration, pullAnswers, error) {
	for {
		node, at := p.node()
		sent := p.clock()
		call, cancel := context.WithTimeout(ctx, max(p.leaseNow()/worker.Beats, time.Second))
		r, err := node.PullHeartbeat(call, p.w.Queue, job.PullBeat{Worker: p.w.Name, Runs: refs})
		cancel()
		if err == nil {
			answers := make(pullAnswers, len(r.Runs))
			for _, a := range r.Runs {
				answers[keyOf(a.RunID, a.Fence)] = a
			}
			return sent, answers, nil
		}
		p.failed(ctx, at, "heartbeat", err)
		if nodes--; nodes <= 0 || ctx.Err() != nil {
			return 0, nil, err
		}
	}
}

func (p *puller) leaseNow() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lease
}

func (p *puller) sessionNow() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// heartbeats names everything in hand, five times a lease: sooner when that turns out to be shorter.
func (p *puller) heartbeats(ctx context.Context) {
	for {
		if wait.Within(ctx, p.leased, p.leaseNow()/worker.Beats); ctx.Err() != nil {
			return
		}
		for refs := range slices.Chunk(p.held(), job.MaxPullRuns) {
			sent, answers, err := p.say(ctx, refs, len(p.nodes))
			if err != nil {
				break
			}
			p.mu.Lock()
			for key, answer := range answers {
				a := p.set.Held[key]
				switch {
				case a == nil || a.State == worker.Done:
				case answer.Status == job.PullOK:
					a.Lease.Extend(sent, p.lease)
				case answer.Status == job.PullCanceling:
					a.Lease.Extend(sent, p.lease)
					if answer.TimedOut {
						p.set.TimeOutLocked(a)
					} else {
						p.set.CancelLocked(a)
					}
				default:
					p.log.Warn("a run no longer belongs to this worker", "run", a.Work.RunID, "why", answer.Why)
					*a.Lease = worker.Lease{}
				}
			}
			p.set.GiveUpLocked()
			p.mu.Unlock()
		}
	}
}

func (p *puller) held() []job.PullRef {
	p.mu.Lock()
	defer p.mu.Unlock()
	refs := make([]job.PullRef, 0, len(p.set.Held))
	for _, a := range p.set.Held {
		refs = append(refs, refOf(a.Work.PullRun))
	}
	return refs
}

// leasesLocked stops what may have been given to another worker.
func (p *puller) leasesLocked() time.Duration {
	return min(p.set.GiveUpLocked(), worker.LeaseTick, max(p.lease/20, time.Millisecond))
}

// reports hands in results: completed and failed ones are different calls.
func (p *puller) reports() worker.Reports[Run] {
	size := func(r job.Result) int { return 256 + len(r.Error) + 2*len(r.Output) }
	return worker.Reports[Run]{Most: reportItems, Bytes: reportBytes, Size: size, Pause: pauseLimit,
		Send: func(ctx context.Context, batch []*pulled) ([]worker.Key, error) {
			parts := map[bool][]*pulled{}
			for _, a := range batch {
				ok := a.Result.Outcome == job.OutcomeSucceeded
				parts[ok] = append(parts[ok], a)
			}
			return p.report(ctx, parts[true], parts[false])
		}}
}

// report hands in results, each part by itself, and says which were committed, came too late or are refused.
func (p *puller) report(ctx context.Context, parts ...[]*pulled) (keys []worker.Key, err error) {
	for _, part := range parts {
		if len(part) == 0 {
			continue
		}
		runs := make([]job.PullResult, len(part))
		for i, a := range part {
			runs[i] = resultOf(a)
		}
		node, at := p.node()
		call, cancel := context.WithTimeout(ctx, reportLimit)
		r, err := node.PullReport(call, p.w.Queue, job.PullReport{Worker: p.w.Name, Runs: runs,
			Failed: part[0].Result.Outcome != job.OutcomeSucceeded})
		cancel()
		switch half := len(part) / 2; {
		case refused(err) && half > 0: // one of them is at fault; the others are not to wait for it
			var some []worker.Key
			some, err = p.report(ctx, part[:half], part[half:])
			keys = append(keys, some...)
		case refused(err):
			p.log.Error("a result was refused and dropped", "run", part[0].Work.RunID, "error", err)
			keys, err = append(keys, part[0].Key), nil
		case err != nil:
			p.failed(ctx, at, "report", err)
		}
		if err != nil {
			return keys, err
		}
		for _, a := range r.Runs {
			if a.Status == job.PullStale {
				p.log.Warn("a result came too late", "run", a.RunID, "fence", a.Fence, "why", a.Why)
			}
			keys = append(keys, keyOf(a.RunID, a.Fence))
		}
	}
	return keys, nil
}

// resultOf is what is said of a run that has ended. One that was not started goes back.
func resultOf(a *pulled) job.PullResult {
	r := a.Result
	if r.Outcome == job.OutcomeReturned || r.Outcome == job.OutcomeCanceled {
		return job.PullResult{PullRef: refOf(a.Work.PullRun), Unstarted: true}
	}
	return job.PullResult{PullRef: refOf(a.Work.PullRun), Output: r.Output, Error: r.Error, Permanent: r.Permanent,
		Delay: r.RetryAfter}
}

// refused says whether an error is about what was sent.
func refused(err error) bool {
	switch job.CodeOf(err) {
	case job.CodeInvalid, job.CodeMalformed, job.CodeUnknownField, job.CodeTooLarge:
		return true
	}
	return false
}
