package checker

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// leases: what was claimed under an earlier leader stays with its worker for a full lease after the takeover: the new
// leader cannot know when the worker was last heard. Only a process that ended, or one that gave the attempt up by
// itself, loses it earlier.
func (c *checker) leases() {
	if len(c.in.Takeovers) == 0 {
		return
	}
	for _, a := range c.claims {
		if a.isOpen || a.Reason != job.ReasonWorkerLost || a.FinishedAt == 0 {
			continue
		}
		lost := int64(a.FinishedAt)
		last := c.cutShortBy(a, lost)
		if last == nil {
			continue
		}
		if e := a.effect; e != nil && e.End != 0 && int64(e.End) <= lost+c.clock+c.in.SlackEffects.Milliseconds() {
			continue // nothing of it was left to be protected
		}
		claimed, to := c.holding(a)
		mine := func(f Fault) bool { return f.Node == a.Worker || f.Peer == a.Worker }
		if slices.ContainsFunc(c.in.Faults, func(f Fault) bool {
			return mine(f) && (f.Kind == FaultKill || f.Kind == FaultStop) && int64(f.From) <= to &&
				c.ended(f, a, claimed, to, mine)
		}) {
			continue
		}
		if a.effect == nil && c.excused(a) {
			continue // it never began, and its worker may have told so
		}
		c.bad(RuleLease, c.lives[a.key.Job], a.key.At,
			"attempt %d with fence %d was taken from %s at %s, %d ms after %s took over, and its process had not ended",
			a.Attempt, a.Fence,
			a.Worker, a.FinishedAt, lost-int64(last.At), last.Node)
	}
}

// cutShortBy returns the takeover within whose lease an inherited attempt was taken away; nil if there is none, or if
// it may have been another leader's doing: stamps and takeovers are known as exactly as clocks are.
func (c *checker) cutShortBy(a *attempt, lost int64) *Takeover {
	var last *Takeover
	for i := range c.in.Takeovers {
		t := &c.in.Takeovers[i]
		at := int64(t.At)
		over := i+1 < len(c.in.Takeovers) && int64(c.in.Takeovers[i+1].At) < lost-c.clock
		switch {
		case over:
			continue
		case at > lost+c.clock:
			return last
		case i == 0 && at > lost-c.clock:
			return nil // the leader before the first that is known
		case int64(a.ClaimedAt) >= at-c.clock || lost >= at+c.ttl-c.clock:
			return nil
		}
		last = t
	}
	return last
}
