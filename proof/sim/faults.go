package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/sim/network"
)

// fault notes that something is broken from now on.
func (c *cluster) fault(kind checker.FaultKind, node, peer string, amount time.Duration) *checker.Fault {
	f := &checker.Fault{Kind: kind, Node: node, Peer: peer, From: c.t.instant(), Amount: amount}
	c.rec.mu.Lock()
	c.rec.faults = append(c.rec.faults, f)
	c.rec.mu.Unlock()
	c.event("fault: %s of %s %s %s", kind, node, peer, amount)
	return f
}

func (c *cluster) over(f *checker.Fault) {
	now := c.t.instant()
	c.rec.mu.Lock()
	f.To = now
	c.rec.mu.Unlock()
	c.event("over: %s of %s %s", f.Kind, f.Node, f.Peer)
}

func (c *cluster) count(kind string) {
	c.mu.Lock()
	c.kinds[kind]++
	c.mu.Unlock()
}

// inflict breaks something for a while and mends it.
func (c *cluster) inflict(f plannedFault) {
	rng := rand.New(rand.NewPCG(f.x, 3))
	s := c.servers[f.a%len(c.servers)]
	other := c.servers[(f.a+1+f.b%(len(c.servers)-1))%len(c.servers)]
	kind := f.kind
	switch kind {
	case "kill-leader", "cut-leader", "pause-leader", "clock-leader", "freeze-leader":
		if i := c.aLeader(f.x); i >= 0 {
			s = c.servers[i]
		}
		kind = kind[:len(kind)-len("-leader")]
	case "kill-worker", "cut-worker", "stop-worker", "pause-worker":
		if len(c.workers) == 0 {
			return
		}
		c.inflictWorker(c.workers[f.a%len(c.workers)], kind[:len(kind)-len("-worker")], f, rng)
		return
	case "kill-queue-worker", "cut-queue-worker", "stop-queue-worker", "pause-queue-worker", "deaf-queue-worker",
		"mute-queue-worker", "lag-queue-worker":
		c.inflictQueueWorker(c.queueWorkers[f.a%len(c.queueWorkers)], kind[:len(kind)-len("-queue-worker")], f, rng)
		return
	}
	done := true
	switch kind {
	case "kill":
		done = c.killServer(s, f.lasts)
	case "stop":
		done = c.stopServer(s, f.lasts)
	case "roll":
		for _, s := range c.servers {
			c.stopServer(s, time.Second)
			time.Sleep(min(f.lasts, 20*time.Second))
		}
	case "cut":
		c.isolate(s.host, f.lasts, rng, func(h *network.Host) bool { return h.Name != "client" || rng.IntN(2) == 0 })
	case "cut-half":
		side := map[string]bool{s.id: true, other.id: true}
		for _, w := range c.workers {
			side[w.name] = rng.IntN(2) == 0
		}
		for _, p := range c.queueWorkers {
			side[p.name] = rng.IntN(2) == 0
		}
		c.split(side, f.lasts, rng)
	case "one-way":
		x := c.fault(checker.FaultCut, s.id, other.id, 0)
		c.net.Cut(s.id, other.id)
		time.Sleep(f.lasts)
		c.net.Heal(s.id, other.id)
		c.over(x)
	case "link":
		d := between(rng, 20*time.Millisecond, 3*time.Second)
		var xs []*checker.Fault
		for _, o := range c.servers {
			if o != s {
				xs = append(xs, c.fault(checker.FaultLink, s.id, o.id, d))
				c.net.Delay(s.id, o.id, d)
			}
		}
		time.Sleep(f.lasts)
		for i, o := range c.servers {
			if o != s {
				c.net.Delay(s.id, o.id, 0)
			}
			if i < len(xs) {
				c.over(xs[i])
			}
		}
	case "reset":
		x := c.fault(checker.FaultLink, s.id, "", 0)
		for range 5 {
			c.net.BreakOff(s.host, func(*network.Host) bool { return rng.IntN(2) == 0 })
			time.Sleep(min(f.lasts/5, 5*time.Second))
		}
		c.over(x)
	case "pause", "freeze":
		done = c.stands(s, f.lasts, kind == "freeze")
	case "clock":
		d := pick(rng, 400*time.Millisecond, -400*time.Millisecond, 3*time.Second, -3*time.Second, -2*time.Minute,
			2*time.Minute, 26*time.Hour, -26*time.Hour)
		for _, o := range c.servers {
			if o != s && o.clock.is(d) {
				return // two clocks that are wrong alike would be right
			}
		}
		if !c.upset(s, func(k *clock) { k.set(d) }) {
			return
		}
		x := c.fault(checker.FaultClock, s.id, "", d)
		time.Sleep(f.lasts)
		s.clock.set(0)
		c.over(x)
	case "slow":
		d := between(rng, 10*time.Millisecond, 4*time.Second)
		x := c.fault(checker.FaultDisk, s.id, "", d)
		s.disk.set(d, 0)
		time.Sleep(f.lasts)
		s.disk.set(0, 0)
		c.over(x)
	case "fail":
		c.event("the disk of %s fails soon", s.id)
		s.disk.set(0, 1+rng.IntN(20))
		time.Sleep(f.lasts)
		s.disk.set(0, 0)
	case "recover":
		done = c.recover(f, rng)
	case "put-back":
		done = c.putBack(f, rng)
	case "restore":
		done = c.restore(f, rng)
	case "cut-transfer":
		done = c.cutTransfer(f, rng)
	case "replace":
		done = c.replace(s, f.b, f.lasts)
	case "demote":
		done = c.demote(s, f.b, f.lasts)
	case "transfer":
		done = c.transfer(f.b, "")
	case "swing": // away and back again, before anything that the first leadership knew has run out
		if i := c.leader(); i >= 0 {
			home := c.servers[i]
			for range 1 + rng.IntN(3) {
				c.transfer(f.b, "")
				time.Sleep(between(rng, 100*time.Millisecond, 3*time.Second))
				c.transfer(f.b, home.id)
				time.Sleep(between(rng, 100*time.Millisecond, 10*time.Second))
			}
		}
	case "step-clock", "step-leader", "nudge-leader":
		done = c.stepClock(f, rng)
	case "drift":
		done = c.driftFor(s, f.lasts, rng)
	case "fill":
		s.disk.fill(true)
		time.Sleep(f.lasts)
		s.disk.fill(false)
	case "jumpy-leader":
		done = c.jumpyLeader(f)
	case "drift-leader":
		done = c.driftLeader(f, rng)
	case "transfer-wrong":
		done = c.transferWrong(f)
	case "transfer-hung":
		done = c.transferHung(f, rng)
	case "low-disk":
		done = c.lowDisk(f)
	case "deaf-leader":
		done = c.deafLeader(f)
	case "late-leader":
		done = c.lateLeader(f, rng)
	case "behind":
		done = c.behind(f, rng)
	case "cut-one":
		done = c.cutOne(f)
	case "clone-worker":
		done = c.cloneWorker(f)
	case "same-name":
		done = c.sameName(f)
	}
	if done {
		c.count(f.kind)
	}
}

