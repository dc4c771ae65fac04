package executor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
)

// session is one registration with one leader. A worker has at most one; all its calls have ended before the next is opened.
type session struct {
	ref job.SessionRef
	ttl time.Duration
	ctx context.Context // ends with the session
	end context.CancelCauseFunc

	// Guarded by Worker.mu.
	acked    uint64              // the last assignment number received in order
	beyond   map[uint64]struct{} // numbers received beyond a gap
	answered bool                // the leader knew the session at least once
	full     bool                // the poll under way asks for no work
	stopPoll context.CancelFunc  // ends the poll under way; nil if there is none
	drained  bool                // a poll of the draining worker brought nothing: the leader has nothing more for it
}

// number notes that an assignment arrived, and says whether it is the first time.
func (s *session) number(n uint64) bool {
	if _, ok := s.beyond[n]; ok || n <= s.acked {
		return false
	}
	if n != s.acked+1 {
		if s.beyond == nil {
			s.beyond = map[uint64]struct{}{}
		}
		s.beyond[n] = struct{}{}
		return true
	}
	s.acked = n
	for {
		if _, ok := s.beyond[s.acked+1]; !ok {
			return true
		}
		s.acked++
		delete(s.beyond, s.acked)
	}
}

// sessions registers and serves, one session after the other, until ctx ends.
func (w *Worker) sessions(ctx context.Context) {
	var b backoff
	var said refusal
	for ctx.Err() == nil {
		s, err := w.register(ctx)
		if err != nil {
			if ctx.Err() == nil && said.news(err.Error()) {
				msg := "could not register"
				switch job.CodeOf(err) {
				case job.CodeWorkerNameInUse, job.CodeWorkerForked, job.CodeForbidden:
					msg = "registration refused; trying again"
				}
				w.log.Warn(msg, "error", err)
			}
			b.wait(ctx)
			continue
		}
		said = refusal{}
		w.log.Info("registered", "term", s.ref.Term, "incarnation", s.ref.Incarnation)
		w.serve(s)
		if ctx.Err() != nil {
			return
		}
		w.log.Info("session ended", "term", s.ref.Term, "error", context.Cause(s.ctx))
		// A leader that registers us and then denies it must not be asked in a tight loop.
		if s.answered {
			b.reset()
		} else {
			b.wait(ctx)
		}
	}
}

// refusal keeps a worker that is refused for long from saying the same every second.
type refusal struct {
	text string
	at   time.Time
}

const sayAgain = time.Minute

func (r *refusal) news(text string) bool {
	if r.text == text && time.Since(r.at) < sayAgain {
		return false
	}
	r.text, r.at = text, time.Now()
	return true
}

// forkedLocked acts on the news that another process has this one's memory. All attempts end, because that one has them too, and from now on this
// is a process of its own.
func (w *Worker) forkedLocked(err error) {
	if w.incarnation == 0 {
		return
	}
	w.log.Error("session forked; stopping all attempts", "error", err)
	w.loseLocked()
	w.incarnation, w.o.Secret = 0, rand.Text()
}

// register opens a session. A leader that we did not hear of yet first says who it is and who we are: what is done on the second call
// cannot have been on its way since an earlier time.
func (w *Worker) register(ctx context.Context) (*session, error) {
	call, release := context.WithTimeout(ctx, registerTimeout)
	defer release()
	w.mu.Lock()
	term := w.term
	w.mu.Unlock()
	for range maxAgain {
		s, again, err := w.registerWith(ctx, call, term)
		if again == 0 {
			return s, err
		}
		term = again
	}
	return nil, errors.New("the leaders change faster than a worker can register")
}

// maxAgain is how many leaders may follow each other during one registration.
const maxAgain = 4

