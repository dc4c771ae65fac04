package fsm

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// groups are the state machines of a cluster's groups, from 1 on, with jobs that live away from the homes of their names.
type groups struct {
	*testing.T
	*gen
	worlds []*world
	ops    []*op       // under way; each may be left where it is for ever
	late   []func()    // commands that were sent twice, and whose second copy has not come yet
	calm   bool        // nothing comes late any more
	asked  [][2]string // requests for jobs, with their names
	reqs   int
}

// move is a step of something that a coordinator does: one command in one group. It returns the next one.
type move func() move

type op struct{ next move }

const testHomes = 2 // of three groups: a cluster that grew

func newGroups(t *testing.T, seed uint64) *groups {
	g := &groups{T: t}
	for n := range uint32(3) {
		w := newWorldAt(t, filepath.Join(t.TempDir(), fmt.Sprintf("group-%d.db", n+1)))
		w.want(CodeOK, &Init{ClusterID: "c", Group: n + 1, GroupID: fmt.Sprint("g", n+1), Homes: testHomes, Groups: 3})
		g.worlds = append(g.worlds, w)
	}
	g.gen = newGen(g.worlds[0], seed)
	return g
}

func (g *groups) group(n uint32) *world { return g.worlds[n-1] }

func (g *groups) home(n job.NameRef) uint32 {
	return job.HomeOf(n.Kind, n.Namespace, n.Name, testHomes)
}

// begin has something done, sometimes only a part of it.
func (g *groups) begin(first move) { g.ops = append(g.ops, &op{first}) }

// send does a command: at once, once more later, or only later, when its sender has given up.
func (g *groups) send(do func() Outcome) Outcome {
	if !g.calm && g.chance(40) {
		g.late = append(g.late, func() { do() })
		if g.chance(50) {
			return Outcome{}
		}
	}
	return do()
}

// create makes a job in a group under a request, as far as it gets. A job without a name is known by its request.
func (g *groups) create(req, name string, place uint32) {
	ref := job.NameRef{Kind: job.NameJob, Namespace: job.DefaultNamespace, Name: name}
	if name == "" {
		ref = job.NameRef{Kind: job.NameRequest, Namespace: job.DefaultNamespace, Name: req}
	}
	request := Request{ID: req, Fingerprint: 7, Expires: T(1 << 20)}
	if name != "" && g.chance(50) {
		request = Request{} // its outcome is forgotten, and what comes late is not known by it
	}
	spec := testSpec(func(s *job.Spec) {
		if s.Name = name; name == "" {
			s.Tags = map[string]string{"request": req}
		}
		if g.chance(30) {
			s.Schedule, s.Retention = "2030-01-01T00:00:00Z", job.Duration(1e9)
		}
	})
	create := func(in, home uint32, number uint64) Outcome {
		return g.send(func() Outcome {
			w := g.group(in)
			it := CreateItem{Job: w.st.Counters().NextJob + 1, Def: w.def(spec, 1), Request: request, Home: home, Reservation: number}
			if !spec.OneOff() {
				it.Next = When{T(1 << 20), T(1 << 20)}
			}
			return w.one(&Create{Items: []CreateItem{it}})
		})
	}
	g.reserved(ref, req, place, func(in uint32, number uint64) Outcome { return create(in, g.home(ref), number) },
		func() Outcome { return create(place, 0, 0) })
}

// rename gives a job another name.
func (g *groups) rename(in uint32, id job.ID, name string) {
	g.reqs++
	update := func(number uint64) Outcome {
		w := g.group(in)
		if _, ok := w.look().defs[id]; !ok {
			return Outcome{Code: CodeNotFound}
		}
		u := w.updateOf(id, 0, func(s *job.Spec) { s.Name = name })
		if p := w.look().places[id]; !p.Parked {
			u.Next = When{p.At, p.Ready}
		}
		if number != 0 {
			u.Home, u.Reservation = g.home(job.NameRef{Kind: job.NameJob, Name: name}), number
		}
		return w.one(u)
	}
	if name == "" {
		g.begin(func() move { update(0); return nil })
		return
	}
	g.reserved(job.NameRef{Kind: job.NameJob, Name: name}, fmt.Sprint("m", g.reqs), in,
		func(_ uint32, number uint64) Outcome { return g.send(func() Outcome { return update(number) }) },
		func() Outcome { return update(0) })
}

