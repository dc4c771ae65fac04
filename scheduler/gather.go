package scheduler

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

const (
	// gatherFor is how long a result may wait for others, so that they share an entry in the log: each entry is synced
	// twice on every node. Claims never wait; results that are in line when one is proposed go along with it.
	gatherFor = 20 * time.Millisecond
	// gatherEnough is how many results are not worth waiting with.
	gatherEnough = 64
)

// completer commits results until the epoch ends. What it has not proposed by then its workers report to the next
// leader.
func (s *Scheduler) completer(ctx context.Context) {
	timer := time.NewTimer(gatherFor)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.completeWake:
		case <-timer.C:
		}
		if wait := s.gather(); wait > 0 {
			timer.Reset(wait)
			continue
		}
		for batch := s.nextResults(); len(batch) > 0; batch = s.nextResults() {
			if sub, ok := s.completion(batch); ok {
				s.submitAll(sub)
			}
		}
	}
}

// urgent says whether something waits for the commit of a result: the worker for its slot, a script for its answer, or
// the run for its next attempt.
func urgent(c *claim, r *job.Result, call *reportCall) bool {
	x := c.x
	return call == nil || r.Outcome != job.OutcomeSucceeded || c.canceling ||
		x.pull != nil || x.gone || x.draining || 2*(len(x.claims)+x.reserved) > x.slots
}

// gather says how long the results in line may wait for others; 0: not at all.
func (s *Scheduler) gather() time.Duration {
	s.mu.Lock()
	n := len(s.results)
	if n == 0 || n >= gatherEnough || s.urgent || s.starving.Load() {
		s.mu.Unlock()
		return 0
	}
	wait := time.Until(s.results[0].since.Add(gatherFor))
	jobs := make([]job.ID, n)
	for i, p := range s.results {
		jobs[i] = p.c.run.Job
	}
	s.mu.Unlock()
	// Not under the lock: this waits for a commit.
	if wait > 0 && s.st.Follows(jobs, s.o.Clock.Now().Add(2*gatherFor).UnixMilli()) {
		return 0
	}
	return wait
}

// setStarving notes whether ready entries wait: for a slot, or for a limit that a result in line may make room under.
// Only the loop calls it. What was freed just before goes unnoticed, so the loop looks once more.
func (s *Scheduler) setStarving(is bool) {
	if s.starving.Swap(is) != is && is {
		signal(s.completeWake)
		signal(s.wake)
	}
}

// freed wakes the loop if entries wait for what became free. Otherwise there is nothing for it to do.
func (s *Scheduler) freed() {
	if s.starving.Load() {
		signal(s.wake)
	}
}

// completeAhead is what was gathered, to be committed ahead of a claim. Raft writes, sends and applies what is proposed
// together at once, so it costs next to nothing, and the claim is judged by the newest state. Only the loop calls it.
func (s *Scheduler) completeAhead() (sub submission, ok bool) {
	s.mu.Lock()
	// What is urgent the completer has in hand; it may have to read the store, and its batches are to be large when
	// there is much to do.
	skip := s.urgent || len(s.results) == 0 || s.starving.Load()
	s.mu.Unlock()
	if skip {
		return sub, false
	}
	batch := s.nextResults()
	if len(batch) == 0 {
		return sub, false
	}
	return s.completion(batch)
}
