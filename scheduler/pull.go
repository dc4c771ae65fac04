package scheduler

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	// pullFloor is what a poll waits at least: a poll that does not wait would be gone before anything is claimed for
	// it.
	pullFloor = 100 * time.Millisecond
	secretLen = 12
)

// pullSession is what a session of a pull worker has besides. Its worker may be a script that forgets: it is not asked
// for its whole set, so each of its claims has a lease of its own, which a call that names the run extends. Everything
// is guarded by Scheduler.mu.
type pullSession struct {
	queue  job.QueueKey
	secret string
	room   int               // how many runs the poll under way still takes
	call   *pullCall         // the poll under way
	more   bool              // the loop has not matched again since the last claim: what follows from it may be due
	top    uint64            // the highest fence that was in an answer
	index  map[uint64]*claim // Scheduler.pulled
}

type pullCall struct{ replaced bool }

func isPull(incarnation uint64) bool { return incarnation&pullBit != 0 }

// receipt is what the session string of an answer says: whose answer it was, and up to which fence it delivered. A
// worker that sends it back has received that; what was delivered after it, it has not. The leader of another term can
// read it as well.
type receipt struct {
	incarnation, fence uint64
	secret, worker     string
}

func (r receipt) String() string {
	return strings.Join([]string{strconv.FormatUint(r.incarnation, 32), strconv.FormatUint(r.fence, 32), r.secret,
		base64.RawURLEncoding.EncodeToString([]byte(r.worker))}, ".")
}

func parseReceipt(s string) (r receipt, err error) {
	bad := job.Invalid("session", "send the session from the last answer, or none", "this is not a valid session")
	p := strings.Split(s, ".")
	if len(p) != 4 || len(p[2]) != secretLen {
		return r, bad
	}
	worker, err := base64.RawURLEncoding.DecodeString(p[3])
	if err != nil {
		return r, bad
	}
	r.secret, r.worker = p[2], string(worker)
	if r.incarnation, err = strconv.ParseUint(p[0], 32, 64); err != nil || !isPull(r.incarnation) {
		return r, bad
	}
	if r.fence, err = strconv.ParseUint(p[1], 32, 64); err != nil {
		return r, bad
	}
	return r, nil
}

// caller is the name that a call of a pull worker goes by, from what it says itself or from its session; empty if it
// says neither.
func caller(worker, session string) (string, receipt, error) {
	if session == "" {
		return worker, receipt{}, nil
	}
	r, err := parseReceipt(session)
	if err == nil && worker != "" && worker != r.worker {
		err = job.Invalid("worker", "leave one of them out", "the session belongs to the worker %q", r.worker)
	}
	return r.worker, r, err
}

// PullPoll waits for runs of a queue. It offers as many slots as the poll has, and only while it waits; what is claimed
// for a poll that is gone goes back unstarted.
func (s *Scheduler) PullPoll(ctx context.Context, q job.PullPoll) (job.PullReply, error) {
	worker, seen, err := caller(q.Worker, q.Session)
	if err != nil {
		return job.PullReply{}, err
	}
	q.Worker = worker
	if seen.fence > s.st.Counters().Fence { // not of this cluster: it would hold up every delivery
		seen = receipt{}
	}
	if err := KnownQueue(s.st, q.Queue); err != nil {
		return job.PullReply{}, err
	}
	pollWait := max(min(time.Duration(q.Wait), maxPollWait), pullFloor)
	if q.Max == 0 {
		pollWait = 0
	}
	mono := s.o.Clock.Mono()
	s.mu.Lock()
	x, err := s.pullSessionLocked(&q, seen, mono)
	if err != nil {
		s.mu.Unlock()
		return job.PullReply{}, err
	}
	held, vague := s.nameAllLocked(q.Queue, worker, q.Held, mono)
	if x.pull.call != nil {
		x.pull.call.replaced = true // its worker gave it up, and the answer would not be read
		x.wakePolls()
	}
	call := &pullCall{}
	x.pull.call, x.pull.room, x.slots = call, q.Max, max(1, x.open+q.Max)
	wait.Wake(s.wake)

	timer := time.NewTimer(pollWait)
	defer timer.Stop()
	over := pollWait == 0
	var settle time.Time
	sure := false
	for {
		err := s.pollEndsLocked(ctx, x, call)
		if err != nil {
			s.mu.Unlock()
			return job.PullReply{}, err
		}
		var tick <-chan time.Time
		if over || len(x.waiting) > 0 || len(x.sent) > 0 {
			// What is being claimed for it at this moment is waited for a little, or it would have to go back. It also
			// takes what follows from those claims, until it is full: of a job's occurrences the next one is due only
			// when the one before is claimed.
			if settle.IsZero() {
				settle = time.Now().Add(drainLimit)
			}
			late := !time.Now().Before(settle)
			if over || late || len(x.sent) > 0 || len(x.waiting) >= q.Max || !x.pull.more {
				x.pull.room = 0
			}
			coming := x.expects() || x.pull.room > 0
			if (!coming || late) && !sure && len(x.waiting)+len(x.sent) > 0 {
				s.mu.Unlock()
				err := s.confirm(ctx, s.o.TTL/confirmShare)
				s.mu.Lock()
				if err != nil {
					if x.pull.call == call {
						x.pull.call, x.pull.room = nil, 0 // what is there is for the next poll, or for the next leader
					}
					s.mu.Unlock()
					return job.PullReply{}, err
				}
				sure = true
				continue // it may have been replaced meanwhile
			}
			if !coming {
				break
			}
			if late {
				if q.Max == 0 && len(x.waiting)+len(x.sent) == 0 { // it may be about to leave
					x.pull.call = nil
					s.mu.Unlock()
					return job.PullReply{}, errExpects(x)
				}
				break
			}
			tick = time.After(drainTick)
		}
		wake := x.wake
		s.mu.Unlock()
		sure = false
		select {
		case <-wake:
		case <-tick:
		case <-timer.C:
			over = true
		case <-ctx.Done():
		case <-s.done:
		}
		s.mu.Lock()
	}
	reply := s.deliverLocked(x)
	x.pull.call = nil
	if q.Session == "" && len(x.claims) == 0 && x.reserved == 0 {
		s.removeLocked(x) // polls that stand for themselves must not leave anything behind
	}
	s.mu.Unlock()
	s.explain(q.Queue.Namespace, held, vague, nil)
	reply.Held = held
	return reply, nil
}

