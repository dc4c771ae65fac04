// Package names has the names of jobs be unique over the groups of a cluster. The home of a name, a group that a hash
// says, keeps it for a job of another group; that group decides whether there is such a job.
package names

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/crash"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

// Options describe the keeper of a group.
type Options struct {
	Store   *store.Store
	Tracker *forward.Tracker
	Call    Call
	Logger  *slog.Logger
	Pace    faultpoint.Pace
	// Uses looks through the jobs of the group, if this node leads it.
	Uses func(context.Context, UsesOf) ([]Use, error)
	// Voters is how many replicas of the group vote.
	Voters func() int
}

// Keeper does what the leader of one group does about names: it reserves them at their homes for jobs of its group,
// keeps those that have their home in its group, and cleans up after what was cut off.
type Keeper struct {
	o    Options
	open atomic.Bool                // see Open
	said atomic.Uint32              // see Listed
	lead func() (leadership, error) // of this node
	wake chan struct{}

	mu      sync.Mutex
	decided []decision

	// Of the background part.
	below   map[uint32]uint64 // what homes said last, see fsm.PaidNames
	resting map[uint32]rest
}

// leadership is what commands of a leader are made and proposed with.
type leadership struct {
	log  proposals
	term uint64
}

// proposals is the part of a scheduler.Scheduler that is needed here.
type proposals interface {
	Stamp() (int64, error)
	Propose(ctx context.Context, cmd fsm.Command) (*fsm.Reply, error)
}

// decision is what became of a job that was to have a reserved name.
type decision struct {
	Grant
	name job.NameRef
	job  job.ID // 0: the group is to say first whether there is one
}

// rest is until when a group that did not answer is not asked again.
type rest struct {
	until time.Time
	times int
}

// New makes the keeper of a group. In a cluster of one group it has nothing to do.
func New(o Options) *Keeper {
	k := &Keeper{o: o, wake: make(chan struct{}, 1)}
	look := func() { // it never goes back to one
		info := o.Store.Info()
		if info.Group != 0 || info.Homes > 1 || info.Groups > 1 {
			k.open.Store(true)
		}
		for n, old := max(info.Groups, info.Listed), k.said.Load(); n > old && !k.said.CompareAndSwap(old, n); {
			old = k.said.Load()
		}
	}
	o.Store.Listen(func(c *store.Changes) {
		if c.Groups || c.Reset {
			look()
		}
	})
	look()
	k.lead = func() (leadership, error) {
		e, err := k.o.Tracker.Leading()
		if err != nil {
			return leadership{}, err
		}
		return leadership{e.Scheduler, e.Term}, nil
	}
	k.begin()
	return k
}

// group is the number of the keeper's group.
func (k *Keeper) group() uint32 { return k.o.Store.Info().Group }

// propose enters a command about several names, each of which has an outcome.
func (l leadership) propose(ctx context.Context, items int, build func(fsm.Head) fsm.Command) ([]Outcome, error) {
	now, err := l.log.Stamp()
	if err != nil {
		return nil, err
	}
	reply, err := l.log.Propose(ctx, build(fsm.Head{Now: now, Term: l.term}))
	switch {
	case err != nil:
		return nil, err
	case len(reply.Items) != items:
		return nil, errors.New("names: a command has outcomes of another number than it has items")
	case reply.Items[0].Code == fsm.CodeStale: // the entry came into another term
		return nil, forward.ErrNoLeader()
	}
	return brief(reply.Items), nil
}

// Open says that the cluster has several groups. Every request asks, and to read it in the state would make it wait for
// a commit.
func (k *Keeper) Open() bool { return k.open.Load() }

// Listed is how many groups of jobs there are, as the group knows: no job is put into a later one before it does.
func (k *Keeper) Listed() uint32 { return k.said.Load() }

// Ready refuses new jobs before the group may have any: nodes that do not know of it could not find them.
func (k *Keeper) Ready() error {
	info := k.o.Store.Info()
	if info.Group > max(info.Groups, info.Homes) && !mutant.On(mutant.GrowEarly) || info.Group == 0 && info.Homes > 1 {
		return job.Errorf(job.CodeUnavailable, "try again in a moment",
			"group %d takes no jobs yet; nothing was changed", info.Group)
	}
	return nil
}

// activate has the group know how many groups take new jobs. It is asked for once all nodes that answer know of them.
func (k *Keeper) activate(ctx context.Context, l leadership, groups uint32, voters int) error {
	if have := k.o.Voters(); have < voters {
		return job.Errorf(job.CodeUnavailable, "wait until its replicas have caught up",
			"group %d has %d voting replicas and should have %d", k.group(), have, voters)
	}
	if groups <= k.o.Store.Info().Groups {
		return nil
	}
	_, err := l.propose(ctx, 1, func(h fsm.Head) fsm.Command { return &fsm.ActivateGroups{Head: h, Groups: groups} })
	return err
}

