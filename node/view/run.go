package view

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// OpenRun is an open run as the API shows it.
func (r *Reader) OpenRun(k job.RunKey, row *store.Row) (job.Run, error) {
	run := job.Run{
		RunID: k.String(), JobID: k.Job, Namespace: r.Namespace(row.Class), ScheduledAt: job.Instant(k.At),
		Origin: k.Origin, ClaimedAt: job.Instant(row.ClaimedAt), Attempt: int(row.Attempt), Status: row.Status,
		Reason: row.Cancel, Worker: row.Worker, Fence: row.Fence, Key: row.Key, JobVersion: row.Version,
		Forced: job.Forced(k, row.Key), ReadyAt: job.Instant(row.Ready),
	}
	def, err := r.Def(k.Job)
	if err != nil {
		return run, err
	}
	switch row.Status {
	case job.RunClaimed, job.RunCanceling:
		// Whether it has started is known from heartbeats only.
		if s := r.src.Leads(); s != nil {
			if started, ok := s.Started(row.Worker, row.Incarnation, row.Fence); ok {
				run.StartedAt = started
				if row.Status == job.RunClaimed {
					run.Status = job.RunRunning
				}
			}
		}
		run.LagMS = Lag(&run, def)
	case job.RunWaiting:
		run.ReadyAt = 0
		if run.Reason, run.WaitReason, err = r.waitsBehind(k, row); err != nil {
			return run, err
		}
	}
	if run.WaitReason == "" {
		if run.WaitReason, err = r.openReason(k, row); err != nil {
			return run, err
		}
	}
	name := ""
	if def != nil {
		name = def.Spec.Name
	}
	run.JobName = name
	if run.Key == "" {
		run.Key = job.IdempotencyKey("", name, k)
	}
	return run, nil
}

// openReason is what an open run that could be carried out now waits for; empty if it has a worker, is not due, or this
// node does not know.
func (r *Reader) openReason(k job.RunKey, row *store.Row) (string, error) {
	due, inIndex := row.Due(k)
	switch {
	case row.Status == job.RunWaiting && row.Held != job.RunNone:
		return "the job is paused", nil
	case row.Status != job.RunWaiting && (!inIndex || due.Ready > r.src.Now()):
		return "", nil
	}
	h, err := r.Held(k.Job)
	if job.CodeOf(err) == job.CodeNotFound {
		return "", nil
	}
	if err != nil || row.Status == job.RunWaiting {
		return h.turn(r.src.Now()), err
	}
	return r.waitReason(&h), nil
}

// TextBackfill says why a live run waits for one that catches up.
const TextBackfill = "a backfill, a redriven run or a run_all catch-up is in progress; this run starts when that ends"

// waitsBehind is why a run waits, if the schedule and catch-up runs of its job are in each other's way.
func (r *Reader) waitsBehind(k job.RunKey, row *store.Row) (job.Reason, string, error) {
	switch {
	case row.Held != job.RunNone || !row.Delayed && !row.Serial:
		return job.ReasonNone, "", nil
	case row.Delayed:
		return job.ReasonBackfill, TextBackfill, nil
	}
	s, p, ok, err := r.State(k.Job)
	if h := (Held{State: s, Place: p}); err != nil || !ok || !h.lacksRoom(r.src.Now()) {
		return job.ReasonNone, "", err
	}
	return job.ReasonNoRoom, noRoom(&s), nil
}

// lacksRoom says that runs of the job wait because they would not end before the next occurrence.
func (h *Held) lacksRoom(now int64) bool {
	s := &h.State
	return s.Waiting > 0 && s.Active == 0 && !h.Stopped() && !h.Place.Parked && h.Place.Ready > now &&
		s.Overlap != store.OverlapAllow
}

// noRoom says what catch-up runs wait for that find no room between two occurrences.
func noRoom(s *store.State) string {
	return "there is no time left before the next occurrence: a run of the job takes about " +
		(time.Duration(s.Took) * time.Millisecond).Round(100*time.Millisecond).String()
}

// Lag is how late a run started, or was claimed if its start is not known: counted from when it might have been. A job
// that was made for a time in the past could not start before it was there.
func Lag(run *job.Run, def *store.Definition) *int64 {
	at := cmp.Or(run.StartedAt, run.ClaimedAt)
	if at == 0 || run.ReadyAt == 0 {
		return nil
	}
	ready := run.ReadyAt
	if def != nil {
		ready = max(ready, job.Instant(def.CreatedAt))
	}
	ms := max(0, int64(at-ready)) // the start is by the worker's clock
	return &ms
}

