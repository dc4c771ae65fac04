package scheduler

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// An entry of the due index becomes ready in one of two ways. The wheel gives out its time, and the entries of that
// time are read. Or a sweep comes by, which reads all that is due in order: at once where something is known to be
// unread, and slowly all the time.

const (
	readChunk  = 4096 // entries read in one view: a view holds up commits, so it is short
	guardChunk = 2048 // entries of each lane that the guard reads in a second
	fillChunk  = 1024 // times of each lane put into its wheel in one view
	// aheadMillis is how far ahead the wheels are filled: the horizon.
	aheadMillis = 10 * 60 * 1000
	// maxTimes is how many times of a lane are read one by one: it is cheaper to sweep over more.
	maxTimes = 1024
)

// sweep is a position in the due index: what is due from it on is yet to be read.
type sweep struct {
	on bool
	at store.DueKey
}

// from makes the sweep read from a key on.
func (s *sweep) from(k store.DueKey) {
	if !s.on || less(&k, &s.at) {
		s.on, s.at = true, k
	}
}

// covers says that the sweep gets to a key.
func (s *sweep) covers(k *store.DueKey) bool { return s.on && !less(k, &s.at) }

// find brings what became due into the buckets, and says whether the next turn should come at once because there is
// more. guard is true once a second.
func (l *loop) find(guard bool) (more bool, err error) {
	l.applyChanges(l.s.feed.take())
	l.reopen()
	l.turnWheels()
	if guard || l.unfilled && !l.behind || l.beyondHorizon() {
		err = l.fillWheels()
	}
	more, readErr := l.read()
	l.behind = more
	err = errors.Join(err, readErr)
	if guard && !l.s.o.noGuard {
		err = errors.Join(err, l.guard())
	}
	return more, err
}

// applyChanges takes up what commits changed.
func (l *loop) applyChanges(n changes) {
	if n.forget {
		l.catalog.forgetAll()
	} else if !mutant.On(mutant.IgnoreGen) {
		l.catalog.forget(n.jobs)
	}
	for _, m := range n.marks {
		l.mark(m)
	}
	if n.lost {
		l.lostEvents()
	}
}

// mark notes that a lane has something at a time. What is beyond the horizon is found when the wheel is filled that
// far.
func (l *loop) mark(m store.DueMark) {
	if int(m.Lane) < len(l.lanes) && m.Ready <= l.lanes[m.Lane].horizon {
		l.lanes[m.Lane].wheel.Add(m.Ready)
	}
}

// lostEvents makes the loop look at everything again: what is due at once, and what is not by filling the wheels anew.
func (l *loop) lostEvents() {
	for i := range l.lanes {
		n := &l.lanes[i]
		n.sweep.from(n.edge())
		n.horizon = l.now
	}
	l.unfilled = true
}

// reopen sweeps over what there was no room for, once there is.
func (l *loop) reopen() {
	again := func(s *sweep) {
		if s.on {
			l.lanes[s.at.Lane].sweep.from(s.at)
			s.on = false
		}
	}
	if len(l.blocked) < maxWaitingAdvances/2 {
		for i := range l.lanes {
			again(&l.lanes[i].blocked)
		}
	}
	if len(l.cleanups) == 0 {
		again(&l.uncleaned)
	}
}

// turnWheels takes from the wheels what is due now.
func (l *loop) turnWheels() {
	for i := range l.lanes {
		n := &l.lanes[i]
		n.wheel.Advance(l.now, n.due)
	}
}

// due takes a time that the wheel gave out. After a hold there may be one for every millisecond of it.
func (n *lane) due(at int64) {
	if n.sweep.covers(&store.DueKey{Lane: n.n, Ready: at}) {
		return
	}
	if len(n.times) < maxTimes {
		n.times = append(n.times, at)
		return
	}
	n.sweep.from(store.DueKey{Lane: n.n, Ready: at})
	for _, at := range n.times {
		n.sweep.from(store.DueKey{Lane: n.n, Ready: at})
	}
	n.times = n.times[:0]
}

