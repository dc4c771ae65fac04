package checker

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// renewed finds the backfill that gave a run another life without force with its i-th attempt; nil if there is none.
// A backfill knows from the history alone what ran, so all of these must be true:
//   - the attempt is a first one, and the life before it had ended;
//   - a backfill of that time was asked for after that end and before the claim, it names the time if it was answered,
//     and gave no other life;
//   - every record of the lives before it lay at or below a floor by then;
//   - the newest of them was not the newest record of its job, which stays.
func (c *checker) renewed(l *life, r *runLife, i int, used map[*change]bool) *change {
	a := r.attempts[i]
	if i == 0 || r.key.Origin != job.OriginBackfill || a.Attempt != 1 || c.in.Final.Trimmed == nil {
		return nil
	}
	prev := r.attempts[i-1]
	last, ended := prev.Seq, prev.recorded
	over := prev.Status != job.RunFailed && !prev.isOpen
	for j := range r.closed { // it was canceled before its retry
		if h := &r.closed[j]; h.Seq > prev.Seq && (a.Seq == 0 || h.Seq < a.Seq) {
			last, ended, over = max(last, h.Seq), c.committed(h), true
		}
	}
	if !over || last == 0 {
		return nil
	}
	for _, ch := range l.of(CallBackfill) {
		by := min(ch.hi, int64(a.ClaimedAt)) + c.clock
		if ch.Force || used[ch] || !ch.fills(r.key.At) || ch.lo > int64(a.ClaimedAt)+c.clock || ended > by {
			continue
		}
		if c.trimmedBy(last, by) && c.followedBy(l.id, last, by) {
			return ch
		}
	}
	return nil
}

// trimmedBy says that a record may have lain at or below the floor at a time.
func (c *checker) trimmedBy(seq uint64, at int64) bool {
	return slices.ContainsFunc(c.in.Final.Trimmed.Floors, func(f Floor) bool {
		return f.Seq >= seq && int64(f.At) <= at
	})
}

// followedBy says that a job may have had a newer record than that at a time.
func (c *checker) followedBy(id job.ID, seq uint64, at int64) bool {
	return slices.ContainsFunc(c.in.Final.History, func(h job.Run) bool {
		return h.JobID == id && h.Seq > seq && c.committed(&h) <= at
	})
}

// filledAgain says that after each end of a run which no worker had there was another backfill that made it again: what
// did not run is not left out.
func (c *checker) filledAgain(l *life, r *runLife) bool {
	if r.key.Origin != job.OriginBackfill {
		return false
	}
	used := map[*change]bool{}
	for i := 1; i < len(r.closed); i++ {
		from, to := c.committed(&r.closed[i-1])-c.clock, c.committed(&r.closed[i])+c.clock
		asked := l.of(CallBackfill)
		j := slices.IndexFunc(asked, func(ch *change) bool {
			return !used[ch] && from <= ch.hi && ch.lo <= to && ch.fills(r.key.At)
		})
		if j < 0 {
			return false
		}
		used[asked[j]] = true
	}
	return true
}

// fills says that a backfill may have made a run of a time.
func (ch *change) fills(at int64) bool {
	return int64(ch.From) <= at && at <= int64(ch.To) && (!ch.sure || slices.Contains(ch.Times, job.Instant(at)))
}
