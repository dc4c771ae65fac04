package checker

import (
	"cmp"
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// trimLate is how long after its time a record may still be there: the leader looks every few seconds, and a new one
// begins to count anew.
const trimLate = 120_000

// trimmed: what is missing lies at or below a committed floor, every floor lies below what age and count protect, and
// the newest record of a job stays. What is too old goes.
func (c *checker) trimmed() {
	t := c.in.Final.Trimmed
	if t == nil {
		return
	}
	records := map[uint64]*job.Run{}
	newest := map[job.ID]uint64{}
	last := uint64(0)
	for i := range c.in.Final.History {
		h := &c.in.Final.History[i]
		records[h.Seq] = h
		newest[h.JobID] = max(newest[h.JobID], h.Seq)
		last = max(last, h.Seq)
	}
	seqs := slices.Sorted(maps.Keys(records))
	written := func(seq uint64) int64 {
		if at, ok := c.in.Final.Recorded[seq]; ok {
			return int64(at)
		}
		return int64(records[seq].FinishedAt)
	}
	old := func(seq uint64, at int64, newest uint64) bool {
		return t.MaxAge > 0 && written(seq)+t.MaxAge.Milliseconds() < at || t.MaxCount > 0 && newest-seq >= t.MaxCount
	}
	late := cmp.Or(t.Late.Milliseconds(), trimLate)
	floor := uint64(0)
	for _, f := range t.Floors {
		from, _ := slices.BinarySearch(seqs, floor+1)
		for _, seq := range seqs[min(from, len(seqs)):] {
			if seq > f.Seq {
				break
			}
			if !old(seq, int64(f.At)+c.clock+1, f.Last) {
				c.bad(RuleTrim, c.lives[records[seq].JobID], 0,
					"record %d of %s was trimmed at %s: it is neither older than %s nor among more than %d, of which "+
						"the last is %d", seq,
					job.Instant(written(seq)), f.At, t.MaxAge, t.MaxCount, f.Last)
			}
		}
		floor = max(floor, f.Seq)
	}
	end := int64(c.in.Final.At)
	// History goes in its order: a record that a leader with a wrong clock dated back stays as long as one before it
	// does.
	latest := int64(0)
	for _, seq := range seqs {
		h := records[seq]
		latest = max(latest, written(seq))
		l := c.lives[h.JobID]
		head := newest[h.JobID] == seq && l != nil && l.final != nil
		switch {
		case !t.Kept[seq] && head:
			c.bad(RuleTrim, l, 0, "record %d is the newest of its job, and it is gone", seq)
		case !t.Kept[seq] && seq > floor:
			c.bad(RuleTrim, l, 0, "record %d is gone, and everything above %d is to be kept", seq, floor)
		case t.Kept[seq] && !head && seq <= floor && l != nil && l.final != nil:
			c.bad(RuleTrim, l, 0, "record %d is there, below the floor %d, and it is not the newest of its job",
				seq, floor)
		case t.Kept[seq] && !head && t.MaxAge > 0 && latest+t.MaxAge.Milliseconds()+late < end:
			c.bad(RuleTrim, l, 0, "record %d of %s is still there at the end, with %s as the age of history", seq,
				job.Instant(written(seq)), t.MaxAge)
		}
	}
	for seq := range t.Kept {
		if records[seq] == nil {
			c.bad(RuleInput, nil, 0, "record %d is there, and was never seen when it was written", seq)
		}
	}
	if t.MaxCount > 0 && uint64(len(seqs)) > t.MaxCount {
		// So many were written since; the leader has had its time.
		at := slices.IndexFunc(seqs, func(s uint64) bool { return written(s)+late >= end })
		if at > 0 && seqs[at-1] > t.MaxCount && floor < seqs[at-1]-t.MaxCount {
			c.bad(RuleTrim, nil, 0, "the floor is at %d, and at least %d were to be trimmed",
				floor, seqs[at-1]-t.MaxCount)
		}
	}
}

// forgottenBy says that the history may have held nothing of a run any more at a time: nothing knows then that it ran.
func (c *checker) forgottenBy(r *runLife, at int64) bool {
	t := c.in.Final.Trimmed
	if t == nil {
		return false
	}
	return slices.ContainsFunc(t.Floors, func(f Floor) bool {
		return int64(f.At) <= at+c.clock &&
			!slices.ContainsFunc(r.attempts, func(a *attempt) bool { return a.Seq > f.Seq && a.recorded <= at })
	})
}

// cleaned: a one-off that goes by itself goes when its retention is over, counted from the end of its last run, and not
// while something of it is open or dead.
func (c *checker) cleaned() {
	for _, id := range slices.SortedFunc(maps.Keys(c.in.Final.Cleaned), cmp.Compare[job.ID]) {
		at := int64(c.in.Final.Cleaned[id])
		l := c.lives[id]
		if l == nil || l.w == nil || l.final != nil || l.w.deleted.lo != forever {
			continue
		}
		v := l.w.versions[len(l.w.versions)-1]
		keep := ms(v.spec.Retention)
		ended := l.create.lo
		for _, r := range l.runs {
			if r.open != nil {
				c.bad(RuleTrim, l, r.key.At, "its job was removed, and it is open")
			}
			ended = max(ended, r.lastEnd())
		}
		for _, g := range l.gaps {
			ended = max(ended, int64(g.FinishedAt))
		}
		if at < ended+keep-c.clock {
			c.bad(RuleTrim, l, 0, "the job was removed at %s, and its retention of %s ended at %s", job.Instant(at),
				v.spec.Retention, job.Instant(ended+keep))
		}
		for _, d := range c.in.Final.Dead {
			if d.JobID == id {
				c.bad(RuleTrim, l, int64(d.ScheduledAt), "its job was removed, and it is among the dead letters")
			}
		}
	}
}

// lastEnd is when a run surely had not ended yet, or had just.
func (r *runLife) lastEnd() int64 {
	at := int64(0)
	for _, a := range r.attempts {
		at = max(at, int64(a.FinishedAt))
	}
	for i := range r.closed {
		at = max(at, int64(r.closed[i].FinishedAt))
	}
	return at
}
