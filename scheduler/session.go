package scheduler

import (
	"maps"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

type sessionKey struct {
	worker      string
	incarnation uint64
}

func keyOf(s job.Session) sessionKey { return sessionKey{s.Worker, s.Incarnation} }

// session is a worker as this leader knows it: what it offers and what it was given. All of it is guarded by
// Scheduler.mu.
type session struct {
	key   sessionKey
	owner uint64 // see ownerOf

	// What its last poll said of it.
	where, from, version string
	node                 *job.NodeRef
	namespace            string // the only one whose runs it takes; empty: those of all
	secrets              []string
	types                []job.Type
	tags                 map[string]string
	slots                int
	shared               bool
	draining             bool // it takes no more, or gets no more as its node is no member

	heard         time.Duration // Clock.Mono at its last call
	lost          bool          // runs were taken from it when their leases ended
	serial, nonce uint64        // of the session text that its last poll had; serial 0: it has not come in this term

	poll     *poll         // the one that waits
	offers   bool          // a poll waits, or its offer stands
	offerEnd time.Duration // Clock.Mono at which the offer of the last one ends
	capacity int           // how many runs it takes, with those in hand, by its last poll
	// open counts claims without a result, reserved the slots of claims on their way through the log.
	open, reserved int
	held           []int32 // of open and reserved: those of each namespace, by Scheduler.spaces
	ready          int     // how many entries wait that it could take, as the loop last saw

	claims    []*claim // those whose result is not committed, in no order
	line      []*claim // of them: those that it is not known to have received, by fence
	resending bool     // claims of an earlier leader are being read from the store, to be handed out first
	stops     []job.Stop
	watch     []job.Ref
}

// claim is a committed claim.
type claim struct {
	run       job.RunKey
	space     int // its namespace, by Scheduler.spaces
	fence     uint64
	x         *session
	at        int // in x.claims
	attempt   uint16
	claimedAt int64

	assignment *job.Assignment // until the worker has it
	unmasked   *unmasked       // what its result may not show; nil: the job refers to no secret
	unsent     bool            // it was in no answer: its worker cannot know of it
	inherited  bool            // from an earlier leader, and it is not known whether its worker has it

	until    time.Duration // the end of the lease, on Clock.Mono
	timeout  time.Duration
	deadline time.Duration // when that is over; 0: it was not handed out
	told     bool          // its worker was told of that
	started  job.Instant   // 0: it is not known to have begun

	canceling bool
	reported  bool     // its slot is free
	pending   *pending // its result is on its way
}

// present says that a session has polled in this term. One that an earlier leader gave runs, and that has not come yet,
// waits.
func (x *session) present() bool { return x.serial > 0 }

// describe notes what a poll says of its worker, and says whether that is news to the matcher.
func (x *session) describe(p *job.Poll) (news bool) {
	news = x.namespace != p.Namespace || !slices.Equal(x.types, p.Types) || !maps.Equal(x.tags, p.Tags) ||
		!slices.Equal(x.secrets, p.Secrets)
	x.where, x.from, x.version, x.node = p.Where, p.From, p.Version, p.Node
	x.namespace, x.types, x.tags, x.secrets = p.Namespace, p.Types, p.Tags, p.Secrets
	x.draining = x.draining || p.Leave // a poll that it gave up before may come after the last one
	x.shared = p.Shared
	return news
}

// offer notes how many runs a poll takes. Free does not count what its worker has, and what is on its way to it is
// counted against it: a poll that is repeated offers nothing twice.
func (x *session) offer(p *job.Poll) {
	inHand := x.open - len(x.line)
	if mutant.On(mutant.PollOffersTwice) {
		inHand = x.open
	}
	if !x.shared {
		inHand += len(x.claims) - x.open // the slots of results that are being committed are free already
	}
	x.capacity, x.offers = max(p.Free, 0)+inHand, true
	if p.Most > 0 {
		x.capacity = min(x.capacity, p.Most)
	}
	x.slots = max(p.Slots, x.capacity, 1)
}

// free is how many runs the session can be given now.
func (x *session) free() int {
	if !x.offers || x.draining || x.resending {
		return 0
	}
	return max(0, x.capacity-x.open-x.reserved)
}

// count counts a slot that is taken, or freed, for a namespace.
func (x *session) count(space, n int) {
	if space >= len(x.held) {
		x.held = append(x.held, make([]int32, space+1-len(x.held))...)
	}
	x.held[space] += int32(n)
}

// shareOf is the part of a worker's slots, one in so many, that a namespace leaves to others.
const shareOf = 8

// leaves says that a namespace may take one more slot and leaves enough to others: as many slots as it has on this
// worker, up to an eighth of them. A worker of one namespace has no others.
func (x *session) leaves(space int) bool {
	if x.namespace != "" || mutant.On(mutant.TakeAll) {
		return true
	}
	held := 0
	if space < len(x.held) {
		held = int(x.held[space])
	}
	return x.slots-x.busy() > min(held, max(1, x.slots/shareOf))
}

// inHand says whether there are claims of the session in the log, or on their way there.
func (x *session) inHand() bool { return len(x.claims) > 0 || x.reserved > 0 }

// drained says that the worker takes no more and has nothing in hand: its name is free.
func (x *session) drained() bool { return x.draining && !x.inHand() }

// busy is what the matcher compares.
func (x *session) busy() int { return x.open + x.reserved }

func (x *session) wakePoll() {
	if x.poll != nil {
		wait.Wake(x.poll.wake)
	}
}

// add gives a session a claim.
func (s *Scheduler) add(x *session, c *claim) {
	c.x, c.at = x, len(x.claims)
	x.claims = append(x.claims, c)
	s.claims[c.fence] = c
	x.open++
	x.count(c.space, 1)
}

// ended ends what a claim takes of its session. free: its worker has the slot back, and does not go on with the run.
// A shared slot may be another group's by now.
func (x *session) ended(c *claim, free bool) {
	if c.reported {
		return
	}
	c.reported = true
	x.open--
	x.count(c.space, -1)
	x.arrive(c)
	if !free || x.shared {
		x.capacity--
	}
}

// arrive notes that the worker has a claim, or that it is not to get it any more.
func (x *session) arrive(c *claim) {
	if c.assignment != nil {
		c.assignment = nil
		x.line = slices.DeleteFunc(x.line, func(y *claim) bool { return y == c })
	}
	c.inherited = false
}

// drop forgets a claim that is closed or taken away.
func (s *Scheduler) drop(c *claim) {
	if s.claims[c.fence] != c {
		return
	}
	delete(s.claims, c.fence)
	x := c.x
	x.ended(c, false)
	last := x.claims[len(x.claims)-1]
	x.claims[c.at], last.at = last, c.at
	x.claims[len(x.claims)-1] = nil
	x.claims = x.claims[:len(x.claims)-1]
}

// endLocked ends a claim by a result of the leader's own, which it proposes until it is committed. free: the worker
// does not have the run.
func (s *Scheduler) endLocked(c *claim, free bool, r job.Result) *pending {
	c.x.ended(c, free)
	s.drop(c)
	return s.putInLineLocked(c, r)
}

// notToldLocked ends a claim that its worker was never told of, or did not receive: nothing is lost by that, not even
// with at_most_once.
func (s *Scheduler) notToldLocked(c *claim, o job.Outcome) {
	r := job.Result{Outcome: o}
	if o == job.OutcomeCanceled {
		r.Error = "canceled before the worker was given the run"
	}
	s.endLocked(c, true, r)
}

// cancelLocked makes a claim's worker stop it. If the worker has not been told of it yet, it never is. A poll names an
// attempt that is to stop once, or it would return at once for ever; every heartbeat that names it is told.
func (s *Scheduler) cancelLocked(c *claim) {
	if c.canceling {
		return
	}
	c.canceling = true
	switch {
	case c.pending != nil:
	case c.unsent:
		s.notToldLocked(c, job.OutcomeCanceled)
	default:
		c.x.stops = append(c.x.stops, job.Stop{Ref: c.ref(), Why: job.StopCanceled})
		c.x.wakePoll()
	}
}

// standing judges the worker of a node with each of its polls: it gets runs only while the node is a member. One that
// was removed is heard until it has nothing in hand.
func (s *Scheduler) standing(p *job.Poll, key sessionKey) error {
	if p.Node == nil || s.o.Standing == nil {
		return nil
	}
	leaving, err := s.o.Standing(key.worker, *p.Node) // without the lock: this may read the store
	if err != nil || !leaving {
		return err
	}
	p.Leave = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.sessions[key]; x != nil && len(x.claims) > 0 {
		return nil
	}
	return job.Errorf(job.CodeForbidden, "stop it; to bring it back, empty its data directory and start it with --join",
		"the node %s was removed from the cluster", key.worker)
}
