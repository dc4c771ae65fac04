package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/store"
)

// Groups have logs, fences, outages and leaders of their own: each is judged by itself, as if it were a cluster. Of all
// of them it is said that names are of one job, and that the replicas of each are the same.

// groupsVariable has all storms with three nodes be of so many groups.
const groupsVariable = "CARILLON_SIM_GROUPS"

// groups has the jobs of some storms be in several groups, of which every node has a replica.
func (p *plan) groups(rng *rand.Rand) {
	n := 0
	switch rng.IntN(20) { // they cost several times as much
	case 0, 1:
		n = 3
	case 2:
		n = 8
	}
	if forced := os.Getenv(groupsVariable); forced != "" {
		n, _ = strconv.Atoi(forced) //nolint:errcheck // none then
	}
	if n == 0 || p.o.nodes != 3 {
		return
	}
	p.o.groups = n
	p.renames(rng, rng.IntN(20))
	p.faults = slices.DeleteFunc(p.faults,
		func(f plannedFault) bool { return f.kind == "replace" || f.kind == "demote" })
}

// renames adds edits that give jobs names which others want, too.
func (p *plan) renames(rng *rand.Rand, n int) {
	p.ask(rng, n, "rename", len(p.jobs), 0, p.o.length)
}

// names: jobs of three groups get each other's names while leaders come and go.
func names(p *plan, rng *rand.Rand) {
	p.o.groups, p.o.workers, p.o.ttl = 3, 1, 15*time.Second
	p.steady(8, 20*time.Second, 0, time.Second, func(*job.Spec) {})
	p.renames(rng, 150)
	for at := 20 * time.Second; at < p.o.length-time.Minute; at += between(rng, 10*time.Second, 30*time.Second) {
		p.faults = append(p.faults, plannedFault{at: at, lasts: between(rng, time.Second, 15*time.Second),
			kind: pick(rng, "kill-leader", "kill-leader", "cut-leader", "pause-leader", "reset", "transfer"),
			a:    rng.IntN(p.o.nodes), b: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
}

// leaderOf is the server that leads a group, -1 if none does.
func (c *cluster) leaderOf(group uint32) int {
	return slices.IndexFunc(c.servers, func(s *server) bool {
		l := s.current()
		return l != nil && !l.gone() && l.n.LeadsGroup(group)
	})
}

// aLeader is the server that leads, or that leads some group.
func (c *cluster) aLeader(x uint64) int {
	if c.o.most() == 0 {
		return c.leader()
	}
	return c.leaderOf(uint32(x % uint64(c.o.most()+1)))
}

// follow keeps what the groups of a process commit. Those that it is given later are looked for.
func (c *cluster) follow(l *life) {
	known := map[uint32]bool{}
	look := func() {
		for number, st := range l.n.States() {
			if !known[number] {
				known[number] = true
				st.Listen(c.noteOutages(number, st))
				if number == 0 {
					st.Listen(c.noteListed(st))
				}
				c.file(number, st, l.done)
			}
		}
	}
	look()
	if c.o.most() == 0 {
		return
	}
	c.bg.Go(func() {
		for {
			select {
			case <-l.done:
				return
			case <-time.After(50 * time.Millisecond):
				look()
			}
		}
	})
}

// far is the way of a worker to the leaders of the groups.
func (w *workman) far(addrs []string, opts ...client.LeaderOption) (g worker.Groups, hangUp func()) {
	if w.c.o.most() == 0 {
		one := client.NewLeader(addrs, opts...)
		return worker.OneGroup(&handedTo{one, w.c.rec, w.name}), one.Close
	}
	g, hangUp = client.FindGroups(addrs, opts...)
	leader := g.Leader
	g.Leader = func(group uint32) worker.Leader { return &handedTo{leader(group), w.c.rec, w.name} }
	return g, hangUp
}

// groupsUp says that every node has a replica of every group, and knows that all of them take jobs.
func (c *cluster) groupsUp(groups int) error {
	for _, s := range c.servers {
		l := s.current()
		if l == nil {
			return fmt.Errorf("%s is down", s.id)
		}
		if n := l.n.State().Info().Groups; groups > 0 && int(n) != groups {
			return fmt.Errorf("%s knows of %d groups", s.id, n)
		}
		if n := len(l.n.States()); groups > 0 && n != groups+1 {
			return fmt.Errorf("%s has replicas of %d groups", s.id, n)
		}
	}
	return nil
}

// counters are those of all groups on a node.
func counters(of map[uint32]*store.Store) map[uint32]store.Counters {
	out := map[uint32]store.Counters{}
	for number, st := range of {
		out[number] = st.Counters()
	}
	return out
}

// numberBits is where the number of its group is in what the API says of a record or dead letter.
const numberBits = 46

func local(seq uint64) uint64 { return seq & (1<<numberBits - 1) }

// apart is what was seen of each group. A call that was not answered may have been meant for any.
func (c *cluster) apart(all checker.Input) (out []checker.Input) {
	for _, group := range c.o.jobGroups() {
		in := all
		in.Group = group
		of := func(id job.ID) bool { return uint32(id.Group()) == group }
		in.Calls = only(all.Calls, func(x checker.Call) bool { return x.Job == 0 || of(x.Job) })
		in.Effects = only(all.Effects, func(x checker.Effect) bool { return of(x.Run.Job) })
		in.Handed = only(all.Handed, func(x checker.Handed) bool { return of(x.Run.Job) })
		in.Reads = only(all.Reads, func(x checker.Read) bool { return of(x.Job) })
		in.Notified = append([]checker.Notified{},
			only(all.Notified, func(x checker.Notified) bool { return of(x.Job) })...)
		f := &in.Final
		f.Jobs = only(all.Final.Jobs, func(x job.Job) bool { return of(x.ID) })
		f.History = only(all.Final.History, func(x job.Run) bool { return of(x.JobID) })
		f.Pending = only(all.Final.Pending, func(x job.Run) bool { return of(x.JobID) })
		f.Open = only(all.Final.Open, func(x job.Run) bool { return of(x.JobID) })
		f.Dead = only(all.Final.Dead, func(x job.DeadLetter) bool { return of(x.JobID) })
		for i := range f.History {
			f.History[i].Seq = local(f.History[i].Seq)
		}
		for i := range f.Dead {
			f.Dead[i].Seq = local(f.Dead[i].Seq)
		}
		for i := range in.Calls {
			x := &in.Calls[i]
			x.Dead = slices.Clone(x.Dead)
			for k := range x.Dead {
				x.Dead[k] = local(x.Dead[k])
			}
		}
		c.whole(group, f)
		c.rec.mu.Lock()
		a := c.rec.archiveOf(group)
		in.Takeovers = slices.Clone(a.leaders)
		in.Outages = slices.SortedFunc(maps.Keys(a.outages),
			func(a, b checker.Outage) int { return int(a.From - b.From) })
		c.rec.mu.Unlock()
		out = append(out, in)
	}
	return out
}

func only[T any](of []T, keep func(T) bool) (out []T) {
	for _, x := range of {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}

// sameNames says which jobs have one name.
func sameNames(jobs []job.Job) (problems []string) {
	by := map[string]job.ID{}
	for _, j := range jobs {
		name := checker.In(j.Namespace, j.Name)
		if other, ok := by[name]; ok && j.Name != "" {
			problems = append(problems, fmt.Sprintf("%s and %s are both called %s", other, j.ID, name))
		}
		by[name] = j.ID
	}
	return problems
}
