package executor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// session is one registration with one leader. A worker has at most one with each group; all its calls have ended
// before the next is opened.
type session struct {
	ref   job.SessionRef
	group *group
	ttl   time.Duration
	ctx   context.Context // ends with the session
	end   context.CancelCauseFunc

	answered atomic.Bool // the leader knew the session at least once

	// Guarded by Worker.mu.
	acked    uint64              // the last assignment number received in order
	beyond   map[uint64]struct{} // numbers received beyond a gap
	full     bool                // the poll under way asks for no work
	waits    bool                // it waits for work
	began    time.Time           // when it did
	polls    uint64              // how many of them were numbered
	stopPoll context.CancelFunc  // ends the poll under way; nil if there is none
	drained  bool                // a poll of the draining worker brought nothing: the leader has nothing more for it
}

// key is that of an attempt which the leader of the session names by its fence.
func (s *session) key(fence uint64) worker.Key { return worker.Key{Group: s.ref.Group, Fence: fence} }

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

// sessions registers with a group and serves, one session after the other, until ctx ends.
func (w *Worker) sessions(ctx context.Context, g *group) {
	var b worker.Backoff
	unwanted := worker.Backoff{Max: worker.RefusedPause}
	var said refusal
	refusals := 0
	for ctx.Err() == nil {
		s, err := w.register(ctx, g)
		if err != nil {
			if refusals++; !unwelcome(err) {
				refusals = 0
			} else if w.o.MaxRefusals > 0 && refusals >= w.o.MaxRefusals && w.giveUp(g, refusals, err) {
				return
			}
			if ctx.Err() == nil && said.news(err.Error()) {
				msg := "could not register"
				switch job.CodeOf(err) {
				case job.CodeWorkerNameInUse, job.CodeWorkerForked, job.CodeForbidden, job.CodeUnauthenticated:
					msg = "registration refused; trying again"
				}
				g.log.Warn(msg, "error", err)
			}
			if refusals > 0 && w.o.MaxRefusals > 0 {
				unwanted.Wait(ctx)
			} else {
				b.Wait(ctx)
			}
			continue
		}
		said, refusals = refusal{}, 0
		unwanted.Reset()
		g.log.Info("registered", "term", s.ref.Term, "incarnation", s.ref.Incarnation)
		w.serve(s)
		if ctx.Err() != nil {
			return
		}
		g.log.Info("session ended", "term", s.ref.Term, "error", context.Cause(s.ctx))
		// A leader that registers us and then denies it must not be asked in a tight loop.
		if s.answered.Load() {
			b.Reset()
		} else {
			b.Wait(ctx)
		}
	}
}

// MaxRefusals is how often a worker asks a cluster that does not know its token, or no longer does.
const MaxRefusals = worker.MaxRefusals

// unwelcome says that the cluster knows who asks, or that they are no one, and does not let them: a token that was
// revoked does not come back.
func unwelcome(err error) bool {
	code := job.CodeOf(err)
	return code == job.CodeUnauthenticated || code == job.CodeForbidden
}

