package names

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// model is a cluster with what its clients ask for.
type model struct {
	*cluster
	asked [][2]string // requests for jobs, with their names
	reqs  int
}

// want asks for a name, and does something under what is granted. It may be cut off at each step.
func (m *model) want(in *member, n job.NameRef, req string, do func(in *member, g Grant) fsm.Outcome) {
	g := in.keep.Reserve(context.Background(), []Want{{Name: n, Request: req, Fingerprint: 7}})[0]
	if !m.calm && m.chance(10) {
		return
	}
	var known *job.Error
	if errors.As(g.Err, &known) {
		if other, ok := known.InOther(); ok && in.group != other { // as the router does
			m.want(m.of(other), n, req, do)
		}
		return
	}
	if !m.calm && m.chance(15) { // the command gets into the log when its leader has given up
		m.late = append(m.late, func() { do(in, g) })
		if m.chance(50) {
			return
		}
	}
	o := do(in, g)
	if m.calm || !m.chance(10) {
		in.keep.Decided(n, g, o)
	}
}

func (m *model) create(in *member, req, name string) {
	n := named(name)
	if name == "" {
		n = keyed(req)
	}
	m.want(in, n, req, func(in *member, g Grant) fsm.Outcome { return in.create(req, name, g) })
}

func (m *model) name() string {
	if m.chance(25) {
		return ""
	}
	return fmt.Sprint("n", m.rng.IntN(4))
}

// someJob is a job of a group; 0: it has none.
func (m *model) someJob(in *member) job.ID {
	all := slices.Sorted(maps.Keys(in.jobs()))
	if len(all) == 0 {
		return 0
	}
	return all[m.rng.IntN(len(all))]
}

// act is one thing that happens.
func (m *model) act() {
	m.pass(time.Second)
	in := m.some()
	switch n := m.rng.IntN(100); {
	case n < 30:
		m.reqs++
		m.asked = append(m.asked, [2]string{fmt.Sprint("r", m.reqs), m.name()})
		m.create(in, m.asked[len(m.asked)-1][0], m.asked[len(m.asked)-1][1])
	case n < 40 && len(m.asked) > 0: // a client asks again, where jobs are put by now
		again := m.asked[m.rng.IntN(len(m.asked))]
		m.create(in, again[0], again[1])
	case n < 50:
		if id, name := m.someJob(in), m.name(); id != 0 {
			m.reqs++
			m.want(in, named(name), fmt.Sprint("m", m.reqs),
				func(_ *member, g Grant) fsm.Outcome { return in.rename(id, name, g) })
		}
	case n < 60:
		if id := m.someJob(in); id != 0 {
			in.remove(id)
		}
	case n < 65: // another leader takes over
		in.keep.begin()
	case n < 70:
		m.pass(pendingFor / 2)
	case n < 90:
		m.look(in)
	case len(m.late) > 0:
		i := m.rng.IntN(len(m.late))
		do := m.late[i]
		m.late = slices.Delete(m.late, i, i+1)
		do()
	}
}

// look is one round of a group's background part, when no group is left alone any more.
func (m *model) look(in *member) {
	clear(in.keep.resting)
	in.keep.look(context.Background(), leadership{in, 1})
}

// finish has the background parts do what there is to do.
func (m *model) finish() {
	for range 20 {
		m.pass(2 * pendingFor)
		for _, in := range m.by {
			m.look(in)
		}
		if m.left() == 0 {
			return
		}
	}
	m.Fatal("what is pending or owed does not get less")
}

// Whatever is lost, repeated, late or cut off: a name has one job, a request makes one, and when the background parts
// have run nothing is pending, nothing is owed, and names of jobs that are gone are free.
func TestNamesAreUniqueOverGroups(t *testing.T) {
	seeds, steps := uint64(20), 250
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &model{cluster: newCluster(t, seed)}
			m.call = m.faulty
			for range steps {
				m.act()
				m.unique()
			}
			m.calm = true
			m.finish()
			m.sound()
			for len(m.late) > 0 {
				do := m.late[0]
				m.late = m.late[1:]
				do()
				m.unique()
			}
			m.finish()
			m.sound()
			for _, in := range m.by {
				for id := range in.jobs() {
					in.remove(id)
				}
			}
			m.finish()
			m.sound()
			for n := range 4 {
				m.create(m.some(), fmt.Sprint("again", n), fmt.Sprint("n", n))
			}
			m.finish()
			m.sound()
			all := 0
			for _, in := range m.by {
				all += len(in.jobs())
			}
			if all != 4 {
				t.Errorf("%d of 4 names could be taken again", all)
			}
		})
	}
}

