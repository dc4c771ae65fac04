package view

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/notify"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

// Job is a job as the API shows it.
func (r *Reader) Job(id job.ID) (job.Job, error) {
	h, err := r.Held(id)
	if err != nil {
		return job.Job{}, err
	}
	j := job.Job{
		ID: id, Status: h.Status(), Spec: h.Def.Spec,
		NextRunAt: job.Instant(r.NextRun(&h)), LastRunAt: job.Instant(h.State.LastAt),
		LastSuccessAt: job.Instant(h.State.LastSuccess),
		LastRunStatus: h.State.LastStatus,
		OpenRuns:      len(r.Open(id)), RunsStarted: int(h.State.Runs + h.State.ByHand),
		Version: h.Def.Version, CreatedAt: job.Instant(h.Def.CreatedAt), UpdatedAt: job.Instant(h.Def.UpdatedAt),
	}
	if h.State.Notify != 0 {
		j.Failing = h.State.Failing
		if j.LastNotification, err = r.notification(id); err != nil {
			return job.Job{}, err
		}
	}
	if h.State.Quarantined {
		j.WaitReason = r.Note(id)
		return j, nil
	}
	if r.waits(&h) {
		j.WaitReason = r.waitReason(&h)
	}
	j.WaitReason = cmp.Or(j.WaitReason, h.turn(r.src.Now()))
	return j, nil
}

// notification is the newest notification of a job as the API shows it, nil if there was none.
func (r *Reader) notification(id job.ID) (*job.Notification, error) {
	n, ok, err := r.LastNotice(id)
	if err != nil || !ok {
		return nil, err
	}
	return notify.View(&n), nil
}

// turn says that runs of the job wait behind others of its own; empty if none does.
func (h *Held) turn(now int64) string {
	s := &h.State
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
	case h.lacksRoom(now):
		return who + ": " + noRoom(s)
	case s.Overlap != store.OverlapAllow && s.Active == 0:
		return who + ": an occurrence is due and comes first"
	case s.Overlap != store.OverlapAllow:
		return who + ": " + active + " and overlap is " + h.Def.Spec.Overlap
	case s.Concurrency != 0 && s.Active >= uint32(s.Concurrency):
		return who + ": concurrency " + strconv.Itoa(int(s.Concurrency)) + " is reached"
	}
	return who + ": backfill and catch-up runs go one by one"
}

// waits says that something of the job is due and not claimed.
func (r *Reader) waits(h *Held) bool {
	if h.Stopped() {
		return false
	}
	if !h.Place.Parked && h.Place.Ready <= r.src.Now() {
		return true
	}
	_, found := r.DueOpenRun(h)
	return found
}

// DueOpenRun is the due entry of an open run of a job that could be claimed now: one by hand, or a retry. Of several,
// it is the one that comes first.
func (r *Reader) DueOpenRun(h *Held) (first store.DueKey, found bool) {
	look := maxRowsSeen
	for _, ref := range r.Open(h.ID) {
		if ref.Status != job.RunPending && ref.Status != job.RunRetrying {
			continue
		}
		if look--; look < 0 {
			break
		}
		k := job.RunKey{Job: h.ID, At: ref.At, Origin: ref.Origin}
		row, ok, err := r.Run(k)
		if err != nil || !ok {
			continue
		}
		if due, ok := row.Due(k); ok && due.Ready <= r.src.Now() && (!found || due.Ready < first.Ready) {
			first, found = due, true
		}
	}
	return first, found
}

// maxRowsSeen bounds how many runs of a job are looked at for one that is due: it may have tens of thousands.
const maxRowsSeen = 100

// waitReason is why what is due of a job is not claimed; empty if this node does not know: the leader does.
func (r *Reader) waitReason(h *Held) string {
	if r.Info.Hold.On {
		return fsm.TextHold
	}
	if s := r.src.Leads(); s != nil {
		return s.ClassReason(r.View, h.Def.Spec.Class())
	}
	return ""
}

// maxBlackoutWalk bounds how many occurrences are looked at for one that no calendar forbids. Each lies behind a day, a
// stretch of a day or a window of the calendars, so that this is most of a year at least.
const maxBlackoutWalk = 500

// NextRun is when the job will really fire: the first occurrence from the due one on that is not skipped, plus its
// jitter. A paused job shows none: nothing will happen until it is resumed.
func (r *Reader) NextRun(h *Held) int64 {
	if h.Place.Parked {
		return 0
	}
	spec := &h.Def.Spec
	if len(spec.Calendars) == 0 && spec.DSTGap != "skip" {
		return h.Place.Ready
	}
	at := time.UnixMilli(h.Place.At)
	forbidden, err := r.Blackouts(spec.Namespace, spec.Calendars)
	if err != nil || !Forbids(forbidden, at) && spec.DSTGap != "skip" {
		return h.Place.Ready
	}
	sched, err := Compile(spec, h.ID)
	if err != nil || !Forbids(forbidden, at) && !sched.Skipped(at) {
		return h.Place.Ready
	}
	for range maxBlackoutWalk {
		until := at
		for _, b := range forbidden {
			if t := b.Until(at); t.After(until) {
				until = t
			}
		}
		if sched.Skipped(at) {
			until = until.Add(time.Millisecond)
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

// Forbids says that one of the calendars forbids a time.
func Forbids(all []*schedule.Blackout, t time.Time) bool {
	return slices.ContainsFunc(all, func(b *schedule.Blackout) bool { return b.Contains(t) })
}

// Calendar is a calendar of a namespace, as JSON; nil: there is none.
func (r *Reader) Calendar(namespace, name string) []byte {
	if look := r.src.Calendar; look != nil {
		return look(namespace, name)
	}
	return r.View.Calendar(namespace, name)
}

// Blackouts are the calendars of a job. One that does not exist forbids nothing here; create and edit refuse it.
func (r *Reader) Blackouts(namespace string, names []string) ([]*schedule.Blackout, error) {
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

// CheckCalendars refuses a job that names a calendar which is not there: it would fire on the days that it was meant to
// keep clear.
func (r *Reader) CheckCalendars(spec *job.Spec) error {
	for _, name := range spec.Calendars {
		if r.Calendar(spec.Namespace, name) == nil {
			return job.Invalid("calendars", "create it first with PUT /api/v1/calendars/"+name,
				"there is no calendar %q in namespace %q", name, spec.Namespace)
		}
	}
	return nil
}

// CheckBlackout refuses a one-off job for a time that one of its calendars forbids: it would never run.
func (r *Reader) CheckBlackout(spec *job.Spec) error {
	sched, err := Compile(spec, 1)
	if err != nil {
		return nil //nolint:nilerr // validation says what is wrong with it
	}
	at, ok := sched.Next(time.UnixMilli(0))
	if !ok {
		return nil
	}
	for _, name := range spec.Calendars {
		if all, err := r.Blackouts(spec.Namespace, []string{name}); err == nil && Forbids(all, at) {
			return job.Invalid("schedule", "choose another time, or leave the calendar out",
				"the job would never run: the calendar %q forbids %s", name, job.At(at))
		}
	}
	return nil
}
