package notify

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// message is what is told about a notice.
func message(n *store.Notice, name, cluster string) Message {
	m := Message{Kind: kindOf(n), JobID: n.Job, Name: name, Status: statusOf(n), Reason: n.Reason.String(),
		Error: n.Error, At: job.Instant(n.At), Cluster: cluster}
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
