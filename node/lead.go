package node

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/propose"
	"github.com/carillon-scheduler/carillon/notify"
)

// epoch is one leadership of this node, with what ends it.
type epoch struct {
	*forward.Epoch
	prop   *propose.Proposer
	cancel context.CancelFunc
	done   chan struct{} // closed when everything of it has ended
}

// leadership follows raft: it starts an epoch when this node leads and ends it when it no longer does.
//
// It is level-triggered. NotifyCh says that something changed; what counts is what raft says its state and term are
// now. "true, true" (lost and regained) is then simply another term, and a word that was missed or came late does no
// harm.
type leadership struct {
	g      *group
	notify chan bool
	wake   chan struct{}

	cur *epoch // of run's goroutine; everything else asks the tracker
}

func newLeadership(g *group) *leadership {
	return &leadership{g: g, notify: make(chan bool, 16), wake: make(chan struct{}, 1)}
}

const (
	retryFirst = 50 * time.Millisecond
	retryLimit = 2 * time.Second
	// stepDownAfter is how many times in a row an epoch may fail before another node should get its chance.
	stepDownAfter = 5
	// steady is how long an epoch must have lasted for its end not to count as another failure to begin.
	steady = 10 * time.Second
)

// run follows raft until ctx ends.
func (l *leadership) run(ctx context.Context) {
	var pump sync.WaitGroup
	// Raft blocks on NotifyCh, so it must always be read, also while an epoch takes its time to end.
	pump.Go(func() {
		for {
			select {
			case <-l.notify:
				select {
				case l.wake <- struct{}{}:
				default:
				}
			case <-ctx.Done():
				return
			}
		}
	})
	defer pump.Wait()
	defer l.end()

	failures := 0
	var retry <-chan time.Time
	for {
		var ended <-chan struct{}
		if e := l.cur; e != nil {
			ended = e.done
		}
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-retry:
		case <-ended: // by itself: the scheduler gave up while we lead
		}
		retry = nil
		term, leads := l.g.leads()
		if e := l.cur; e != nil {
			gaveUp := wait.Closed(e.done)
			if leads && e.Term == term && !gaveUp {
				continue // the word is about an earlier change
			}
			l.end()
			switch {
			case !gaveUp || time.Since(e.Began) > steady:
				failures = 0
			case leads:
				failures++
				retry = l.again(ctx, term, failures, errGaveUp)
				continue
			}
		}
		if !leads {
			failures = 0
			continue
		}
		if err := l.begin(ctx, term); err != nil && ctx.Err() == nil {
			failures++
			retry = l.again(ctx, term, failures, err)
		}
	}
}

var errGaveUp = errors.New("the scheduler stopped by itself")

// again plans another try to take up a leadership, and lets another node have it after too many. It is never given up
// in silence.
func (l *leadership) again(ctx context.Context, term uint64, failures int, err error) <-chan time.Time {
	delay := min(retryFirst<<min(failures, 10), retryLimit)
	l.g.log.Error("takeover failed", event.TakeoverFailed, "term", term, "error", err, "failures", failures,
		"again_in", delay)
	if failures >= stepDownAfter {
		l.stepDown(ctx)
	}
	return time.After(delay)
}

// stepDown gives another node its chance. A cluster of one has none to give it to, and goes on trying.
func (l *leadership) stepDown(ctx context.Context) {
	if err := l.g.members.PassOn(ctx, 1); err != nil {
		l.g.log.Debug("leadership not handed over", "error", err)
	}
}

// begin takes up the leadership of a term: barrier first, so that the state holds everything committed before.
func (l *leadership) begin(ctx context.Context, term uint64) error {
	g := l.g
	g.meters.Leading(term)
	apart := g.newQuorum() // one that hangs is not asked twice; that is not to keep the other from asking
	prop := propose.New(propose.Options{
		Raft: g.raft, Timeout: g.cfg.Raft.ApplyTimeout, Observe: g.meters.Observe, Flight: g.flight,
		Allows: g.members.Allows, Needs: g.cfg.needs,
		Verify: func() error {
			if err := g.raft.VerifyLeader().Error(); err != nil {
				return err
			}
			return g.quorum.Confirm(term)
		},
		Majority: func() error { return apart.Confirm(term) },
	})
	if err := g.barrier(ctx); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	g.applier.Flush()
	if now, leads := g.leads(); !leads || now != term {
		return errors.New("lost again")
	}
	if err := g.ensureClusterID(prop, term); err != nil {
		return err
	}
	if err := g.members.Begin(prop, term); err != nil {
		return err
	}
	if led := g.cfg.Machine.Leading; led != nil {
		led(g.of.Group, term)
	}
	sched := g.newScheduler(prop, term)
	ectx, cancel := context.WithCancel(ctx)
	e := &epoch{prop: prop, cancel: cancel, done: make(chan struct{}),
		Epoch: &forward.Epoch{Term: term, Began: time.Now(), Scheduler: sched, Proposer: prop}}
	var parts sync.WaitGroup
	parts.Go(func() {
		defer cancel() // one without the other is not a leadership
		if err := sched.Run(ectx); err != nil && ectx.Err() == nil {
			g.log.Error("scheduler stopped", "term", term, "error", err)
		}
	})
	for _, part := range g.parts {
		run := part(e.Epoch)
		parts.Go(func() { run(ectx) })
	}
	go func() {
		parts.Wait()
		close(e.done)
	}()
	l.set(e)
	g.log.Info("leading", event.Leading, "term", term)
	return nil
}

