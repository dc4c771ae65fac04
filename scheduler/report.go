package scheduler

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler/decide"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	maxCompleteBytes = 256 << 10
	completeOverhead = 96 // of an item in a complete
)

// pending is a result on its way into the log.
type pending struct {
	c      *claim
	result job.Result
	since  time.Time
	calls  []*reportCall // those who wait for it; none: it is the leader's own
	lacks  bool          // a secret was missing: the run was never handed out
	end    decide.Ending

	committed, stale bool // stale: it was refused because its fence is old
}

// reportCall is a report that waits for its results. It is guarded by Scheduler.mu.
type reportCall struct {
	left int // results on their way
	done chan struct{}
}

// Report takes results in. It is answered once they are committed; the slots are free at once.
func (s *Scheduler) Report(ctx context.Context, r job.Report) (job.ReportReply, error) {
	from, err := s.parseSession(r.Session)
	if err != nil {
		return job.ReportReply{}, err
	}
	call := &reportCall{done: make(chan struct{})}
	mono := s.o.Clock.Mono()
	out := job.ReportReply{Results: make([]job.Answer, len(r.Results))}
	line := make([]*pending, len(r.Results)) // nil: answered already
	s.mu.Lock()
	if err := s.servingLocked(); err != nil {
		s.mu.Unlock()
		return job.ReportReply{}, err
	}
	s.heardLocked(from)
	for i := range r.Results {
		res, a := &r.Results[i], &out.Results[i]
		c := s.namedLocked(from, res.Ref, a)
		switch {
		case a.Status != job.StatusInvalid && res.Outcome.String() == "":
			a.Status, a.Why = job.StatusInvalid, "the outcome is succeeded, failed, canceled or returned"
		case c != nil:
			line[i] = s.reportedLocked(c, completedBy(c, *res, mono), call)
		}
	}
	if call.left == 0 {
		close(call.done)
	}
	s.mu.Unlock()
	s.freed()
	select {
	case <-call.done:
	case <-ctx.Done():
	case <-s.done:
	}
	gone := false
	s.mu.Lock()
	for i := range out.Results {
		a := &out.Results[i]
		switch p := line[i]; {
		case p == nil:
		case !p.committed: // it is reported again, which is harmless: the fence tells
			a.Status = ""
		case p.stale || p.result.Outcome != r.Results[i].Outcome: // taken back, or another result of it was faster
			a.Status, a.Why, a.Run = job.StatusGone, whyUnknown, p.c.run
		}
		gone = gone || a.Status == job.StatusGone
	}
	s.mu.Unlock()
	if gone {
		err = s.repeated(ctx, out.Results, r.Results)
	}
	out.Results = slices.DeleteFunc(out.Results, func(a job.Answer) bool { return a.Status == "" })
	if err == nil && len(out.Results) == 0 && len(r.Results) > 0 {
		err = job.Errorf(job.CodeOutcomeUnknown, "send them again: a result that was committed is answered with ok",
			"the results may or may not have been committed")
	}
	return out, err
}

// repeatRecords bounds how many records one call may read: a view holds up commits.
const repeatRecords = 4096