// reserved does something away from a name's home under a reservation, and something at home without one.
func (g *groups) reserved(ref job.NameRef, req string, place uint32, away func(in uint32, number uint64) Outcome, at func() Outcome) {
	home := g.home(ref)
	if place == home {
		g.begin(func() move { at(); return nil })
		return
	}
	g.begin(func() move {
		o := g.group(home).one(&Reserve{Items: []ReserveItem{{ref, req, 7, place}}})
		if o.Code != CodeOK || o.Job != 0 {
			if o.Code != CodeExists && o.Code != CodePending && o.Code != CodeOK {
				g.Fatalf("%+v was answered with %+v", ref, o)
			}
			return nil
		}
		return func() move {
			made := away(o.Group, o.Version)
			if made.Replay { // it is about an earlier reservation: its job may be gone
				return g.ask(home, o.Group, NameItem{Name: ref, Number: o.Version})
			}
			if made.Code != CodeOK {
				return nil
			}
			return func() move {
				g.group(home).one(&ConfirmNames{Items: []NameItem{{ref, o.Version, uint64(made.Job)}}})
				return nil
			}
		}
	})
}

// settle cleans up one of the reservations that are pending.
func (g *groups) settle(home uint32) {
	var all []store.Reservation
	g.view(home, func(v *store.View) error {
		return v.EachPending(func(r store.Reservation) bool { all = append(all, r); return true })
	})
	if len(all) == 0 {
		return
	}
	r := pick(g.gen, all)
	g.begin(g.ask(home, r.Group, NameItem{Name: r.NameRef, Number: r.Number}))
}

// ask has a group say what became of a reservation, and then its home know.
func (g *groups) ask(home, group uint32, it NameItem) move {
	below := g.below(home, group)
	return func() move {
		o := g.group(group).one(&AbortNames{Home: home, Below: below, Items: []NameItem{it}})
		return func() move {
			if o.Code == CodeExists {
				it.Job = uint64(o.Job)
				g.group(home).one(&ConfirmNames{Items: []NameItem{it}})
			} else {
				g.group(home).one(&ReleaseNames{Items: []NameItem{it}})
			}
			return nil
		}
	}
}

// pay releases a name that a job of a group no longer has.
func (g *groups) pay(in uint32) {
	var all []store.Held
	g.view(in, func(v *store.View) error {
		return v.EachOwed(func(h store.Held) bool { all = append(all, h); return true })
	})
	if len(all) == 0 {
		return
	}
	h := pick(g.gen, all)
	it := []NameItem{{Name: h.NameRef, Number: h.Number}}
	g.begin(func() move {
		g.group(h.Home).one(&ReleaseNames{Items: it})
		return func() move {
			below := g.below(h.Home, in)
			return func() move {
				g.group(in).one(&PaidNames{Home: h.Home, Below: below, Items: it})
				return nil
			}
		}
	})
}

func (g *groups) below(home, group uint32) (n uint64) {
	g.view(home, func(v *store.View) (err error) {
		n, err = v.SettledBelow(group)
		return err
	})
	return n
}

func (g *groups) view(in uint32, fn func(*store.View) error) {
	if err := g.group(in).st.View(fn); err != nil {
		g.Fatal(err)
	}
}

// where is a job and its group.
type where struct {
	in uint32
	id job.ID
}

// jobs are all jobs by what only one may have. Two of one name are what must never be.
func (g *groups) jobs() map[string]where {
	all := map[string]where{}
	for i, w := range g.worlds {
		for id, d := range w.look().defs {
			for _, k := range []string{"name " + d.Spec.Name, "request " + d.Spec.Tags["request"]} {
				if strings.HasSuffix(k, " ") {
					continue
				}
				if other, twice := all[k]; twice {
					g.Fatalf("%q is %s in group %d and %s in group %d", k, id, i+1, other.id, other.in)
				}
				all[k] = where{uint32(i + 1), id}
			}
			if uint32(id.Group()) != uint32(i+1) {
				g.Fatalf("%s is in group %d", id, i+1)
			}
		}
	}
	return all
}

func (g *groups) someJob() (where, bool) {
	var all []where
	for i, w := range g.worlds {
		for _, id := range w.look().jobs {
			all = append(all, where{uint32(i + 1), id})
		}
	}
	return pick(g.gen, all), len(all) > 0
}

// act is one thing that happens.
func (g *groups) act() {
	for _, w := range g.worlds {
		w.now += 500
	}
	place := uint32(1 + g.n(3))
	switch n := g.n(100); {
	case n < 35:
		g.reqs++
		g.asked = append(g.asked, [2]string{fmt.Sprint("r", g.reqs), g.name()})
		g.create(g.asked[len(g.asked)-1][0], g.asked[len(g.asked)-1][1], place)
	case n < 45 && len(g.asked) > 0: // a client asks again
		again := pick(g.gen, g.asked)
		g.create(again[0], again[1], place)
	case n < 55:
		if j, ok := g.someJob(); ok {
			g.rename(j.in, j.id, g.name())
		}
	case n < 65:
		if j, ok := g.someJob(); ok {
			g.group(j.in).want(CodeOK, &Delete{Job: uint64(j.id)})
		}
	case n < 70:
		g.cleanUp()
	case n < 80:
		g.settle(uint32(1 + g.n(testHomes)))
	case n < 90:
		g.pay(place)
	case len(g.late) > 0:
		i := g.n(len(g.late))
		g.late[i]()
		g.late = append(g.late[:i], g.late[i+1:]...)
	}
	for n := 0; n < 3 && len(g.ops) > 0; n++ {
		i := g.n(len(g.ops))
		g.ops[i].next = g.ops[i].next()
		if g.ops[i].next == nil || g.chance(15) { // it is done, or its coordinator crashed
			g.ops = append(g.ops[:i], g.ops[i+1:]...)
		}
	}
}

