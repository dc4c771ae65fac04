package checker

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// restored: a cluster that was made of a backup starts nothing that the one before may have started, and nothing at all
// before it is released. Its fences are above all that the one before gave out, also after the backup, of which it
// knows nothing.
func (c *checker) restored() {
	r := c.in.Restored
	if r == nil {
		return
	}
	done := map[job.RunKey]bool{}
	for _, k := range r.Done {
		done[k] = true
	}
	for i := range c.in.Effects {
		if e := &c.in.Effects[i]; e.Fence > r.Fence && done[e.Run] {
			c.bad(RuleRestore, c.lives[e.Run.Job], e.Run.At,
				"%s started it at %s, and the cluster that the backup was taken from had started it", e.Worker, e.Start)
		}
	}
	for _, a := range c.claims {
		if a.Fence <= r.Fence {
			continue
		}
		l := c.lives[a.key.Job]
		if a.Fence <= r.Given {
			c.bad(RuleRestore, l, a.key.At, "it was claimed at %s with fence %d, and the cluster that the backup was "+
				"taken from had given out those up to %d: a target that saw them takes it for an old one", a.ClaimedAt,
				a.Fence, r.Given)
		}
		if int64(a.ClaimedAt) < int64(r.Release)-c.clock {
			c.bad(RuleRestore, l, a.key.At, "it was claimed at %s, before the release at %s", a.ClaimedAt, r.Release)
		}
		if a.key.Origin == job.OriginSchedule && a.key.At <= int64(r.Release)-c.clock && l != nil &&
			l.create.hi < int64(r.Release) && !c.redriven(l, l.runs[a.key]) {
			c.bad(RuleRestore, l, a.key.At,
				"it was claimed at %s, and its time had come before the release at %s: the cluster "+
					"before may have run it", a.ClaimedAt, r.Release)
		}
	}
	for i := range c.in.Final.Open {
		if h := &c.in.Final.Open[i]; h.Fence != 0 && h.Fence <= r.Fence {
			c.bad(RuleRestore, c.lives[h.JobID], int64(h.ScheduledAt), "%s was open in the backup and is open", h.RunID)
		}
	}
}

// lostRestored says that a record is the end of a run that was open in the backup.
func (c *checker) lostRestored(h *job.Run) bool {
	r := c.in.Restored
	return r != nil && h.Status == job.RunLost && h.Reason == job.ReasonRestored && h.ClaimedAt <= r.Backup &&
		h.Fence <= r.Fence &&
		int64(h.FinishedAt) >= int64(r.Release)-c.clock
}

// permitsRestored says why an occurrence cannot have been given up because of a restore; "" if it can.
func (x *walker) permitsRestored(at int64, g *gap) string {
	r := x.c.in.Restored
	switch {
	case r == nil:
		return "the cluster was not restored"
	case at > int64(r.Release)+x.c.clock:
		return "its time came after the release"
	case x.l.create.lo > int64(r.Release):
		return "its job was created after the release"
	case g.recorded < int64(r.Release)-x.c.clock:
		return "it was decided before the release"
	case slices.ContainsFunc(x.l.runs[job.RunKey{Job: x.l.id, At: at, Origin: job.OriginSchedule}].known(),
		func(a *attempt) bool { return a.Fence <= r.Fence }):
		return "it had run before the backup"
	}
	return ""
}

func (r *runLife) known() []*attempt {
	if r == nil {
		return nil
	}
	return r.attempts
}
