package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// group is what a worker is to the leader of one group. All but the first fields is guarded by Worker.mu.
type group struct {
	number uint32
	leader Leader
	leave  context.CancelFunc // ends its loops
	log    *slog.Logger
	room   chan struct{} // a latch of size one: there may be something to offer
	leased chan struct{} // likewise: the lease is another one

	session  string // from the last answer whose runs were taken; empty: it is to be opened
	serving  bool   // the last poll was answered
	ttl      time.Duration
	refusals int // how often in a row it refused the worker for want of rights
	said     refusal

	stopPoll  context.CancelFunc // ends the poll under way; nil: there is none
	full      bool               // that one asks for no work
	collected bool               // a poll of the draining worker brought nothing: the leader has nothing more for it
	expects   time.Time          // when the leader last said that there may be more for a worker that drains

	held    map[uint64]*attempt // by fence, until its result is acknowledged
	pending []*attempt          // done, in the order to report them
	results chan struct{}       // a latch: there are some
	// stopReport ends the report under way, or nothing: what it has is reported again.
	stopReport context.CancelFunc

	ready       int // how many runs its leader had for this worker beyond what it was offered, as it said last
	share, most int // see shareLocked
}

// giveUpPoll ends the poll under way: the next one says something else. Its answer is thrown away; what was in it is in
// the answer to the next one of the session.
func (g *group) giveUpPoll() {
	if g.stopPoll != nil {
		g.stopPoll()
	}
}

// serve works for a group until ctx ends.
func (w *Worker) serve(ctx context.Context, g *group) {
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context, *group){w.polls, w.heartbeats, w.reports} {
		loops.Go(func() { loop(ctx, g) })
	}
	loops.Wait()
}

// polls asks a group's leader for work until ctx ends, or until a draining worker has all that there is for it.
func (w *Worker) polls(ctx context.Context, g *group) {
	var b backoff
	for ctx.Err() == nil {
		w.mu.Lock()
		full, collected := g.serving && !w.draining && w.freeLocked(g) == 0, g.collected
		w.mu.Unlock()
		if collected {
			return
		}
		if full && wait.Within(ctx, g.room, w.o.Pace.Of(fullPause)) {
			continue
		}
		began := time.Now()
		news, err := w.poll(ctx, g)
		switch {
		case errors.Is(err, errPollAgain), ctx.Err() != nil:
		case err != nil:
			b.wait(ctx, w.failed(g, err))
		default:
			if b.reset(); !news && time.Since(began) < pollFloor {
				wait.For(ctx, pollFloor)
			}
		}
	}
}

// failed acts on a poll that was refused or not answered, and says how long to wait at most before the next one.
func (w *Worker) failed(g *group, err error) (most time.Duration) {
	msg := "the leader did not answer the poll"
	w.mu.Lock()
	defer w.mu.Unlock()
	g.serving, g.ready, most = false, 0, backoffMax
	refusals := g.refusals + 1
	g.refusals = 0
	switch job.CodeOf(err) {
	case job.CodeNotReady:
		g.expects = time.Now() // it has more on its way for a worker that drains, and is to be asked again
	case job.CodeWorkerForked:
		// Another process has this one's memory, and the leader goes on with that. All attempts end, because that one
		// has them too, and from now on this is a process of its own, to all groups.
		msg = "session forked; stopping all attempts"
		for _, g := range w.groups {
			w.forgetAllLocked(g)
			g.session, g.ready = "", 0
		}
		if w.secret != "" {
			w.secret = rand.Text()
		}
	case job.CodeStale: // its node has no part in the cluster any more
		msg = "the node stopped; stopping all attempts"
		w.forgetAllLocked(g)
	case job.CodeSessionUnknown: // of another history: heartbeats will be told that nothing is held
		g.session = ""
	case job.CodeWorkerNameInUse:
		msg = "registration refused; trying again"
	case job.CodeUnauthenticated, job.CodeForbidden:
		msg, g.refusals = "registration refused; trying again", refusals
		if w.o.MaxRefusals > 0 {
			most = refusedPause
			w.refuseLocked(err)
		}
	}
	if g.said.news(err.Error()) {
		g.log.Warn(msg, "error", err)
	}
	w.freedLocked() // others may have its share
	return most
}

// refuseLocked ends the worker when all groups have refused it for want of rights, some times in a row. A token that
// was revoked does not come back, and nothing that the worker still does could be reported.
func (w *Worker) refuseLocked(err error) {
	for _, g := range w.groups {
		if g.refusals < w.o.MaxRefusals {
			return
		}
	}
	remedy := "start the worker with a valid token: `carillon token create NAME --role worker`"
	text := err.Error()
	if e, ok := errors.AsType[*job.Error](err); ok {
		remedy, text = cmp.Or(e.Remedy, remedy), e.Message
	}
	w.refused = job.Errorf(job.CodeOf(err), remedy, "the cluster refused this worker %d times: %s", w.o.MaxRefusals,
		text)
	w.Kill()
}

