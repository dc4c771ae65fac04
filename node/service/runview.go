package service

import (
	"cmp"
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// openRun is an open run as the API shows it.
func (r *reader) openRun(k job.RunKey, row *store.Row) (job.Run, error) {
	run := job.Run{
		RunID: k.String(), JobID: k.Job, Namespace: r.Namespace(row.Class), ScheduledAt: job.Instant(k.At),
		Origin: k.Origin, ClaimedAt: job.Instant(row.ClaimedAt), Attempt: int(row.Attempt), Status: row.Status,
		Reason: row.Cancel, Worker: row.Worker, Fence: row.Fence, Key: row.Key, JobVersion: row.Version,
		Forced: job.Forced(k, row.Key), ReadyAt: job.Instant(row.Ready),
	}
	def, err := r.definition(k.Job)
	if err != nil {
		return run, err
	}
	switch row.Status {
	case job.RunClaimed, job.RunCanceling:
		// Whether it has started is known from heartbeats only.
		if e := r.b.o.Tracker.Epoch(); e != nil {
			if started, ok := e.Scheduler.Started(row.Worker, row.Incarnation, row.Fence); ok {
				run.StartedAt = started
				if row.Status == job.RunClaimed {
					run.Status = job.RunRunning
				}
			}
		}
		run.LagMS = lag(&run, def)
	case job.RunWaiting:
		run.ReadyAt = 0
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

// lag is how late a run started, or was claimed if its start is not known: counted from when it might have been. A job
// that was made for a time in the past could not start before it was there.
func lag(run *job.Run, def *store.Definition) *int64 {
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

// record is a line of the history as the API shows it.
func (r *reader) record(seq uint64, rec *store.Record) (job.Run, error) {
	run := job.Run{JobID: rec.Job, Namespace: rec.Namespace, Status: rec.Status, Reason: rec.Reason, Seq: seq}
	def, err := r.definition(rec.Job)
	if err != nil {
		return run, err
	}
	if def != nil {
		run.JobName = def.Spec.Name
	}
	if i := rec.Interval; !i.Empty() {
		run = intervalRun(rec.Job, rec.Namespace, run.JobName, i)
		run.FinishedAt, run.Seq = job.Instant(rec.Recorded), seq
		return run, nil
	}
	k := rec.Run()
	run.RunID, run.ScheduledAt, run.Origin = k.String(), job.Instant(k.At), k.Origin
	run.ClaimedAt, run.StartedAt = job.Instant(rec.ClaimedAt), job.Instant(rec.StartedAt)
	run.FinishedAt = job.Instant(rec.EndedAt)
	run.FinishedAt = cmp.Or(run.FinishedAt, job.Instant(rec.Recorded))
	run.Attempt, run.Worker, run.Fence = int(rec.Attempt), rec.Worker, rec.Fence
	run.Error, run.Output = rec.Error, rec.Output
	run.ReadyAt, run.JobVersion, run.Forced = job.Instant(rec.Ready), rec.Version, job.Forced(k, rec.Key)
	run.LagMS = lag(&run, def)
	if run.Key = rec.Key; run.Key == "" {
		run.Key = job.IdempotencyKey("", run.JobName, k)
	}
	return run, nil
}

// intervalRun is an interval of occurrences that did not run as the API shows it.
func intervalRun(id job.ID, namespace, name string, i store.Interval) job.Run {
	return job.Run{JobID: id, JobName: name, Namespace: namespace, Status: i.Status, Reason: i.Reason,
		First: job.Instant(i.First), Last: job.Instant(i.Last), Count: i.Count, CountAtLeast: i.AtLeast}
}

// notRunYet are the occurrences that did not run and are not in the history yet, newest first: the interval that still
// grows, and of a job that is stopped what passed since, which is recorded when it is resumed, edited or deleted.
func (h *held) notRunYet(now int64) []job.Run {
	all := []store.Interval{h.state.NotRun}
	if h.stopped() {
		g := h.passed(now)
		i := store.Interval{First: g.First, Last: g.Last, Count: g.Count, AtLeast: g.AtLeast, Status: g.Status,
			Reason: g.Reason}
		if !all[0].Add(i) {
			all = []store.Interval{i, all[0]}
		}
	}
	var out []job.Run
	for _, i := range all {
		if !i.Empty() {
			out = append(out, intervalRun(h.id, h.def.Spec.Namespace, h.def.Spec.Name, i))
		}
	}
	return out
}

func noRun(id string) error {
	return job.Errorf(job.CodeNotFound, "GET /api/v1/jobs/{job}/runs lists the runs of a job; old ones are trimmed",
		"there is no run %q", id)
}

func (b *Service) GetRun(ctx context.Context, runID string, rd api.Read) (wire.RunDetail, error) {
	k, err := job.ParseRunKey(runID)
	if err != nil {
		return wire.RunDetail{}, noRun(runID)
	}
	if err := b.fresh(ctx, rd); err != nil {
		return wire.RunDetail{}, err
	}
	return b.runDetail(ctx, k, rd.Space)
}

// runIn refuses a run that is not in the scope of a request. Of one whose job is gone and which has ended only the
// history knows.
func (r *reader) runIn(k job.RunKey, sc api.Space) error {
	row, ok, err := r.Run(k)
	class := row.Class
	if err == nil && !ok {
		var st store.State
		st, _, ok, err = r.State(k.Job)
		class = st.Class
	}
	if err == nil && ok && !sc.Finds(r.Namespace(class)) {
		return noRun(k.String())
	}
	return err
}

// showRun is a run after a change.
func (b *Service) showRun(k job.RunKey, sc api.Space) (job.Run, error) {
	d, err := b.runDetail(context.Background(), k, sc)
	return d.Run, err
}

// maxAttempts is how many attempts of a run are shown.
const maxAttempts = 100

// runDetail finds a run: the open row, and its attempts in the job's chain, which is walked until records are older
// than the run. Of a deleted job there is no chain; the newest part of the whole log is looked through instead.
func (b *Service) runDetail(ctx context.Context, k job.RunKey, sc api.Space) (wire.RunDetail, error) {
	d := wire.RunDetail{Attempts: []job.Run{}}
	found := false
	cur, chained := uint64(0), true
	var around store.Interval // an interval of occurrences that did not run, with this one's time in it
	covers := func(i store.Interval) bool {
		return !i.Empty() && k.Origin == job.OriginSchedule && i.First <= k.At && k.At <= i.Last
	}
	for looked := 0; looked < runsLimit; looked += viewRuns {
		if err := ctx.Err(); err != nil {
			return d, err
		}
		done := true
		err := b.view(func(r *reader) error {
			if looked == 0 {
				if err := r.runIn(k, sc); err != nil {
					return err
				}
				row, ok, err := r.Run(k)
				if err != nil {
					return err
				}
				if found = ok; ok {
					if d.Run, err = r.openRun(k, &row); err != nil {
						return err
					}
				} else if h, err := r.held(k.Job); err == nil && k.Origin == job.OriginSchedule {
					if due, ok := r.dueRun(&h, b.why()); ok && due.RunID == k.String() {
						d.Run, found = due, true
					}
				}
				var st store.State
				if st, _, chained, err = r.State(k.Job); err != nil {
					return err
				}
				if covers(st.NotRun) {
					around = st.NotRun
				}
			}
			var inner error
			n := 0
			each := func(seq uint64, rec store.Record) bool {
				if n == viewRuns {
					done = false
					return false
				}
				n++
				cur = seq
				if rec.Recorded+chainSlack < k.At {
					return false
				}
				if rec.Job != k.Job || !sc.Finds(rec.Namespace) {
					return true
				}
				if covers(rec.Interval) && around.Empty() {
					around = rec.Interval
				}
				if rec.Interval.Empty() && rec.Run() == k && len(d.Attempts) < maxAttempts {
					run, err := r.record(seq, &rec)
					if err != nil {
						inner = err
						return false
					}
					d.Attempts = append(d.Attempts, run)
				}
				return true
			}
			var err error
			if chained {
				var from uint64
				if from, err = r.chainFrom(k.Job, cur); err == nil {
					err = r.EachOfJob(from, each)
				}
			} else {
				err = r.EachRecordBack(cur, each)
			}
			if err == nil {
				err = inner
			}
			return err
		})
		if err != nil {
			return d, err
		}
		if done {
			break
		}
	}
	if !found {
		if len(d.Attempts) == 0 && !around.Empty() {
			return d, job.Errorf(job.CodeNotFound, "GET /api/v1/jobs/"+k.Job.String()+"/runs shows what did not run",
				"there is no run %q: from %s to %s nothing ran (%s: %s)", k.String(), job.Instant(around.First),
				job.Instant(around.Last), around.Status, around.Reason)
		}
		if len(d.Attempts) == 0 {
			return d, noRun(k.String())
		}
		d.Run = d.Attempts[0]
	}
	d.Attempts = sameRun(d.Attempts, d.Run.Key)
	return d, nil
}

// sameRun are the attempts with a key. A forced backfill repeats an occurrence under the same id; what tells the two
// runs apart is the key.
func sameRun(attempts []job.Run, key string) []job.Run {
	return slices.DeleteFunc(attempts, func(r job.Run) bool { return r.Key != key })
}

// waitReason is why what is due of a job is not claimed; empty if this node does not know. why is the leader's word on
// a class of jobs.
func (r *reader) waitReason(h *held, why func(v *store.View, class string) string) string {
	switch {
	case r.Info.Hold.On:
		return fsm.TextHold
	case why != nil:
		return why(r.View, h.def.Spec.Class())
	}
	return ""
}

// dueRun is the occurrence of a job that is due and not claimed, as a pending run. It has no row before its claim, and
// would otherwise show nowhere, however long it waits.
func (r *reader) dueRun(h *held, why func(v *store.View, class string) string) (run job.Run, ok bool) {
	now := r.b.now()
	if h.stopped() || h.place.Parked || h.place.Ready > now {
		return run, false
	}
	if next := r.nextRun(h); next == 0 || next > now {
		return run, false // a calendar forbids it
	}
	k := job.RunKey{Job: h.id, At: h.place.At, Origin: job.OriginSchedule}
	return job.Run{
		RunID: k.String(), JobID: k.Job, JobName: h.def.Spec.Name, Namespace: h.def.Spec.Namespace,
		ScheduledAt: job.Instant(k.At), Origin: k.Origin, Status: job.RunPending, ReadyAt: job.Instant(h.place.Ready),
		WaitReason: r.waitReason(h, why), Key: job.IdempotencyKey(h.def.Spec.IdempotencyKey, h.def.Spec.Name, k),
	}, true
}

const (
	// MaxDue bounds how many occurrences that are due a list over all jobs shows: the oldest ones. It is the largest
	// page.
	MaxDue = 1000
	// maxDueLook bounds how many entries of a lane are looked at for them. Those of open runs are in between.
	maxDueLook = 4 * MaxDue
)

// dueKeys are the oldest occurrences of all jobs of a scope that are due and not claimed, newest first, below a run
// (zero: all).
func (r *reader) dueKeys(below job.RunKey, sc api.Space) ([]job.RunKey, error) {
	now := r.b.now()
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
		if k := d.Run(); below == (job.RunKey{}) || before(k, below) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b job.RunKey) int {
		if before(b, a) {
			return -1
		}
		return 1
	})
	return out, nil
}

// addDue adds the occurrence that a key of dueKeys stands for, if it is still due.
func (l *lister) addDue(r *reader, k job.RunKey) error {
	h, err := r.held(k.Job)
	if job.CodeOf(err) == job.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if due, ok := r.dueRun(&h, l.b.why()); ok && due.RunID == k.String() {
		l.page.Runs = append(l.page.Runs, due)
	}
	return nil
}

// withDue puts the occurrence that is due before the first page of a job's runs.
func (l *lister) withDue(due job.Run, list func() (wire.RunPage, error)) (wire.RunPage, error) {
	if !l.wants(job.RunPending) {
		return list()
	}
	if l.q.Limit <= 1 {
		return wire.RunPage{Runs: []job.Run{due}, NextCursor: runCursor{}.String()}, nil
	}
	l.q.Limit--
	page, err := list()
	page.Runs = slices.Insert(page.Runs, 0, due)
	return page, err
}