// giveUp ends the worker with the reason for which the cluster refuses it, unless one of its groups has not. Nothing
// that it still does could be reported.
func (w *Worker) giveUp(g *group, times int, err error) bool {
	remedy := "start the worker with a valid token: `carillon token create NAME --role worker`"
	text := err.Error()
	if e, ok := errors.AsType[*job.Error](err); ok {
		remedy, text = cmp.Or(e.Remedy, remedy), e.Message
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g.unwanted = true
	if !w.everyLocked(func(g *group) bool { return g.unwanted }) {
		return false
	}
	w.refused = job.Errorf(job.CodeOf(err), remedy, "the cluster refused this worker %d times: %s", times, text)
	w.Kill()
	return true
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

// forkedLocked acts on the news that another process has this one's memory. All attempts end, because that one has them
// too, and from now on this is a process of its own, to all groups.
func (w *Worker) forkedLocked(g *group, err error) {
	if g.incarnation == 0 {
		return
	}
	g.log.Error("session forked; stopping all attempts", "error", err)
	for _, g := range w.groups {
		w.loseLocked(g)
		g.incarnation = 0
	}
	w.o.Secret = rand.Text()
}

// register opens a session. A leader that we did not hear of yet first says who it is and who we are: what is done on
// the second call cannot have been on its way since an earlier time.
func (w *Worker) register(ctx context.Context, g *group) (*session, error) {
	call, release := context.WithTimeout(ctx, registerTimeout)
	defer release()
	w.mu.Lock()
	term := g.term
	w.mu.Unlock()
	for range maxAgain {
		s, again, err := w.registerWith(ctx, call, g, term)
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
func (w *Worker) registerWith(ctx, call context.Context, g *group, term uint64) (_ *session, again uint64, _ error) {
	w.mu.Lock()
	g.registration++
	req := job.Register{Worker: w.o.Name, Secret: w.o.Secret, Incarnation: g.incarnation, Types: w.types,
		Namespace: w.o.Namespace, Tags: w.o.Tags, Slots: w.capacity(), Prefetch: w.o.Prefetch,
		Held: w.heldLocked(g), Version: w.o.Version, Where: w.o.Where, Registration: g.registration, Term: term,
		Credit: w.severalLocked()}
	w.mu.Unlock()

	sent := w.clock.Elapsed()
	answer, err := g.leader.Register(call, req)

	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if code := job.CodeOf(err); req.Incarnation != 0 && (code == job.CodeStale || code == job.CodeSessionUnknown) {
			// A newer incarnation of this worker exists, or the cluster was restored to a time before this one. Our
			// claims were released; the next registration is that of a new process.
			w.loseLocked(g)
			g.incarnation = 0
		} else if code == job.CodeWorkerForked {
			w.forkedLocked(g, err)
		}
		return nil, 0, err
	}
	switch {
	case answer.Group != g.number:
		return nil, 0, fmt.Errorf("the answer came from a leader of group %d, not %d", answer.Group, g.number)
	case answer.Term < g.term && g.lease.Left(w.clock.Elapsed()) > 0 && !mutant.On(mutant.LowerTerm):
		return nil, 0, fmt.Errorf("the answer came from a leader of term %d after one of term %d", answer.Term, g.term)
	case req.Secret != w.o.Secret:
		return nil, 0, errors.New("another group said meanwhile that the session is forked")
	case req.Credit != w.severalLocked():
		return nil, 0, errGrown
	}
	g.unwanted = false
	if answer.Again {
		if g.incarnation == 0 {
			g.incarnation = answer.Incarnation
		}
		return nil, answer.Term, nil
	}
	if req.Incarnation != 0 && answer.Incarnation != req.Incarnation {
		w.loseLocked(g) // the leader took us for a new process and released what we hold
	}
	s := &session{ref: answer.SessionRef, group: g, ttl: time.Duration(answer.TTL)}
	if s.ttl <= 0 {
		s.ttl = defaultTTL
	}
	s.ctx, s.end = context.WithCancelCause(ctx)
	// A lease that ended while nothing looked, because the machine was suspended: what was queued under it must not
	// start under the new one.
	w.leasesLocked()
	g.session, g.incarnation, g.term = s, answer.Incarnation, answer.Term
	g.lease = worker.Grant(sent, s.ttl)
	w.set.StartLocked()
	w.reviewLocked()
	return s, 0, nil
}

// serve works for one session until it ends.
func (w *Worker) serve(s *session) {
	var loops sync.WaitGroup
	loops.Go(func() { w.pollLoop(s) })
	loops.Go(func() { w.heartbeatLoop(s) })
	loops.Go(func() { w.set.Report(s.ctx, s.group.number, w.reports(s)) })
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
	if s.group.session == s {
		s.group.session = nil
		w.set.Changed()
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

// failed acts on the error of a call: it ends a session that the leader does not have. It says whether to try again.
func (w *Worker) failed(s *session, call string, err error) bool {
	if s.ctx.Err() != nil {
		return false
	}
	// A worker whose token is not valid any more is told so for good when it registers.
	if gone(err) || w.o.MaxRefusals > 0 && unwelcome(err) {
		w.mu.Lock()
		if job.CodeOf(err) == job.CodeWorkerForked {
			w.forkedLocked(s.group, err)
		}
		w.dropLocked(s, fmt.Errorf("%s: %w", call, err))
		w.mu.Unlock()
		return false
	}
	s.group.log.Warn("the leader did not answer", "call", call, "error", err)
	return true
}

func (w *Worker) pollLoop(s *session) {
	var b worker.Backoff
	g := s.group
	for s.ctx.Err() == nil {
		w.mu.Lock()
		draining, full := w.set.Draining, w.freeLocked(g) == 0 && g.granted == 0
		w.mu.Unlock()
		if !draining && full {
			if wait.Within(s.ctx, g.room, fullPause) {
				continue
			}
		}
		began := time.Now()
		req, reply, err := w.poll(s)
		if draining {
			w.mu.Lock()
			w.set.HearLocked(err)
			w.mu.Unlock()
		}
		switch {
		case err == nil:
			b.Reset()
			s.answered.Store(true)
			news := w.receive(s, req, reply)
			if draining && len(reply.Assignments) == 0 {
				w.mu.Lock()
				s.drained = true
				w.mu.Unlock()
				w.set.Changed()
				return
			}
			if !news && time.Since(began) < pollFloor {
				wait.For(s.ctx, pollFloor)
			}
		case errors.Is(err, errPollStopped):
		case !w.failed(s, "poll", err) || !b.Wait(s.ctx):
			return
		}
	}
}

var errPollStopped = errors.New("the poll was given up: there is capacity, or the worker drains")

// poll asks once for work. A draining worker asks for none, and does not wait: it collects what was on its way in the
// answer to the poll that it gave up, to return it. A worker without capacity waits for cancels; its poll is given up
// when there is capacity.
func (w *Worker) poll(s *session) (job.Poll, job.PollReply, error) {
	w.mu.Lock()
	req := job.Poll{Session: s.ref, Acked: s.acked, Free: w.freeLocked(s.group), Wait: job.Duration(w.pollWait())}
	limit := w.pollWait() + pollGrace
	if w.set.Draining {
		req.Wait = 0
	} else if w.severalLocked() && s.group.session == s {
		w.grantLocked(s, &req)
	}
	if req.Wait == 0 {
		limit = worker.LastPollTimeout
	}
	ctx, stop := context.WithTimeout(s.ctx, limit)
	defer stop()
	given := false
	s.full, s.waits, s.began = req.Free == 0, req.Wait > 0, time.Now()
	s.stopPoll = func() { given = true; stop() }
	w.mu.Unlock()

	reply, err := s.group.leader.Poll(ctx, req)

	w.mu.Lock()
	defer w.mu.Unlock()
	s.stopPoll = nil
	if err != nil && given {
		return req, reply, errPollStopped
	}
	return req, reply, err
}

func (w *Worker) heartbeatLoop(s *session) {
	var b worker.Backoff
	var number, nonce uint64 // see job.Heartbeat
	interval := s.ttl / worker.Beats
	pause := interval
	g := s.group
	for wait.Within(s.ctx, g.beat, pause); s.ctx.Err() == nil; wait.Within(s.ctx, g.beat, pause) {
		w.mu.Lock()
		number++
		req := job.Heartbeat{Session: s.ref, Acked: s.acked, Free: w.freeLocked(g), Held: w.heldLocked(g),
			Number: number, Nonce: nonce}
		w.mu.Unlock()

		sent, began := w.clock.Elapsed(), time.Now()
		ctx, release := context.WithTimeout(s.ctx, interval)
		reply, err := g.leader.Heartbeat(ctx, req)
		release()
		if err != nil {
			if !w.failed(s, "heartbeat", err) || !b.Wait(s.ctx) {
				return
			}
			pause = 0
			continue
		}
		b.Reset()
		nonce = reply.Nonce
		w.mu.Lock()
		if g.session == s {
			s.answered.Store(true)
			g.lease.Extend(sent, s.ttl)
			w.cancelLocked(s, reply.Cancel)
		}
		w.mu.Unlock()
		pause = max(0, interval-time.Since(began))
	}
}

// reports hands in results through a session.
func (w *Worker) reports(s *session) worker.Reports[assigned] {
	size := func(r job.Result) int { return resultOverhead + len(r.Error) + len(r.Output) }
	return worker.Reports[assigned]{Most: maxReportResults, Bytes: maxReportBytes, Size: size,
		Send: func(ctx context.Context, batch []*held) (acked []worker.Key, _ error) {
			results := make([]job.Result, len(batch))
			for i, h := range batch {
				results[i] = h.Result
				results[i].Run, results[i].Fence = h.Work.Run, h.Key.Fence
			}
			ctx, release := context.WithTimeout(ctx, reportTimeout)
			defer release()
			reply, err := s.group.leader.Report(ctx, job.Report{Session: s.ref, Results: results})
			if err != nil {
				w.failed(s, "report", err)
				return nil, err
			}
			s.answered.Store(true)
			for _, a := range reply.Acks {
				acked = append(acked, s.key(a.Fence))
			}
			return acked, nil
		}}
}
