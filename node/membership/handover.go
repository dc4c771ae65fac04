package membership

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/placement"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
)

// A leader that cannot do its work while another node could hands over: its clock is not the majority's, so it may not
// stamp, or its disk is almost full, so it may not create. Raft elects a node that has the log, and asks for neither.

const (
	// staysFor is how long a leadership that was handed over because of a node's trouble does not go back to the node
	// that is to have the group: it would go back to the trouble.
	staysFor = 10 * time.Minute
	// keepsJumping is how long a clock may go on jumping before its distance is no longer asked for: it is right every
	// now and then.
	keepsJumping = 30 * time.Second
	// jumpedAway is how far from the majority's a clock that has just jumped is wrong. It would hold, and then stamp by
	// a wrong clock, as long as that is within stamp.MaxSkew. A clock that was right is farther off after a jump.
	jumpedAway = stamp.MaxJump / 2
	// A transfer that failed is tried again after a growing pause: raft takes no proposals during one.
	handoverPause    = 2 * time.Second
	handoverPauseMax = time.Minute
	handoverTries    = 2
	stampTimeout     = time.Second
)

// The reasons for which a leader hands over by itself.
const (
	UnfitClock = placement.UnfitClock
	UnfitDisk  = placement.UnfitDisk
	// Spread is none of the leader's: another node is to lead this group, so that each leads about as many.
	Spread = "spread"
)

// steadyLooks is how many looks at the members a leadership lasts, and the node that is to have it keeps up, before it
// goes there: elections that follow each other are not to be made more.
const steadyLooks = 20

// handover is what a leader does about being unfit.
type handover struct {
	handed   string // why the leader before handed this leadership over by itself; "": it did not
	rounds   int    // looks in a row that found a member which is fit
	state    string // for people: what is being done about it
	failures int
	notUntil time.Time            // no transfer before
	failed   map[string]time.Time // when one to a member failed
}

// HandoverState is what a leader that is unfit does about it, in words.
func (m *Members) HandoverState() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.handover.state
}

// unfit says why another node should lead, "" if none should; flaps says that this node's clock cannot even be
// measured.
func (m *Members) unfit(e *forward.Epoch) (why string, flaps bool) {
	d, known := m.Skew()
	c := e.Scheduler.Clock()
	flaps = c.Kind == stamp.HoldJumped && c.For > keepsJumping
	switch {
	case known && (d.Abs() > stamp.MaxSkew || flaps || c.Kind == stamp.HoldJumped && d.Abs() > jumpedAway):
		if mutant.On(mutant.KeepLeading) {
			return "", false
		}
		return UnfitClock, flaps
	case m.o.Disk().Low:
		return UnfitDisk, false
	}
	return "", false
}