// Many ask for the same names at the same time in all groups, while the background parts run.
func TestNamesAreUniqueUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var running, asking sync.WaitGroup
		for _, m := range c.by {
			running.Go(func() { m.keep.run(ctx, leadership{m, 1}) })
		}
		for n, m := range c.by {
			asking.Go(func() {
				for i := range 40 {
					name, req := fmt.Sprint("n", i%8), fmt.Sprint("r", n, "-", i)
					g := m.keep.Reserve(ctx, []Want{{Name: named(name), Request: req, Fingerprint: 7}})[0]
					if g.Err != nil {
						continue
					}
					o := m.create(req, name, g)
					m.keep.Decided(named(name), g, o)
					if o.Code == fsm.CodeOK && i%3 == 0 {
						m.remove(o.Job)
					}
				}
			})
		}
		asking.Wait()
		for range 10 {
			c.pass(2 * pendingFor)
			time.Sleep(2 * lookEvery)
			synctest.Wait()
		}
		cancel()
		running.Wait()
		c.sound()
	})
}

// taken is what becomes of an ask for a name in a group.
func (c *cluster) taken(in uint32, name, req string) Grant {
	return c.of(in).keep.Reserve(context.Background(), []Want{{Name: named(name), Request: req, Fingerprint: 7}})[0]
}

func TestErrorsOfReservations(t *testing.T) {
	c := newCluster(t, 1)
	name := away(1, "n")
	if g := c.taken(1, name, "r"); g != (Grant{}) {
		t.Errorf("a name that is at home needs nothing: %+v", g)
	}
	g := c.taken(3, name, "r")
	if g.Number == 0 || g.Home != 1 || g.Err != nil {
		t.Fatalf("%+v", g)
	}
	if again := c.taken(3, name, "r"); again != g {
		t.Errorf("the same request gets %+v and not %+v", again, g)
	}
	if o := c.taken(3, name, "other"); job.CodeOf(o.Err) != job.CodeUnavailable {
		t.Errorf("a name that is pending is answered with %v", o.Err)
	}
	if o := c.taken(2, name, "r"); job.CodeOf(o.Err) != job.CodeUnavailable {
		t.Errorf("a name that an earlier try may have in another group is answered with %v", o.Err)
	}
	reused := c.of(3).keep.Reserve(context.Background(), []Want{{Name: named(name), Request: "r", Fingerprint: 8}})[0]
	if job.CodeOf(reused.Err) != job.CodeKeyReused {
		t.Errorf("another request under the same key is answered with %v", reused.Err)
	}
	o := c.of(3).create("r", name, g)
	c.of(3).keep.Decided(named(name), g, o)
	c.of(3).keep.look(context.Background(), leadership{c.of(3), 1})
	if c.left() != 0 {
		t.Error("the home was not told")
	}
	other := c.taken(2, name, "other")
	if want := Taken(o.Job).Error(); job.CodeOf(other.Err) != job.CodeDuplicateName || other.Err.Error() != want {
		t.Errorf("a name that is taken is answered with %v, want %s", other.Err, want)
	}
	if g := c.taken(3, name, "other"); g != (Grant{}) {
		t.Errorf("the job is in this group, which is to compare them: %+v", g)
	}
	var known *job.Error
	if err := c.taken(2, name, "r").Err; !errors.As(err, &known) || known.Field != "3" {
		t.Errorf("the request was done in group 3, and group 2 says %v", err)
	}
	c.of(1).silence(true)
	if err := c.taken(3, away(1, "x"), "r2").Err; job.CodeOf(err) != job.CodeUnavailable {
		t.Errorf("a home that does not answer: %v", err)
	}
}

// What was refused in the job's group does not keep the name from others until the clean-up.
func TestRefusedJobFreesItsNameAtOnce(t *testing.T) {
	c := newCluster(t, 1)
	name := away(1, "n")
	m := c.of(3)
	m.keep.Decided(named(name), c.taken(3, name, "r"), fsm.Outcome{Code: fsm.CodeRefused})
	m.keep.look(context.Background(), leadership{m, 1})
	if c.left() != 0 {
		t.Error("it is still pending")
	}
	if g := c.taken(2, name, "other"); g.Err != nil || g.Number == 0 {
		t.Errorf("%+v", g)
	}
}

