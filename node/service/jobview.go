package service

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

// reader looks things up in one view and remembers what it decoded: a page of runs names few jobs many times.
type reader struct {
	*store.View
	b         *Service
	defs      map[job.ID]*store.Definition
	calendars map[calendarKey]*schedule.Blackout
}

type calendarKey struct{ namespace, name string }

func (b *Service) reader(v *store.View) *reader {
	return &reader{View: v, b: b, defs: map[job.ID]*store.Definition{}, calendars: map[calendarKey]*schedule.Blackout{}}
}

// find resolves a reference: an id (j_…), or a name of the request's namespace.
func (r *reader) find(ref string, sc api.Space) (job.ID, error) {
	id, err := job.ParseID(ref)
	if err != nil {
		if sc.Namespace == job.AllNamespaces {
			return 0, job.Invalid("job", "name one namespace, or give the job's id",
				"%q may be the name of several jobs", ref)
		}
		var ok bool
		if id, ok = r.Named(sc.Name(), ref); !ok {
			return 0, r.notIn(ref, sc)
		}
		return id, nil
	}
	def, err := r.definition(id)
	if err != nil {
		return 0, err
	}
	if def == nil {
		return 0, noJob(ref)
	}
	if !sc.Finds(def.Spec.Namespace) {
		return 0, r.notIn(ref, sc)
	}
	return id, nil
}

// maxElsewhere bounds in how many other namespaces a name is looked for.
const maxElsewhere = 1000

// notIn says that a job is not in the namespace of the request, and where it is, if the caller may know.
func (r *reader) notIn(ref string, sc api.Space) error {
	remedy := "GET /api/v1/jobs lists the jobs"
	if space := r.elsewhere(ref); sc.All && space != "" {
		remedy = fmt.Sprintf("there is one in namespace %q: say namespace=%s (-n %s)", space, space, space)
	}
	return job.Errorf(job.CodeNotFound, remedy, "there is no job %q in namespace %q", ref, sc.Name())
}