// fillWheels reads the index further ahead, a piece at a time.
func (l *loop) fillWheels() error {
	l.unfilled = false
	return l.s.st.View(func(v *store.View) error {
		for i := range l.lanes {
			n := &l.lanes[i]
			if n.horizon < l.now { // nothing else finds what became due beyond it
				n.sweep.from(store.DueKey{Lane: n.n, Ready: n.horizon + 1})
				n.horizon = l.now
			}
			for left := fillChunk; ; left-- {
				if left == 0 {
					l.unfilled = true
					break
				}
				at, ok := v.NextDue(n.n, n.horizon)
				if !ok || at > l.now+aheadMillis {
					n.horizon = l.now + aheadMillis
					break
				}
				n.wheel.Add(at)
				n.horizon = at
			}
		}
		return nil
	})
}

// beyondHorizon says that a wheel ran empty because it was not filled in time.
func (l *loop) beyondHorizon() bool {
	for i := range l.lanes {
		if l.lanes[i].horizon < l.now {
			return true
		}
	}
	return false
}

// read brings entries that are due into the buckets, as far as one short view goes. It says whether more is left for
// the next turn, which should then come at once.
func (l *loop) read() (more bool, err error) {
	err = l.s.st.View(func(v *store.View) error {
		l.outages, l.released = v.Info.Outages, v.Info.Released
		l.shared = v.NamespacesInUse() > 1
		l.s.shared.Store(l.shared)
		l.lookAtQueues(v, false)
		// Starved buckets come first: they have workers that wait for them.
		budget := readChunk
		for len(l.starved) > 0 && budget > 0 {
			b := l.starved[len(l.starved)-1]
			l.starved = l.starved[:len(l.starved)-1]
			b.starved = false
			if err := l.refill(v, b, &budget); err != nil {
				return err
			}
		}
		budget += readChunk
		for i := range l.lanes {
			n := &l.lanes[i]
			if err := l.readTimes(v, n, &budget); err != nil {
				return err
			}
			if err := l.sweepOn(v, n, &budget); err != nil {
				return err
			}
			more = more || len(n.times) > 0 || n.sweep.on
		}
		return nil
	})
	return more || len(l.starved) > 0, err
}

// walk is ScanDue with a budget. It returns where to go on, and whether there is anything left up to the time.
func walk(v *store.View, from store.DueKey, until int64, budget *int, fn func(*store.DueEntry) bool) (
	next store.DueKey, cut bool, err error) {
	err = v.ScanDue(from, until, func(e store.DueEntry) bool {
		if *budget <= 0 || !fn(&e) {
			next, cut = e.DueKey, true
			return false
		}
		*budget--
		return true
	})
	return next, cut, err
}

// offerAll is walk over entries that any bucket may take.
func (l *loop) offerAll(v *store.View, from store.DueKey, until int64, budget *int) (
	next store.DueKey, cut bool, err error) {
	return walk(v, from, until, budget, func(e *store.DueEntry) bool { l.offer(v, e); return true })
}

// readTimes reads the entries of the times that the wheel gave out. If one time has too many, the sweep goes on with
// the rest.
func (l *loop) readTimes(v *store.View, n *lane, budget *int) error {
	done := 0
	for ; done < len(n.times) && *budget > 0; done++ {
		from := store.DueKey{Lane: n.n, Ready: n.times[done]}
		if n.sweep.covers(&from) {
			continue
		}
		own := min(readChunk, *budget)
		*budget -= own + 1 // one for looking
		next, cut, err := l.offerAll(v, from, from.Ready, &own)
		*budget += own
		if err != nil {
			return err
		}
		if cut {
			n.sweep.from(next)
		}
	}
	n.times = append(n.times[:0], n.times[done:]...)
	return nil
}

// sweepOn goes on with the sweep of a lane.
func (l *loop) sweepOn(v *store.View, n *lane, budget *int) error {
	if !n.sweep.on || *budget <= 0 {
		return nil
	}
	from, own := n.sweep.at, min(readChunk, *budget)
	*budget -= own
	n.sweep.on = false // what there is no room for sets it back itself
	next, cut, err := l.offerAll(v, from, l.now, &own)
	*budget += own
	switch {
	case err != nil:
		n.sweep.from(from)
	case cut:
		n.sweep.from(next)
	}
	return err
}