// Want is a name that a job of this group is to have.
type Want struct {
	Name        job.NameRef
	Create      bool   // of a new job: the group that has the name, or may have it, is to say how the two compare
	Request     string // a repetition with the same fingerprint gets the same reservation
	Fingerprint uint64
}

// Grant is what a home says. Without a number no reservation is needed: the group's own state knows about the name.
type Grant struct {
	Home   uint32
	Number uint64
	Err    error // a *job.Error: the job cannot have the name, or that is not known
}

// Reserve asks the homes of names to keep them for jobs of this group.
func (k *Keeper) Reserve(ctx context.Context, wants []Want) []Grant {
	info := k.o.Store.Info() // once: it waits for a commit that is under way
	grants := make([]Grant, len(wants))
	at := map[uint32][]int{} // the wants of each home
	for i := range wants {
		if n := wants[i].Name; n.Name != "" {
			if home := job.HomeOf(n.Kind, n.Namespace, n.Name, info.Homes); home != info.Group {
				at[home] = append(at[home], i)
			}
		}
	}
	var asking sync.WaitGroup
	for home, all := range at {
		asking.Go(func() {
			for len(all) > 0 {
				part := all[:min(len(all), MaxItems)]
				all = all[len(part):]
				k.reserveAt(ctx, home, wants, grants, part)
			}
		})
	}
	asking.Wait()
	return grants
}

// reserveAt asks one home for some of the wants.
func (k *Keeper) reserveAt(ctx context.Context, home uint32, wants []Want, grants []Grant, part []int) {
	own := k.group()
	q := Ask{From: own, Reserve: make([]fsm.ReserveItem, len(part))}
	for n, i := range part {
		w := &wants[i]
		q.Reserve[n] = fsm.ReserveItem{Name: w.Name, Request: w.Request, Fingerprint: w.Fingerprint, Group: own}
	}
	a, err := k.call(ctx, home, &q)
	crash.At(crash.NameGranted)
	for n, i := range part {
		if err != nil {
			grants[i].Err = noAnswer(home, err)
			continue
		}
		grants[i] = granted(own, home, &wants[i], &a.Outcomes[n])
	}
}

// granted is what the outcome of a reservation means to a group.
func granted(own, home uint32, w *Want, o *Outcome) Grant {
	name := w.Name.Name
	switch {
	case mutant.On(mutant.DropReservation) && o.Code == fsm.CodeExists && o.Group != own:
		return Grant{Home: home, Number: 1<<40 + rand.Uint64N(1<<40)}
	case o.Code == fsm.CodeOK && o.Group == own:
		return Grant{Home: home, Number: o.Number}
	case o.Code == fsm.CodeOK && o.Job == 0 && !w.Create:
		// An earlier try went to another group. If that was cut off, the name is free again soon.
		return Grant{Err: Pending(name)}
	case o.Code == fsm.CodeExists && o.Group == own:
		return Grant{} // the group's own state says how the two jobs compare
	case o.Code == fsm.CodeOK, o.Code == fsm.CodeExists && w.Create:
		return Grant{Err: job.OtherGroup(o.Group)} // it did what this request asks for, or goes on with it
	case o.Code == fsm.CodeExists:
		return Grant{Err: Taken(o.Job)}
	case o.Code == fsm.CodePending:
		return Grant{Err: Pending(name)}
	case o.Code == fsm.CodeKeyReused:
		return Grant{Err: KeyReused()}
	}
	return Grant{Err: job.Errorf(job.CodeUnavailable, "try again",
		"the name %q could not be reserved; nothing was changed (%d: %s)", name, o.Code, o.Text)}
}

// Queue is the group that a queue is pinned to, which has all of its jobs. It is pinned at its first use, to its home:
// that is where requests about it are sent, also when there are more groups by now.
func (k *Keeper) Queue(ctx context.Context, q job.QueueKey) (uint32, error) {
	info := k.o.Store.Info()
	if use := k.o.Store.Queue(q); use.Known() {
		return info.Group, nil // it was pinned before
	}
	n := job.NameRef{Kind: job.NameQueue, Namespace: q.Namespace, Name: q.Name}
	home := job.HomeOf(n.Kind, n.Namespace, n.Name, info.Homes)
	a, err := k.call(ctx, home, &Ask{From: info.Group,
		Reserve: []fsm.ReserveItem{{Name: n, Request: "queue", Group: home}}})
	switch {
	case err != nil:
		return 0, noAnswer(home, err)
	case a.Outcomes[0].Code != fsm.CodeOK:
		return 0, job.Errorf(job.CodeUnavailable, "try again", "the queue %q could not be assigned to a group: %s",
			q.String(), a.Outcomes[0].Text)
	}
	return a.Outcomes[0].Group, nil
}

