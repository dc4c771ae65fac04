package service

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

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
		RunID: k.String(), JobID: k.Job, JobName: h.def.Spec.Name, ScheduledAt: job.Instant(k.At), Origin: k.Origin, Status: job.RunPending,
		ReadyAt: job.Instant(h.place.Ready), WaitReason: r.waitReason(h,
			why), Key: job.IdempotencyKey(h.def.Spec.IdempotencyKey, h.def.Spec.Name, k),
	}, true
}

const (
	// MaxDue bounds how many occurrences that are due a list over all jobs shows: the oldest ones. It is the largest
	// page.
	MaxDue = 1000
	// maxDueLook bounds how many entries of a lane are looked at for them. Those of open runs are in between.
	maxDueLook = 4 * MaxDue
)

// dueKeys are the oldest occurrences of all jobs that are due and not claimed, newest first, below a run (zero: all).
func (r *reader) dueKeys(below job.RunKey) ([]job.RunKey, error) {
	now := r.b.now()
	var all []store.DueKey
	for lane := range job.Lane(job.Lanes) {
		looked, found := 0, 0
		err := r.ScanDue(store.DueKey{Lane: lane}, now, func(e store.DueEntry) bool {
			if e.Kind == store.KindOccurrence {
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
