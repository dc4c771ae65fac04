package node

import (
	"slices"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// waitReason is why what is due of a job is not claimed; empty if this node does not know. why is the leader's word on a class of jobs.
func (r *reader) waitReason(h *held, why func(v *store.View, class string) string) string {
	switch {
	case r.Info.Hold.On:
		return fsm.TextHold
	case why != nil:
		return why(r.View, h.def.Spec.Class())
	}
	return ""
}

// dueRun is the occurrence of a job that is due and not claimed, as a pending run. It has no row before its claim, and would otherwise show
// nowhere, however long it waits.
func (r *reader) dueRun(h *held, why func(v *store.View, class string) string) (run job.Run, ok bool) {
	now := r.g.now()
	if h.stopped() || h.place.Parked || h.place.Ready > now {
		return run, false
	}
	if next := r.nextRun(h); next == 0 || next > now {
		return run, false // a calendar forbids it
	}
	k := job.RunKey{Job: h.id, At: h.place.At, Origin: job.OriginSchedule}
	return job.Run{
		RunID: k.String(), JobID: k.Job, JobName: h.def.Spec.Name, ScheduledAt: job.Instant(k.At), Origin: k.Origin, Status: job.RunPending,
		ReadyAt: job.Instant(h.place.Ready), WaitReason: r.waitReason(h, why), Key: job.IdempotencyKey(h.def.Spec.IdempotencyKey, h.def.Spec.Name, k),
	}, true
}

// withDue puts the occurrence that is due before the first page of a job's runs.
func (l *lister) withDue(due job.Run, list func() (client.RunPage, error)) (client.RunPage, error) {
	if !l.wants(job.RunPending) {
		return list()
	}
	if l.q.Limit <= 1 {
		return client.RunPage{Runs: []job.Run{due}, NextCursor: runCursor{}.String()}, nil
	}
	l.q.Limit--
	page, err := list()
	page.Runs = slices.Insert(page.Runs, 0, due)
	return page, err
}