// transfer gives the leadership to a node, or to any.
func (c *cluster) transfer(by int, to string) bool {
	i := c.leader()
	if i < 0 || c.servers[i].id == to {
		return false
	}
	x := c.fault(checker.FaultLeader, c.servers[i].id, "", 0)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	err := c.clients[by].TransferLeadership(ctx, to)
	cancel()
	c.event("transfer to %q: %v", to, err)
	c.over(x)
	return true
}

func (c *cluster) killServer(s *server, lasts time.Duration) bool {
	x := c.fault(checker.FaultKill, s.id, "", 0)
	ok := s.kill()
	if ok {
		time.Sleep(lasts)
		s.start()
	}
	c.over(x)
	return ok
}

func (c *cluster) stopServer(s *server, lasts time.Duration) bool {
	x := c.fault(checker.FaultStop, s.id, "", 0)
	ok := s.stop()
	if ok {
		time.Sleep(lasts)
		s.start()
	}
	c.over(x)
	return ok
}

// isolate cuts a host off from others, both ways.
func (c *cluster) isolate(h *network.Host, lasts time.Duration, rng *rand.Rand, from func(*network.Host) bool) {
	side := map[string]bool{h.Name: true}
	for _, o := range c.hosts() {
		if o != h && !from(o) {
			side[o.Name] = true
		}
	}
	c.split(side, lasts, rng)
}

func (c *cluster) hosts() []*network.Host {
	var out []*network.Host
	for _, s := range c.servers {
		out = append(out, s.host)
	}
	for _, w := range c.workers {
		out = append(out, w.host)
	}
	for _, p := range c.queueWorkers {
		out = append(out, p.host)
	}
	return out
}

// split lets nothing pass between one side and the rest. Connections that were cut break off at the end, or go on.
func (c *cluster) split(side map[string]bool, lasts time.Duration, rng *rand.Rand) {
	var xs []*checker.Fault
	var pairs [][2]*network.Host
	hosts := c.hosts()
	for _, a := range hosts {
		for _, b := range hosts {
			if side[a.Name] && !side[b.Name] {
				pairs = append(pairs, [2]*network.Host{a, b})
				xs = append(xs, c.fault(checker.FaultCut, a.Name, b.Name, 0))
				c.net.Cut(a.Name, b.Name)
				c.net.Cut(b.Name, a.Name)
			}
		}
	}
	time.Sleep(lasts)
	reset := rng.IntN(2) == 0
	for i, p := range pairs {
		c.net.Heal(p[0].Name, p[1].Name)
		c.net.Heal(p[1].Name, p[0].Name)
		if reset {
			c.net.BreakOff(p[0], func(h *network.Host) bool { return h == p[1] })
		}
		c.over(xs[i])
	}
}

// machine is one with a worker on it, of either kind.
type machine interface {
	start()
	kill() bool
	end() bool
	where() (name string, h *network.Host, p *process)
}

func (c *cluster) inflictWorker(w machine, kind string, f plannedFault, rng *rand.Rand) {
	name, h, p := w.where()
	switch kind {
	case "kill":
		x := c.fault(checker.FaultKill, name, "", 0)
		if w.kill() {
			time.Sleep(f.lasts)
			w.start()
		}
		c.over(x)
	case "stop":
		x := c.fault(checker.FaultStop, name, "", 0)
		if w.end() {
			time.Sleep(f.lasts)
			w.start()
		}
		c.over(x)
	case "cut":
		c.isolate(h, f.lasts, rng, func(*network.Host) bool { return true })
	case "pause":
		x := c.fault(checker.FaultPause, name, "", 0)
		p.freeze()
		c.net.Pause(h, true)
		time.Sleep(f.lasts)
		c.net.Pause(h, false)
		p.thaw()
		c.over(x)
	}
	c.count(f.kind)
}