// RecordedRun is a line of the history as the API shows it.
func (r *Reader) RecordedRun(seq uint64, rec *store.Record) (job.Run, error) {
	run := job.Run{JobID: rec.Job, Namespace: rec.Namespace, Status: rec.Status, Reason: rec.Reason, Seq: seq}
	def, err := r.Def(rec.Job)
	if err != nil {
		return run, err
	}
	if def != nil {
		run.JobName = def.Spec.Name
	} else if run.JobName, err = r.src.deleted.of(r.View, rec.Job); err != nil {
		return run, err
	}
	if i := rec.Interval; !i.Empty() {
		run = intervalRun(rec.Job, rec.Namespace, run.JobName, i)
		run.FinishedAt, run.Seq, run.JobDeleted = job.Instant(rec.Recorded), seq, def == nil
		return run, nil
	}
	run.JobDeleted = def == nil
	k := rec.Run()
	run.RunID, run.ScheduledAt, run.Origin = k.String(), job.Instant(k.At), k.Origin
	run.ClaimedAt, run.StartedAt = job.Instant(rec.ClaimedAt), job.Instant(rec.StartedAt)
	run.FinishedAt = job.Instant(rec.EndedAt)
	run.FinishedAt = cmp.Or(run.FinishedAt, job.Instant(rec.Recorded))
	run.Attempt, run.Worker, run.Fence = int(rec.Attempt), rec.Worker, rec.Fence
	run.Error, run.Output = rec.Error, rec.Output
	run.ReadyAt, run.JobVersion, run.Forced = job.Instant(rec.Ready), rec.Version, job.Forced(k, rec.Key)
	run.LagMS = Lag(&run, def)
	if run.Key = rec.Key; run.Key == "" {
		run.Key = job.IdempotencyKey("", run.JobName, k)
	}
	return run, nil
}

// NoRun is the error about a run that is not there.
func NoRun(id string) error {
	return job.Errorf(job.CodeNotFound, "GET /api/v1/jobs/{job}/runs lists the runs of a job; old ones are trimmed",
		"there is no run %q", id)
}

// RunIn refuses a run that is not in the scope of a request. Of one whose job is gone and which has ended only the
// history knows.
func (r *Reader) RunIn(k job.RunKey, sc api.Space) error {
	row, ok, err := r.Run(k)
	class := row.Class
	if err == nil && !ok {
		var st store.State
		st, _, ok, err = r.State(k.Job)
		class = st.Class
	}
	if err == nil && ok && !sc.Finds(r.Namespace(class)) {
		return NoRun(k.String())
	}
	return err
}

// FindRuns resolves a reference to a job whose history is wanted. Of one that is gone the number is enough: in which
// namespace it was only its history knows, so who may not see all of them must be found something there. Otherwise err
// is what is said then, too.
func (r *Reader) FindRuns(ref string, sc api.Space) (id job.ID, gone bool, err error) {
	if id, err = r.Find(ref, sc); err == nil {
		return id, false, nil
	}
	if n, perr := job.ParseID(ref); perr == nil && job.CodeOf(err) == job.CodeNotFound && n > 0 &&
		uint64(n) <= r.C.NextJob {
		if def, gerr := r.Def(n); gerr != nil || def != nil { // it is not gone, but in another namespace
			return 0, false, cmp.Or(gerr, err)
		}
		if sc.Anywhere() {
			err = nil
		}
		return n, true, err
	}
	return 0, false, err
}

// ChainFrom is the record of a job's chain below a sequence number; 0: its head.
func (r *Reader) ChainFrom(id job.ID, below uint64) (uint64, error) {
	if below == 0 {
		st, _, ok, err := r.State(id)
		if err != nil || !ok {
			return 0, err
		}
		return st.HistHead, nil
	}
	rec, ok, err := r.Record(below)
	if err != nil || !ok || rec.Job != id {
		return 0, err // trimmed meanwhile: everything older is gone, too
	}
	return rec.Prev, nil
}

