package store

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// Overlap is job.Spec.Overlap as a number.
type Overlap uint8

// The overlap policies. Numbers are part of the stored format.
const (
	OverlapSkip    Overlap = 0
	OverlapQueue   Overlap = 1
	OverlapAllow   Overlap = 2
	OverlapReplace Overlap = 3
)

var overlaps = []string{job.OverlapSkip, job.OverlapQueue, job.OverlapAllow, job.OverlapReplace}

// OverlapOf converts the name of a policy.
func OverlapOf(name string) Overlap { return Overlap(max(0, slices.Index(overlaps, name))) }

// State is a job's runtime state. It rides in the job's occurrence entry in the due index, or in its parked entry, so
// that firing a job touches no page of its own: that is what makes claim and complete independent of the number of
// jobs.
type State struct {
	Gen         uint32 // bumped by every edit, pause and resume; a claim that names another one is stale
	Class       uint32 // what kind of worker it needs, see job.Spec.Class
	Lane        job.Lane
	Overlap     Overlap
	Concurrency uint16 // under overlap allow: how many runs may be active; 0 = no limit
	Retention   uint32 // seconds; of a one-off job

	Paused      bool
	Quarantined bool
	OneOff      bool
	Manual      bool // @manual: has no occurrences
	AtMostOnce  bool
	Notify      NotifyOn // which changes of its health are told; 0: the job has no notify
	Failing     bool     // of a job with notify: it failed, and has not succeeded since
	// Canceled: the one occurrence of a one-off was canceled before its time: LastNominal does not say so.
	Canceled bool

	LastNominal int64  // the last nominal time that was claimed, skipped or otherwise accounted for
	HistHead    uint64 // newest history record of the job
	Runs        uint32 // occurrences of the schedule that became runs; counts towards max_runs
	ByHand      uint32 // manual and backfill runs that were made
	LastStatus  job.RunStatus
	LastAt      int64 // when it ended
	LastSuccess int64 // when a run last succeeded

	Active  uint32 // open runs other than waiting ones
	Waiting uint32 // runs that wait behind those; a redrive of many dead letters makes many
	Dead    uint32 // dead letters of the job

	LastManual int64 // the last manual time given out: manual times never repeat
	// BusyUntil is, unless overlap is allow, the stamp at which the last live (not serial) run of the job closed; of
	// one that a serial run made late, when it would have closed without that.
	BusyUntil  int64
	Took       int64 // ms; how long attempts of the job take, by its recent ones; 0: not known
	PassedOver uint8 // how often a serial run found no room between two occurrences since one last started
	NotRun     Interval

	// Of a paused job: the occurrence that waits. Zero if there was none.
	ParkedAt, ParkedReady int64
	PausedAt              int64  // of a paused job: the stamp of the pause
	Pauses                Pauses // those that are over and lie ahead of the occurrence that is due
}

// Interval is kept in a state, and in a record of the history.
type Interval = job.Interval

// Status is the state of a job as its owner sees it; parked: there is no next occurrence. A job whose last run is
// still open is not yet completed.
func (s *State) Status(parked bool) job.Status {
	switch {
	case s.Quarantined:
		return job.StatusQuarantined
	case s.Paused:
		return job.StatusPaused
	case !parked, s.Manual, s.Active > 0, s.Waiting > 0:
		return job.StatusScheduled
	case !s.OneOff || s.LastStatus == job.RunSucceeded || s.LastStatus == job.RunCanceled || s.LastStatus == 0:
		return job.StatusCompleted
	}
	return job.StatusFailed // what it was there for did not happen
}

// Ended notes how a run of the job ended, and when.
func (s *State) Ended(status job.RunStatus, at int64) {
	s.LastStatus, s.LastAt = status, at
	if status == job.RunSucceeded {
		s.LastSuccess = at
	}
}

