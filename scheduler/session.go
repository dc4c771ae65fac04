package scheduler

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
)

type sessionKey struct {
	worker      string
	incarnation uint64
}

// session is a worker's registration with this leader. All of it is guarded by Scheduler.mu.
type session struct {
	key     sessionKey
	owner   uint64 // ownerOf the process; 0: a pull worker, which has no secret
	where   string // as it told at its registration
	node    *job.NodeRef
	leaving bool // the worker of a node that is no member any more: it gets nothing
	version string
	// namespace is the only one whose runs it takes; empty: it takes those of all.
	namespace string
	secrets   []string // that it may be handed; AllSecrets: those of its namespace
	types     []job.Type
	tags      map[string]string
	slots     int // with what it prefetches
	ahead     int // what it prefetches

	// A session in waiting is one whose worker has runs in hand from before this leadership and has not come yet.
	registered   bool
	registration uint64 // which of the worker's; 0: it does not count them
	gone         bool   // expired, replaced or left; what it still has is in the queue of what is to be taken from it

	heard   time.Duration // Clock.Mono at the last registration or heartbeat; the lease counts from here
	heardAt time.Time
	beats   uint64

	beatLast  uint64              // the highest number of a heartbeat in this registration
	beatsSeen map[uint64]beatSeen // by number, the last ones
	forked    string              // which two processes speak as this one; "" as long as it is one

	claims map[uint64]*claim // by fence: every claim whose result is not committed
	// open counts claims without a result, reserved the slots of claims on their way through the log, and withheld what
	// the worker does not offer although we would count it as free (it drains, or limits itself).
	open, reserved, withheld int
	held                     []int32 // of open and reserved: those of each namespace, by Scheduler.spaces
	// resending counts claims of an earlier leader whose assignments are being read from the store, to be sent again.
	resending int
	// credited: the worker has other leaders too, and only its numbered polls offer slots. credit is what the last of
	// them offered, less what was sent since.
	credited bool
	credit   int
	polls    uint64 // the highest number of a poll
	ready    int    // how many entries wait that it could take, as the loop last saw
	wasReady bool   // there were some when it looked before
	// draining: it asked for its last time. What frees up by results that are being committed is no offer, and neither
	// is a heartbeat that was overtaken by that.
	draining bool

	waiting []*claim // assignments that were in no answer yet, in order
	sent    []*claim // those that were and are not acknowledged, by number
	number  uint64   // of the last one sent

	polling   int           // polls under way
	polled    time.Duration // Clock.Mono at the end of the last one
	canceling int           // claims that are to stop
	watch     []uint64      // fences whose output is watched
	wake      chan struct{} // closed, and replaced, when there is something for a poll

	pull *pullSession // of a pull worker; nil: a worker that registers and names its whole set
}

// claim is a committed claim of a living session.
type claim struct {
	run       job.RunKey
	space     int // its namespace, by Scheduler.spaces
	fence     uint64
	x         *session
	attempt   uint16
	claimedAt int64

	assignment *job.Assignment // until the worker has it
	unmasked   *unmasked       // what its result may not show; nil: the job refers to no secret
	lacks      bool            // a secret that it needs was missing: it was never handed out
	unsent     bool            // it was in no answer: its worker cannot know of it
	number     uint64          // of the answer; 0: in none yet, or the worker brought it along
	started    job.Instant
	beat       uint64 // the heartbeat that last named it
	absent     int    // heartbeats in a row that did not name it although its worker had it

	canceling  bool
	cancelSent bool
	reported   bool     // its slot is free
	pending    *pending // its result is on its way
	expiring   bool     // it is in the queue of what is taken from workers

	// Of a pull worker, whose claims have a lease each; on Clock.Mono.
	until    time.Duration // the end of the lease
	timeout  time.Duration
	deadline time.Duration // when the job's timeout is over; 0: not known yet
	named    bool          // its worker spoke of it: it has arrived, whatever an older poll says
}

