package node

import (
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/notify"
	"github.com/carillon-scheduler/carillon/store"
)

// newOutbox sends the notifications of a leadership.
func newOutbox(g *group, e *forward.Epoch) *notify.Outbox {
	propose := func(cmd any) (*fsm.Reply, error) { return e.Proposer.Propose(cmd).Wait() }
	if hook := g.cfg.hooks.notifyPropose; hook != nil {
		next := propose
		propose = func(cmd any) (*fsm.Reply, error) { return hook(cmd, next) }
	}
	return notify.NewOutbox(notify.Options{
		Store: g.store, Settings: &g.cfg.Notify, NodeID: g.cfg.NodeID, Term: e.Term, Logger: g.log, Stamp: e.Scheduler.Stamp, Propose: propose,
		Recorded:   func(outcome string) { g.meters.notified.WithLabelValues(outcome).Inc() },
		FirstRetry: g.cfg.hooks.notifyFirst, BeforeSend: g.cfg.hooks.notifySend,
	})
}

// notification is the newest notification of a job as the API shows it, nil if there was none.
func (r *reader) notification(id job.ID) (*job.Notification, error) {
	n, ok, err := r.LastNotice(id)
	if err != nil || !ok {
		return nil, err
	}
	return notify.View(&n), nil
}

// notifications says that some could not be sent so far; nil if all is well.
func (b *backend) notifications() (*client.NotificationStatus, error) {
	if b.g.store.NoticeCount() == 0 {
		return nil, nil
	}
	s := &client.NotificationStatus{Waiting: b.g.store.NoticeCount()}
	left := 1000
	err := b.view(func(r *reader) error {
		return r.EachNotice(func(n store.Notice) bool {
			if left--; n.Note != "" && (s.Since == 0 || int64(s.Since) > n.At) {
				s.Since, s.Error = job.Instant(n.At), n.Note
			}
			return left > 0
		})
	})
	if err != nil || s.Error == "" {
		return nil, err
	}
	return s, nil
}
