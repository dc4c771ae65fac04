package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/sim/network"
)

// These plans make a leader unfit while others could do its work: by its clock, for good, or by its disk. The cluster
// has to go on.

// fits has jobs that fire every few seconds and are done soon, and a leader that looks at the others as often as a real
// one.
func (p *plan) fits(recovery time.Duration) {
	p.o.ttl, p.o.workers, p.o.slots, p.o.recovery = 30*time.Second, 1, 8, recovery
	p.o.members.Interval = 500 * time.Millisecond
	p.steady(5, 3*time.Second, 0, 300*time.Millisecond, func(*job.Spec) {})
}

// wrongClock: two of five clocks are stepped, each in its own way and for good, that of the leader among them.
// Leaderships that come later may fall to either.
func wrongClock(p *plan, rng *rand.Rand) {
	p.o.nodes = 5
	p.fits(15 * time.Second)
	at := func(s int) time.Duration { return time.Duration(s)*time.Second + between(rng, 0, 5*time.Second) }
	p.faults = []plannedFault{
		{at: at(15), kind: "step-clock", a: rng.IntN(5), x: rng.Uint64()},
		{at: at(40), kind: "step-leader", x: rng.Uint64()},
		{at: at(80), kind: "transfer-wrong", b: rng.IntN(5), x: rng.Uint64()},
		{at: at(110), kind: "transfer", b: rng.IntN(5), x: rng.Uint64()},
		{at: at(150), kind: "kill-leader", lasts: 10 * time.Second, x: rng.Uint64()},
		{at: at(200), kind: "kill-leader", lasts: 10 * time.Second, x: rng.Uint64()},
	}
}

// drift: the leader's clock goes wrong by tens of milliseconds a second, which no jump ever shows.
func drift(p *plan, rng *rand.Rand) {
	p.fits(20 * time.Second)
	p.faults = []plannedFault{{at: between(rng, 10*time.Second, 20*time.Second), kind: "drift-leader", x: rng.Uint64()}}
}

// nudged: the leader's clock is set by a few seconds, for good. It stays within what is tolerated of a leader; holding
// until it was steady for long enough would take longer than another node needs to take over.
func nudged(p *plan, rng *rand.Rand) {
	p.fits(8 * time.Second)
	p.faults = []plannedFault{{at: between(rng, 10*time.Second, 40*time.Second), kind: "nudge-leader", x: rng.Uint64()}}
}

// jumpy: the leader's clock is set to and fro by two seconds, again and again. It is never far from the others', and
// never steady.
func jumpy(p *plan, rng *rand.Rand) {
	p.fits(50 * time.Second)
	p.faults = []plannedFault{{at: between(rng, 10*time.Second, 20*time.Second), kind: "jumpy-leader",
		lasts: 4 * time.Minute, x: rng.Uint64()}}
}

// clocks: one leader after the other has a wrong clock for a while, so that before long one has that handed over
// because of its clock already. The other two agree each time.
func clocks(p *plan, rng *rand.Rand) {
	p.fits(15 * time.Second)
	for i := range 6 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(15+40*i)*time.Second + between(rng, 0, 5*time.Second), kind: "clock-leader",
				lasts: 30 * time.Second, x: rng.Uint64()})
	}
}

// lowDisk: the leader's disk is almost full, then those of all; and again and again.
func lowDisk(p *plan, rng *rand.Rand) {
	p.fits(15 * time.Second)
	for i := range 4 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(15+60*i)*time.Second + between(rng, 0, 5*time.Second), kind: "low-disk",
				lasts: 30 * time.Second, a: i, x: rng.Uint64()})
	}
}

// planned: the leadership is handed over by hand while there is hardly anything to do. What the leader was idle for is
// no outage.
func planned(p *plan, rng *rand.Rand) {
	p.fits(15 * time.Second)
	p.jobs = p.jobs[:0]
	p.steady(2, time.Minute, 0, 300*time.Millisecond, func(*job.Spec) {})
	for i := range 12 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(15+20*i)*time.Second + between(rng, 0, 10*time.Second), kind: "transfer",
				b: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
}

// hungHeir: the leadership is to go to a node whose disk hangs, and is lost meanwhile. The leader that could not hand
// it over is given it again.
func hungHeir(p *plan, rng *rand.Rand) {
	p.fits(15 * time.Second)
	for i := range 6 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(15+40*i)*time.Second + between(rng, 0, 5*time.Second), kind: "transfer-hung",
				lasts: between(rng, 3*time.Second, 8*time.Second), a: rng.IntN(p.o.nodes), b: rng.IntN(p.o.nodes),
				x: rng.Uint64()})
	}
}

// unfit adds drifting clocks and low disks to some storms. A clock that drifts is the only one that is wrong: two that
// are wrong differently would be a majority to each other now and then.
func (p *plan) unfit(rng *rand.Rand) {
	if p.seed%10 != 3 {
		return
	}
	kinds := []string{"drift", "fill"}
	for _, f := range p.faults {
		if f.kind == "clock" || f.kind == "clock-leader" {
			kinds = kinds[1:]
			break
		}
	}
	for _, k := range kinds {
		for i := range 2 { // one after the other
			p.faults = append(p.faults,
				plannedFault{at: p.o.length/20 + time.Duration(i)*p.o.length/2,
					lasts: between(rng, 30*time.Second, p.o.length/3),
					kind:  k, a: rng.IntN(p.o.nodes), x: rng.Uint64()})
		}
	}
}