// plan is who should lead instead of this node and why, or what keeps it from handing over.
func (m *Members) plan(e *forward.Epoch) (target, why, kept string) {
	why, flaps := m.unfit(e)
	if why == "" {
		if target = m.preferred(e); target != "" {
			why = Spread
		}
		return target, why, ""
	}
	if target, kept = m.transferTarget(why, flaps); target == "" {
		return "", why, kept
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &m.handover
	if time.Now().Before(h.notUntil) {
		return "", why, h.state // what failed
	}
	return target, why, ""
}

// preferred is the node that is to lead a group instead of this one; "": none. A leadership goes back where it was when
// a node has come back. One that was handed over because of another node's trouble stays for a while.
func (m *Members) preferred(e *forward.Epoch) string {
	steady := steadyLooks * m.o.Interval
	if m.o.Of == nil || time.Since(e.Began) < steady {
		return ""
	}
	row, known, err := m.knownRow()
	if err != nil || !known {
		return ""
	}
	id := placement.Leader(&row)
	list, _ := m.candidates()
	i := slices.IndexFunc(list, func(c placement.Candidate) bool { return c.ID == id })
	if i < 0 || list[i].Off.Abs() > placement.FitSkew || !placement.HasRoom(list[i].Disk) || list[i].Failed {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h, p := &m.handover, m.peers[id]
	if p == nil || time.Since(p.close) < steady || time.Now().Before(h.notUntil) ||
		h.handed != "" && h.handed != Spread && time.Since(e.Began) < staysFor {
		return ""
	}
	return id
}

// review is called after every look at the members. It returns who is to lead instead of this node, and why, once two
// looks in a row agreed; again asks for the second one soon.
func (m *Members) review(e *forward.Epoch) (target, why string, again bool) {
	target, why, kept := m.plan(e)
	if target == "" {
		m.decide(kept, false)
		return "", "", false
	}
	state := "it hands over to " + target
	if why == Spread {
		state = "" // nothing is wrong
	}
	if m.decide(state, true) < 2 {
		return "", "", true
	}
	return target, why, false
}

// decide notes what is being done, and how many looks in a row found a node to hand over to.
func (m *Members) decide(state string, found bool) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &m.handover
	if state != h.state {
		if h.state = state; state != "" {
			m.log("leader should hand over", "node", m.id(), "action", state)
		}
	}
	if h.rounds++; !found {
		h.rounds = 0
	}
	return h.rounds
}

// candidates are the other voters that answer and keep up and whose clocks are known, and why the rest are none.
func (m *Members) candidates() (out []placement.Candidate, rest []string) {
	leaving := m.leaving() // it reads the state, which must not be waited for with the lock held
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.Configured() {
		id := replica.Node(s.ID)
		if s.Suffrage != raft.Voter || id == m.id() {
			continue
		}
		p := m.peers[id]
		if p == nil || p.problem != "" {
			rest = append(rest, id+" does not answer")
			continue
		}
		if leaving[id] {
			rest = append(rest, id+" is leaving")
			continue
		}
		d, known := m.distance(id)
		switch {
		case p.close.IsZero():
			rest = append(rest, id+" is behind")
		case !known:
			rest = append(rest, "the clock of "+id+" is not known")
		default:
			at, tried := m.handover.failed[id]
			out = append(out, placement.Candidate{ID: id, Off: d, Applied: p.seen.Applied, Disk: p.seen.Disk,
				Failed: tried &&
					time.Since(at) < handoverPauseMax})
		}
	}
	return out, rest
}

// distance is how far the clock of a voter is from those of a majority, itself included. The lock is held.
func (m *Members) distance(id string) (time.Duration, bool) {
	its, ok := m.offset(id)
	if id == m.id() {
		its, ok = 0, true
	}
	if !ok {
		return 0, false
	}
	var offsets []time.Duration
	voters := 0
	for _, s := range m.Configured() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		switch o, ok := m.offset(replica.Node(s.ID)); {
		case replica.Node(s.ID) == m.id():
			offsets = append(offsets, -its)
		case ok:
			offsets = append(offsets, o-its)
		}
	}
	d, known := stamp.NearMajority(offsets, voters)
	return -d, known
}

// transferTarget is the voter that should lead instead of this node, or why there is none.
func (m *Members) transferTarget(why string, flaps bool) (id, none string) {
	list, rest := m.candidates()
	own, _ := m.Skew()
	fit, unfit := placement.FitToLead(list, why, own, flaps)
	if len(fit) > 0 {
		return slices.MinFunc(fit, placement.ByFitness).ID, ""
	}
	if rest = append(rest, unfit...); len(rest) == 0 {
		return "", "" // there is no other voter
	}
	slices.Sort(rest)
	return "", "no other node can take over: " + strings.Join(rest, ", ")
}

// TransferTarget is the node that a leader which is unfit is about to hand over to; "": none.
func (m *Members) TransferTarget(e *forward.Epoch) string {
	target, _, _ := m.plan(e)
	return target
}

// successor is who should lead after a planned transfer to no node in particular, "" if no node is known to be fit.
func (m *Members) successor() string {
	list, _ := m.candidates()
	list = slices.DeleteFunc(list, func(c placement.Candidate) bool { return c.Off.Abs() > placement.FitSkew })
	if len(list) == 0 {
		return ""
	}
	return slices.MinFunc(list, placement.ByFitness).ID
}

