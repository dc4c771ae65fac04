package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/sim/network"
	"github.com/carillon-scheduler/carillon/store"
)

// Clusters that get more groups while they work. What must hold is said of jobs that are made for it: each is asked for
// by one key, again and again and through any node, before the growth and after it. There is one of it at most, always
// the same, and a list of jobs that is asked for after one was acknowledged has it.

// most is how many groups of jobs there are in the end; 0: one group has everything.
func (o *options) most() int { return max(o.groups, o.grow) }

// jobGroups are the groups that have jobs in the end.
func (o *options) jobGroups() (all []uint32) {
	if o.groups == 0 {
		all = append(all, 0)
	}
	for number := range uint32(o.most()) {
		all = append(all, number+1)
	}
	return all
}

// growth has some storms grow.
func (p *plan) growth(rng *rand.Rand) {
	switch {
	case p.o.nodes != 3:
	case p.o.groups == 3 && chance(rng, 0.5):
		p.grows(rng, 8, between(rng, p.o.length/10, p.o.length/2))
	case p.o.groups == 0 && chance(rng, 0.03):
		p.grows(rng, 3, between(rng, p.o.length/10, p.o.length/2))
	default:
		return
	}
	p.makes(rng, 40, 60, 0, p.o.length)
	p.faults = slices.DeleteFunc(p.faults,
		func(f plannedFault) bool { return f.kind == "replace" || f.kind == "demote" })
}

// grows has the cluster have so many groups from a time on.
func (p *plan) grows(rng *rand.Rand, groups int, at time.Duration) {
	p.o.grow = groups
	p.calls = append(p.calls, plannedCall{at: at, kind: "grow", job: groups, node: rng.IntN(p.o.nodes),
		x: rng.Uint64()})
}

// makes adds requests for jobs, each of them several times, and lists.
func (p *plan) makes(rng *rand.Rand, jobs, lists int, from, to time.Duration) {
	for i := range jobs {
		for range 1 + rng.IntN(4) {
			p.calls = append(p.calls, plannedCall{at: between(rng, from, to), kind: "make", job: i,
				node: rng.IntN(p.o.nodes), x: rng.Uint64()})
		}
	}
	for range lists {
		p.calls = append(p.calls, plannedCall{at: between(rng, from, to), kind: "list", node: rng.IntN(p.o.nodes),
			x: rng.Uint64()})
	}
}

// growing is what plans about a growth have in common. The seed says from how many groups to how many.
func (p *plan) growing(rng *rand.Rand, at time.Duration) {
	p.o.groups = []int{3, 0, 3}[p.seed%3]
	p.o.workers, p.o.ttl, p.o.length = 1, 15*time.Second, 4*time.Minute
	p.o.members.Interval = time.Second
	p.steady(6, 20*time.Second, 0, time.Second, func(*job.Spec) {})
	p.renames(rng, 40)
	p.grows(rng, []int{8, 3, 5}[p.seed%3], at)
}

// growStorm: leaders come and go, and answers get lost, from before a growth until long after it.
func growStorm(p *plan, rng *rand.Rand) {
	p.growing(rng, between(rng, 40*time.Second, time.Minute))
	p.makes(rng, 80, 250, 10*time.Second, p.o.length)
	p.every(rng, 5*time.Second, 15*time.Second, func() plannedFault {
		return plannedFault{kind: pick(rng, "kill-leader", "kill-leader", "cut-leader", "cut", "one-way", "reset",
			"link", "freeze-leader", "transfer"), lasts: between(rng, 500*time.Millisecond, 12*time.Second)}
	})
}

// growBehind: a node is away while groups begin to take jobs, and is asked for all jobs as soon as it is back, before
// it has heard of them.
func growBehind(p *plan, rng *rand.Rand) {
	at := between(rng, 30*time.Second, 40*time.Second)
	p.growing(rng, at)
	p.makes(rng, 150, 50, 10*time.Second, p.o.length/2)
	p.faults = append(p.faults, plannedFault{at: at, lasts: between(rng, 8*time.Second, 25*time.Second), kind: "behind",
		a: rng.IntN(p.o.nodes), x: rng.Uint64()})
}