// errPollAgain says that a poll decided nothing and is to be followed by another one at once: it was given up because
// there is capacity or the worker drains, or its answer has a session and nothing else.
var errPollAgain = errors.New("poll again")

// poll asks once for work, and says whether there was news in the answer. A draining worker asks for none, and does not
// wait: it collects what was on its way in the answer to the poll that it gave up, to return it.
func (w *Worker) poll(ctx context.Context, g *group) (news bool, _ error) {
	w.mu.Lock()
	req := job.Poll{Session: g.session, Worker: w.o.Name, Types: w.o.Types, Namespace: w.o.Namespace, Tags: w.o.Tags,
		Slots: w.o.Slots, Version: w.o.Version, Where: w.o.Where}
	limit := lastPollTimeout
	switch {
	case g.session == "":
		req.Secret = w.secret // answered at once, with a session
		limit = pollGrace
	case w.draining:
		req.Leave = true
	default:
		req.Free, req.Hold = w.freeLocked(g), job.Duration(hold)
		if g.serving { // the first one is to say that the leader has taken it in
			req.Wait = job.Duration(min(w.o.Pace.Of(pollWait), 10*time.Minute, g.ttl/3))
		}
		req.Shared, req.Told = w.severalLocked(), g.ready > 0
		limit = time.Duration(req.Wait) + pollGrace
	}
	call, stop := context.WithTimeout(ctx, limit)
	defer stop()
	given := false
	g.full = req.Free == 0
	g.stopPoll = func() { given = true; stop() }
	sent := w.clock.Elapsed()
	w.mu.Unlock()

	reply, err := g.leader.Poll(call, req)

	w.mu.Lock()
	defer w.mu.Unlock()
	g.stopPoll, g.full = nil, false
	switch {
	case given: // also if there is an answer: the poll was sent by a worker that is another one by now
		return false, errPollAgain
	case err != nil:
		return false, err
	case g.session != req.Session:
		return false, errPollAgain // another group said meanwhile that the worker is forked
	}
	if ttl := time.Duration(reply.Lease); ttl > 0 && ttl != g.ttl {
		g.ttl = ttl
		wait.Wake(g.leased)
	}
	if g.session == "" {
		wait.Wake(g.results)
	}
	if g.session = reply.Session; reply.Opened {
		if g.serving = false; g.stopReport != nil {
			g.stopReport() // it may wait for a leader that is gone
		}
		return false, errPollAgain
	}
	g.said, g.refusals = refusal{}, 0
	news = len(reply.Runs) > 0
	if !g.serving {
		g.serving, news = true, true
		g.log.Info("registered")
		if w.o.Opened != nil {
			w.o.Opened(g.number)
		}
	}
	g.ready = max(0, reply.Ready)
	for _, a := range reply.Runs {
		w.takeLocked(g, a, lease(sent+time.Duration(reply.Waited), g.ttl))
	}
	for _, s := range reply.Stop {
		w.stopNamedLocked(g, s)
	}
	w.watchLocked(g, reply.Watch)
	g.collected = req.Leave && len(reply.Runs) == 0
	if len(reply.Runs) > 0 {
		w.assignedLocked(g)
	}
	for _, a := range reply.Runs { // after the stops, so that what is canceled in the same breath does not start
		w.startLocked(g.held[a.Fence])
	}
	w.freedLocked()
	return news, nil
}

// stopNamedLocked ends an attempt that the leader does not want any more. One that is not held is none of its business:
// it was acknowledged.
func (w *Worker) stopNamedLocked(g *group, s job.Stop) {
	if a := g.held[s.Fence]; a != nil && s.Why == job.StopTimeout {
		w.stopLocked(a, ErrTimeout)
	} else if a != nil {
		w.stopLocked(a, ErrCanceled)
	}
}

// heartbeats names everything that is held, some times a lease, until ctx ends.
func (w *Worker) heartbeats(ctx context.Context, g *group) {
	var b backoff
	for last := time.Now(); ; {
		w.mu.Lock()
		every := g.ttl / Beats
		w.mu.Unlock()
		news := wait.Within(ctx, g.leased, max(0, every-time.Since(last)))
		switch {
		case ctx.Err() != nil:
			return
		case news:
			continue // a shorter one, perhaps
		}
		last = time.Now()
		for !w.heartbeat(ctx, g, every) && b.wait(ctx, backoffMax) {
		}
		b.reset()
	}
}

// heartbeat says whether all that is held was named and answered for.
func (w *Worker) heartbeat(ctx context.Context, g *group, limit time.Duration) bool {
	w.mu.Lock()
	session := g.session
	var all []job.Ref
	for fence := range g.held {
		all = append(all, job.Ref{Fence: fence})
	}
	w.mu.Unlock()
	if session == "" {
		return true
	}
	for part := range slices.Chunk(all, job.MaxItems) {
		sent := w.clock.Elapsed()
		call, release := context.WithTimeout(ctx, limit)
		reply, err := g.leader.Heartbeat(call, job.Heartbeat{Session: session, Runs: part})
		release()
		if err != nil {
			if ctx.Err() == nil {
				g.log.Warn("the leader did not answer the heartbeat", "error", err)
			}
			return ctx.Err() != nil
		}
		w.mu.Lock()
		for i := range min(len(part), len(reply.Runs)) {
			w.beatenLocked(g, &reply.Runs[i], lease(sent, g.ttl))
		}
		w.mu.Unlock()
	}
	return true
}