// repeated looks for what attempts that are gone are recorded as. A result that was committed before, under the same
// fence, is ok. Only a leader that leads at this moment may say of the others that they are gone.
func (s *Scheduler) repeated(ctx context.Context, answers []job.Answer, reported []job.Result) error {
	if err := s.confirm(ctx, confirmNow); err != nil {
		return err
	}
	left := repeatRecords
	err := s.st.View(func(v *store.View) error {
		for i := range answers {
			a, succeeded := &answers[i], reported[i].Outcome == job.OutcomeSucceeded
			if a.Status != job.StatusGone || a.Run.Job == 0 { // a fence alone does not say whose history to look at
				continue
			}
			st, _, _, err := v.State(a.Run.Job)
			if err != nil {
				return err
			}
			err = v.EachOfJob(st.HistHead, func(_ uint64, r store.Record) bool {
				if left--; left < 0 || r.Fence != a.Fence {
					return left > 0
				}
				if a.Why = "this attempt is recorded as " + r.Status.String(); r.Reason != 0 {
					a.Why += " (" + r.Reason.String() + ")"
				}
				if r.Reason != job.ReasonWorkerLost && succeeded == (r.Status == job.RunSucceeded) {
					a.Status, a.Why, a.Repeated = job.StatusOK, "", true
				}
				return false
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.log.Error("history of a run not readable", "error", err)
	}
	return nil
}

// completedBy is a result as it goes into the log. A worker that says when the attempt began has counted its timeout;
// of others a failure after the timeout counts as that.
func completedBy(c *claim, r job.Result, mono time.Duration) job.Result {
	r.Ref = c.ref()
	if r.StartedAt == 0 {
		r.StartedAt = c.started
		r.TimedOut = r.TimedOut || r.Outcome == job.OutcomeFailed && c.overdue(mono)
	}
	if r.Outcome == job.OutcomeFailed && r.Error == "" && !r.TimedOut {
		r.Error = "the worker did not say what went wrong"
	}
	return r
}

// reportedLocked puts a worker's result in line, once: one that is reported again waits for the first.
func (s *Scheduler) reportedLocked(c *claim, r job.Result, call *reportCall) *pending {
	if c.pending == nil {
		c.pending = s.putInLineLocked(c, r)
		c.x.ended(c, true)
	}
	call.left++
	c.pending.calls = append(c.pending.calls, call)
	return c.pending
}

func (s *Scheduler) putInLineLocked(c *claim, r job.Result) *pending {
	r.Ref = c.ref()
	p := &pending{c: c, result: r, since: time.Now()}
	s.results = append(s.results, p)
	s.urgent = s.urgent || urgent(c.x, &r)
	wait.Wake(s.completeWake)
	return p
}

// nextResults is the next batch to commit, empty if there is none or it is better to wait for one that is in flight.
// ahead: only those that are gathered. What is urgent the completer has in hand; it may have to read the store, and its
// batches are to be large when there is much to do.
func (s *Scheduler) nextResults(ahead bool) []*pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reports >= maxInFlight || len(s.results) == 0 || s.reports > 0 && len(s.results) < worthwhile ||
		ahead && (s.urgent || s.starving.Load()) {
		return nil
	}
	n, size := 0, 0
	for ; n < len(s.results) && n < maxBatch; n++ {
		r := &s.results[n].result
		size += completeOverhead + min(len(r.Error), job.MaxErrorBytes) + min(len(r.Output), job.MaxOutputBytes)
		if size > maxCompleteBytes && n > 0 {
			break
		}
	}
	batch := append([]*pending(nil), s.results[:n]...)
	rest := copy(s.results, s.results[n:])
	clear(s.results[rest:])
	s.results = s.results[:rest]
	s.urgent = s.urgent && rest > 0
	s.reports++
	return batch
}

// completion is a batch of results as a command; ok is false if that was not possible, and the batch is answered then.
func (s *Scheduler) completion(batch []*pending) (sub submission, ok bool) {
	now, after, trusted := s.stamp.ForReport()
	if err := s.applyRetryRule(batch, after); err != nil {
		s.log.Error("retry rule not applied: state not readable", "error", err)
		s.completed(batch, nil, err)
		return sub, false
	}
	return submission{s.completeCommand(s.head(now), trusted, batch), func(reply *fsm.Reply, err error) {
		if err == nil && len(reply.Items) != len(batch) {
			err = errors.New("the reply has the wrong number of items")
		}
		s.completed(batch, reply, err)
	}}, true
}

// firstRules are the definitions that mutant.StaleRetry holds on to.
var firstRules sync.Map

// applyRetryRule decides what each result means. A success needs nothing from the store.
func (s *Scheduler) applyRetryRule(batch []*pending, now int64) error {
	var others []*pending
	for _, p := range batch {
		if p.result.Outcome == job.OutcomeSucceeded {
			p.end = decide.Ending{Result: fsm.ResultSucceeded}
		} else {
			others = append(others, p)
		}
	}
	for chunk := range slices.Chunk(others, buildChunk) {
		err := s.st.View(func(v *store.View) error {
			for _, p := range chunk {
				if err := s.decideEnd(v, p, now); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Scheduler) decideEnd(v *store.View, p *pending, now int64) error {
	var spec *job.Spec
	def, ok, err := v.Definition(p.c.run.Job)
	switch {
	case err != nil:
		// A definition that cannot be read has no retry rule. The default keeps the run alive until it is mended.
		s.log.Error("definition of a failed run not readable; the default retry rule applies", "run", p.c.run,
			"error", err)
		spec = &job.Spec{}
		spec.Normalize()
	case ok:
		spec = &def.Spec // the retry rule is that of now, not that of the claim
		if mutant.On(mutant.StaleRetry) {
			first, _ := firstRules.LoadOrStore(p.c.run.Job, spec)
			spec = first.(*job.Spec)
		}
	}
	var row *store.Row
	r, ok, err := v.Run(p.c.run)
	if err != nil {
		return err
	}
	if ok && r.Fence == p.c.fence {
		row = &r
	}
	p.end = decide.EndOf(&p.result, spec, row, now, rand.Float64())
	if p.lacks && p.end.Reason == job.ReasonPermanent {
		p.end.Reason = job.ReasonSecret
	}
	return nil
}

func (s *Scheduler) completeCommand(h fsm.Head, trusted bool, batch []*pending) *fsm.Complete {
	n := len(batch)
	c := &fsm.Complete{Head: h, Jobs: make([]uint64, n), At: make([]int64, n), Origin: make([]byte, n),
		Fence:  make([]uint64, n),
		Result: make([]byte, n), Reason: make([]byte, n), RetryAt: make([]int64, n), Started: make([]int64, n),
		Ended: make([]int64, n)}
	for i, p := range batch {
		r, cl := &p.result, p.c
		s.hide(cl, r)
		c.Jobs[i], c.At[i], c.Origin[i], c.Fence[i] = uint64(cl.run.Job), cl.run.At, byte(cl.run.Origin), cl.fence
		c.Result[i], c.Reason[i], c.RetryAt[i] = byte(p.end.Result), byte(p.end.Reason), p.end.RetryAt
		// The worker's clock is not ours: what it says is kept between the claim and now. While this leader holds, its
		// own clock may be hours off, and the worker's is the better witness; without it, nothing ends before it was
		// claimed.
		now := h.Now
		if !trusted {
			now = max(now, int64(r.FinishedAt), cl.claimedAt)
		}
		c.Ended[i] = now
		if r.FinishedAt != 0 {
			c.Ended[i] = min(max(int64(r.FinishedAt), cl.claimedAt), now)
		}
		if r.StartedAt != 0 {
			c.Started[i] = min(max(int64(r.StartedAt), cl.claimedAt), c.Ended[i])
		}
		text := cmp.Or(r.Error, p.end.Note)
		if text != "" {
			if c.Error == nil {
				c.Error = make([]string, n)
			}
			c.Error[i] = job.Head(text, job.MaxErrorBytes)
		}
		if r.Output != "" {
			if c.Output == nil {
				c.Output = make([]string, n)
			}
			c.Output[i] = job.Tail(r.Output, job.MaxOutputBytes)
		}
	}
	return c
}

// completed closes the claims whose results are in the log and answers those who reported them.
func (s *Scheduler) completed(batch []*pending, reply *fsm.Reply, err error) {
	s.mu.Lock()
	s.reports--
	for i, p := range batch {
		p.c.pending = nil
		switch {
		case err == nil:
			p.committed, p.stale = true, reply.Items[i].Code != fsm.CodeOK
			s.drop(p.c)
		case len(p.calls) == 0:
			s.again = append(s.again, p) // nobody else does it again
		}
		for _, call := range p.calls {
			if call.left--; call.left == 0 {
				close(call.done)
			}
		}
	}
	s.mu.Unlock()
	if err != nil {
		s.log.Warn("results not committed; their workers will report them again", "results", len(batch), "error", err)
	}
	wait.Wake(s.completeWake)
	s.freed()
}

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
		for batch := s.nextResults(false); len(batch) > 0; batch = s.nextResults(false) {
			if sub, ok := s.completion(batch); ok {
				s.submitAll(sub)
			}
		}
	}
}

// urgent says whether something waits for the commit of a result: the run for its next attempt, or the worker, which
// has few slots left, for its slot.
func urgent(x *session, r *job.Result) bool {
	return r.Outcome != job.OutcomeSucceeded || 2*(len(x.claims)+x.reserved) > x.slots
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
		wait.Wake(s.completeWake)
		wait.Wake(s.wake)
	}
}

// freed wakes the loop if entries wait for what became free. Otherwise there is nothing for it to do.
func (s *Scheduler) freed() {
	if s.starving.Load() {
		wait.Wake(s.wake)
	}
}

// completeAhead is what was gathered, to be committed ahead of a claim. Raft writes, sends and applies what is proposed
// together at once, so it costs next to nothing, and the claim is judged by the newest state. Only the loop calls it.
func (s *Scheduler) completeAhead() (sub submission, ok bool) {
	if batch := s.nextResults(true); len(batch) > 0 {
		return s.completion(batch)
	}
	return sub, false
}