// behind has a node go away when the others are about to be told of new groups, and asks it for all jobs when it is
// back.
func (c *cluster) behind(f plannedFault, rng *rand.Rand) bool {
	select {
	case <-c.listed:
	case <-time.After(c.o.length):
	}
	lead := c.leader()
	if lead < 0 {
		return false
	}
	away := (lead + 1 + f.a%(len(c.servers)-1)) % len(c.servers)
	if s := c.servers[away]; rng.IntN(2) == 0 {
		c.isolate(s.host, f.lasts, rng, func(*network.Host) bool { return true })
	} else if !c.killServer(s, f.lasts) {
		return false
	}
	for range 200 {
		c.listJobs(plannedCall{node: away, x: rng.Uint64()})
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

// noteListed says when a node hears first, and at that moment, that there are new groups.
func (c *cluster) noteListed(st *store.Store) func(*store.Changes) {
	return func(*store.Changes) {
		if c.o.grow > 0 && int(st.Info().Listed) >= c.o.grow {
			c.listedOnce.Do(func() { close(c.listed) })
		}
	}
}

// growBegin: nodes die while they begin the new groups, and the leaders that tell them to.
func growBegin(p *plan, rng *rand.Rand) {
	at := 40 * time.Second
	p.growing(rng, at)
	p.makes(rng, 60, 60, 10*time.Second, p.o.length)
	for d := time.Duration(0); d < 60*time.Second; d += between(rng, 500*time.Millisecond, 6*time.Second) {
		p.faults = append(p.faults, plannedFault{at: at + d, lasts: between(rng, 200*time.Millisecond, 8*time.Second),
			kind: pick(rng, "kill", "kill-leader", "kill-leader", "fail"), a: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
}

// growKeys: requests are cut off before a growth and repeated after it, through nodes that have heard of it and others.
func growKeys(p *plan, rng *rand.Rand) {
	at := 60 * time.Second
	p.growing(rng, at)
	p.makes(rng, 150, 40, at-20*time.Second, at+60*time.Second)
	p.makes(rng, 150, 40, at-20*time.Second, p.o.length) // the same ones
	for d := -20 * time.Second; d < 90*time.Second; d += between(rng, 2*time.Second, 5*time.Second) {
		p.faults = append(p.faults, plannedFault{at: at + d, lasts: between(rng, time.Second, 6*time.Second),
			kind: pick(rng, "reset", "reset", "one-way", "link", "cut", "kill-leader"), a: rng.IntN(p.o.nodes),
			b: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
}

// grow asks for more groups until it is answered. That they are there in the end, settle looks after.
func (c *cluster) grow(pc plannedCall) {
	for try := range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		g, err := c.clients[(pc.node+try)%len(c.clients)].GrowGroups(ctx, pc.job)
		cancel()
		c.event("grow to %d: %+v %v", pc.job, g, err)
		if err == nil {
			c.count("grow")
			return
		}
		time.Sleep(time.Second)
	}
}

// grown says what a cluster that was to grow lacks.
func (c *cluster) grown(ctx context.Context) error {
	if c.o.grow == 0 {
		return nil
	}
	g, err := c.clients[0].GrowGroups(ctx, c.o.grow)
	if err != nil || !g.Done {
		return fmt.Errorf("it has %d of %d groups: %s %w", g.Groups, g.Want, g.Waiting, err)
	}
	return c.groupsUp(c.o.grow)
}

// madeTag is that of jobs which are made for the sake of a growth: which request they are of.
const madeTag = "made"

// madeJob is what was answered to a request for a job.
type madeJob struct {
	id      job.ID
	refused bool // surely
	unknown bool // some answer was not certain
}

// makeSpec is the job of a request. A third of them want a name that others want too, and a third have none.
func makeSpec(i int) job.Spec {
	s := job.Spec{Type: job.TypeHTTP, Payload: json.RawMessage(`{"url":"http://target.example/"}`),
		Schedule: job.ScheduleManual, Tags: map[string]string{madeTag: strconv.Itoa(i)}}
	switch i % 3 {
	case 0:
		s.Name = fmt.Sprint("wanted-", i/3%6)
	case 1:
		s.Name = fmt.Sprint("made-", i)
	}
	return s
}

// makeJob asks for a job by the key that it has for ever.
func (c *cluster) makeJob(pc plannedCall) {
	rng := rand.New(rand.NewPCG(pc.x, 4))
	spec := makeSpec(pc.job)
	note := func(change func(*madeJob)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.made[pc.job] == nil {
			c.made[pc.job] = &madeJob{}
		}
		change(c.made[pc.job])
	}
	for try := range callTries {
		if try > 0 {
			time.Sleep(between(rng, 50*time.Millisecond, 4*time.Second))
		}
		key := fmt.Sprint("make-", pc.job)
		ctx, cancel := context.WithTimeout(client.WithIdempotencyKey(context.Background(), key), callTime)
		j, err := c.clients[(pc.node+try)%len(c.clients)].CreateJob(ctx, spec)
		cancel()
		switch code := job.CodeOf(err); {
		case err == nil:
			was := job.ID(0)
			note(func(m *madeJob) { was, m.id = m.id, j.ID })
			if was != 0 && was != j.ID {
				c.problem("%s was answered with %s, and before with %s", key, j.ID, was)
			}
			return
		case code == job.CodeNoLeader, code == job.CodeNotReady, code == job.CodeUnavailable, code == job.CodeDiskLow:
		case code == job.CodeOutcomeUnknown, code == job.CodeInternal:
			note(func(m *madeJob) { m.unknown = true })
		case code == job.CodeDuplicateName && pc.job%3 == 0:
			was := job.ID(0)
			note(func(m *madeJob) { was, m.refused = m.id, true })
			if was != 0 {
				c.problem("%s was refused, and had made %s: %v", key, was, err)
			}
			return
		default:
			c.problem("%s, for a job called %q: %v", key, spec.Name, err)
			return
		}
	}
	note(func(m *madeJob) { m.unknown = true })
}

// listJobs reads all jobs through a node and looks for those that were acknowledged before.
func (c *cluster) listJobs(pc plannedCall) {
	before := map[job.ID]int{}
	c.mu.Lock()
	for i, m := range c.made {
		if m.id != 0 {
			before[m.id] = i
		}
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	q, found := client.JobQuery{Limit: 50}, map[job.ID]bool{}
	if pc.x%2 == 0 {
		q.Prefix = "made-" // in the order of names
	}
	for {
		p, err := c.clients[pc.node].ListJobs(ctx, q)
		if err != nil {
			c.event("list through %s: %v", c.servers[pc.node].id, err)
			return // it says that it cannot know
		}
		for _, j := range p.Jobs {
			if found[j.ID] {
				c.problem("%s is in a list twice", j.ID)
			}
			found[j.ID] = true
		}
		if q.Cursor = p.NextCursor; q.Cursor == "" {
			break
		}
	}
	c.count("list")
	for id, i := range before {
		if !found[id] && (q.Prefix == "" || strings.HasPrefix(makeSpec(i).Name, q.Prefix)) {
			c.problem("a list of %s lacks %s, which was made before", c.servers[pc.node].id, id)
		}
	}
}

// splitMade takes the jobs that were made for a growth out of all jobs, and says what is wrong with them.
func (c *cluster) splitMade(all []job.Job) (rest []job.Job, problems []string) {
	there := map[int]job.ID{}
	for _, j := range all {
		text, is := j.Tags[madeTag]
		if !is {
			rest = append(rest, j)
			continue
		}
		i, _ := strconv.Atoi(text) //nolint:errcheck // of makeSpec
		if other := there[i]; other != 0 {
			problems = append(problems, fmt.Sprintf("one request made %s and %s", other, j.ID))
		}
		there[i] = j.ID
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, m := range c.made {
		switch id := there[i]; {
		case m.id != 0 && id != m.id:
			problems = append(problems, fmt.Sprintf("request %d was answered with %s, and what is there is %s", i, m.id,
				id))
		case m.id == 0 && id != 0 && !m.unknown:
			problems = append(problems, fmt.Sprintf("request %d was refused and made %s", i, id))
		}
	}
	return rest, problems
}
