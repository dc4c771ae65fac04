package sim

import (
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
)

// Plans about several groups. The seed says how many: three, eight, or the one of an ordinary cluster, of which the
// same must hold.
func (p *plan) several() { p.o.groups = []int{8, 3, 0}[p.seed%3] }

// every adds faults one after the other over the whole length, with pauses.
func (p *plan) every(rng *rand.Rand, least, most time.Duration, fault func() plannedFault) {
	for at := 20 * time.Second; at < p.o.length-time.Minute; at += between(rng, least, most) {
		f := fault()
		f.at, f.a, f.b, f.x = at, rng.IntN(p.o.nodes), rng.IntN(p.o.nodes), rng.Uint64()
		p.faults = append(p.faults, f)
	}
}

// staleHome: the leader of a name's home stands still or is cut off, and goes on as if it led when another one has
// given the name away.
func staleHome(p *plan, rng *rand.Rand) {
	p.several()
	p.o.workers, p.o.ttl = 1, 15*time.Second
	p.steady(8, 20*time.Second, 0, time.Second, func(*job.Spec) {})
	p.renames(rng, 150)
	p.every(rng, 8*time.Second, 20*time.Second, func() plannedFault {
		return plannedFault{kind: pick(rng, "freeze-leader", "freeze-leader", "pause-leader", "cut-leader", "one-way"),
			lasts: between(rng, 500*time.Millisecond, 6*time.Second)}
	})
}

// lateRelease: what groups tell each other about names takes long or comes when its sender has given up, while the
// names go from job to job. What is said of an earlier owner must not count for the next.
func lateRelease(p *plan, rng *rand.Rand) {
	p.several()
	p.o.workers, p.o.ttl, p.o.latency = 0, 15*time.Second, 20*time.Millisecond
	p.steady(6, 30*time.Second, 0, time.Second, func(*job.Spec) {})
	p.renames(rng, 250)
	p.every(rng, 6*time.Second, 15*time.Second, func() plannedFault {
		return plannedFault{kind: pick(rng, "link", "link", "reset", "one-way", "kill-leader"),
			lasts: between(rng, 2*time.Second, 8*time.Second)}
	})
}

// abortedCreate: nodes are gone for longer than a reservation may be pending, and clients repeat what they asked for
// when it was given up, or while it is.
func abortedCreate(p *plan, rng *rand.Rand) {
	p.several()
	p.o.workers, p.o.ttl, p.o.length = 0, 15*time.Second, 8*time.Minute
	p.steady(8, 30*time.Second, 0, time.Second, func(*job.Spec) {})
	p.renames(rng, 200)
	p.every(rng, 20*time.Second, 40*time.Second, func() plannedFault {
		return plannedFault{kind: pick(rng, "kill-leader", "cut-leader", "pause-leader", "cut-half"),
			lasts: pick(rng, between(rng, time.Second, 10*time.Second), between(rng, 55*time.Second, 75*time.Second))}
	})
}

// oneLease: a worker does not reach the leader of one group for longer than its lease. That group's runs are given to
// others; those of the groups whose leaders it reaches go on.
func oneLease(p *plan, rng *rand.Rand) {
	p.several()
	p.o.workers, p.o.ttl = 3, 15*time.Second
	p.steady(9, 16*time.Second, 5*time.Second, 30*time.Second,
		func(s *job.Spec) { s.Workers = map[string]string{"pool": "remote"} })
	p.every(rng, 25*time.Second, 35*time.Second, func() plannedFault {
		return plannedFault{kind: "cut-one", lasts: p.o.ttl + between(rng, -6*time.Second, 8*time.Second)}
	})
}

// lostOffers: leaders go away to which a worker offers its few slots, again and again, while all groups
// have more work than it has slots.
func lostOffers(p *plan, rng *rand.Rand) {
	p.several()
	p.o.workers, p.o.ttl = 2, 15*time.Second
	p.steady(12, 10*time.Second, time.Second, 6*time.Second,
		func(s *job.Spec) { s.Workers = map[string]string{"pool": "remote"} })
	p.every(rng, 8*time.Second, 25*time.Second, func() plannedFault {
		return plannedFault{kind: pick(rng, "kill-leader", "kill-leader", "cut-leader", "freeze-leader", "reset",
			"cut-one"),
			lasts: between(rng, 300*time.Millisecond, 8*time.Second)}
	})
}

// cutOne has a worker not reach the node that leads some group, both ways.
func (c *cluster) cutOne(f plannedFault) bool {
	i := c.aLeader(f.x)
	if i < 0 || len(c.workers) == 0 {
		return false
	}
	s, w := c.servers[i], c.workers[f.a%len(c.workers)]
	x := c.fault(checker.FaultCut, w.name, s.id, 0)
	c.net.Cut(w.name, s.id)
	c.net.Cut(s.id, w.name)
	time.Sleep(f.lasts)
	c.net.Heal(w.name, s.id)
	c.net.Heal(s.id, w.name)
	c.over(x)
	return true
}
