package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/mutant"
	"github.com/carillon-scheduler/carillon/notify"
	"github.com/carillon-scheduler/carillon/store"
)

// send tries every channel of a delivery at the same time and hands it back.
func (f *notifier) send(ctx context.Context, d *delivery) {
	var mu sync.Mutex
	var all sync.WaitGroup
	d.results = map[store.Channels]notify.Result{}
	try := func(ch store.Channels, do func() notify.Result) {
		if d.try&ch == 0 {
			return
		}
		all.Go(func() {
			r := do()
			mu.Lock()
			defer mu.Unlock()
			d.results[ch] = r
		})
	}
	if hook := f.g.cfg.hooks.notifySend; hook != nil {
		hook(ctx)
	}
	try(store.ChannelWebhook, func() notify.Result {
		url, _, err := f.g.cfg.Notify.URL(&d.to)
		if err != nil { // another node that leads later may know it
			return notify.Result{Fate: notify.Retry, Err: err}
		}
		return f.poster.Post(ctx, url, &d.msg)
	})
	try(store.ChannelEmail, func() notify.Result { return f.g.cfg.Notify.Mail(ctx, d.to.Email, &d.msg) })
	all.Wait()
	f.ended <- d
}

// landed takes back a delivery and remembers how its receivers did.
func (f *notifier) landed(d *delivery) {
	f.unsettled = append(f.unsettled, d)
	for ch, r := range d.results {
		at := f.receiver(d.where[ch])
		at.flying--
		switch r.Fate {
		case notify.Retry, notify.Unknown:
			at.failures++
			at.after = time.Now().Add(max(f.backoff(at.failures), r.After))
		default: // it answers
			at.failures, at.after = 0, time.Time{}
		}
	}
}

// settle records the ends of deliveries. What cannot be recorded now is recorded later: only this leadership knows it.
func (f *notifier) settle(now int64) {
	if len(f.unsettled) == 0 {
		return
	}
	batch := f.unsettled
	f.unsettled = nil
	cmd := &fsm.SettleNotices{Head: fsm.Head{Now: now, Term: f.e.Term}}
	for _, d := range batch {
		sent, unknown, failed, retry, note := f.verdict(d)
		cmd.Jobs, cmd.Seqs, cmd.Attempt = append(cmd.Jobs, uint64(d.n.Job)), append(cmd.Seqs, d.n.Seq), append(cmd.Attempt, d.n.Attempts)
		cmd.Sent, cmd.Unknown, cmd.Failed = append(cmd.Sent, byte(sent)), append(cmd.Unknown, byte(unknown)), append(cmd.Failed, byte(failed))
		cmd.RetryAt, cmd.Error = append(cmd.RetryAt, now+retry.Milliseconds()), append(cmd.Error, note)
	}
	reply, err := f.propose(cmd)
	if err != nil {
		f.unsettled = append(f.unsettled, batch...) // said twice, the second time is stale
		f.next = min(f.next, time.Second)
		return
	}
	for i, d := range batch {
		delete(f.busy, d.n.Job)
		if reply.Items[i].Code == fsm.CodeOK {
			delete(f.doubtful, noticeRef{d.n.Job, d.n.Seq})
			f.report(d, store.Channels(cmd.Sent[i]), store.Channels(cmd.Unknown[i]), store.Channels(cmd.Failed[i]), cmd.Error[i])
		}
	}
	f.next = time.Millisecond // the next of these jobs may follow
}

// verdict is what the log is told about a delivery.
func (f *notifier) verdict(d *delivery) (sent, unknown, failed store.Channels, retry time.Duration, note string) {
	switch {
	case d.orphan && mutant.On(mutant.RepeatNotice):
		return 0, 0, 0, 0, d.n.Note
	case d.orphan:
		return 0, d.n.Trying, 0, 0, "node " + d.n.Node + " stopped leading while it was sending this: it may have arrived, and is not repeated"
	case d.unsent:
		return 0, 0, 0, 0, d.n.Note
	case d.giveUp:
		note = "given up after " + notifyMaxAge.String()
		if d.n.Note != "" {
			note += ": " + d.n.Note
		}
		return 0, 0, d.try, 0, note
	}
	var errs []error
	for _, ch := range []store.Channels{store.ChannelWebhook, store.ChannelEmail} {
		r, ok := d.results[ch]
		if !ok {
			continue
		}
		switch r.Fate {
		case notify.Sent:
			sent |= ch
		case notify.Unknown:
			unknown |= ch
		case notify.Permanent:
			failed |= ch
		default:
			retry = max(retry, r.After)
		}
		if r.Err != nil {
			errs = append(errs, errors.New(d.where[ch]+": "+r.Err.Error()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		note = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return sent, unknown, failed, max(retry, f.backoff(int(d.n.Attempts))), note
}

// report logs and counts what was recorded.
func (f *notifier) report(d *delivery, sent, unknown, failed store.Channels, note string) {
	log := f.g.log.With("job", d.n.Job.String(), "kind", noticeKind(&d.n), "try", d.n.Attempts)
	tried := d.n.Trying
	for _, ch := range []store.Channels{store.ChannelWebhook, store.ChannelEmail} {
		if tried&ch == 0 {
			continue
		}
		outcome := "retried"
		switch ch {
		case sent & ch:
			outcome = job.NotificationSent
			log.Info("notification sent", "to", d.where[ch])
		case unknown & ch:
			outcome = job.NotificationUnknown
			log.Warn("a notification may or may not have arrived; it is not sent again", "error", note)
		case failed & ch:
			outcome = job.NotificationFailed
			log.Error("a notification is given up", "error", note)
		default:
			log.Warn("a notification could not be sent and is tried again", "error", note)
		}
		f.g.meters.notified.WithLabelValues(outcome).Inc()
	}
}

// notification is the newest notification of a job as the API shows it, nil if there was none.
func (r *reader) notification(id job.ID) (*job.Notification, error) {
	n, ok, err := r.LastNotice(id)
	if err != nil || !ok {
		return nil, err
	}
	out := &job.Notification{Kind: noticeKind(&n), At: job.Instant(n.At), Status: noticeStatus(&n), Outcome: noticeOutcome(&n), Attempts: int(n.Attempts), Error: n.Note,
		NextTryAt: job.Instant(n.NextTry), FinishedAt: job.Instant(n.DoneAt)}
	if k, ok := n.Run(); ok {
		out.RunID, out.ScheduledAt = k.String(), job.Instant(k.At)
	}
	return out, nil
}

func noticeOutcome(n *store.Notice) string {
	switch {
	case n.DoneAt == 0 && n.Trying != 0:
		return job.NotificationSending
	case n.DoneAt == 0:
		return job.NotificationPending
	case n.Failed != 0:
		return job.NotificationFailed
	case n.Unknown != 0:
		return job.NotificationUnknown
	}
	return job.NotificationSent
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
