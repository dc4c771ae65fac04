package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler/decide"
	"github.com/carillon-scheduler/carillon/store"
)

// The guard finds what is due and was forgotten in memory. A job whose entry in the due index is gone is never due, so
// nothing would miss it. A census therefore goes over all jobs and over the whole due index, slowly and for ever.

const (
	censusPerSecond = 4096 // entries that are looked at
	censusView      = 512  // in one view: a view holds up commits
	// ofDefinition is what a job counts for whose definition has to be read.
	ofDefinition = 4
	// censusRest is how long after a pass the next one begins: a small state is not to be looked at all the time.
	censusRest = time.Minute
	// censusNamed is how many of the jobs that are found are named.
	censusNamed = 10
)

// Unscheduled is a job that should have one next occurrence and has none, or more.
type Unscheduled struct {
	Job             job.ID
	Namespace, Name string
	Why             string
}

func (u Unscheduled) String() string {
	text := u.Job.String()
	if u.Name != "" {
		text += " (" + u.Name + ")"
	}
	if u.Namespace != "" && u.Namespace != job.DefaultNamespace {
		text += " of namespace " + u.Namespace
	}
	return text + " " + u.Why
}

// census is one pass over a state. Each job is judged within one view, together with its entries: nothing that is under
// way can look like something that is missing.
type census struct {
	named     int // how many are kept in found
	schedules decide.Schedules
	at        job.ID       // the last one that was looked at
	due       store.DueKey // where the due index goes on
	indexed   bool         // all jobs were looked at: the due index is next
	count     int
	found     []Unscheduled
}

// parked is a job without an occurrence in the due index. It is judged after the view.
type parked struct {
	id    job.ID
	def   store.Definition
	state store.State
	place store.Place
}

// step looks at the next piece of the state and says whether that was the last.
func (c *census) step(st *store.Store) (end bool, err error) {
	var todo []parked
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil { // bbolt panics on pages that make no sense, and nothing else may ever read them
			err = store.Damaged(st.Path(), r)
		}
	}()
	err = st.View(func(v *store.View) error {
		left := censusView
		if !c.indexed {
			return c.jobs(v, &left, &todo)
		}
		end, err = c.entries(v, &left)
		return err
	})
	for i := range todo {
		c.judge(&todo[i])
	}
	return end, err
}

// jobs looks at the jobs of a view: whether each has its state, once.
func (c *census) jobs(v *store.View, left *int, todo *[]parked) error {
	c.indexed = true
	return v.EachJobID(c.at, func(id job.ID) bool {
		if *left <= 0 {
			c.indexed = false
			return false
		}
		*left--
		c.at = id
		s, p, ok, err := v.State(id)
		switch {
		case err != nil:
			c.add(v, id, "has no next occurrence: its state is gone, or cannot be read")
		case !ok:
			c.add(v, id, "has no next occurrence: it has no state")
		case !p.Parked && v.IsParked(id):
			c.add(v, id, "has two states: one has a next occurrence, the other has none")
		case p.Parked && !s.Paused && !s.Quarantined && !s.Manual:
			*left -= ofDefinition
			def, ok, err := v.Definition(id)
			if err != nil || !ok {
				return true // the scrub and `carillon check` say so
			}
			def.Spec.Payload = nil
			*todo = append(*todo, parked{id, def, s, p})
		}
		return true
	})
}

// judge looks at a job that has no next occurrence.
func (c *census) judge(x *parked) {
	defer func() { _ = recover() }() // a schedule that cannot be handled: its job goes into quarantine when it is due
	sched, err := c.schedules.Compile(&x.def.Spec, x.id)
	if err != nil {
		return // nobody can say whether something of it is left
	}
	if w := decide.Missing(&x.def, sched, &x.state, x.place); w.At != 0 {
		c.note(Unscheduled{x.id, x.def.Spec.Namespace, x.def.Spec.Name,
			"has no next occurrence; it should have one at " + job.Instant(w.At).String()})
	}
}

// entries looks at entries of the due index: each occurrence is the one that the index has of its job.
func (c *census) entries(v *store.View, left *int) (end bool, err error) {
	for int(c.due.Lane) < job.Lanes {
		next, cut, err := walk(v, c.due, math.MaxInt64, left, func(e *store.DueEntry) bool {
			if p, ok := v.Place(e.Job); e.Kind == store.KindOccurrence && (!ok || p.Due(e.Job) != e.DueKey) {
				c.add(v, e.Job, fmt.Sprintf("has a next occurrence at %s that is not its own",
					job.Instant(e.At)))
			}
			return true
		})
		if err != nil {
			return false, err
		}
		if cut {
			c.due = next
			return false, nil
		}
		c.due = store.DueKey{Lane: c.due.Lane + 1}
	}
	return true, nil
}

// add notes a job, with its name if it can be read.
func (c *census) add(v *store.View, id job.ID, why string) {
	u := Unscheduled{Job: id, Why: why}
	if def, ok, err := v.Definition(id); err == nil && ok {
		u.Namespace, u.Name = def.Spec.Namespace, def.Spec.Name
	}
	c.note(u)
}

// note counts a job once, as far as it is known which were counted.
func (c *census) note(u Unscheduled) {
	if slices.ContainsFunc(c.found, func(x Unscheduled) bool { return x.Job == u.Job }) {
		return
	}
	if c.count++; len(c.found) < c.named {
		c.found = append(c.found, u)
	}
}

// FindUnscheduled looks at a whole state at once, as long as nothing else needs it: the jobs that should have one next
// occurrence and have none, or more. The first of them are named.
func FindUnscheduled(st *store.Store, named int) (count int, first []Unscheduled, err error) {
	c := census{named: named}
	for end := false; !end && err == nil; {
		end, err = c.step(st)
	}
	return c.count, c.found, err
}

// unscheduled is what the census of a leadership says.
type unscheduled struct {
	count int
	first []Unscheduled
}

// Unscheduled is how many jobs should have one next occurrence and have none, or more, by the last pass over the state
// or, if that has found more already, the present one; and the first of them. The slice is shared: do not change it.
func (s *Scheduler) Unscheduled() (count int, first []Unscheduled) {
	if u := s.unscheduled.Load(); u != nil {
		return u.count, u.first
	}
	return 0, nil
}

// takeCensus looks for such jobs until the leadership ends.
func (s *Scheduler) takeCensus(ctx context.Context) {
	c := census{named: censusNamed}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.done:
			return
		case <-timer.C:
		}
		end, err := false, error(nil)
		for n := 0; n < censusPerSecond && !end && err == nil; n += censusView {
			end, err = c.step(s.st)
		}
		if errors.Is(err, store.ErrClosed) {
			return
		}
		if err != nil {
			s.log.Warn("census of jobs broken off", "error", err)
		}
		if before, _ := s.Unscheduled(); end || c.count > before {
			s.tellUnscheduled(&c)
		}
		rest := time.Second
		if end || err != nil {
			c, rest = census{named: censusNamed}, censusRest
		}
		timer.Reset(s.o.Pace.Of(rest))
	}
}

// tellUnscheduled makes known what was found. The log has it once, when there is more of it.
func (s *Scheduler) tellUnscheduled(c *census) {
	if before, _ := s.Unscheduled(); c.count > before {
		s.log.Error("jobs have no next occurrence, or two", "jobs", c.count, "first", c.found[0].String())
	}
	s.unscheduled.Store(&unscheduled{c.count, slices.Clone(c.found)})
}