// registerWith registers with the leader of a term; again is the term of the one who answered, if it is another.
func (w *Worker) registerWith(ctx, call context.Context, term uint64) (_ *session, again uint64, _ error) {
	w.mu.Lock()
	w.registration++
	req := job.Register{Worker: w.o.Name, Secret: w.o.Secret, Incarnation: w.incarnation, Types: w.types, Tags: w.o.Tags,
		Slots: w.o.Slots + w.o.Prefetch, Prefetch: w.o.Prefetch, Held: w.heldLocked(), Version: w.o.Version, Where: w.o.Where, Registration: w.registration, Term: term}
	w.mu.Unlock()

	sent := w.clock.Elapsed()
	answer, err := w.o.Leader.Register(call, req)

	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if code := job.CodeOf(err); req.Incarnation != 0 && (code == job.CodeStale || code == job.CodeSessionUnknown) {
			// A newer incarnation of this worker exists, or the cluster was restored to a time before this one. Our claims were
			// released; the next registration is that of a new process.
			w.loseLocked()
			w.incarnation = 0
		} else if code == job.CodeWorkerForked {
			w.forkedLocked(err)
		}
		return nil, 0, err
	}
	if answer.Term < w.term && w.leaseHoldsLocked() && !mutant.On(mutant.LowerTerm) {
		return nil, 0, fmt.Errorf("the answer came from a leader of term %d after one of term %d", answer.Term, w.term)
	}
	if answer.Again {
		if w.incarnation == 0 {
			w.incarnation = answer.Incarnation
		}
		return nil, answer.Term, nil
	}
	if req.Incarnation != 0 && answer.Incarnation != req.Incarnation {
		w.loseLocked() // the leader took us for a new process and released what we hold
	}
	s := &session{ref: answer.SessionRef, ttl: time.Duration(answer.TTL)}
	if s.ttl <= 0 {
		s.ttl = defaultTTL
	}
	s.ctx, s.end = context.WithCancelCause(ctx)
	w.session, w.incarnation, w.term = s, answer.Incarnation, answer.Term
	w.leased = true
	w.leaseEnd = sent + leaseOf(s.ttl)
	w.startLocked()
	return s, 0, nil
}

// leaseOf is the worker's share of a TTL. The leader counts the whole of it, and from later.
func leaseOf(ttl time.Duration) time.Duration { return ttl * 2 / 3 }

// serve works for one session until it ends.
func (w *Worker) serve(s *session) {
	var loops sync.WaitGroup
	loops.Go(func() { w.pollLoop(s) })
	loops.Go(func() { w.heartbeatLoop(s) })
	loops.Go(func() { w.reportLoop(s) })
	loops.Wait()
	w.mu.Lock()
	w.dropLocked(s, context.Canceled)
	w.mu.Unlock()
}

// dropLocked ends a session. Nothing is started until there is another one.
func (w *Worker) dropLocked(s *session, cause error) {
	if s == nil {
		return
	}
	s.end(cause)
	if w.session == s {
		w.session = nil
		kick(w.drainWake)
	}
}

// gone says whether an error means that the leader has no such session, or is none.
func gone(err error) bool {
	switch job.CodeOf(err) {
	case job.CodeSessionUnknown, job.CodeStale, job.CodeNotLeader, job.CodeNoLeader, job.CodeWorkerForked:
		return true
	}
	return false
}

// failed acts on the error of a call: it ends the session or waits before the next try. It says false when the session is over.
func (w *Worker) failed(s *session, b *backoff, call string, err error) bool {
	if s.ctx.Err() != nil {
		return false
	}
	if gone(err) {
		w.mu.Lock()
		if job.CodeOf(err) == job.CodeWorkerForked {
			w.forkedLocked(err)
		}
		w.dropLocked(s, fmt.Errorf("%s: %w", call, err))
		w.mu.Unlock()
		return false
	}
	w.log.Warn("the leader did not answer", "call", call, "error", err)
	return b.wait(s.ctx)
}

func (w *Worker) succeeded(s *session) {
	w.mu.Lock()
	s.answered = true
	w.mu.Unlock()
}

