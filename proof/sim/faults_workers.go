package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/sim/network"
)

// clones: while a worker lives, a second process with its name is started, with a copy of its directory or with none:
// its secret is another one. It comes and goes in quiet times, and it comes to the next leader before the real one
// does. It must not get anything from it.
func clones(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers = 30*time.Second, 2
	remote := func(s *job.Spec) { s.Workers = map[string]string{"pool": "remote"} }
	p.steady(3, 20*time.Second, 10*time.Second, 50*time.Second, remote)
	none := 0
	p.steady(2, 20*time.Second, 10*time.Second, 50*time.Second, func(s *job.Spec) {
		remote(s)
		s.Delivery, s.Retry = job.DeliverAtMostOnce, job.Retry{MaxRetries: &none}
	})
	for i := range 6 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(25+45*i)*time.Second + between(rng, 0, 5*time.Second),
				kind: []string{"same-name", "clone-worker"}[i%2],
				a:    i % p.o.workers, b: rng.IntN(p.o.nodes), lasts: between(rng, 5*time.Second, 15*time.Second),
				x: rng.Uint64()})
	}
}

// double starts a second process of a worker's name on another machine.
func (c *cluster) double(w *workman) *workman {
	c.mu.Lock()
	c.kinds["double"]++
	n := c.kinds["double"]
	c.mu.Unlock()
	d := &workman{c: c, name: w.name, host: c.net.Host(fmt.Sprintf("%s-double-%d", w.name, n)), clock: &clock{t: c.t},
		tags:   w.tags,
		secret: fmt.Sprintf("of double %d of %s", n, w.name)}
	d.start()
	c.event("a second process of %s", w.name)
	return d
}

// cloneWorker lets a second process of a worker's name try for a while.
func (c *cluster) cloneWorker(f plannedFault) bool {
	d := c.double(c.workers[f.a%len(c.workers)])
	time.Sleep(f.lasts)
	return d.end()
}

// sameName lets a second process of a worker's name meet the next leader before the real one, which hears of no leader
// for a moment that is much shorter than its lease.
func (c *cluster) sameName(f plannedFault) bool {
	i := c.leader()
	if i < 0 {
		return false
	}
	w := c.workers[f.a%len(c.workers)]
	d := c.double(w)
	time.Sleep(2 * time.Second)
	var nodes []*network.Host
	for _, s := range c.servers {
		nodes = append(nodes, s.host)
	}
	hears, speaks := c.speechless(nodes, []*network.Host{w.host}), c.speechless([]*network.Host{w.host}, nodes)
	moved := c.transfer(f.b, "")
	time.Sleep(5 * time.Second)
	hears()
	speaks()
	time.Sleep(f.lasts)
	return d.end() && moved
}
