package scheduler

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/scheduler/decide"
	"github.com/carillon-scheduler/carillon/store"
)

// Compile is decide.Compile, for a job that is created or edited.
func Compile(spec *job.Spec, id job.ID) (*schedule.Schedule, error) { return decide.Compile(spec, id) }

// Schedules keeps schedules that were compiled.
type Schedules = decide.Schedules

// NextAfter is decide.NextAfter, likewise.
func NextAfter(spec *job.Spec, sched *schedule.Schedule, runs uint32, after int64) fsm.When {
	return decide.NextAfter(spec, sched, runs, after)
}

// info is what the scheduler knows of a job. Batches in flight point to its definition, which does not change once it
// is read; the schedule is the loop's.
type info struct {
	gen   uint32 // the definition is that of this generation, or of a later one if no entry of this one exists any more
	id    job.ID
	def   store.Definition
	bad   string // why the job cannot be handled
	sched *schedule.Schedule

	secrets []string // that its payload refers to
}

// catalog keeps recently used jobs. It has two generations: when the young one is full it becomes the old one, and what
// was used from neither is gone. That is as good as LRU here and costs two map look-ups.
type catalog struct {
	young, old map[job.ID]*info
	bytes      int // of the young ones
	calendars  decide.Calendars
	schedules  Schedules
}

// A generation is bounded by number and by bytes: a payload may have 256 KiB, and a compiled schedule some. A catalog
// helps jobs that fire often; half a million that fire once pass through it.
const (
	catalogSize  = 4096
	catalogBytes = 16 << 20
	infoOverhead = 2048 // of a job beside its texts: the definition, and its schedule
)

// size is about what a job takes in the catalog.
func (i *info) size() int {
	s := &i.def.Spec
	return infoOverhead + len(s.Payload) + len(s.Name) + 2*len(s.Schedule)
}

func newCatalog() *catalog {
	return &catalog{young: map[job.ID]*info{}}
}

func (c *catalog) get(id job.ID) *info {
	if i := c.young[id]; i != nil {
		return i
	}
	if i := c.old[id]; i != nil {
		c.put(i)
		return i
	}
	return nil
}

func (c *catalog) put(i *info) {
	if old := c.young[i.id]; old != nil {
		c.bytes -= old.size()
	}
	if len(c.young) >= catalogSize || c.bytes+i.size() > catalogBytes {
		c.old, c.young, c.bytes = c.young, make(map[job.ID]*info, len(c.young)), 0
	}
	c.young[i.id] = i
	c.bytes += i.size()
}

func (c *catalog) forget(ids []job.ID) {
	if mutant.On(mutant.StaleDefinition) {
		return
	}
	for _, id := range ids {
		if i := c.young[id]; i != nil {
			c.bytes -= i.size()
			delete(c.young, id)
		}
		delete(c.old, id)
	}
}

func (c *catalog) forgetAll() { c.young, c.old, c.bytes = map[job.ID]*info{}, nil, 0 }

// occurrence finds the job of an occurrence entry of a generation.
//
// The definition is read later than the entry was. If it belongs to a newer generation then the entry is gone and the
// claim that names the entry's generation is refused; so whatever is claimed was computed from the definition that it
// belongs to.
func (c *catalog) occurrence(v *store.View, id job.ID, gen uint32) (*info, error) {
	if i := c.get(id); i != nil && (i.gen == gen || mutant.On(mutant.IgnoreGen)) {
		return i, nil
	}
	return c.read(v, id, gen)
}

// open finds the job of a retry or extra entry, nil if it is gone. Those entries name no generation, so the current one
// counts.
func (c *catalog) open(v *store.View, id job.ID) (*info, error) {
	st, _, ok, err := v.State(id)
	if err != nil || !ok {
		return nil, err
	}
	if i := c.get(id); i != nil && i.gen == st.Gen {
		return i, nil
	}
	return c.read(v, id, st.Gen)
}

func (c *catalog) read(v *store.View, id job.ID, gen uint32) (*info, error) {
	i := &info{id: id, gen: gen}
	if old := c.get(id); old != nil && mutant.On(mutant.StaleDefinition) {
		i.def = old.def
		c.put(i)
		return i, nil
	}
	var ok bool
	var err error
	i.def, ok, err = v.Definition(id)
	switch {
	case err != nil:
		i.bad = fmt.Sprintf("the definition cannot be read: %v", err)
	case !ok:
		if _, _, has, err := v.State(id); err != nil || !has {
			return nil, err // deleted since the entry was read
		}
		i.bad = "the definition is missing"
	}
	i.secrets = i.def.Spec.SecretRefs()
	c.put(i)
	return i, nil
}

// compile makes the job's schedule. A job that cannot be compiled is in quarantine soon; it never stops the loop.
func (c *catalog) compile(i *info) (bad string) {
	if i.bad != "" || i.sched != nil {
		return i.bad
	}
	defer func() {
		if r := recover(); r != nil {
			bad = fmt.Sprintf("the schedule %q made the scheduler panic: %v", i.def.Spec.Schedule, r)
		}
	}()
	spec := &i.def.Spec
	s, err := c.schedules.Compile(spec, i.id)
	if err != nil {
		return fmt.Sprintf("the schedule %q cannot be used: %v", spec.Schedule, err)
	}
	i.sched = s
	return ""
}
