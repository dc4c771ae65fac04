package checker

import (
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// stalled: while nothing is wrong but the clocks of a minority, or the disks of some, the cluster goes on. An
// occurrence is claimed within Recovery of its time, or of the last edit before its claim that changed who may run the
// job, under any leader; an outage that lasts longer is one that should not have been.
func (c *checker) stalled() {
	limit := c.in.Recovery.Milliseconds()
	if limit == 0 {
		return
	}
	limit += c.clock
	for _, a := range c.claims {
		at := max(a.key.At, c.takenSince(a))
		if a.key.Origin != job.OriginSchedule || a.Attempt != 1 || int64(a.ClaimedAt)-at <= limit ||
			c.excusesStall(at, int64(a.ClaimedAt)) {
			continue
		}
		c.bad(RuleStalled, c.lives[a.key.Job], a.key.At,
			"it was claimed %s after a worker could have it, and only clocks of a minority were wrong",
			time.Duration(int64(a.ClaimedAt)-at)*time.Millisecond)
	}
	for _, w := range c.in.Outages {
		if d := int64(w.To - w.From); d > plannedGap && c.onlyTransfers(int64(w.From), int64(w.To)) {
			c.bad(RuleOutage, nil, int64(w.From),
				"an outage of %s was committed, and the leadership was only handed over",
				time.Duration(d)*time.Millisecond)
		}
		if int64(w.To-w.From) > limit && !c.excusesStall(int64(w.From), int64(w.To)) {
			c.bad(RuleStalled, nil, int64(w.From),
				"nothing was stamped from %s to %s, and only clocks of a minority were wrong", w.From, w.To)
		}
	}
}

// takenSince is when the last edit came that changed who may run the job before an attempt was claimed; zero if none
// did. In doubt it is the claim.
func (c *checker) takenSince(a *attempt) int64 {
	l := c.lives[a.key.Job]
	if l == nil || l.w == nil || l.vague() {
		return int64(a.ClaimedAt)
	}
	vs := l.w.versions
	i := len(vs) - 1
	for i > 0 && (a.JobVersion != 0 && vs[i].number > a.JobVersion || vs[i].sent.lo > int64(a.ClaimedAt)+c.clock) {
		i--
	}
	for ; i > 0; i-- {
		if takers(vs[i].spec) != takers(vs[i-1].spec) {
			return vs[i].sent.hi
		}
	}
	return 0
}

// takers is what decides who may run a job, as a text.
func takers(s *job.Spec) string { return fmt.Sprint(s.Type, " ", queueOf(s), " ", s.Workers) }

// excusesStall says that the cluster may have stood still: something else was broken, or no majority of the clocks
// agreed.
func (c *checker) excusesStall(from, to int64) bool {
	wrong := map[string]bool{}
	for _, f := range c.in.Faults {
		if int64(f.From) > to || c.until(f) < from {
			continue
		}
		switch f.Kind {
		case FaultLeader: // a transfer is over in a moment
		case FaultClock:
			wrong[f.Node] = true
		default:
			return true
		}
	}
	return len(wrong) > 0 && 2*(c.in.Voters-len(wrong)) <= c.in.Voters
}

// plannedGap is how long the outage of a planned transfer may be: it begins with a stamp.
const plannedGap = 4_000

// onlyTransfers says that nothing but planned transfers happened around a time, and at least one did.
func (c *checker) onlyTransfers(from, to int64) bool {
	one := false
	for _, f := range c.in.Faults {
		if int64(f.From) > to || c.until(f) < from-c.in.Recovery.Milliseconds() {
			continue
		}
		if f.Kind != FaultLeader {
			return false
		}
		one = true
	}
	return one
}
