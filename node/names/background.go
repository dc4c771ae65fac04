package names

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/crash"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// pendingFor is how old a reservation is, by the stamps of commands, when its home asks what became of it: by then
	// the group that made it has told, or never will.
	pendingFor = time.Minute
	// lookEvery is how often the state is looked at when nothing says that something is to be done.
	lookEvery = 5 * time.Second
	// askFor is how long a group may take to answer the background part.
	askFor = 2 * time.Second
	// restFirst is how long a group that did not answer is left alone; it doubles up to restMost.
	restFirst = 500 * time.Millisecond
	restMost  = 30 * time.Second
	// maxScan bounds how many pending reservations one look reads.
	maxScan = 1 << 14
)

// Lead is the background part of a leadership: homes are told what was decided and which names they are to release, and
// what is pending for too long at this home is asked for.
func (k *Keeper) Lead(e *forward.Epoch) func(context.Context) {
	k.begin()
	return func(ctx context.Context) { k.run(ctx, leadership{e.Scheduler, e.Term}) }
}

func (k *Keeper) run(ctx context.Context, l leadership) {
	defer k.o.Store.Listen(func(c *store.Changes) {
		if c.Owed || c.Reset {
			wait.Wake(k.wake)
		}
	})()
	for ctx.Err() == nil {
		if !k.Open() || !k.look(ctx, l) {
			wait.Within(ctx, k.wake, k.pause())
		}
	}
}

// begin forgets what was of an earlier leadership.
func (k *Keeper) begin() {
	k.take()
	k.below, k.resting = map[uint32]uint64{}, map[uint32]rest{}
}

// pause is how long to wait when nothing more can be done now.
func (k *Keeper) pause() time.Duration {
	d := crash.Soon(k.o.Pace.Of(lookEvery))
	for _, r := range k.resting {
		d = min(d, max(time.Until(r.until), time.Millisecond))
	}
	return d
}

// take are the decisions that wait.
func (k *Keeper) take() []decision {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.decided
	k.decided = nil
	return all
}

// look does what there is to do, once. It says whether there is more.
func (k *Keeper) look(ctx context.Context, l leadership) (more bool) {
	k.tell(ctx, l, k.take())
	for home := range k.o.Store.Info().Homes + 1 {
		more = k.pay(ctx, l, home) || more
	}
	return k.cleanUp(ctx, l) || more
}

// ask is a call to another group that is left alone for a while if it does not answer.
func (k *Keeper) ask(ctx context.Context, group uint32, q *Ask) (Answer, bool) {
	asking, cancel := context.WithTimeout(ctx, k.o.Pace.Of(askFor))
	defer cancel()
	a, err := k.call(asking, group, q)
	if err == nil {
		delete(k.resting, group)
		return a, true
	}
	if ctx.Err() == nil {
		times := k.resting[group].times
		d := k.o.Pace.Of(min(restFirst<<min(times, 10), restMost))
		k.resting[group] = rest{time.Now().Add(d), times + 1}
		if times == 0 {
			k.o.Logger.Warn("group does not answer about names; trying again", "asked", group, "error", err)
		}
	}
	return a, false
}

func (k *Keeper) rests(group uint32) bool { return time.Now().Before(k.resting[group].until) }

// failed logs a command that this leadership could not enter. What it was about is found again at the next look.
func (k *Keeper) failed(ctx context.Context, err error) bool {
	if err != nil && ctx.Err() == nil {
		k.o.Logger.Debug("names not settled; trying again", "error", err)
	}
	return err != nil
}