// pollEndsLocked says why a poll cannot go on waiting.
func (s *Scheduler) pollEndsLocked(ctx context.Context, x *session, call *pullCall) error {
	if call.replaced {
		return job.Errorf(job.CodeStale, "poll one at a time, or leave the session out",
			"a later poll of the same session replaced this one")
	}
	err := s.servingLocked()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	x.pull.call, x.pull.room = nil, 0
	for _, c := range slices.Clone(x.waiting) {
		s.takeAwayLocked(c)
	}
	if len(x.claims) == 0 && x.reserved == 0 {
		s.removeLocked(x)
	}
	return err
}

// pullSessionLocked finds or makes the session of a poll.
func (s *Scheduler) pullSessionLocked(q *job.PullPoll, seen receipt, mono time.Duration) (*session, error) {
	if err := s.servingLocked(); err != nil {
		return nil, err
	}
	x := s.sessions[sessionKey{seen.worker, seen.incarnation}]
	if x != nil && x.pull != nil && (!x.registered || x.pull.secret == seen.secret) {
		if x.pull.queue != q.Queue {
			return nil, job.Invalid("session", "leave it out in the first poll of each queue",
				"the session belongs to the queue %q", x.pull.queue.String())
		}
		s.received(x, seen)
	} else {
		// A session that is not known goes on under the name it had: should this answer be lost, the same receipt comes
		// again.
		key, secret := sessionKey{seen.worker, seen.incarnation}, seen.secret
		if seen.incarnation == 0 || x != nil {
			var err error
			if key, err = s.newPullKeyLocked(q.Worker); err != nil {
				return nil, err
			}
			seen.fence, secret = 0, strings.ToLower(rand.Text()[:secretLen])
		}
		if err := s.roomLocked(key.worker); err != nil {
			return nil, err
		}
		x = newSession(key, mono)
		x.pull = &pullSession{queue: q.Queue, secret: secret, top: seen.fence, index: s.pulled}
		x.namespace = q.Queue.Namespace
		s.addSessionLocked(x)
		s.version++
	}
	tags := maps.Clone(q.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[queueTag] = q.Queue.Name
	if !x.registered || !maps.Equal(x.tags, tags) || !slices.Equal(x.secrets, q.Secrets) {
		x.registered, x.types, x.tags, x.version = true, []job.Type{job.TypeQueue}, tags, "pull"
		x.secrets = q.Secrets
		s.version++
	}
	x.heard, x.heardAt = mono, s.o.Clock.Now()
	return x, nil
}

// newPullKeyLocked issues an incarnation, and a name to a worker that has none. Numbers are used again: only the fence
// of a claim has to be unique.
func (s *Scheduler) newPullKeyLocked(worker string) (sessionKey, error) {
	if worker == "" {
		worker = "pull-" + strings.ToLower(rand.Text()[:8])
	}
	for range 1000 {
		s.nextPull = (s.nextPull + 1) % pullBit
		k := sessionKey{worker, s.o.Term<<incarnationBits | pullBit | s.nextPull}
		if s.sessions[k] == nil {
			return k, nil
		}
	}
	return sessionKey{}, job.Errorf(job.CodeUnavailable, "try again in a moment",
		"too many pull workers have the name %q", worker)
}

// received notes which answers a worker got: fences on a session only grow. What it did not get is delivered again.
func (s *Scheduler) received(x *session, seen receipt) {
	x.pull.top = max(x.pull.top, seen.fence)
	if x.registered {
		for _, c := range slices.Clone(x.sent) {
			if c.fence <= seen.fence {
				x.hasIt(c)
			}
		}
		return
	}
	// It comes from an earlier leader, which claimed what is above that fence and did not get to say so.
	x.pull.secret = seen.secret
	var unknown []*claim
	for _, c := range x.claims {
		if c.fence > seen.fence && c.assignment == nil && c.pending == nil && !c.expiring &&
			(!c.named || mutant.On(mutant.OldReceipt)) {
			c.unsent = true
			unknown = append(unknown, c)
		}
	}
	s.resendLocked(x, unknown)
}

// matched tells the polls that were given something by the last claims that the loop has looked since: what is not
// reserved for them by now is not there.
func (l *loop) matched() {
	if len(l.pulled) == 0 {
		return
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	for _, x := range l.pulled {
		if x.reserved == 0 && x.pull.more {
			x.pull.more = false
			x.wakePolls()
		}
	}
	clear(l.pulled)
	l.pulled = l.pulled[:0]
}

// hasIt notes that a worker knows of a claim.
func (x *session) hasIt(c *claim) {
	x.sent = without(x.sent, c)
	c.assignment = nil
}

// expectedLocked gives a new claim its lease, and says whether a poll is there to take it.
func (s *Scheduler) expectedLocked(c *claim) bool {
	p := c.x.pull
	c.until = s.o.Clock.Mono() + s.leaseTime()
	// One that was overtaken by a higher fence on its way here could not be told from one that was received.
	return p.call != nil && c.fence > p.top
}

// deliverLocked is the answer to a poll: what an answer that was lost had in it, and what is new.
func (s *Scheduler) deliverLocked(x *session) job.PullReply {
	mono, now := s.o.Clock.Mono(), job.At(s.o.Clock.Now())
	out := job.PullReply{Worker: x.key.worker, Lease: job.Duration(s.o.TTL), Runs: []job.PullRun{}}
	slices.SortFunc(x.waiting, func(a, b *claim) int {
		if a.fence < b.fence {
			return -1
		}
		return 1
	})
	size := 0
	for i, c := range slices.Concat(x.sent, x.waiting) {
		if c.canceling {
			// It did not arrive, so there is nothing to stop.
			x.hasIt(c)
			s.addResultLocked(c, job.Result{Run: c.run, Fence: c.fence, Outcome: job.OutcomeCanceled,
				Error: "canceled before the worker was given the run"}, nil)
			continue
		}
		size += 512 + len(c.assignment.Payload)
		if i > 0 && (i == job.MaxPullRuns || size > maxPollBytes) {
			break // it is next
		}
		if c.unsent {
			x.waiting = without(x.waiting, c)
			x.sent = append(x.sent, c)
			c.unsent, c.started = false, now
			x.pull.top = max(x.pull.top, c.fence)
			if c.timeout = time.Duration(c.assignment.Timeout); c.timeout <= 0 {
				c.timeout = time.Duration(job.DefaultTimeout)
			}
			c.deadline = mono + c.timeout
		}
		c.until = mono + s.leaseTime()
		out.Runs = append(out.Runs, s.pullRun(c))
	}
	for _, y := range s.sessions {
		if mutant.On(mutant.PullTwice) && y != x && y.pull != nil && y.pull.queue == x.pull.queue {
			for _, c := range y.sent {
				out.Runs = append(out.Runs, s.pullRun(c))
			}
		}
	}
	out.Session = receipt{incarnation: x.key.incarnation, fence: x.pull.top, secret: x.pull.secret,
		worker: x.key.worker}.String()
	return out
}

func (s *Scheduler) pullRun(c *claim) job.PullRun {
	a := c.assignment
	var p struct {
		Queue string          `json:"queue"`
		Data  json.RawMessage `json:"data"`
	}
	_ = json.Unmarshal(a.Payload, &p) //nolint:errcheck // it was validated when the job was made
	return job.PullRun{Claim: job.ClaimRef{Run: a.Run, Group: s.group, Fence: a.Fence}.String(), RunID: a.Run.String(),
		JobID: a.Run.Job, JobName: a.JobName, Namespace: cmp.Or(a.Namespace, job.DefaultNamespace), Queue: p.Queue,
		ScheduledAt: job.Instant(a.Run.At), Attempt: a.Attempt, Fence: a.Fence, Key: a.Key, Data: p.Data,
		Timeout: job.Duration(c.timeout), Delivery: a.Delivery, Traceparent: a.Traceparent,
		Lease: job.Duration(s.o.TTL)}
}