// end stops everything of the current epoch and waits for it.
func (l *leadership) end() {
	e := l.cur
	if e == nil {
		return
	}
	l.set(nil)
	if mutant.On(mutant.ForgetTerm) {
		return // its goroutines go on, until the node ends
	}
	e.prop.End()
	e.cancel()
	<-e.done
	l.g.log.Info("no longer leading", event.NotLeading, "term", e.Term)
}

func (l *leadership) set(e *epoch) {
	l.cur = e
	if e == nil {
		l.g.tracker.SetEpoch(nil)
		return
	}
	l.g.tracker.SetEpoch(e.Epoch)
}

// leads is the term in which this node leads right now; it does not while its replica takes no part, whatever raft
// says. The term is read on both sides of the state: terms only grow, so two equal ones mean that the state belongs to
// it.
func (g *group) leads() (uint64, bool) {
	before := g.raft.CurrentTerm()
	state := g.raft.State()
	return before, state == raft.Leader && g.raft.CurrentTerm() == before && g.standing.TakesNoPart() == nil
}

// barrier waits until everything committed so far is in the state.
func (g *group) barrier(ctx context.Context) error {
	if !g.flight.Enter() {
		return raft.ErrRaftShutdown
	}
	f := g.raft.Barrier(g.cfg.Raft.ApplyTimeout)
	done := make(chan error, 1)
	go func() {
		defer g.flight.Leave()
		done <- f.Error()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ensureClusterID names a new cluster. The first leader does it, once.
func (g *group) ensureClusterID(prop *propose.Proposer, term uint64) error {
	if g.store.Info().ClusterID != "" {
		return nil
	}
	formed := g.members.Cluster().ID
	cmd := &fsm.Init{Head: fsm.Head{Now: g.now(), Term: term}, ClusterID: cmp.Or(formed,
		strings.ToLower(crand.Text())), Admin: g.admin}
	if f := g.members.Identity().Formation; f != nil && g.control == nil {
		cmd.Admin = f.Admin // whoever is the first to lead
	}
	if c := g.control; c != nil {
		info := c.store.Info()
		cmd.ClusterID, cmd.Group, cmd.GroupID = info.ClusterID, g.of.Group, g.of.GroupID
		cmd.Homes, cmd.Groups, cmd.Epoch, cmd.Recovery = info.Homes, info.Groups, info.Epoch, info.Recovery
		cmd.Now = max(c.store.Counters().Mark, 1) // and not by a clock that no other node has looked at
	} else if g.cfg.Groups > 1 {
		cmd.Homes = uint32(g.cfg.Groups)
	}
	if g.keys != nil { // its certificates name the cluster already
		id, _ := g.keys.Identity()
		cmd.ClusterID = id.Cluster
	}
	if _, err := prop.Propose(cmd).Wait(); err != nil {
		return fmt.Errorf("name the cluster: %w", err)
	}
	return nil
}

// newOutbox sends the notifications of a leadership.
func newOutbox(g *group, e *forward.Epoch) *notify.Outbox {
	propose := func(cmd fsm.Command) (*fsm.Reply, error) { return e.Proposer.Propose(cmd).Wait() }
	if hook := g.cfg.Machine.ProposeNotice; hook != nil {
		next := propose
		propose = func(cmd fsm.Command) (*fsm.Reply, error) { return hook(cmd, next) }
	}
	return notify.NewOutbox(notify.Options{
		Store: g.store, Settings: &g.cfg.Notify, NodeID: g.cfg.NodeID, Term: e.Term, Logger: g.log,
		Stamp: e.Scheduler.Stamp, Propose: propose,
		Recorded: g.meters.Notified, Vault: g.vault,
		FirstRetry: g.cfg.Machine.NotifyRetry, BeforeSend: g.cfg.Machine.BeforeNotify,
	})
}