// KeepsDue says that an occurrence of a paused job was due before the pause: it stays due, and runs after the resume. A
// one-off runs after it whenever it was due.
func (s *State) KeepsDue(ready int64) bool {
	return s.Paused && !s.Quarantined && !s.OneOff && ready != 0 && ready <= s.PausedAt
}

// stateClassAt is where the class is in the stored form: buildIndex reads it without the rest.
const stateClassAt = 6

const (
	flagPaused = 1 << iota
	flagQuarantined
	flagOneOff
	flagManual
	flagAtMostOnce
	flagNotRun
	flagBusy
	flagLastManual
	flagParked
	flagOverlapLow
	flagOverlapHigh
	flagConcurrency
	flagNotifyFailure
	flagNotifyRecovery
	flagFailing
	flagBusyLast // BusyUntil is LastAt
)

// More flags, in a byte of their own.
const (
	morePauses = 1 << iota
	moreTook
	morePassed
	moreCanceled
	moreAll = 1<<iota - 1
)

// Encode is the stored form; optional parts are there only if they say something.
func (s *State) Encode() []byte {
	w := writer{b: make([]byte, 0, maxState)}
	s.encodeTo(&w)
	return w.b
}

// maxState is at least what a state can take.
const maxState = 256

func (s *State) encodeTo(w *writer) {
	var flags uint16
	set := func(on bool, f uint16) {
		if on {
			flags |= f
		}
	}
	set(s.Paused, flagPaused)
	set(s.Quarantined, flagQuarantined)
	set(s.OneOff, flagOneOff)
	set(s.Manual, flagManual)
	set(s.AtMostOnce, flagAtMostOnce)
	set(!s.NotRun.Empty(), flagNotRun)
	set(s.BusyUntil != 0, flagBusy)
	set(s.BusyUntil != 0 && s.BusyUntil == s.LastAt, flagBusyLast)
	set(s.LastManual != 0, flagLastManual)
	set(s.ParkedAt != 0 || s.ParkedReady != 0, flagParked)
	set(s.Overlap&1 != 0, flagOverlapLow)
	set(s.Overlap&2 != 0, flagOverlapHigh)
	set(s.Concurrency != 0, flagConcurrency)
	set(s.Notify&NotifyFailure != 0, flagNotifyFailure)
	set(s.Notify&NotifyRecovery != 0, flagNotifyRecovery)
	set(s.Failing, flagFailing)
	var more uint8
	if s.Pauses != (Pauses{}) {
		more |= morePauses
	}
	if s.Took != 0 {
		more |= moreTook
	}
	if s.PassedOver != 0 {
		more |= morePassed
	}
	if s.Canceled {
		more |= moreCanceled
	}

	w.u16(flags)
	w.u32(s.Gen)
	w.u32(s.Class)
	w.u8(uint8(s.Lane))
	w.i64(s.LastNominal)
	w.u64(s.HistHead)
	w.u32(s.Runs)
	w.uvar(uint64(s.ByHand))
	w.u8(uint8(s.LastStatus))
	w.i64(s.LastAt)
	w.ivar(s.LastAt - s.LastSuccess)
	w.u32(s.Active)
	w.u32(s.Waiting)
	w.u32(s.Dead)
	w.u8(more)
	if s.OneOff {
		w.u32(s.Retention)
	}
	if s.Concurrency != 0 {
		w.u16(s.Concurrency)
	}
	if s.LastManual != 0 {
		w.i64(s.LastManual)
	}
	if s.BusyUntil != 0 && s.BusyUntil != s.LastAt {
		w.i64(s.BusyUntil)
	}
	if flags&flagParked != 0 {
		w.i64(s.ParkedAt)
		w.i64(s.ParkedReady)
	}
	if s.Paused {
		w.i64(s.PausedAt)
	}
	if more&morePauses != 0 {
		w.pauses(&s.Pauses)
	}
	if more&moreTook != 0 {
		w.uvar(uint64(s.Took))
	}
	if more&morePassed != 0 {
		w.u8(s.PassedOver)
	}
	if !s.NotRun.Empty() {
		w.interval(s.NotRun)
	}
}