func (w *Worker) pollLoop(s *session) {
	var b backoff
	for s.ctx.Err() == nil {
		w.mu.Lock()
		draining, free := w.draining, w.freeLocked()
		w.mu.Unlock()
		if !draining && free == 0 {
			if w.wakeWithin(s, w.pollWake, fullPause) {
				continue
			}
		}
		began := time.Now()
		reply, err := w.poll(s)
		switch {
		case err == nil:
			b.reset()
			w.succeeded(s)
			news := w.receive(s, reply)
			if draining && len(reply.Assignments) == 0 {
				w.mu.Lock()
				s.drained = true
				w.mu.Unlock()
				kick(w.drainWake)
				return
			}
			if !news && time.Since(began) < pollFloor {
				sleep(s.ctx, pollFloor)
			}
		case errors.Is(err, errPollStopped):
		case !w.failed(s, &b, "poll", err):
			return
		}
	}
}

// wakeWithin waits for a latch, or the end of the session; it says false if neither came in time.
func (w *Worker) wakeWithin(s *session, latch chan struct{}, d time.Duration) bool {
	if d <= 0 {
		return s.ctx.Err() != nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-latch:
		return true
	case <-s.ctx.Done():
		return true
	case <-t.C:
		return false
	}
}

var errPollStopped = errors.New("the poll was given up: there is capacity, or the worker drains")

// poll asks once for work. A draining worker asks for none, and does not wait: it collects what was on its way in the answer to the poll
// that it gave up, to return it. A worker without capacity waits for cancels; its poll is given up when there is capacity.
func (w *Worker) poll(s *session) (job.PollReply, error) {
	w.mu.Lock()
	req := job.Poll{Session: s.ref, Acked: s.acked, Free: w.freeLocked(), Wait: job.Duration(w.pollWait())}
	limit := w.pollWait() + pollGrace
	if w.draining {
		req.Wait, limit = 0, lastPollTimeout
	}
	ctx, stop := context.WithTimeout(s.ctx, limit)
	defer stop()
	given := false
	s.full = req.Free == 0
	s.stopPoll = func() { given = true; stop() }
	w.mu.Unlock()

	reply, err := w.o.Leader.Poll(ctx, req)

	w.mu.Lock()
	defer w.mu.Unlock()
	s.stopPoll = nil
	if err != nil && given {
		return reply, errPollStopped
	}
	return reply, err
}

func (w *Worker) heartbeatLoop(s *session) {
	var b backoff
	var number, nonce uint64 // see job.Heartbeat
	interval := s.ttl / 5
	wait := interval
	for w.wakeWithin(s, w.beatWake, wait); s.ctx.Err() == nil; w.wakeWithin(s, w.beatWake, wait) {
		w.mu.Lock()
		number++
		req := job.Heartbeat{Session: s.ref, Acked: s.acked, Free: w.freeLocked(), Held: w.heldLocked(), Number: number, Nonce: nonce}
		w.mu.Unlock()

		sent, began := w.clock.Elapsed(), time.Now()
		ctx, release := context.WithTimeout(s.ctx, interval)
		reply, err := w.o.Leader.Heartbeat(ctx, req)
		release()
		if err != nil {
			if !w.failed(s, &b, "heartbeat", err) {
				return
			}
			wait = 0
			continue
		}
		b.reset()
		nonce = reply.Nonce
		w.mu.Lock()
		if w.session == s {
			s.answered = true
			w.leaseEnd = max(w.leaseEnd, sent+leaseOf(s.ttl))
			w.cancelLocked(reply.Cancel)
		}
		w.mu.Unlock()
		wait = max(0, interval-time.Since(began))
	}
}

func (w *Worker) reportLoop(s *session) {
	var b backoff
	for {
		w.mu.Lock()
		batch := w.batchLocked()
		w.mu.Unlock()
		if len(batch) == 0 {
			select {
			case <-s.ctx.Done():
				return
			case <-w.reportWake:
			}
			continue
		}
		ctx, release := context.WithTimeout(s.ctx, reportTimeout)
		reply, err := w.o.Leader.Report(ctx, job.Report{Session: s.ref, Results: batch})
		release()
		if err != nil {
			if !w.failed(s, &b, "report", err) {
				return
			}
			continue
		}
		w.succeeded(s)
		// An acknowledgement is true whichever session it came through, so it counts even if this one has just ended.
		if w.acknowledge(len(batch), reply.Acks) > 0 {
			b.reset()
		} else if !b.wait(s.ctx) {
			return
		}
		if s.ctx.Err() != nil {
			return
		}
	}
}
