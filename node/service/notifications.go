package service

import (
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/notify"
	"github.com/carillon-scheduler/carillon/store"
)

// notification is the newest notification of a job as the API shows it, nil if there was none.
func (r *reader) notification(id job.ID) (*job.Notification, error) {
	n, ok, err := r.LastNotice(id)
	if err != nil || !ok {
		return nil, err
	}
	return notify.View(&n), nil
}

// notifications says that some could not be sent so far; nil if all is well.
func (b *Service) notifications() (*wire.NotificationStatus, error) {
	if b.o.Store.NoticeCount() == 0 {
		return nil, nil
	}
	s := &wire.NotificationStatus{Waiting: b.o.Store.NoticeCount()}
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