// tell has homes know what was decided here. What fails is not tried again: the homes ask when it is pending for long.
func (k *Keeper) tell(ctx context.Context, l leadership, all []decision) {
	slices.SortStableFunc(all, func(x, y decision) int { return int(x.Home) - int(y.Home) })
	for len(all) > 0 {
		home, n := all[0].Home, 1
		for n < min(len(all), MaxItems) && all[n].Home == home {
			n++
		}
		part := all[:n]
		if all = all[n:]; k.rests(home) || ctx.Err() != nil {
			continue
		}
		var made, open []fsm.NameItem
		for _, d := range part {
			it := fsm.NameItem{Name: d.name, Number: d.Number, Job: uint64(d.job)}
			if d.job != 0 {
				made = append(made, it)
			} else {
				open = append(open, it)
			}
		}
		var release []fsm.NameItem
		if len(open) > 0 {
			outcomes, err := l.abort(ctx, home, k.below[home], open)
			if k.failed(ctx, err) {
				open = nil
			}
			confirm, free := sorted(open, outcomes)
			made, release = append(made, confirm...), free
		}
		if len(made)+len(release) == 0 {
			continue
		}
		crash.At(crash.BeforeTell)
		if a, ok := k.ask(ctx, home, &Ask{From: k.group(), Confirm: made, Release: release}); ok {
			crash.At(crash.AfterTell)
			k.below[home] = max(k.below[home], a.Below)
		}
	}
}

// pay has a home release names that jobs of this group no longer have. It says whether there are more.
func (k *Keeper) pay(ctx context.Context, l leadership, home uint32) (more bool) {
	if k.rests(home) || ctx.Err() != nil {
		return false
	}
	var owed []store.Held
	err := k.o.Store.View(func(v *store.View) (err error) {
		owed, err = v.OwedTo(home, MaxItems)
		return err
	})
	if k.failed(ctx, err) || len(owed) == 0 {
		return false
	}
	items := make([]fsm.NameItem, len(owed))
	for i, h := range owed {
		items[i] = fsm.NameItem{Name: h.NameRef, Number: h.Number}
	}
	crash.At(crash.BeforePay)
	a, ok := k.ask(ctx, home, &Ask{From: k.group(), Release: items})
	if !ok {
		return false
	}
	crash.At(crash.AfterPay)
	k.below[home] = max(k.below[home], a.Below)
	_, err = l.propose(ctx, len(items), func(h fsm.Head) fsm.Command {
		return &fsm.PaidNames{Head: h, Home: home, Below: a.Below, Items: items}
	})
	return !k.failed(ctx, err) && len(items) == MaxItems
}

// old are the reservations of one group that are pending for long.
type old struct {
	items []fsm.NameItem
	below uint64
}

// cleanUp asks the groups of reservations that are pending for long what became of them, and settles them. It says
// whether there are more.
func (k *Keeper) cleanUp(ctx context.Context, l leadership) (more bool) {
	all, err := k.longPending(l)
	if k.failed(ctx, err) {
		return false
	}
	for group, p := range all {
		crash.At(crash.HomeAsks)
		a, ok := k.ask(ctx, group, &Ask{From: k.group(), Abort: p.items, Below: p.below})
		if !ok {
			continue
		}
		crash.At(crash.HomeHeard)
		confirm, release := sorted(p.items, a.Outcomes)
		if !k.failed(ctx, l.settle(ctx, confirm, release)) {
			crash.At(crash.HomeSettled)
			more = more || len(confirm)+len(release) == MaxItems
		}
	}
	return more
}

func (k *Keeper) longPending(l leadership) (all map[uint32]*old, err error) {
	now, err := l.log.Stamp()
	if err != nil {
		return nil, err
	}
	all = map[uint32]*old{}
	before, left := now-crash.Soon(k.o.Pace.Of(pendingFor)).Milliseconds(), maxScan
	err = k.o.Store.View(func(v *store.View) error {
		err := v.EachPending(func(r store.Reservation) bool {
			if left--; r.At > before || left < 0 {
				return false
			}
			p := all[r.Group]
			if p == nil && !k.rests(r.Group) {
				p = &old{}
				all[r.Group] = p
			}
			if p != nil && len(p.items) < MaxItems {
				p.items = append(p.items, fsm.NameItem{Name: r.NameRef, Number: r.Number})
			}
			return true
		})
		for group, p := range all {
			if err == nil {
				p.below, err = v.SettledBelow(group)
			}
		}
		return err
	})
	return all, err
}