// refill sweeps on for a bucket with room for more.
func (l *loop) refill(v *store.View, b *bucket, budget *int) error {
	full := l.capacity()
	next, cut, err := walk(v, b.rest.at, l.now, budget, func(e *store.DueEntry) bool {
		if e.Kind == store.KindCleanup || l.classes[e.Class] != b.class || !l.isNew(e) {
			return true
		}
		if busy := l.busy(e); busy != 0 {
			l.block(e, busy)
			return true
		}
		if b.head.len() >= full {
			return false
		}
		l.take(b, e)
		return true
	})
	if err == nil {
		b.rest = sweep{cut, next}
	}
	l.wantRefill(b)
	return err
}

// guard sweeps slowly over all that is due, whatever was announced: what was lost anywhere is late, and no more than
// that.
func (l *loop) guard() error {
	if mutant.On(mutant.LoseEvents) {
		return nil
	}
	return l.s.st.View(func(v *store.View) error {
		l.lookAtQueues(v, true)
		for i := range l.lanes {
			n := &l.lanes[i]
			budget := guardChunk
			next, cut, err := l.offerAll(v, n.guard, l.now, &budget)
			if err != nil {
				return err
			}
			if !cut {
				next = n.edge()
			}
			n.guard = next
		}
		return nil
	})
}

// maxFed bounds what the feed remembers between two turns of the loop. Beyond it the feed only knows that it lost
// something.
const maxFed = 1 << 16

// feed collects what commits changed. It is called by the goroutine that applies the log, so it never waits; what it
// loses is found by a sweep over all that is due, and what it never hears of by the guard.
type feed struct {
	wake     chan struct{}
	starving *atomic.Bool // entries wait for what a commit may have freed

	// sleeps is when the loop turns at the latest, in milliseconds since 1970: what comes due after that can wait until
	// then. While the loop is awake it is beyond all times.
	sleeps atomic.Int64

	mu     sync.Mutex
	marks  []store.DueMark
	jobs   []job.ID
	lost   bool // some marks are missing
	forget bool // some jobs are missing
}

func (f *feed) changed(c *store.Changes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range c.Due {
		if mutant.On(mutant.LoseEvents) {
			break
		}
		if n := len(f.marks); n > 0 && f.marks[n-1] == m {
			continue // five hundred thousand jobs of one second have one next time
		}
		if len(f.marks) == maxFed {
			f.lost = true
			break
		}
		f.marks = append(f.marks, m)
	}
	if len(f.jobs)+len(c.Jobs) > maxFed {
		f.forget = true
	} else {
		f.jobs = append(f.jobs, c.Jobs...)
	}
	if c.Reset {
		f.lost, f.forget = true, true
	}
	if f.lost || f.forget || len(c.Jobs) > 0 || f.starving.Load() || f.soon(c.Due) {
		wait.Wake(f.wake)
	}
}

// soon says whether something comes due before the loop turns anyway. Nearly every commit marks the next time of a
// recurring job, and a turn for each would double what the loop does.
func (f *feed) soon(marks []store.DueMark) bool {
	until := f.sleeps.Load()
	return slices.ContainsFunc(marks, func(m store.DueMark) bool { return m.Ready <= until })
}

// changes is what was fed since the last take.
type changes struct {
	marks        []store.DueMark
	jobs         []job.ID
	lost, forget bool
}

func (f *feed) take() changes {
	f.sleeps.Store(math.MaxInt64)
	f.mu.Lock()
	n := changes{f.marks, f.jobs, f.lost, f.forget}
	f.marks, f.jobs, f.lost, f.forget = nil, nil, false, false
	f.mu.Unlock()
	slices.SortFunc(n.marks, func(a, b store.DueMark) int {
		if a.Lane != b.Lane {
			return int(a.Lane) - int(b.Lane)
		}
		return int(min(max(a.Ready-b.Ready, -1), 1))
	})
	n.marks = slices.Compact(n.marks)
	return n
}