// elsewhere is a namespace that has a job; empty if none is found.
func (r *reader) elsewhere(ref string) string {
	if id, err := job.ParseID(ref); err == nil {
		if def, err := r.definition(id); err == nil && def != nil {
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

func noJob(ref string) error {
	return job.Errorf(job.CodeNotFound, "GET /api/v1/jobs lists the jobs", "there is no job %q", ref)
}

// definition is a job's definition, nil if it is gone.
func (r *reader) definition(id job.ID) (*store.Definition, error) {
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

// held is a job as one view showed it: everything that an edit, a resume or an answer is computed from.
type held struct {
	id    job.ID
	def   store.Definition
	state store.State
	place store.Place
}

func (r *reader) held(id job.ID) (held, error) {
	def, err := r.definition(id)
	if err != nil {
		return held{}, err
	}
	if def == nil {
		return held{}, noJob(id.String())
	}
	st, p, ok, err := r.State(id)
	if err != nil {
		return held{}, err
	}
	if !ok {
		return held{}, errors.New("node: " + id.String() + " has a definition but no state")
	}
	return held{id, *def, st, p}, nil
}

// job is a job as the API shows it. why is the leader's word on why a class of jobs waits; nil if this node does not
// lead.
func (r *reader) job(id job.ID, why func(v *store.View, class string) string) (job.Job, error) {
	h, err := r.held(id)
	if err != nil {
		return job.Job{}, err
	}
	j := job.Job{
		ID: id, Status: h.status(), Spec: h.def.Spec,
		NextRunAt: job.Instant(r.nextRun(&h)), LastRunAt: job.Instant(h.state.LastAt),
		LastRunStatus: h.state.LastStatus,
		OpenRuns:      len(r.Open(id)), RunsStarted: int(h.state.Runs + h.state.ByHand),
		Version: h.def.Version, CreatedAt: job.Instant(h.def.CreatedAt), UpdatedAt: job.Instant(h.def.UpdatedAt),
	}
	if h.state.Notify != 0 {
		j.Failing = h.state.Failing
		if j.LastNotification, err = r.notification(id); err != nil {
			return job.Job{}, err
		}
	}
	if h.state.Quarantined {
		j.WaitReason = r.Note(id)
		return j, nil
	}
	if r.waits(&h) {
		j.WaitReason = r.waitReason(&h, why)
	}
	j.WaitReason = cmp.Or(j.WaitReason, h.turn())
	return j, nil
}

// turn says that runs of the job wait behind others of its own; empty if none does.
func (h *held) turn() string {
	s := &h.state
	if s.Waiting == 0 || s.Paused {
		return ""
	}
	who, active := "1 run waits for its turn", "1 run is active"
	if s.Waiting > 1 {
		who = strconv.FormatUint(uint64(s.Waiting), 10) + " runs wait for their turn"
	}
	if s.Active != 1 {
		active = strconv.FormatUint(uint64(s.Active), 10) + " runs are active"
	}
	switch {
	case s.Overlap != store.OverlapAllow && s.Active == 0:
		return who + ": an occurrence is due and comes first"
	case s.Overlap != store.OverlapAllow:
		return who + ": " + active + " and overlap is " + h.def.Spec.Overlap
	case s.Concurrency != 0 && s.Active >= uint32(s.Concurrency):
		return who + ": concurrency " + strconv.Itoa(int(s.Concurrency)) + " is reached"
	}
	return who + ": backfill and catch-up runs go one by one"
}

// waits says that something of the job is due and not claimed.
func (r *reader) waits(h *held) bool {
	if h.stopped() {
		return false
	}
	if !h.place.Parked && h.place.Ready <= r.b.now() {
		return true
	}
	look := maxRetriesSeen
	for _, ref := range r.Open(h.id) {
		switch ref.Status {
		case job.RunPending:
			return true
		case job.RunRetrying:
			if look--; look < 0 {
				return false
			}
			if row, ok, err := r.Run(job.RunKey{Job: h.id, At: ref.At, Origin: ref.Origin}); err == nil && ok &&
				row.Ready <= r.b.now() {
				return true
			}
		}
	}
	return false
}

// maxRetriesSeen bounds how many runs of a job are looked at for a retry that is due: it may have tens of thousands.
const maxRetriesSeen = 100

// status is the job's state as its owner sees it. A job whose last run is still open is not yet completed.
func (h *held) status() job.Status {
	s := &h.state
	switch {
	case s.Quarantined:
		return job.StatusQuarantined
	case s.Paused:
		return job.StatusPaused
	case !h.place.Parked, s.Manual, s.Active > 0, s.Waiting > 0:
		return job.StatusScheduled
	case s.OneOff:
		switch s.LastStatus {
		case job.RunDead, job.RunLost, job.RunMissed, job.RunExpired,
			job.RunSkipped: // what it was there for did not happen
			return job.StatusFailed
		}
	}
	return job.StatusCompleted
}

// maxBlackoutWalk bounds how many occurrences are looked at for one that no calendar forbids. Each lies behind a day, a
// stretch of a day or a window of the calendars, so that this is most of a year at least.
const maxBlackoutWalk = 500

// nextRun is when the job will really fire: the first occurrence from the due one on that no calendar forbids, plus its
// jitter. A paused job shows none: nothing will happen until it is resumed.
func (r *reader) nextRun(h *held) int64 {
	if h.place.Parked {
		return 0
	}
	spec := &h.def.Spec
	if len(spec.Calendars) == 0 {
		return h.place.Ready
	}
	at := time.UnixMilli(h.place.At)
	forbidden, err := r.blackouts(spec.Namespace, spec.Calendars)
	if err != nil || !contains(forbidden, at) {
		return h.place.Ready
	}
	sched, err := compile(spec, h.id)
	if err != nil {
		return h.place.Ready
	}
	for range maxBlackoutWalk {
		until := at
		for _, b := range forbidden {
			if t := b.Until(at); t.After(until) {
				until = t
			}
		}
		if !until.After(at) {
			return at.UnixMilli() + sched.Delay().Milliseconds()
		}
		next, ok := sched.Next(until.Add(-1)) // the first one at or after it
		if !ok {
			return 0
		}
		at = next
	}
	return 0
}

func contains(all []*schedule.Blackout, t time.Time) bool {
	return slices.ContainsFunc(all, func(b *schedule.Blackout) bool { return b.Contains(t) })
}

// blackouts are the calendars of a job. One that does not exist forbids nothing here; create and edit refuse it.
func (r *reader) blackouts(namespace string, names []string) ([]*schedule.Blackout, error) {
	var out []*schedule.Blackout
	for _, name := range names {
		key := calendarKey{namespace, name}
		b, ok := r.calendars[key]
		if !ok {
			data := r.Calendar(namespace, name)
			if data == nil {
				continue
			}
			var c schedule.Calendar
			if err := json.Unmarshal(data, &c); err != nil {
				return nil, err
			}
			var err error
			if b, err = c.Compile(); err != nil {
				return nil, err
			}
			r.calendars[key] = b
		}
		out = append(out, b)
	}
	return out, nil
}

// checkCalendars refuses a job that names a calendar which is not there: it would fire on the days that it was meant to
// keep clear.
func (r *reader) checkCalendars(spec *job.Spec) error {
	for _, name := range spec.Calendars {
		if r.Calendar(spec.Namespace, name) == nil {
			return job.Invalid("calendars", "create it first with PUT /api/v1/calendars/"+name,
				"there is no calendar %q in namespace %q", name, spec.Namespace)
		}
	}
	return nil
}

// checkBlackout refuses a one-off job for a time that one of its calendars forbids: it would never run.
func (r *reader) checkBlackout(spec *job.Spec) error {
	sched, err := compile(spec, 1)
	if err != nil {
		return nil //nolint:nilerr // validation says what is wrong with it
	}
	at, ok := sched.Next(time.UnixMilli(0))
	if !ok {
		return nil
	}
	for _, name := range spec.Calendars {
		if all, err := r.blackouts(spec.Namespace, []string{name}); err == nil && contains(all, at) {
			return job.Invalid("schedule", "choose another time, or leave the calendar out",
				"the job would never run: the calendar %q forbids %s", name, job.At(at))
		}
	}
	return nil
}
