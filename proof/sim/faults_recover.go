package sim

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/proof/checker"
)

// recovered: all nodes die, the cluster begins again with one of them, and the others come back as they were. They are
// a majority of the cluster that they know, and must not go on with it. Then they are wiped and join.
func recovered(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers = 15*time.Second, 1
	p.steady(4, 5*time.Second, 0, time.Second, func(s *job.Spec) {
		s.Overlap = pick(rng, job.OverlapAllow, job.OverlapSkip, job.OverlapReplace)
	})
	p.steady(2, 13*time.Second, 5*time.Second, 30*time.Second, func(s *job.Spec) {
		s.Overlap, s.Workers = job.OverlapQueue, map[string]string{"pool": "remote"}
	})
	p.ask(rng, 8, "run", 4, 5*time.Second, 200*time.Second)
	p.faults = append(p.faults, plannedFault{at: between(rng, 60*time.Second, 70*time.Second), kind: "recover",
		lasts: between(rng, 20*time.Second, 60*time.Second), x: rng.Uint64()})
}

// recover begins again with the leader, which has everything that was acknowledged, and brings the others back as they
// were for a while.
func (c *cluster) recover(f plannedFault, rng *rand.Rand) bool {
	i := c.leader()
	for ; i < 0; i = c.leader() { // no other fault is planned
		time.Sleep(time.Second)
	}
	first := c.servers[i]
	var rest []*server
	for _, s := range c.servers {
		if s != first {
			rest = append(rest, s)
		}
	}
	faults := map[*server]*checker.Fault{}
	for _, s := range append(rest, first) { // without the others the leader commits nothing more
		faults[s] = c.fault(checker.FaultKill, s.id, "", 0)
		if !s.kill() {
			c.problem("%s was not there to be killed", s.id)
			return false
		}
	}
	r, err := datadir.Recover(first.dir, map[string]string{first.id: first.host.Addr}, slog.New(slog.DiscardHandler))
	if err != nil {
		c.problem("recover: %v", err)
		return false
	}
	c.event("%s begins again alone at epoch %d", first.id, r.Epoch)
	first.start()
	c.over(faults[first])
	if rng.IntN(2) == 0 { // or they come back while it is not there yet, or not for long
		time.Sleep(between(rng, 0, 10*time.Second))
	} else if !c.leadsAgain(first) {
		return false
	}
	for _, s := range rest {
		s.start()
		c.event("%s is back as it was", s.id)
		time.Sleep(between(rng, 0, 2*time.Second))
	}
	time.Sleep(f.lasts)
	if !c.leadsAgain(first) {
		return false
	}
	split := slices.ContainsFunc(rest, func(s *server) bool { // that is for the checker to say
		l := s.current()
		return l != nil && l.n.Leads()
	})
	for _, s := range rest {
		if l := s.current(); !split && (l == nil || job.CodeOf(l.n.Ready()) != job.CodeStopped) {
			c.problem("%s does not say that the cluster went on without it", s.id)
		}
		if !s.kill() {
			c.problem("%s was not there to be killed", s.id)
			return false
		}
		if err := os.RemoveAll(s.dir); err != nil {
			c.problem("wipe %s: %v", s.id, err)
		}
		s.mu.Lock()
		s.wiped = true
		s.mu.Unlock()
	}
	for _, s := range rest {
		s.start()
		c.over(faults[s])
	}
	if !c.voters() {
		c.problem("the recovered cluster does not come together")
		return false
	}
	return true
}

// leadsAgain waits until a server leads.
func (c *cluster) leadsAgain(s *server) bool {
	for range 300 {
		if l := s.current(); l != nil && l.n.Leads() {
			return true
		}
		time.Sleep(time.Second)
	}
	c.problem("%s does not lead", s.id)
	return false
}