// A release means the reservation of its number: one that comes late, when the name was given anew, frees nothing.
func TestLateReleaseLeavesTheNextJobItsName(t *testing.T) {
	c := newCluster(t, 1)
	name := away(1, "n")
	look := func(m *member) { m.keep.look(context.Background(), leadership{m, 1}) }
	var late []func()
	c.call = func(group uint32, q *Ask, a *Answer) error {
		if len(q.Release) > 0 {
			late = append(late, func() { _ = c.do(group, q, new(Answer)) })
		}
		return c.do(group, q, a)
	}
	one, two := c.of(3), c.of(2)
	g := c.taken(3, name, "r")
	first := one.create("r", name, g)
	one.keep.Decided(named(name), g, first)
	look(one)
	one.remove(first.Job)
	look(one)
	if len(late) != 1 || c.left() != 0 {
		t.Fatalf("%d releases, %d names left", len(late), c.left())
	}
	pending := c.taken(2, name, "s")
	if pending.Err != nil {
		t.Fatal(pending.Err)
	}
	late[0]() // the name is reserved by now
	second := two.create("s", name, pending)
	two.keep.Decided(named(name), pending, second)
	look(two)
	late[0]() // and now it is a job's
	if g := c.taken(3, name, "t"); job.CodeOf(g.Err) != job.CodeDuplicateName {
		t.Errorf("a name that %s has is answered with %+v", second.Job, g)
	}
	c.unique()
	c.sound()
}

// A group that does not answer is asked less and less often, and the others are served meanwhile.
func TestSilentGroupIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		m := c.of(3)
		for home := range uint32(testHomes) {
			name := away(home+1, "n")
			g := c.taken(3, name, name)
			m.remove(m.create(name, name, g).Job)
		}
		if c.left() != 4 {
			t.Fatalf("%d are left", c.left())
		}
		var asked [testGroups + 1]atomic.Int64
		c.call = func(group uint32, q *Ask, a *Answer) error {
			asked[group].Add(1)
			return c.do(group, q, a)
		}
		c.of(1).silence(true)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { m.keep.run(ctx, leadership{m, 1}) })
		time.Sleep(time.Hour)
		synctest.Wait()
		if silent, other := asked[1].Load(), asked[2].Load(); c.left() != 2 || other != 1 || silent < 60 || silent > 200 {
			t.Errorf("%d are left, and groups were asked %d and %d times", c.left(), silent, other)
		}
		c.of(1).silence(false)
		time.Sleep(restMost)
		synctest.Wait()
		cancel()
		running.Wait()
		c.sound()
	})
}

// A name that is owed is released as soon as the job is gone, in portions that fit an entry.
func TestManyNamesAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		m := c.of(3)
		var wants []Want
		for i := range MaxItems + 50 {
			name := fmt.Sprint("n", i)
			wants = append(wants, Want{Name: named(name), Request: name, Fingerprint: 7})
		}
		var ids []job.ID
		for i, g := range m.keep.Reserve(t.Context(), wants) {
			o := m.create(wants[i].Request, wants[i].Name.Name, g)
			if o.Code != fsm.CodeOK {
				t.Fatalf("%+v: %+v", g, o)
			}
			ids = append(ids, o.Job)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { m.keep.run(ctx, leadership{m, 1}) })
		synctest.Wait()
		for _, id := range ids {
			m.remove(id)
		}
		synctest.Wait() // no time passes
		if n := c.left(); n != 0 {
			t.Errorf("%d are left", n)
		}
		cancel()
		running.Wait()
		c.sound()
	})
}

func TestQueueIsPinnedAtItsFirstUse(t *testing.T) {
	c := newCluster(t, 1)
	q := job.QueueKey{Namespace: job.DefaultNamespace, Name: "mail"}
	home := homeOf(job.NameRef{Kind: job.NameQueue, Namespace: q.Namespace, Name: q.Name})
	for _, m := range c.by {
		if g, err := m.keep.Queue(context.Background(), q); err != nil || g != home {
			t.Errorf("group %d says that the queue is in group %d, not %d: %v", m.group, g, home, err)
		}
	}
	c.of(home).view(func(v *store.View) error {
		r, ok, err := v.Reservation(job.NameRef{Kind: job.NameQueue, Namespace: q.Namespace, Name: q.Name})
		if !ok || r.Group != home {
			t.Errorf("its home says %+v", r)
		}
		return err
	})
	c.of(home).silence(true)
	if _, err := c.of(3).keep.Queue(context.Background(), q); job.CodeOf(err) != job.CodeUnavailable {
		t.Errorf("a home that does not answer: %v", err)
	}
}
