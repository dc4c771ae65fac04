package sim

import (
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/sim/network"
)

// speechless cuts the ways from some hosts to others and returns what mends them.
func (c *cluster) speechless(from, to []*network.Host) (mend func()) {
	var xs []*checker.Fault
	for _, a := range from {
		for _, b := range to {
			xs = append(xs, c.fault(checker.FaultCut, a.Name, b.Name, 0))
			c.net.Cut(a.Name, b.Name)
		}
	}
	return func() {
		i := 0
		for _, a := range from {
			for _, b := range to {
				c.net.Heal(a.Name, b.Name)
				c.over(xs[i])
				i++
			}
		}
	}
}

// lateLeader makes two leaders speak to one worker. The first one's words to it do not arrive; then its disk hangs,
// which keeps raft from noticing when it has lost its majority, and the others elect another one. The worker goes
// there, and does what the first one had claimed for it. Then it is cut off from everybody but the first one, for less
// than its lease or for longer.
func (c *cluster) lateLeader(f plannedFault, rng *rand.Rand) bool {
	i := c.leader()
	if i < 0 {
		return false
	}
	old, w := c.servers[i], c.workers[f.a%len(c.workers)]
	var others []*network.Host
	for _, s := range c.servers {
		if s != old {
			others = append(others, s.host)
		}
	}
	one, it := []*network.Host{old.host}, []*network.Host{w.host}

	arrives := c.speechless(one, it)
	time.Sleep(between(rng, 4*time.Second, 6*time.Second))

	slow := c.fault(checker.FaultDisk, old.id, "", 0)
	works := old.disk.hang()
	time.Sleep(4 * time.Second) // something is to be written, or raft's loop would not hang with it
	hears, speaks := c.speechless(others, one), c.speechless(one, others)
	time.Sleep(c.o.ttl*2/3 + between(rng, 4*time.Second, 6*time.Second))

	back, forth := c.speechless(others, it), c.speechless(it, others)
	c.net.BreakOff(w.host, func(h *network.Host) bool { return h != old.host })
	arrives()
	time.Sleep(pick(rng, c.o.ttl*2/3-c.o.ttl/5-4*time.Second, c.o.ttl*2/3+5*time.Second))

	back()
	forth()
	time.Sleep(2 * time.Second)
	hears()
	speaks()
	works()
	c.over(slow)
	return true
}

// deafLeader lets a leader that raft has left go on with a worker of each kind: its disk hangs, and neither it nor they
// can reach the others.
func (c *cluster) deafLeader(f plannedFault) bool {
	i := c.leader()
	if i < 0 {
		return false
	}
	old := c.servers[i]
	side := []*network.Host{old.host, c.workers[f.a%len(c.workers)].host, c.queueWorkers[f.a%len(c.queueWorkers)].host}
	var others []*network.Host
	for _, s := range c.servers {
		if s != old {
			others = append(others, s.host)
		}
	}
	slow := c.fault(checker.FaultDisk, old.id, "", 0)
	works := old.disk.hang()
	time.Sleep(4 * time.Second)
	hear, speak := c.speechless(others, side), c.speechless(side, others)
	time.Sleep(f.lasts)
	hear()
	speak()
	works()
	c.over(slow)
	return true
}

// cutTransfer cuts a worker off and gives the leadership away a moment later.
func (c *cluster) cutTransfer(f plannedFault, rng *rand.Rand) bool {
	w := c.workers[f.a%len(c.workers)]
	pause := between(rng, 200*time.Millisecond, 800*time.Millisecond) // drawn before the goroutine has the dice
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.isolate(w.host, f.lasts, rng, func(*network.Host) bool { return true })
	}()
	time.Sleep(pause)
	ok := c.transfer(f.b, "")
	<-done
	return ok
}
