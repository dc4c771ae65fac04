package scheduler

import (
	"math"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/scheduler/decide"
	"github.com/carillon-scheduler/carillon/store"
)

// Whether an occurrence overlaps with a run of its job is about its own time, not about when a worker has a slot. So
// one that finds a run open does not wait for a slot with the others: it is proposed at once, and apply decides by the
// policy.

// admit is an occurrence that is proposed so, with what follows either way.
type admit struct {
	key  store.DueKey
	gen  uint32
	wait decide.Decision // it becomes a run that waits
	skip decide.Decision // it does not run
	idem string          // its idempotency key, if that is not the default
}

// openNow is until when a job is busy that has a run open.
const openNow = math.MaxInt64

// busy says until when a run of its job was in the way of an occurrence that was just read; 0 if none was. What opens
// after that is found by the claim.
func (l *loop) busy(e *store.DueEntry) int64 {
	s := &e.State
	switch {
	case e.Kind != store.KindOccurrence || s.Overlap == store.OverlapAllow || mutant.On(mutant.JudgeBySlot):
		return 0
	case s.Active > 0:
		return openNow
	case s.Overlap == store.OverlapSkip && e.Ready <= s.BusyUntil && s.BusyUntil <= l.now:
		return s.BusyUntil
	}
	return 0
}

// block takes up an occurrence that finds a run open.
func (l *loop) block(e *store.DueEntry, busy int64) {
	if rest := &l.lanes[e.Lane].blocked; len(l.blocked) >= maxWaitingAdvances || rest.covers(&e.DueKey) {
		rest.from(e.DueKey)
		return
	}
	it := itemOf(e)
	it.busy = busy
	l.known[e.DueKey] = e.Class
	l.blocked = append(l.blocked, it)
}

// admit judges what was blocked (a missed window, a deadline and a blackout come before an overlap) and proposes the
// rest.
func (l *loop) admit() {
	for len(l.blocked) > 0 && len(l.advances) < maxWaitingAdvances && len(l.admits) < maxBatch {
		n := min(buildChunk, len(l.blocked))
		picks := make([]pick, n)
		for i := range picks {
			picks[i].item = l.blocked[i]
		}
		if err := l.load(picks); err != nil {
			l.noteScan(err)
			return
		}
		l.blocked = append(l.blocked[:0], l.blocked[n:]...)
		for i := range picks {
			if p := &picks[i]; l.judge(p) {
				l.admits = append(l.admits, l.admission(p))
			}
		}
	}
	l.sendAdmits()
}

func (l *loop) admission(p *pick) admit {
	a := admit{key: p.DueKey, gen: p.gen, idem: p.key}
	a.wait, a.skip = l.occurrence(p).Admission(min(p.busy, l.now), l.outages)
	return a
}

func (l *loop) sendAdmits() {
	for len(l.admits) > 0 && l.admitting < maxInFlight && (l.admitting == 0 || len(l.admits) >= worthwhile) {
		n := admitsAtOnce(l.admits)
		batch := append([]admit(nil), l.admits[:n]...)
		l.admits = append(l.admits[:0], l.admits[n:]...)
		l.admitting++
		l.submit(admitCommand(l.s.head(l.now), batch), func(reply *fsm.Reply, err error) {
			l.admitting--
			if l.applied("admit", n, func(i int) store.DueKey { return batch[i].key }, reply, err) {
				l.admitted(batch, reply)
			}
		})
	}
}

// admitsAtOnce is how many of some go into one entry of the log. One that is too large would never be taken in.
func admitsAtOnce(all []admit) int {
	n, size := 0, 0
	for n < min(maxBatch, len(all)) && size <= maxClaimBytes {
		size += claimOverhead + len(all[n].idem)
		n++
	}
	return n
}

func admitCommand(h fsm.Head, batch []admit) *fsm.Admit {
	n := len(batch)
	c := &fsm.Admit{Head: h, Flags: make([]byte, n)}
	for i := range batch {
		a := &batch[i]
		c.Lane = append(c.Lane, byte(a.key.Lane))
		c.Ready = append(c.Ready, a.key.Ready)
		c.Jobs = append(c.Jobs, uint64(a.key.Job))
		c.At = append(c.At, a.key.At)
		c.Gen = append(c.Gen, a.gen)
		c.Next = append(c.Next, a.wait.Next.At)
		c.NextReady = append(c.NextReady, a.wait.Next.Ready)
		c.Past = append(c.Past, a.skip.Next.At)
		c.PastReady = append(c.PastReady, a.skip.Next.Ready)
		c.Gaps = append(c.Gaps, a.skip.Gap)
		c.Flags[i] = a.wait.Flags()
		if a.idem != "" {
			if c.Keys == nil {
				c.Keys = make([]string, n)
			}
			c.Keys[i] = a.idem
		}
	}
	return c
}

// admitted does the loop's bookkeeping after a batch.
func (l *loop) admitted(batch []admit, reply *fsm.Reply) {
	skipped, queued := 0, 0
	for i := range batch {
		a := &batch[i]
		next := a.wait.Next
		switch o := &reply.Items[i]; o.Code {
		case fsm.CodeSkipped:
			skipped++
			next = a.skip.Next
		case fsm.CodeQueued:
			queued++
		case fsm.CodeRefused:
			l.bad = append(l.bad, quarantine{a.key, a.gen, "admitting an occurrence was refused: " + o.Text})
			continue
		default: // the run that was in its way has ended, or the entry is another one
			l.refused(a.key)
			continue
		}
		l.settled(a.key)
		if next.At != 0 {
			l.mark(store.DueMark{Lane: a.key.Lane, Ready: next.Ready})
		}
	}
	if f := l.s.o.Metrics.Claims; f != nil {
		for name, n := range map[string]int{"skipped": skipped, "queued": queued} {
			if n > 0 {
				f(name, n)
			}
		}
	}
}
