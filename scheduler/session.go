package scheduler

import (
	"maps"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
)

type sessionKey struct {
	worker      string
	incarnation uint64
}

// session is a worker as this leader knows it: what it offers and what it was given. All of it is guarded by
// Scheduler.mu.
type session struct {
	key   sessionKey
	owner uint64 // see ownerOf
	// present: it has polled in this term. One that an earlier leader gave runs, and that has not come yet, waits.
	present bool
	gone    bool // removed; what it still has is in the queue of what is to be taken from workers

	// What its last poll said of it.
	where, from, version string
	node                 *job.NodeRef
	leaving              bool   // the worker of a node that is no member any more: it gets nothing
	namespace            string // the only one whose runs it takes; empty: those of all
	secrets              []string
	types                []job.Type
	tags                 map[string]string
	slots                int // with what it prefetches
	ahead                int // what it prefetches
	shared               bool
	draining             bool // it takes no more

	heard   time.Duration // Clock.Mono at its last call
	heardAt time.Time
	silent  bool // its silence since was counted

	serial, nonce uint64        // of the session text that its last poll had
	poll          *poll         // the one that waits
	polled        time.Duration // Clock.Mono at the end of the last one
	hold          time.Duration // how long what that one offered stands
	wake          chan struct{} // closed, and replaced, when there is something for a poll

	offers   bool // a poll waits, or its offer stands
	capacity int  // how many runs it takes, with those in hand, by its last poll
	// open counts claims without a result, reserved the slots of claims on their way through the log.
	// own counts those that have a result of the leader's: their worker never had them, or is not believed to.
	open, reserved, own int
	held                []int32 // of open and reserved: those of each namespace, by Scheduler.spaces
	more                bool    // the loop has not matched again since its last claim
	ready               int     // how many entries wait that it could take, as the loop last saw
	wasReady            bool    // there were some when it looked before

	claims    []*claim // those whose result is not committed, in no order
	line      []*claim // of them: those that it is not known to have received, by fence
	resending bool     // claims of an earlier leader are being read from the store, to be handed out first
	canceling int      // claims that are to stop
	watch     []job.Ref
	ends      time.Duration // Clock.Mono: no lease of its claims ends before
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
	lacks      bool            // a secret that it needs was missing: it was never handed out
	unsent     bool            // it was in no answer: its worker cannot know of it
	arrived    bool            // its worker has it, for good: it said so

	until    time.Duration // the end of the lease, on Clock.Mono
	timeout  time.Duration
	deadline time.Duration // when that is over; 0: it has not begun
	told     bool          // its worker was told of that
	started  job.Instant   // 0: it is not known to have begun

	canceling bool
	stopSaid  bool     // a poll was answered with that
	reported  bool     // its slot is free
	own       bool     // by the leader itself
	pending   *pending // its result is on its way
	expiring  bool     // it is in the queue of what is taken from workers
}

func newSession(k sessionKey, now time.Duration) *session {
	return &session{key: k, heard: now, polled: now, wake: make(chan struct{})}
}

// describe notes what a poll says of its worker, and says whether that is news to the matcher.
func (x *session) describe(p *job.Poll) (news bool) {
	news = x.namespace != p.Namespace || !slices.Equal(x.types, p.Types) || !maps.Equal(x.tags, p.Tags) ||
		!slices.Equal(x.secrets, p.Secrets)
	x.where, x.from, x.version, x.node = p.Where, p.From, p.Version, p.Node
	x.namespace, x.types, x.tags, x.secrets = p.Namespace, p.Types, p.Tags, p.Secrets
	x.draining = x.draining || p.Leave // a poll that it gave up before may come after the last one
	x.shared, x.hold = p.Shared, min(max(time.Duration(p.Hold), 0), maxHold)
	x.ahead = max(0, p.Prefetch)
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
		inHand += len(x.claims) - x.open - x.own // the slots of results that are being committed are free already
	}
	x.capacity, x.offers = max(p.Free, 0)+inHand, true
	if p.Most > 0 {
		x.capacity = min(x.capacity, p.Most)
	}
	x.slots = max(p.Slots, x.capacity, 1)
}

// free is how many runs the session can be given now.
func (x *session) free() int {
	if !x.present || x.gone || !x.offers || x.draining || x.leaving || x.resending {
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

// inHand says whether there are claims of the session in the log, or on their way there.
func (x *session) inHand() bool { return len(x.claims) > 0 || x.reserved > 0 }

// drained says that the worker takes no more and has nothing in hand: its name is free.
func (x *session) drained() bool { return x.draining && !x.inHand() }

// busy is what the matcher compares.
func (x *session) busy() int { return x.open + x.reserved }

func (x *session) wakePolls() {
	close(x.wake)
	x.wake = make(chan struct{})
}

// add gives a session a claim.
func (s *Scheduler) add(x *session, c *claim) {
	c.x, c.at = x, len(x.claims)
	x.claims = append(x.claims, c)
	s.claims[c.fence] = c
	x.open++
	x.count(c.space, 1)
	if c.canceling {
		x.canceling++
	}
}

// ended frees the slot of a claim that has a result.
func (x *session) ended(c *claim) {
	if c.reported {
		return
	}
	c.reported = true
	x.open--
	x.count(c.space, -1)
	x.arrive(c)
	if x.shared {
		x.capacity-- // the slot may be another group's by now
	}
}

// arrive notes that the worker has a claim, or that it is not to get it any more.
func (x *session) arrive(c *claim) {
	if c.assignment != nil {
		c.assignment = nil
		x.line = slices.DeleteFunc(x.line, func(y *claim) bool { return y == c })
	}
	c.arrived = true
}

// drop forgets a claim that is closed or taken away.
func (s *Scheduler) drop(c *claim) {
	if s.claims[c.fence] != c {
		return
	}
	delete(s.claims, c.fence)
	x := c.x
	if !c.reported && !x.shared {
		x.capacity-- // it was taken away, and its worker may go on with it
	}
	x.ended(c)
	if c.own {
		x.own--
	}
	last := x.claims[len(x.claims)-1]
	x.claims[c.at], last.at = last, c.at
	x.claims[len(x.claims)-1] = nil
	x.claims = x.claims[:len(x.claims)-1]
	if c.canceling {
		x.canceling--
	}
}

// standing judges the worker of a node: it has a session only while the node is a member, or to finish what it has in
// hand when it was removed.
func (s *Scheduler) standing(p *job.Poll, key sessionKey) (leaving bool, err error) {
	if p.Node == nil || s.o.Standing == nil {
		return false, nil
	}
	s.mu.Lock()
	x := s.sessions[key]
	holds := x != nil && len(x.claims) > 0
	known := x != nil && x.present
	leaving = known && x.leaving
	s.mu.Unlock()
	if !known { // without the lock: this may read the store
		leaving, err = s.o.Standing(key.worker, *p.Node)
	}
	if err == nil && leaving && !holds {
		err = job.Errorf(job.CodeForbidden,
			"stop it; to bring it back, empty its data directory and start it with --join",
			"the node %s was removed from the cluster", key.worker)
	}
	return leaving, err
}

// reviewStandings stops giving runs to the workers of nodes that are members no more.
func (s *Scheduler) reviewStandings() {
	if s.o.Standing == nil {
		return
	}
	s.mu.Lock()
	nodes := map[*session]job.NodeRef{}
	for _, x := range s.sessions {
		if x.node != nil && !x.leaving {
			nodes[x] = *x.node
		}
	}
	s.mu.Unlock()
	for x, node := range nodes {
		leaving, err := s.o.Standing(x.key.worker, node)
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
