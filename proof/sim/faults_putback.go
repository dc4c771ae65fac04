package sim

import (
	"context"
	"math/rand/v2"
	"os"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/proof/checker"
)

// putBack: the data directory of a node is put back from an older copy, and with a node that was away it is a majority
// that forgot what was acknowledged. The node that has it must not go on beside them. Nothing is due meanwhile: what
// the cluster forgets is a job that is never shown to the checker.
func putBack(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers = 15*time.Second, 1
	for range 6 {
		for _, at := range []time.Duration{between(rng, 10*time.Second, 30*time.Second),
			between(rng, 270*time.Second, 290*time.Second)} {
			once := p.from(at).UTC().Truncate(time.Second).Format(time.RFC3339)
			p.steady(1, time.Second, 0, time.Second, func(s *job.Spec) { s.Schedule = once })
		}
	}
	p.faults = append(p.faults, plannedFault{at: between(rng, 60*time.Second, 70*time.Second), kind: "put-back",
		lasts: between(rng, 0, 20*time.Second), x: rng.Uint64()})
}

// putBack has a majority forget an entry, and brings the node back that has it.
func (c *cluster) putBack(f plannedFault, rng *rand.Rand) bool {
	i := c.leader()
	for ; i < 0; i = c.leader() { // no other fault is planned
		time.Sleep(time.Second)
	}
	keeper := c.servers[i]
	rest := c.besides(keeper)
	rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	old, away := rest[0], rest[1]
	down := map[*server]*checker.Fault{}
	kill := func(s *server) bool {
		down[s] = c.fault(checker.FaultKill, s.id, "", 0)
		if !s.kill() {
			c.problem("%s was not there to be killed", s.id)
			return false
		}
		return true
	}
	start := func(s *server) {
		s.start()
		c.over(down[s])
	}
	copied := old.dir + ".copy"
	if !kill(old) {
		return false
	}
	if err := os.CopyFS(copied, os.DirFS(old.dir)); err != nil {
		c.problem("copy %s: %v", old.id, err)
		return false
	}
	start(old)
	if !c.indexed(old, keeper.state(0).Counters().Index) || !kill(away) || !c.forgottenJob() {
		return false
	}
	time.Sleep(f.lasts)
	last := uint64(0)
	for _, s := range []*server{keeper, old} {
		if st := s.state(0); st != nil {
			last = max(last, st.Counters().Index)
		}
	}
	if !kill(keeper) || !kill(old) {
		return false
	}
	if err := os.RemoveAll(old.dir); err != nil {
		c.problem("wipe %s: %v", old.id, err)
	}
	if err := os.Rename(copied, old.dir); err != nil {
		c.problem("put %s back: %v", old.id, err)
		return false
	}
	c.event("the directory of %s is put back; %s has up to entry %d", old.id, keeper.id, last)
	start(old)
	start(away)
	if !c.indexed(old, last+1) || !c.indexed(away, last+1) {
		return false
	}
	start(keeper)
	c.observe(2 * time.Minute)
	if l := keeper.current(); l == nil || job.CodeOf(l.n.Ready()) != job.CodeStopped &&
		l.n.State().Counters().Index <= last { // if it follows, that is for the checker to say
		c.problem("%s does not say that it takes no part", keeper.id)
	}

	x := c.fault(checker.FaultKill, keeper.id, "", 0)
	defer c.over(x)
	if !c.member(f.b, func(ctx context.Context, i int) error { return c.clients[i].RemoveNode(ctx, keeper.id) }) {
		c.problem("%s is not removed", keeper.id)
		return false
	}
	if !keeper.kill() {
		c.problem("%s was not there to be killed", keeper.id)
		return false
	}
	if err := os.RemoveAll(keeper.dir); err != nil {
		c.problem("wipe %s: %v", keeper.id, err)
	}
	keeper.mu.Lock()
	keeper.wiped = true
	keeper.mu.Unlock()
	keeper.start()
	if !c.voters() {
		c.problem("the cluster does not come together")
		return false
	}
	return true
}

// besides are the servers but one.
func (c *cluster) besides(not *server) (rest []*server) {
	for _, s := range c.servers {
		if s != not {
			rest = append(rest, s)
		}
	}
	return rest
}

// indexed waits until a server has applied an entry.
func (c *cluster) indexed(s *server, index uint64) bool {
	for range 600 {
		if st := s.state(0); st != nil && st.Counters().Index >= index {
			return true
		}
		time.Sleep(time.Second)
	}
	c.problem("%s does not get to entry %d", s.id, index)
	return false
}

// forgottenJob creates a job that is going to be forgotten.
func (c *cluster) forgottenJob() bool {
	spec := job.Spec{Name: "forgotten", Type: job.TypeQueue, Schedule: job.ScheduleManual,
		Payload: []byte(`{"queue":"none"}`)}
	for range 120 {
		if i := c.leader(); i >= 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			_, err := c.clients[i].CreateJob(ctx, spec)
			cancel()
			if err == nil || job.CodeOf(err) == job.CodeDuplicateName {
				return true
			}
		}
		time.Sleep(time.Second)
	}
	c.problem("no job can be created")
	return false
}

// observe writes down for a while how far each replica is, which state it has and whether it takes part.
func (c *cluster) observe(lasts time.Duration) {
	for until := time.Now().Add(lasts); time.Now().Before(until); time.Sleep(500 * time.Millisecond) {
		for _, s := range c.servers {
			if l := s.current(); l != nil && !l.gone() {
				c.observed(s.id, l.n)
			}
		}
	}
}

func (c *cluster) observed(id string, n *node.Node) {
	st := n.State()
	index := st.Counters().Index
	d, err := st.Digest()
	if err != nil || st.Counters().Index != index {
		return // it moves on
	}
	r := checker.Replica{Node: id, At: c.t.instant(), Index: index, Digest: d,
		Stopped: job.CodeOf(n.Ready()) == job.CodeStopped}
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	if k := len(c.rec.states); k == 0 || c.rec.states[k-1] != r {
		c.rec.states = append(c.rec.states, r)
	}
}
