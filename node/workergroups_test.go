package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// put creates a job in a group that this node leads.
func (n *testNode) put(number uint32, spec job.Spec) {
	n.t.Helper()
	spec.Normalize()
	if err := spec.Validate(); err != nil {
		n.t.Fatal(err)
	}
	g := n.hostedGroup(number)
	id := job.ID(number)<<job.GroupShift | job.ID(g.store.Counters().NextJob+1)
	sc, err := scheduler.Compile(&spec, id)
	if err != nil {
		n.t.Fatal(err)
	}
	h := g.tracker.Epoch().Head(g.now())
	def := store.Definition{Spec: spec, Version: 1, CreatedAt: h.Now, UpdatedAt: h.Now}
	reply, err := g.tracker.Epoch().Proposer.Propose(&fsm.Create{Head: h, Items: []fsm.CreateItem{{Job: uint64(id),
		Def: def.Append(nil), Next: scheduler.NextAfter(&spec, sc, 0, h.Now)}}}).Wait()
	if err != nil || reply.Items[0].Code != fsm.CodeOK {
		n.t.Fatalf("create in group %d: %v, %+v", number, err, reply)
	}
}

// workersOf counts the sessions with a group's leader, if that is on this node.
func workersOf(g *group) (n int) {
	if g == nil || g.tracker.Epoch() == nil {
		return 0
	}
	for _, w := range g.tracker.Epoch().Scheduler.Workers() {
		if !w.Waiting {
			n++
		}
	}
	return n
}

type runner func(job.Assignment)

func (r runner) Run(_ context.Context, a job.Assignment) job.Result {
	r(a)
	return job.Result{Outcome: job.OutcomeSucceeded}
}

// The worker of a node works for all groups that have jobs, also for those that come while it runs, and not for the
// control group, which has none then.
func TestNodeWorksForItsGroups(t *testing.T) {
	realTime(t)
	t.Parallel()
	const groups = 3
	var mu sync.Mutex
	var ran map[uint8]bool
	dir := t.TempDir()
	set := func(c *Config) {
		c.Groups, c.Executors = groups, []job.Type{job.TypeHTTP}
		c.Machine.Runners = map[job.Type]executor.Runner{job.TypeHTTP: runner(func(a job.Assignment) {
			mu.Lock()
			defer mu.Unlock()
			ran[a.Run.Job.Group()] = true
		})}
	}
	n := start(t, dir, set)
	works := func() {
		t.Helper()
		for number := uint32(1); number <= groups; number++ {
			n.eventually(fmt.Sprint("the worker is with group ", number), func() bool {
				return workersOf(n.hostedGroup(number)) == 1
			})
		}
		n.eventually("it leaves the control group", func() bool { return workersOf(n.group) == 0 })
		mu.Lock()
		ran = map[uint8]bool{}
		mu.Unlock()
		for number := uint32(1); number <= groups; number++ {
			n.put(number, job.Spec{Type: job.TypeHTTP, Schedule: "@every 1s", Payload: []byte(`{"url":"http://x"}`)})
		}
		n.eventually("runs of all groups", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(ran) == groups
		})
	}
	works()
	found, hangUp := client.FindGroups([]string{n.Addr()})
	defer hangUp()
	if list, _ := found.List(t.Context()); !slices.Equal(list, []uint32{1, 2, 3}) {
		t.Errorf("a worker elsewhere finds the groups %v", list)
	}
	n.stop()
	n = start(t, dir, set)
	works()
}

// The workers of all nodes work for all groups, on whichever node their leaders are.
func TestNodesWorkForGroupsLedElsewhere(t *testing.T) {
	realTime(t)
	t.Parallel()
	const groups = 2
	for name, mode := range modes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startJoined(t, 3, mode, func(c *Config) { c.Groups = groups })
			for number := uint32(1); number <= groups; number++ {
				c.members[0].eventually(fmt.Sprint("all workers are with group ", number), func() bool {
					_, g := c.groupLeader(number)
					return workersOf(g) == len(c.members)
				})
			}
			for _, m := range c.members {
				m.eventually("the group can lose a node", func() bool {
					g := m.hostedGroup(2)
					return g != nil && len(votersOf(g)) == len(c.members)
				})
			}
			lost, _ := c.groupLeader(2)
			lost.crash()
			c.living()[0].eventually("the others are with its next leader", func() bool {
				_, g := c.groupLeader(2)
				return workersOf(g) == 2
			})
			lost.kill()
		})
	}
}

// A worker of a queue of a cluster with several groups gets the runs of its queue from the queue's group.
func TestPullOfAGroup(t *testing.T) {
	realTime(t)
	t.Parallel()
	n := start(t, t.TempDir(), func(c *Config) { c.Groups = 3 })
	n.eventually("the groups take jobs", func() bool { return len(n.jobGroups()) == 3 })
	j := n.create(queueSpec("", "schedule", "@every 1s"))
	if j.ID.Group() == 0 {
		t.Fatalf("job %s is in the control group", j.ID)
	}
	session := n.poll(job.Poll{Worker: "p"}).Session
	var runs []job.Assignment
	n.eventually("a run is delivered", func() bool {
		r := n.poll(job.Poll{Session: session, Free: 1})
		session, runs = r.Session, r.Runs
		return len(runs) > 0
	})
	if c, err := job.ParseClaim(runs[0].Claim); err != nil || c.Run.Job != j.ID {
		t.Errorf("claim %s of job %s: %v", runs[0].Claim, j.ID, err)
	}
	if a := n.complete(runs[0]); a.Status != job.StatusOK {
		t.Errorf("%+v", a)
	}
}