// CheckClock refuses to let a node lead whose clock is known to be wrong, or is not known: it would hold.
func (m *Members) CheckClock(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch d, known := m.distance(id); {
	case !known:
		return job.Errorf(job.CodeState,
			"bring the other nodes back first, or repeat it with --force (\"force\": true)",
			"it is not known how far the clock of node %s is from the "+
				"majority's; a leader with a wrong clock holds", id)
	case d.Abs() > placement.FitSkew:
		return job.Errorf(job.CodeState,
			"correct its clock, choose another node, or repeat it with --force (\"force\": true)",
			"the clock of node %s differs by %s from the majority's, and a node that is to lead may differ by %s: "+
				"beyond %s a leader holds, and nothing would run",
			id, d.Round(time.Millisecond), placement.FitSkew, stamp.MaxSkew)
	}
	return nil
}

// handTo hands the leadership to a member because this node is unfit. The lock of changes is held.
func (m *Members) handTo(ctx context.Context, e *forward.Epoch, id, why string) {
	s, ok := FindServer(m.Servers(), id)
	if now, _, _ := m.plan(e); !ok || now != id {
		return // its clock was put right, or its disk has room, since the last look
	}
	m.log("handing over the leadership", "to", id, "reason", why, "term", e.Term)
	m.StampBeforeTransfer(ctx, e)
	// It is told why first: it keeps for a while what was handed over because of this node's trouble.
	_, err := m.probeAs(ctx, string(s.Address), e.Term, &notice{Succeed: why})
	if err == nil {
		err = m.transfer(ctx, id, handoverTries)
	}
	if err == nil || ctx.Err() != nil || m.raft.Load().State() != raft.Leader {
		return
	}
	m.mu.Lock()
	h := &m.handover
	pause := min(handoverPause<<min(h.failures, 10), handoverPauseMax)
	h.failures++
	if h.failed == nil {
		h.failed = map[string]time.Time{}
	}
	h.failed[id], h.notUntil, h.rounds = time.Now(), time.Now().Add(pause), 0
	h.state = fmt.Sprintf("handing over to %s failed and will be tried again: %v", id, err)
	m.mu.Unlock()
	m.log("leadership not handed over", "to", id, "reason", why, "error", err, "again_in", pause)
}

// StampBeforeTransfer commits a stamp before a planned transfer, so that the next leader sees no outage that was none.
// A leader that may not stamp does not: for it the time since its last stamp was one.
func (m *Members) StampBeforeTransfer(ctx context.Context, e *forward.Epoch) {
	if mutant.On(mutant.NoFinalStamp) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stampTimeout)
	defer cancel()
	if err := e.Scheduler.CommitStamp(ctx); err != nil {
		m.o.Logger.Debug("no stamp before the transfer", "error", err)
	}
}

// Faults lets tests of whole clusters see and steer a handover.
type Faults struct{ m *Members }

// PassOn tries to hand the leadership to a voter, and nothing else.
func (f Faults) PassOn(ctx context.Context, id string, tries int) error {
	return f.m.passOn(ctx, id, tries)
}

// Faults is for tests only.
func (m *Members) Faults() Faults { return Faults{m} }

// Stall keeps the membership from changing until the function it returns is called. That hands the leadership over as
// it was planned before, if it still should be.
func (f Faults) Stall(ctx context.Context) (resume func(e *forward.Epoch, target, why string), err error) {
	if err := f.m.lock(ctx); err != nil {
		return nil, err
	}
	return func(e *forward.Epoch, target, why string) {
		defer f.m.unlock()
		f.m.handTo(ctx, e, target, why)
	}, nil
}

// Plan is who should lead instead of this node and why.
func (f Faults) Plan(e *forward.Epoch) (target, why string) {
	target, why, _ = f.m.plan(e)
	return target, why
}