// beatenLocked takes the answer to one item of a heartbeat. An answer that comes late makes no lease shorter.
func (w *Worker) beatenLocked(g *group, answer *job.Answer, lease time.Duration) {
	a := g.held[answer.Fence]
	if a == nil {
		return
	}
	switch answer.Status {
	case job.StatusOK:
		a.lease = max(a.lease, lease)
	case job.StatusStop:
		if answer.Why != job.StopTimeout {
			a.lease = max(a.lease, lease)
		}
		w.stopNamedLocked(g, job.Stop{Ref: answer.Ref, Why: answer.Why})
	case job.StatusGone:
		if a.state != done { // or its result is being committed, or was
			g.log.Warn("a run no longer belongs to this worker", "run", a.Run, "fence", a.Fence, "why", answer.Why)
			w.forgetLocked(a)
		}
	}
}

// reports hands in results until ctx ends.
func (w *Worker) reports(ctx context.Context, g *group) {
	var b backoff
	most := maxReportResults
	for {
		w.mu.Lock()
		var batch []*attempt
		size := 0
		for _, a := range g.pending {
			size += resultOverhead + len(a.result.Error) + len(a.result.Output)
			if len(batch) == most || len(batch) > 0 && size > maxReportBytes {
				break
			}
			batch = append(batch, a)
		}
		session := g.session
		w.mu.Unlock()
		if ctx.Err() != nil { // after the look at what there is: what is returned since is not reported
			return
		}
		if len(batch) == 0 || session == "" {
			wait.Within(ctx, g.results, time.Minute) // a session that is opened wakes it as well
			continue
		}
		results := make([]job.Result, len(batch))
		for i, a := range batch {
			results[i] = a.result
		}
		call, release := context.WithTimeout(ctx, reportTimeout)
		w.mu.Lock()
		g.stopReport = release
		w.mu.Unlock()
		reply, err := g.leader.Report(call, job.Report{Session: session, Results: results})
		release()
		// An acknowledgement is true even if ctx has just ended.
		switch code := job.CodeOf(err); {
		case err == nil && w.acknowledge(g, batch, reply.Results) > 0:
			b.reset()
			most = min(2*most, maxReportResults)
			continue
		case ctx.Err() != nil:
			continue
		case code == job.CodeInvalid || code == job.CodeMalformed || code == job.CodeTooLarge:
			// One of them is at fault, and the others are not to wait for it.
			if most = 1; len(batch) == 1 {
				g.log.Error("a result was refused and dropped", "run", batch[0].Run, "error", err)
				w.acknowledge(g, batch, []job.Answer{{Ref: job.Ref{Fence: batch[0].Fence}, Status: job.StatusInvalid}})
			}
		case err != nil:
			g.log.Warn("the leader did not answer the report", "error", err)
		}
		b.wait(ctx, backoffMax)
	}
}

// acknowledge forgets results that were committed or refused, and says how many that were. Those that were reported and
// not named go to the end of the line, so that one which is never acknowledged cannot hold up the others.
func (w *Worker) acknowledge(g *group, batch []*attempt, answers []job.Answer) (n int) {
	named := make(map[uint64]*job.Answer, len(answers))
	for i := range answers {
		named[answers[i].Fence] = &answers[i]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := make(map[*attempt]bool, len(batch))
	var again []*attempt
	for _, a := range batch {
		sent[a] = true
		switch answer := named[a.Fence]; {
		case g.held[a.Fence] != a: // a heartbeat was faster
		case answer == nil:
			again = append(again, a)
		default:
			if answer.Status != job.StatusOK {
				g.log.Info("a result was not taken", "run", a.Run, "fence", a.Fence, "status", answer.Status, "why",
					answer.Why)
			}
			delete(g.held, a.Fence)
			n++
		}
	}
	g.pending = append(slices.DeleteFunc(g.pending, func(a *attempt) bool { return sent[a] }), again...)
	if n > 0 {
		w.freedLocked()
	}
	return n
}

// refusedPause is the longest delay after a refusal for want of rights: a worker asks again for some seconds only, as a
// token that was just made may not be known everywhere.
const refusedPause = 400 * time.Millisecond

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 2 * time.Second
)

// backoff spaces out what is tried again: the pause that comes next.
type backoff time.Duration

// reset begins with short delays again.
func (b *backoff) reset() { *b = 0 }

// wait sleeps for the next pause, or until ctx ends; then it says false. Half of a pause is random: when a leader dies
// all of its workers notice together.
func (b *backoff) wait(ctx context.Context, most time.Duration) bool {
	d := min(max(2*time.Duration(*b), backoffMin), most)
	*b = backoff(d)
	return wait.For(ctx, d/2+mathrand.N(d/2+1))
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
