// Package view reads the state of a node as the API shows it: jobs, runs and dead letters, each in one short view.
package view

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// Reader looks things up in one view and remembers what it decoded: a page of runs names few jobs many times.
type Reader struct {
	*store.View
	src       *Source
	defs      map[job.ID]*store.Definition
	calendars map[calendarKey]*schedule.Blackout
}

type calendarKey struct{ namespace, name string }

// Source is what there is to look at: the state of a node, its clock and its scheduler.
type Source struct {
	Store *store.Store
	Now   func() int64
	Leads func() *scheduler.Scheduler // nil unless this node leads
	// Calendar is a calendar as JSON, where those of the cluster are in another state; nil: they are in this one.
	Calendar func(namespace, name string) []byte

	deleted deletedNames
}

// View calls fn with a view of the state.
func (s *Source) View(fn func(*Reader) error) error {
	return s.Store.View(func(v *store.View) error { return fn(s.Reader(v)) })
}

// Reader looks at a view.
func (s *Source) Reader(v *store.View) *Reader {
	return &Reader{View: v, src: s, defs: map[job.ID]*store.Definition{},
		calendars: map[calendarKey]*schedule.Blackout{}}
}

// Find resolves a reference: an id (j_…), or a name of the request's namespace.
func (r *Reader) Find(ref string, sc api.Space) (job.ID, error) {
	id, err := job.ParseID(ref)
	if err != nil {
		if sc.Namespace == job.AllNamespaces {
			return 0, job.Invalid("job", "name one namespace, or give the job's id",
				"%q may be the name of several jobs", ref)
		}
		var ok bool
		if id, ok = r.Named(sc.Name(), ref); ok {
			return id, nil
		}
		// A name whose home is here may be kept for another group. That one knows whether a job has it already.
		kept, ok, err := r.Reservation(job.NameRef{Kind: job.NameJob, Namespace: sc.Name(), Name: ref})
		switch {
		case err != nil:
			return 0, err
		case ok:
			return 0, job.OtherGroup(kept.Group)
		}
		return 0, r.notIn(ref, sc)
	}
	def, err := r.Def(id)
	if err != nil {
		return 0, err
	}
	switch {
	case def != nil && sc.Finds(def.Spec.Namespace):
		return id, nil
	case sc.Anywhere():
		return 0, NoJob(ref)
	}
	return 0, r.notIn(ref, sc) // in the same words whether it is elsewhere, was, or never was
}

// maxElsewhere bounds in how many other namespaces a name is looked for.
const maxElsewhere = 1000

// notIn says that a job is not in the namespace of the request, and where it is, if the caller may know.
func (r *Reader) notIn(ref string, sc api.Space) error {
	remedy := "GET /api/v1/jobs lists the jobs"
	if space := r.elsewhere(ref); sc.All && space != "" {
		remedy = fmt.Sprintf("there is one in namespace %q: say namespace=%s (-n %s)", space, space, space)
	}
	return job.Errorf(job.CodeNotFound, remedy, "there is no job %q in namespace %q", ref, sc.Name())
}

// elsewhere is a namespace that has a job; empty if none is found.
func (r *Reader) elsewhere(ref string) string {
	if id, err := job.ParseID(ref); err == nil {
		if def, err := r.Def(id); err == nil && def != nil {
			return def.Spec.Namespace
		}
		return ""
	}
	all := r.Namespaces()
	for _, space := range all[:min(len(all), maxElsewhere)] {
		if _, ok := r.Named(space, ref); ok {
			return space
		}
	}
	return ""
}

// Counts says that something in a namespace counts in what an answer says was looked at: how much there is elsewhere is
// only for those who may see every namespace.
func Counts(sc api.Space, namespace string) bool { return sc.All || sc.Lists(namespace) }

// NoJob is the error about a job that is not there.
func NoJob(ref string) error {
	return job.Errorf(job.CodeNotFound, "GET /api/v1/jobs lists the jobs", "there is no job %q", ref)
}

// Keep remembers a definition that was read otherwise.
func (r *Reader) Keep(id job.ID, d *store.Definition) { r.defs[id] = d }

// Def is a job's definition, nil if it is gone.
func (r *Reader) Def(id job.ID) (*store.Definition, error) {
	if d, ok := r.defs[id]; ok {
		return d, nil
	}
	d, ok, err := r.Definition(id)
	if err != nil {
		return nil, err
	}
	var p *store.Definition
	if ok {
		p = &d
	}
	r.defs[id] = p
	return p, nil
}

const (
	// Rows is how many runs or records one view looks at, MaxRows how many one request does.
	Rows    = 512
	MaxRows = 50_000
	// ChainSlack is how far, in ms, a record may be dated before the time of its run. The dates in a chain do not go
	// back, unless the clock was reset, but runs by hand in one millisecond get times of their own.
	ChainSlack = 10_000
)

// HoldRemedy ends the hold of a restored cluster.
const HoldRemedy = "make sure that the cluster the backup was taken from is gone, then run `carillon cluster release`"

// CheckCursor is what a failure to read a cursor means.
func CheckCursor(err error) error {
	if err == nil {
		return nil
	}
	return BadCursor()
}

// BadCursor is the error about a cursor that is none.
func BadCursor() error {
	return job.Invalid("cursor", "use the next_cursor of the page before, with the same filters",
		"this is not a cursor of this list")
}
