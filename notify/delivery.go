package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// send tries every channel of a delivery at the same time and hands it back.
func (o *Outbox) send(ctx context.Context, d *delivery) {
	var mu sync.Mutex
	var all sync.WaitGroup
	d.results = map[store.Channels]Result{}
	try := func(ch store.Channels, do func() Result) {
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
	if o.BeforeSend != nil {
		o.BeforeSend(ctx)
	}
	try(store.ChannelWebhook, func() Result {
		url, _, err := o.Settings.URL(d.msg.Namespace, &d.to)
		if err != nil { // another node that leads later may know it
			return Result{Outcome: Retry, Err: err}
		}
		_, named := d.to.WebhookName()
		url, m, err := o.fill(url, d)
		if err != nil { // what is missing may be set later
			return Result{Outcome: Retry, Err: err}
		}
		return o.poster.post(ctx, url, named, &d.msg, m)
	})
	try(store.ChannelEmail, func() Result { return o.Settings.Mail(ctx, d.to.Email, &d.msg) })
	all.Wait()
	o.ended <- d
}

// landed takes back a delivery and remembers how its receivers did.
func (o *Outbox) landed(d *delivery) {
	o.unsettled = append(o.unsettled, d)
	for ch, r := range d.results {
		at := o.receiver(d.where[ch])
		at.flying--
		switch r.Outcome {
		case Retry, Unknown:
			at.failures++
			at.after = time.Now().Add(max(o.backoff(at.failures), r.After))
		default: // it answers
			at.failures, at.after = 0, time.Time{}
		}
	}
}

// maxSettled bounds how many ends go into one entry of the log. With their texts they are far below what fits.
const maxSettled = 128

// settle records the ends of deliveries. What cannot be recorded now is recorded later: only this leadership knows it.
func (o *Outbox) settle(now int64) {
	if len(o.unsettled) == 0 {
		return
	}
	n := min(maxSettled, len(o.unsettled))
	batch := slices.Clone(o.unsettled[:n])
	o.unsettled = slices.Delete(o.unsettled, 0, n)
	cmd := &fsm.SettleNotices{Head: fsm.Head{Now: now, Term: o.Term}}
	for _, d := range batch {
		sent, unknown, failed, retry, note := o.verdict(d)
		cmd.Jobs, cmd.Seqs = append(cmd.Jobs, uint64(d.n.Job)), append(cmd.Seqs, d.n.Seq)
		cmd.Attempt, cmd.Sent = append(cmd.Attempt, d.n.Attempts), append(cmd.Sent, byte(sent))
		cmd.Unknown, cmd.Failed = append(cmd.Unknown, byte(unknown)), append(cmd.Failed, byte(failed))
		cmd.RetryAt = append(cmd.RetryAt, now+retry.Milliseconds())
		// Apply cuts it too, but what a receiver answers must not make the entry one that cannot be proposed.
		cmd.Error = append(cmd.Error, job.Head(note, 2*store.MaxNoticeText))
	}
	reply, err := o.Propose(cmd)
	if err != nil {
		o.unsettled = append(o.unsettled, batch...) // said twice, the second time is stale
		o.next = min(o.next, time.Second)
		return
	}
	for i, d := range batch {
		delete(o.busy, d.n.Job)
		if reply.Items[i].Code == fsm.CodeOK {
			delete(o.doubtful, noticeRef{d.n.Job, d.n.Seq})
			o.report(d, store.Channels(cmd.Sent[i]), store.Channels(cmd.Unknown[i]), store.Channels(cmd.Failed[i]),
				cmd.Error[i])
		}
	}
	o.next = time.Millisecond // the next of these jobs may follow
}

// verdict is what the log is told about a delivery.
func (o *Outbox) verdict(d *delivery) (sent, unknown, failed store.Channels, retry time.Duration, note string) {
	switch {
	case d.orphan && mutant.On(mutant.RepeatNotice):
		return 0, 0, 0, 0, d.n.Note
	case d.orphan:
		return 0, d.n.Trying, 0, 0, "node " + d.n.Node + " stopped leading while it was sending this: it may have " +
			"arrived, and is not sent again"
	case d.unsent:
		return 0, 0, 0, 0, d.n.Note
	case d.giveUp:
		note = "given up after " + maxAge.String()
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
		switch r.Outcome {
		case Sent:
			sent |= ch
		case Unknown:
			unknown |= ch
		case Permanent:
			failed |= ch
		default:
			retry = max(retry, r.After)
			if mutant.On(mutant.DropNotice) {
				failed |= ch
			}
		}
		if r.Err != nil {
			errs = append(errs, errors.New(d.where[ch]+": "+r.Err.Error()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		note = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return sent, unknown, failed, max(retry, o.backoff(int(d.n.Attempts))), note
}

// report logs and counts what was recorded.
func (o *Outbox) report(d *delivery, sent, unknown, failed store.Channels, note string) {
	log := o.Logger.With("job", d.n.Job.String(), "kind", kindOf(&d.n), "try", d.n.Attempts)
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
			log.Warn("notification outcome unknown; not sent again", "error", note)
		case failed & ch:
			outcome = job.NotificationFailed
			log.Error("notification given up", event.NotificationGivenUp, "error", note)
		default:
			log.Warn("notification not sent; will be retried", "error", note)
		}
		o.Recorded(outcome)
	}
}

// message is what is told about a notice.
func message(n *store.Notice, spec *job.Spec, cluster string) Message {
	m := Message{Kind: kindOf(n), JobID: n.Job, Name: spec.Name, Namespace: spec.Namespace, Status: statusOf(n),
		Reason: n.Reason.String(), Error: n.Error, At: job.Instant(n.At), Cluster: cluster}
	if k, ok := n.Run(); ok {
		m.RunID, m.ScheduledAt = k.String(), job.Instant(k.At)
	}
	m.Key = fmt.Sprintf("%s:%s:%d:%d", n.Job, m.Kind, n.Seq, n.At)
	return m
}

func kindOf(n *store.Notice) string {
	if n.Kind == store.NotifyRecovery {
		return job.NotifyRecovery
	}
	return job.NotifyFailure
}

func statusOf(n *store.Notice) string {
	if n.Status == job.RunNone {
		return string(job.StatusQuarantined)
	}
	return n.Status.String()
}

// View is a notice as the API shows it.
func View(n *store.Notice) *job.Notification {
	out := &job.Notification{
		Kind: kindOf(n), At: job.Instant(n.At), Status: statusOf(n), Outcome: outcomeOf(n),
		Attempts: int(n.Attempts), Error: n.Note,
		NextTryAt: job.Instant(n.NextTry), FinishedAt: job.Instant(n.DoneAt),
	}
	if k, ok := n.Run(); ok {
		out.RunID, out.ScheduledAt = k.String(), job.Instant(k.At)
	}
	return out
}

func outcomeOf(n *store.Notice) string {
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