func (w *writer) interval(i Interval) {
	w.ivar(i.First)
	w.ivar(i.Last - i.First)
	w.uvar(uint64(i.Count))
	w.flag(i.AtLeast)
	w.u8(uint8(i.Status))
	w.u8(uint8(i.Reason))
}

func decodeInterval(r *reader) (i Interval) {
	i.First = r.ivar()
	i.Last = i.First + r.ivar()
	i.Count = int64(r.uvar())
	i.AtLeast = r.flag()
	i.Status = job.RunStatus(r.u8())
	i.Reason = job.Reason(r.u8())
	return i
}

// DecodeState reads what Encode wrote.
func DecodeState(b []byte) (State, error) {
	r := reader{b: b}
	var s State
	flags := r.u16()
	s.Gen = r.u32()
	s.Class = r.u32()
	s.Lane = job.Lane(r.u8())
	s.LastNominal = r.i64()
	s.HistHead = r.u64()
	s.Runs = r.u32()
	s.ByHand = uint32(r.uvar())
	s.LastStatus = job.RunStatus(r.u8())
	s.LastAt = r.i64()
	s.LastSuccess = s.LastAt - r.ivar()
	s.Active = r.u32()
	s.Waiting = r.u32()
	s.Dead = r.u32()
	more := r.u8()
	if more > moreAll {
		return s, ErrCorrupt
	}
	s.Paused = flags&flagPaused != 0
	s.Quarantined = flags&flagQuarantined != 0
	s.OneOff = flags&flagOneOff != 0
	s.Manual = flags&flagManual != 0
	s.AtMostOnce = flags&flagAtMostOnce != 0
	s.Failing = flags&flagFailing != 0
	s.Canceled = more&moreCanceled != 0
	if flags&flagNotifyFailure != 0 {
		s.Notify |= NotifyFailure
	}
	if flags&flagNotifyRecovery != 0 {
		s.Notify |= NotifyRecovery
	}
	if flags&flagOverlapLow != 0 {
		s.Overlap |= 1
	}
	if flags&flagOverlapHigh != 0 {
		s.Overlap |= 2
	}
	if s.OneOff {
		s.Retention = r.u32()
	}
	if flags&flagConcurrency != 0 {
		s.Concurrency = r.u16()
	}
	if flags&flagLastManual != 0 {
		s.LastManual = r.i64()
	}
	switch flags & (flagBusy | flagBusyLast) {
	case flagBusy:
		s.BusyUntil = r.i64()
	case flagBusy | flagBusyLast:
		s.BusyUntil = s.LastAt
	}
	if flags&flagParked != 0 {
		s.ParkedAt = r.i64()
		s.ParkedReady = r.i64()
	}
	if s.Paused {
		s.PausedAt = r.i64()
	}
	if more&morePauses != 0 {
		var ok bool
		if s.Pauses, ok = decodePauses(&r); !ok {
			return s, ErrCorrupt
		}
	}
	if more&moreTook != 0 {
		s.Took = int64(r.uvar())
	}
	if more&morePassed != 0 {
		s.PassedOver = r.u8()
	}
	if flags&flagNotRun != 0 {
		if s.NotRun = decodeInterval(&r); s.NotRun.Empty() {
			return s, ErrCorrupt
		}
	}
	return s, r.end()
}

// Place is where a job's state is kept: in the due index at (Lane, Ready, At), or parked.
type Place struct {
	Parked bool
	Lane   job.Lane
	Ready  int64
	At     int64
}

// Due is the key of an occurrence entry at this place.
func (p Place) Due(id job.ID) DueKey {
	return DueKey{Lane: p.Lane, Ready: p.Ready, Job: id, Kind: KindOccurrence, Origin: job.OriginSchedule, At: p.At}
}