// stepClock sets the clock of a node wrong for good: of the leader, far or by little, or of one that follows.
func (c *cluster) stepClock(f plannedFault, rng *rand.Rand) bool {
	i := c.leader()
	if i < 0 {
		return false
	}
	s := c.servers[i]
	if f.kind == "step-clock" {
		s = c.servers[(i+1+f.a%(len(c.servers)-1))%len(c.servers)]
	}
	by := []time.Duration{40 * time.Second, -40 * time.Second, 2 * time.Minute, -2 * time.Minute, 26 * time.Hour,
		-26 * time.Hour}
	d := pick(rng, by...)
	if f.kind == "nudge-leader" {
		d = pick(rng, time.Duration(1), -1) * between(rng, 2*time.Second, 5*time.Second)
	}
	for _, o := range c.servers {
		if !o.clock.is(0) && f.kind == "step-leader" {
			for o.clock.is(d) {
				d = pick(rng, by...) // two clocks that are wrong alike would be right
			}
		}
	}
	c.fault(checker.FaultClock, s.id, "", d)
	s.clock.set(d)
	return true
}

// driftLeader makes the leader's clock go wrong by and by, for good.
func (c *cluster) driftLeader(_ plannedFault, rng *rand.Rand) bool {
	i := c.leader()
	if i < 0 {
		return false
	}
	rate := pick(rng, 0.03, 0.05, 0.1, -0.03, -0.05, -0.1)
	c.fault(checker.FaultClock, c.servers[i].id, "", time.Duration(rate*float64(c.o.length)))
	c.servers[i].clock.drift(rate)
	return true
}

// jumpyLeader sets the leader's clock to and fro.
func (c *cluster) jumpyLeader(f plannedFault) bool {
	i := c.leader()
	if i < 0 {
		return false
	}
	s := c.servers[i]
	x := c.fault(checker.FaultClock, s.id, "", 2*time.Second)
	for began := time.Now(); time.Since(began) < f.lasts; {
		for _, d := range []time.Duration{2 * time.Second, 0} {
			s.clock.set(d)
			time.Sleep(4 * time.Second)
		}
	}
	c.over(x)
	return true
}

// driftFor makes the clock of a node go wrong by and by, and puts it right.
func (c *cluster) driftFor(s *server, lasts time.Duration, rng *rand.Rand) bool {
	rate := pick(rng, 0.03, 0.1, 0.2, -0.03, -0.1, -0.2)
	if !c.upset(s, func(k *clock) { k.drift(rate) }) {
		return false
	}
	x := c.fault(checker.FaultClock, s.id, "", time.Duration(rate*float64(lasts)))
	time.Sleep(lasts)
	s.clock.set(0)
	c.over(x)
	return true
}

// transferHung asks for a transfer to a node whose disk hangs, twice, cuts the leader off, and gives it the leadership
// again when everything is well.
func (c *cluster) transferHung(f plannedFault, rng *rand.Rand) bool {
	i := c.leader()
	if i < 0 {
		return false
	}
	old, heir := c.servers[i], c.servers[f.a%len(c.servers)]
	if heir == old {
		heir = c.servers[(i+1)%len(c.servers)]
	}
	slow := c.fault(checker.FaultDisk, heir.id, "", 0)
	works := heir.disk.hang()
	time.Sleep(2 * time.Second) // it lacks what was committed since
	c.transfer(f.b, heir.id)
	c.transfer(f.b, heir.id)
	c.isolate(old.host, f.lasts, rng, func(h *network.Host) bool { return h.Name != "client" })
	works()
	c.over(slow)
	time.Sleep(5 * time.Second)
	return c.transfer(f.b, old.id)
}

// transferWrong asks for a transfer to a node with a wrong clock, which must be refused.
func (c *cluster) transferWrong(f plannedFault) bool {
	for _, s := range c.servers {
		if i := c.leader(); s.clock.is(0) || i < 0 || c.servers[i] == s || s.current() == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err := c.clients[f.b].TransferLeadership(ctx, s.id)
		cancel()
		c.event("transfer to %s with a wrong clock: %v", s.id, err)
		if err == nil {
			c.problem("the leadership was handed to %s, whose clock is wrong", s.id)
		}
	}
	return true
}

// takesOver is how long a leader may take to notice that its disk is low, and another one to take over.
const takesOver = 10 * time.Second

// lowDisk fills the leader's disk: another one must lead soon, and jobs be created. Then it fills those of all, and
// frees them again.
func (c *cluster) lowDisk(f plannedFault) bool {
	i := c.leader()
	if i < 0 {
		return false
	}
	s := c.servers[i]
	c.event("the disk of %s is almost full", s.id)
	s.disk.fill(true)
	time.Sleep(takesOver)
	c.creates(f, "low", true)
	if i := c.leader(); i < 0 || c.servers[i] == s {
		c.problem("%s leads with a disk that is almost full, and the others have room", s.id)
	}
	for _, o := range c.servers {
		o.disk.fill(true)
	}
	time.Sleep(takesOver)
	c.creates(f, "full", false)
	for _, o := range c.servers {
		o.disk.fill(false)
	}
	time.Sleep(takesOver)
	c.creates(f, "free", true)
	return true
}

// creates makes a job, which must be possible or must not.
func (c *cluster) creates(f plannedFault, when string, possible bool) {
	spec := c.p.jobs[0].spec
	spec.Name, spec.Schedule = fmt.Sprintf("%s-%d", when, f.a), job.ScheduleManual
	c.create(plannedCall{kind: "create", node: f.a % len(c.clients), x: f.x}, spec)
	c.mu.Lock()
	_, made := c.ids[spec.Name]
	c.mu.Unlock()
	if made != possible {
		c.problem("job %s was created: %t", spec.Name, made)
	}
}