// DueRun is the occurrence of a job that is due and not claimed, as a pending run. It has no row before its claim, and
// would otherwise show nowhere, however long it waits.
func (r *Reader) DueRun(h *Held) (run job.Run, ok bool) {
	now := r.src.Now()
	if h.Stopped() || h.Place.Parked || h.Place.Ready > now {
		return run, false
	}
	if next := r.NextRun(h); next == 0 || next > now {
		return run, false // a calendar forbids it
	}
	k := job.RunKey{Job: h.ID, At: h.Place.At, Origin: job.OriginSchedule}
	return job.Run{
		RunID: k.String(), JobID: k.Job, JobName: h.Def.Spec.Name, Namespace: h.Def.Spec.Namespace,
		ScheduledAt: job.Instant(k.At), Origin: k.Origin, Status: job.RunPending, ReadyAt: job.Instant(h.Place.Ready),
		WaitReason: r.waitReason(h), Key: job.IdempotencyKey(h.Def.Spec.IdempotencyKey, h.Def.Spec.Name, k),
	}, true
}

const (
	// MaxDue bounds how many occurrences that are due a list over all jobs shows: the oldest ones. It is the largest
	// page.
	MaxDue = 1000
	// maxDueLook bounds how many entries of a lane are looked at for them. Those of open runs are in between.
	maxDueLook = 4 * MaxDue
)

// DueKeys are the oldest occurrences of all jobs of a scope that are due and not claimed, newest first, below a run
// (zero: all).
func (r *Reader) DueKeys(below job.RunKey, sc api.Space) ([]job.RunKey, error) {
	now := r.src.Now()
	var all []store.DueKey
	for lane := range job.Lane(job.Lanes) {
		looked, found := 0, 0
		err := r.ScanDue(store.DueKey{Lane: lane}, now, func(e store.DueEntry) bool {
			if e.Kind == store.KindOccurrence && sc.Lists(r.Namespace(e.Class)) {
				all = append(all, e.DueKey)
				found++
			}
			looked++
			return looked < maxDueLook && found < MaxDue
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b store.DueKey) int {
		return cmp.Or(cmp.Compare(a.Ready, b.Ready), cmp.Compare(a.Job, b.Job))
	})
	var out []job.RunKey
	for _, d := range all[:min(len(all), MaxDue)] {
		if k := d.Run(); below == (job.RunKey{}) || Before(k, below) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b job.RunKey) int {
		if Before(b, a) {
			return -1
		}
		return 1
	})
	return out, nil
}

// Before is the order of the runs bucket.
func Before(a, b job.RunKey) bool {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Origin, b.Origin)) < 0
}

// Letter is a dead letter as the API shows it.
func (r *Reader) Letter(seq uint64, d *store.Dead) (job.DeadLetter, error) {
	run, err := r.OpenRun(d.Run, &d.Row)
	if err != nil {
		return job.DeadLetter{}, err
	}
	run.Status, run.Reason, run.FinishedAt = job.RunDead, d.Reason, job.Instant(d.DiedAt)
	run.Error, run.Output, run.Seq = d.Error, d.Output, seq
	rec, ok, err := r.Record(seq)
	if err != nil {
		return job.DeadLetter{}, err
	}
	if ok {
		run.StartedAt = job.Instant(rec.StartedAt)
		if rec.EndedAt != 0 {
			run.FinishedAt = job.Instant(rec.EndedAt)
		}
	}
	def, err := r.Def(d.Run.Job)
	if err != nil {
		return job.DeadLetter{}, err
	}
	run.LagMS = Lag(&run, def)
	return job.DeadLetter{Seq: seq, Run: run}, nil
}

// DeadCursor is the dead letter that a page is below; 0: it is the first page.
func DeadCursor(cursor string) (uint64, error) {
	if cursor == "" {
		return 0, nil
	}
	below, err := strconv.ParseUint(cursor, 10, 64)
	if err != nil || below == 0 {
		return 0, BadCursor()
	}
	return below, nil
}

// FindDead resolves a reference to a job that may be gone: its dead letters are not. Without one it is 0: any job.
func (r *Reader) FindDead(ref string, sc api.Space) (job.ID, error) {
	if ref == "" {
		return 0, nil
	}
	if id, err := job.ParseID(ref); err == nil {
		return id, nil
	}
	return r.Find(ref, sc)
}

// Selects says that a dead letter is of a job, or with 0 one of the namespace of a request.
func (r *Reader) Selects(d *store.Dead, id job.ID, sc api.Space) bool {
	space := r.Namespace(d.Row.Class)
	if id == 0 {
		return sc.Lists(space)
	}
	return d.Run.Job == id && sc.Finds(space)
}
