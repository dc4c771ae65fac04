package node

import (
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/notify"
)

// newOutbox sends the notifications of a leadership.
func newOutbox(g *group, e *forward.Epoch) *notify.Outbox {
	propose := func(cmd any) (*fsm.Reply, error) { return e.Proposer.Propose(cmd).Wait() }
	if hook := g.cfg.Machine.ProposeNotice; hook != nil {
		next := propose
		propose = func(cmd any) (*fsm.Reply, error) { return hook(cmd, next) }
	}
	return notify.NewOutbox(notify.Options{
		Store: g.store, Settings: &g.cfg.Notify, NodeID: g.cfg.NodeID, Term: e.Term, Logger: g.log, Stamp: e.Scheduler.Stamp, Propose: propose,
		Recorded:   func(outcome string) { g.meters.notified.WithLabelValues(outcome).Inc() },
		FirstRetry: g.cfg.Machine.NotifyRetry, BeforeSend: g.cfg.Machine.BeforeNotify,
	})
}