func newSession(k sessionKey, now time.Duration) *session {
	return &session{key: k, heard: now, claims: map[uint64]*claim{}, wake: make(chan struct{})}
}

// free is how many runs the session can be given now.
func (x *session) free() int {
	if !x.registered || x.gone || x.draining || x.leaving {
		return 0
	}
	if x.pull != nil {
		return max(0, x.pull.room-x.reserved-len(x.waiting))
	}
	if x.credited {
		return max(0, x.credit-x.reserved-x.resending-len(x.waiting))
	}
	return max(0, x.slots-x.open-x.reserved-x.withheld)
}

// hold counts a slot that is taken, or freed, for a namespace.
func (x *session) hold(space, n int) {
	if space >= len(x.held) {
		x.held = append(x.held, make([]int32, space+1-len(x.held))...)
	}
	x.held[space] += int32(n)
}

// shareOf is the part of a worker's slots, one in so many, that a namespace leaves to others.
const shareOf = 8

// leaves says that a namespace may take one more slot and leaves enough to others: as many slots as it has on this
// worker, up to an eighth of them. A worker of one namespace has no others. What a worker fetches in advance counts as
// no slot here: it would wait behind the runs of the one that has them all.
func (x *session) leaves(space int) bool {
	if x.namespace != "" || mutant.On(mutant.TakeAll) {
		return true
	}
	held, slots := 0, x.slots-x.ahead
	if space < len(x.held) {
		held = int(x.held[space])
	}
	return slots-x.busy() > min(held, max(1, slots/shareOf))
}

// grant notes what a numbered poll offers. What was sent and had not arrived when it was sent counts against it.
func (x *session) grant(p *job.Poll) {
	if p.Number <= x.polls {
		return // late, or sent twice
	}
	x.polls, x.credit = p.Number, min(max(p.Free, 0), x.slots)-len(x.sent)
	x.wakePolls() // those that it supersedes end
}

// settled says that no more comes on account of polls up to this one than it offers, when n assignments are in its
// answer.
func (x *session) settled(free, n int) bool {
	return x.reserved+x.resending+len(x.waiting)+len(x.sent)-n <= max(0, free-n)
}

// inHand says whether there are claims of the session in the log, or on their way there.
func (x *session) inHand() bool { return len(x.claims) > 0 || x.reserved > 0 }

// drained says whether the worker is about to exit, or has, and nothing can come of it any more: its name is free.
func (x *session) drained() bool { return x.draining && !x.inHand() }

// expects says whether there may soon be assignments for a worker that asks for its last time: claims on their way
// through the log, or those of an earlier leader.
func (x *session) expects() bool { return x.reserved > 0 || x.resending > 0 }

// busy is what the matcher compares.
func (x *session) busy() int { return x.open + x.reserved }

func (x *session) wakePolls() {
	close(x.wake)
	x.wake = make(chan struct{})
}

func (x *session) add(c *claim) {
	c.x = x
	x.claims[c.fence] = c
	x.open++
	x.hold(c.space, 1)
	if x.pull != nil {
		x.pull.index[c.fence] = c
	}
	if c.canceling {
		x.canceling++
	}
}

// ended frees the slot of a claim that has a result.
func (x *session) ended(c *claim) {
	if !c.reported {
		x.open--
		x.hold(c.space, -1)
		c.reported = true
	}
}

// drop forgets a claim that is closed or taken away.
func (x *session) drop(c *claim) {
	if x.claims[c.fence] != c {
		return
	}
	delete(x.claims, c.fence)
	if x.pull != nil {
		delete(x.pull.index, c.fence)
	}
	x.ended(c)
	if c.canceling {
		x.canceling--
	}
	if c.assignment != nil {
		x.waiting = without(x.waiting, c)
		x.sent = without(x.sent, c)
		c.assignment = nil
	}
}