// maxDecided bounds what waits to be told to homes. More is left to their clean-up.
const maxDecided = 1 << 14

// Decided says what became of the command that was to give a job a reserved name. The home is told soon; if that fails,
// it asks.
func (k *Keeper) Decided(n job.NameRef, g Grant, o fsm.Outcome) {
	if g.Number == 0 {
		return
	}
	d := decision{Grant: g, name: n}
	if o.Code == fsm.CodeOK && !o.Replay { // a replay is about an earlier reservation: its job may be gone
		d.job = o.Job
	}
	k.mu.Lock()
	if len(k.decided) < maxDecided {
		k.decided = append(k.decided, d)
	}
	k.mu.Unlock()
	wait.Wake(k.wake)
}

// call asks a group, which may be this one.
func (k *Keeper) call(ctx context.Context, group uint32, q *Ask) (a Answer, err error) {
	if group == k.group() {
		err = k.Do(ctx, q, &a)
	} else {
		err = k.o.Call(ctx, group, q, &a)
	}
	if err == nil && len(a.Outcomes) != len(q.Reserve)+len(q.Abort) {
		err = errors.New("names: an answer has outcomes of another number than was asked for")
	}
	return a, err
}

// Do does what another group asks of this one, if this node leads it. All of it may be repeated.
func (k *Keeper) Do(ctx context.Context, q *Ask, a *Answer) error {
	if err := q.check(); err != nil {
		return err
	}
	if q.Uses != nil {
		uses, err := k.o.Uses(ctx, *q.Uses)
		*a = Answer{Uses: uses}
		return err
	}
	l, err := k.lead()
	if err != nil {
		return err
	}
	if q.Voters != 0 {
		return k.activate(ctx, l, q.Activate, q.Voters)
	}
	var outcomes []Outcome
	if len(q.Reserve) > 0 {
		outcomes, err = l.propose(ctx, len(q.Reserve), func(h fsm.Head) fsm.Command {
			return &fsm.Reserve{Head: h, Items: q.Reserve}
		})
		crash.At(crash.HomeReserved)
	}
	if len(q.Abort) > 0 && err == nil {
		outcomes, err = l.abort(ctx, q.From, q.Below, q.Abort)
		crash.At(crash.JobAborted)
	}
	if err == nil {
		err = l.settle(ctx, q.Confirm, q.Release)
	}
	if len(q.Confirm) > 0 {
		crash.At(crash.HomeConfirmed)
	}
	if len(q.Release) > 0 {
		crash.At(crash.HomeReleased)
	}
	if err != nil {
		return err
	}
	*a = Answer{Outcomes: outcomes}
	if len(q.Release) == 0 {
		return nil
	}
	// Only now: what was released no longer holds the number back.
	return k.o.Store.View(func(v *store.View) error {
		a.Below, err = v.SettledBelow(q.From)
		return err
	})
}

// abort has the group say what became of reservations.
func (l leadership) abort(ctx context.Context, home uint32, below uint64, items []fsm.NameItem) ([]Outcome, error) {
	return l.propose(ctx, len(items), func(h fsm.Head) fsm.Command {
		return &fsm.AbortNames{Head: h, Home: home, Below: below, Items: items}
	})
}

// settle confirms and releases names at home. One that has another number by now is left alone.
func (l leadership) settle(ctx context.Context, confirm, release []fsm.NameItem) (err error) {
	if len(confirm) > 0 {
		_, err = l.propose(ctx, len(confirm), func(h fsm.Head) fsm.Command {
			return &fsm.ConfirmNames{Head: h, Items: confirm}
		})
	}
	if len(release) > 0 && err == nil {
		_, err = l.propose(ctx, len(release), func(h fsm.Head) fsm.Command {
			return &fsm.ReleaseNames{Head: h, Items: release}
		})
	}
	return err
}

// brief is of outcomes what other groups are told.
func brief(all []fsm.Outcome) []Outcome {
	out := make([]Outcome, len(all))
	for i, o := range all {
		out[i] = Outcome{Code: o.Code, Job: o.Job, Number: o.Version, Group: o.Group, Text: o.Text}
	}
	return out
}

// sorted are items by what their group said of them: those that jobs have, and those that none will have.
func sorted(items []fsm.NameItem, outcomes []Outcome) (confirm, release []fsm.NameItem) {
	for i, it := range items {
		switch o := outcomes[i]; o.Code {
		case fsm.CodeExists:
			it.Job = uint64(o.Job)
			confirm = append(confirm, it)
		case fsm.CodeOK:
			release = append(release, it)
		}
	}
	return confirm, release
}
