package scheduler

import (
	"github.com/carillon-scheduler/carillon/job/mutant"
	"github.com/carillon-scheduler/carillon/store"
)

// scan reads what became ready since the last turn into the groups, as far as one short view goes. It says whether more is
// left for the next turn, which should then come at once.
func (l *loop) scan() (more bool, err error) {
	err = l.s.st.View(func(v *store.View) error {
		l.outages, l.released = v.Info.Outages, v.Info.Released
		l.lookAtQueues(v, false)
		// Groups that run low come first: they have workers that wait for them.
		budget := scanChunk
		for len(l.hungry) > 0 && budget > 0 {
			g := l.hungry[len(l.hungry)-1]
			l.hungry = l.hungry[:len(l.hungry)-1]
			g.hungry = false
			if err := l.refill(v, g, &budget); err != nil {
				return err
			}
		}
		budget += scanChunk
		for i := range l.lanes {
			n := &l.lanes[i]
			if err := l.advanceCursor(v, n, &budget); err != nil {
				return err
			}
			if err := l.readPoints(v, n, &budget); err != nil {
				return err
			}
			if err := l.readAgain(v, n, &budget); err != nil {
				return err
			}
			more = more || len(n.points) > 0 || n.rescan || n.cursor.Ready <= l.now
		}
		return nil
	})
	return more || len(l.hungry) > 0, err
}

// walk is ScanDue with a budget. It returns where to go on, and whether there is anything left up to the time.
func walk(v *store.View, from store.DueKey, until int64, budget *int, fn func(*store.DueEntry) bool) (next store.DueKey, cut bool, err error) {
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

func (l *loop) advanceCursor(v *store.View, n *lane, budget *int) error {
	if n.cursor.Ready > l.now {
		return nil
	}
	own := min(scanChunk, *budget)
	*budget -= own
	next, cut, err := walk(v, n.cursor, l.now, &own, func(e *store.DueEntry) bool { l.offer(v, e); return true })
	*budget += own
	if err != nil {
		return err
	}
	if cut {
		n.cursor = next
	} else {
		n.cursor = store.DueKey{Lane: n.n, Ready: l.now + 1}
	}
	return nil
}

// readPoints looks at the times behind the cursor at which something was put.
func (l *loop) readPoints(v *store.View, n *lane, budget *int) error {
	for at := range n.points {
		if *budget <= 0 {
			return nil
		}
		if at > l.now {
			delete(n.points, at) // the clock was reset; the cursor gets there
			continue
		}
		own := min(pointChunk, *budget)
		*budget -= own + 1
		next, cut, err := walk(v, store.DueKey{Lane: n.n, Ready: at}, at, &own, func(e *store.DueEntry) bool { l.offer(v, e); return true })
		*budget += own
		if err != nil {
			return err
		}
		delete(n.points, at)
		if cut {
			l.rescanFrom(n, next)
		}
	}
	return nil
}

// readAgain goes on with a rescan of what is behind the cursor.
func (l *loop) readAgain(v *store.View, n *lane, budget *int) error {
	if !n.rescan || *budget <= 0 {
		return nil
	}
	next, cut, err := walk(v, n.again, min(l.now, n.cursor.Ready), budget, func(e *store.DueEntry) bool { l.offer(v, e); return true })
	if err != nil {
		return err
	}
	n.rescan, n.again = cut, next
	return nil
}

// refill reads on for a group whose head runs low.
func (l *loop) refill(v *store.View, g *group, budget *int) error {
	full, end := l.capacity(), false
	next, cut, err := walk(v, g.resume, min(l.now, g.lane.cursor.Ready), budget, func(e *store.DueEntry) bool {
		if !less(&e.DueKey, &g.lane.cursor) {
			end = true // from here on the cursor has not been
			return false
		}
		if e.Kind == store.KindCleanup || l.classes[e.Class] != g.class || !l.isNew(e.DueKey) {
			return true
		}
		if busy := l.busy(e); busy != 0 {
			l.block(e, busy)
			return true
		}
		if g.head.len() >= full {
			return false
		}
		l.take(g, e)
		return true
	})
	g.more, g.resume = cut && !end, next
	l.feedGroup(g)
	return err
}

// readEdges reads each lane's left edge, and a further piece of its ready part, whatever was announced: an event that was lost
// anywhere costs a second, never an occurrence.
func (l *loop) readEdges() error {
	if mutant.On(mutant.LoseEvents) {
		return nil
	}
	return l.s.st.View(func(v *store.View) error {
		l.lookAtQueues(v, true)
		for i := range l.lanes {
			n := &l.lanes[i]
			budget := edgeChunk
			if _, _, err := walk(v, store.DueKey{Lane: n.n}, l.now, &budget, func(e *store.DueEntry) bool { l.offer(v, e); return true }); err != nil {
				return err
			}
			budget = sweepChunk
			next, cut, err := walk(v, n.sweep, l.now, &budget, func(e *store.DueEntry) bool { l.offer(v, e); return true })
			if err != nil {
				return err
			}
			if !cut {
				next = store.DueKey{Lane: n.n}
			}
			n.sweep = next
		}
		return nil
	})
}

// setAlarms fills the wheel further ahead, a piece at a time.
func (l *loop) setAlarms() error {
	l.unset = false
	return l.s.st.View(func(v *store.View) error {
		for i := range l.lanes {
			n := &l.lanes[i]
			n.horizon = max(n.horizon, l.now)
			for left := wheelChunk; ; left-- {
				if left == 0 || l.wheel.Len() >= maxAlarms/2 {
					l.unset = l.unset || left == 0
					break
				}
				at, ok := v.NextDue(n.n, n.horizon)
				if !ok || at > l.now+aheadMillis {
					n.horizon = l.now + aheadMillis
					break
				}
				l.wheel.Add(at, uint64(n.n))
				n.horizon = at
			}
		}
		return nil
	})
}