func without(list []*claim, c *claim) []*claim {
	for i, y := range list {
		if y == c {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// acknowledge notes that the worker has every assignment up to a number. A number that was never sent is not believed:
// it comes from a call of an earlier registration.
func (x *session) acknowledge(n uint64) uint64 {
	if n > x.number {
		return 0
	}
	i := 0
	for ; i < len(x.sent) && x.sent[i].number <= n; i++ {
		x.sent[i].assignment = nil
	}
	if i > 0 {
		x.sent = append(x.sent[:0], x.sent[i:]...)
	}
	return n
}

// offer notes how many free slots the worker says it has. What it has not received yet it does not count, and results
// that we have not acknowledged it still does.
func (x *session) offer(free int) {
	mine := x.slots - (len(x.claims) - len(x.waiting) - len(x.sent))
	x.withheld = max(0, mine-max(free, 0))
}

const (
	maxPollAssignments = 1024
	maxPollBytes       = 1 << 20
)

// collect is what a poll is answered with: first what was sent before and is not acknowledged, then what is new.
// Numbers are given at the first sending, so that they have no gaps whatever becomes of an assignment that waits.
func (x *session) collect(acked uint64) job.PollReply {
	var out job.PollReply
	size := 0
	fits := func(c *claim) bool {
		size += 256 + len(c.assignment.Payload)
		return len(out.Assignments) == 0 || len(out.Assignments) < maxPollAssignments && size <= maxPollBytes
	}
	for _, c := range x.sent {
		if c.number <= acked {
			continue
		}
		if !fits(c) {
			return out
		}
		out.Assignments = append(out.Assignments, *c.assignment)
	}
	n := 0
	for ; n < len(x.waiting) && fits(x.waiting[n]); n++ {
		c := x.waiting[n]
		x.number++
		c.number = x.number
		c.assignment.Number = c.number
		c.unsent = false
		out.Assignments = append(out.Assignments, *c.assignment)
		x.sent = append(x.sent, c)
	}
	if n > 0 {
		x.waiting = append(x.waiting[:0], x.waiting[n:]...)
		x.credit -= n
	}
	return out
}

// cancels are the attempts that are to stop. A poll names each once, or it would return at once for ever; every
// heartbeat names them all until they are closed.
func (x *session) cancels(all bool) []uint64 {
	if x.canceling == 0 {
		return nil
	}
	var out []uint64
	for f, c := range x.claims {
		if c.canceling && c.pending == nil && (all || !c.cancelSent) {
			c.cancelSent = true
			out = append(out, f)
		}
	}
	return out
}

// standing judges a registration: the worker of a node has a session only while the node is a member, or to finish what
// it has in hand when it was removed.
func (s *Scheduler) standing(r *job.Register) (leaving bool, err error) {
	if r.Node == nil || s.o.Standing == nil {
		return false, nil
	}
	leaving, err = s.o.Standing(r.Worker, *r.Node)
	if err == nil && leaving && len(r.Held) == 0 {
		err = job.Errorf(job.CodeForbidden,
			"stop it; to bring it back, empty its data directory and start it with --join",
			"the node %s was removed from the cluster", r.Worker)
	}
	return leaving, err
}

// reviewStandings stops giving runs to the workers of nodes that are members no more.
func (s *Scheduler) reviewStandings() {
	if s.o.Standing == nil {
		return
	}
	s.mu.Lock()
	var nodes []*session
	for _, x := range s.sessions {
		if x.node != nil && !x.leaving {
			nodes = append(nodes, x)
		}
	}
	s.mu.Unlock()
	for _, x := range nodes { // without the lock: this may read the store
		leaving, err := s.o.Standing(x.key.worker, *x.node)
		if !leaving && err == nil {
			continue
		}
		s.mu.Lock()
		x.leaving = true
		s.version++
		s.mu.Unlock()
		s.log.Warn("node is no longer a member; its worker gets no more runs", "worker", x.key.worker, "error", err)
	}
}