func (g *groups) name() string {
	if g.chance(25) {
		return ""
	}
	return fmt.Sprint("n", g.n(4))
}

// cleanUp removes one-offs whose retention is over.
func (g *groups) cleanUp() {
	for _, w := range g.worlds {
		for _, e := range w.look().due {
			if e.Kind == store.KindCleanup && e.Ready <= w.now {
				w.one(&Cleanup{Lane: []byte{byte(e.Lane)}, Ready: []int64{e.Ready}, Jobs: []uint64{uint64(e.Job)}, Later: w.now + 1000})
			}
		}
	}
}

// finish does what is under way and settles what is left.
func (g *groups) finish() {
	for range 1000 {
		for _, o := range g.ops {
			for next := o.next; next != nil; {
				next = next()
			}
		}
		g.ops = nil
		for n := range uint32(3) {
			if n < testHomes {
				g.settle(n + 1)
			}
			g.pay(n + 1)
		}
		if len(g.ops) == 0 {
			return
		}
	}
	g.Fatal("what is pending or owed does not get less")
}

// sound holds the homes against the jobs, when nothing is under way.
func (g *groups) sound() {
	jobs := g.jobs()
	reserved := map[job.NameRef]store.Reservation{}
	for home := range uint32(testHomes) {
		g.view(home+1, func(v *store.View) error {
			return v.EachReservation(func(r store.Reservation) bool {
				d, there := g.group(r.Group).look().defs[r.Job]
				if r.Kind == job.NameRequest && !there { // a repetition is to find what became of the request
					g.view(r.Group, func(v *store.View) error {
						there = v.Request(r.Name) != nil
						return nil
					})
				}
				if !there || r.Kind == job.NameJob && d.Spec.Name != r.Name {
					g.Fatalf("%+v is left, and its job has another name or is gone: %+v", r, d.Spec.Name)
				}
				reserved[r.NameRef] = r
				return true
			})
		})
	}
	for key, j := range jobs {
		name, ok := key[len("name "):], key[0] == 'n'
		if !ok {
			continue
		}
		ref := job.NameRef{Kind: job.NameJob, Namespace: job.DefaultNamespace, Name: name}
		if r, ok := reserved[ref]; ok == (g.home(ref) == j.in) || ok && r.Job != j.id {
			g.Fatalf("%q is %s in group %d, and its home %d says %+v", name, j.id, j.in, g.home(ref), r)
		}
	}
}

// Away from home a name needs a reservation. The key of a request needs one only if its proposer says so.
func TestNamesWithoutReservation(t *testing.T) {
	g := newGroups(t, 1)
	for _, name := range []string{"a", ""} {
		for i := range 8 {
			w, req, want := g.group(3), fmt.Sprint("r", i), CodeOK
			spec := testSpec(func(s *job.Spec) { s.Name = name })
			if name != "" {
				want = CodeAborted
			}
			w.want(want, &Create{Items: []CreateItem{{Job: w.st.Counters().NextJob + 1, Def: w.def(spec, 1),
				Next: When{T(1), T(1)}, Request: Request{ID: req, Expires: T(9)}}}})
		}
	}
}

// Whatever is cut off, repeated or late: a name has one job, and is free again when that is gone.
func TestNamesOverGroups(t *testing.T) {
	seeds, steps := uint64(30), 300
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := newGroups(t, seed)
			for range steps {
				g.act()
				g.jobs()
			}
			g.calm = true
			g.finish()
			g.sound()
			for _, again := range g.late {
				again()
				g.jobs()
			}
			g.late = nil
			g.finish()
			g.sound()
			for _, w := range g.worlds {
				for _, id := range w.look().jobs {
					w.want(CodeOK, &Delete{Job: uint64(id)})
				}
			}
			g.finish()
			g.sound()
			for n := range 4 {
				g.create(fmt.Sprint("again", n), fmt.Sprint("n", n), uint32(1+g.n(3)))
			}
			g.finish()
			g.sound()
			if n := len(g.jobs()); n != 4 {
				t.Errorf("%d of 4 names could be taken again", n)
			}
		})
	}
}
