package checker

import (
	"github.com/carillon-scheduler/carillon/job"
)

// In names something of a namespace: that of a call about a job, a queue or a calendar. Those of the usual namespace go
// by their names alone.
func In(namespace, name string) string {
	return job.QueueKey{Namespace: namespace, Name: name}.String()
}

// spaceOf is the namespace of a job, which no edit changes.
func (l *life) spaceOf() string {
	if s := l.create.Spec; s != nil && s.Namespace != "" {
		return s.Namespace
	}
	return job.DefaultNamespace
}

// namespaces: a worker that takes runs of one namespace never gets one of another, and whatever is shown of a job is
// shown in the namespace that it was created in.
func (c *checker) namespaces() {
	to := func(what, worker string, k job.RunKey, fence uint64, at job.Instant) {
		l, space := c.lives[k.Job], c.in.Namespaces[worker]
		if l != nil && space != "" && space != l.spaceOf() {
			c.bad(RuleNamespace, l, k.At,
				"the run with fence %d of namespace %s %s the worker %s of namespace %s at %s", fence, l.spaceOf(),
				what, worker, space, at)
		}
	}
	for i := range c.in.Handed {
		h := &c.in.Handed[i]
		to("reached", h.Worker, h.Run, h.Fence, h.At)
	}
	for i := range c.in.Effects {
		e := &c.in.Effects[i]
		to("was begun by", e.Worker, e.Run, e.Fence, e.Start)
	}
	shown := func(what string, id job.ID, space string) {
		if l := c.lives[id]; l != nil && space != "" && space != l.spaceOf() {
			c.bad(RuleNamespace, l, 0, "%s is shown in namespace %s, and the job was created in %s", what, space,
				l.spaceOf())
		}
	}
	f := &c.in.Final
	for i := range f.Jobs {
		shown("the job", f.Jobs[i].ID, f.Jobs[i].Namespace)
	}
	for _, runs := range [][]job.Run{f.History, f.Pending, f.Open} {
		for i := range runs {
			shown("a run or record of it", runs[i].JobID, runs[i].Namespace)
		}
	}
	for i := range f.Dead {
		shown("a dead letter of it", f.Dead[i].JobID, f.Dead[i].Namespace)
	}
}
