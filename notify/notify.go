// Package notify sends notifications: by a webhook that Slack-compatible receivers understand, or by e-mail over SMTP.
// The outbox of the leader decides what is sent when, and records what became of it.
package notify

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
)

// Settings are what a node was started with.
type Settings struct {
	Webhooks map[string]string // URLs that jobs do not spell out, see job.Given
	SMTP     SMTP
	Timeout  time.Duration // of one try; 0: 15 s
	// Egress says which receivers jobs may name by a URL; nil: egress.Default. Those of Webhooks are the operator's.
	Egress *egress.Policy
	// Dial, if not nil, is how receivers are reached: the simulator has a network of its own.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// DefaultTimeout bounds one try.
const DefaultTimeout = 15 * time.Second

func (s *Settings) timeout() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return DefaultTimeout
}

// Check refuses a job's notify that a node with these settings could not serve: the loss would go unnoticed.
func (s *Settings) Check(namespace string, n *job.Notify) error {
	if n == nil {
		return nil
	}
	if name, ok := n.WebhookName(); ok {
		if _, _, known := job.Given(s.Webhooks, namespace, name); !known {
			return job.Invalid("notify.webhook", "start the nodes with --notify-webhook "+job.GivenKey(namespace, name)+
				"=URL, or give a URL", "there is no webhook %q on the leader for namespace %s", name, namespace)
		}
	}
	switch {
	case len(n.Email) == 0:
	case s.SMTP.Addr == "":
		return job.Invalid("notify.email", "start the nodes with --smtp-addr and --smtp-from, or use notify.webhook",
			"the leader has no mail server")
	case !s.SMTP.serves(namespace):
		return job.Invalid("notify.email", "start the nodes with --smtp-namespaces "+namespace+", or use "+
			"notify.webhook", "the mail server of the leader is not for namespace %s", namespace)
	}
	return nil
}

// URL is where a job's webhook is. Where is a name for its receiver that can be shown: a URL is often a secret.
func (s *Settings) URL(namespace string, n *job.Notify) (url, where string, err error) {
	if name, ok := n.WebhookName(); ok {
		url, key, known := job.Given(s.Webhooks, namespace, name)
		if !known {
			return "", "webhook " + name, fmt.Errorf("this node was not started with a webhook %q for namespace %s",
				name, namespace)
		}
		return url, "webhook " + key, nil
	}
	return n.Webhook, hostOf(n.Webhook), nil
}

// Message is what is told.
type Message struct {
	Kind        string      `json:"kind"` // failure or recovery
	JobID       job.ID      `json:"job_id"`
	Name        string      `json:"name,omitempty"`
	Namespace   string      `json:"namespace"`
	RunID       string      `json:"run_id,omitempty"`
	Status      string      `json:"status"`
	Reason      string      `json:"reason,omitempty"`
	Error       string      `json:"error,omitempty"`
	ScheduledAt job.Instant `json:"scheduled_at,omitzero"`
	At          job.Instant `json:"at"` // when the change was committed
	Cluster     string      `json:"cluster_id,omitempty"`

	Key string `json:"-"` // the same for every try of this notification, and for no other one
}

// Title says it in one line.
func (m *Message) Title() string {
	who := cmp.Or(m.Name, m.JobID.String())
	if space := m.space(); space != "" {
		who = space + "/" + who
	}
	if m.Kind == job.NotifyRecovery {
		return "Job " + who + " works again"
	}
	switch m.Status {
	case "quarantined":
		return "Job " + who + " was put into quarantine"
	case job.RunExpired.String():
		return "Job " + who + " failed: a run did not start within its deadline"
	case job.RunLost.String():
		return "Job " + who + " failed: the worker of a run was lost"
	}
	return "Job " + who + " failed"
}

// space is the namespace if it is not the usual one.
func (m *Message) space() string {
	if m.Namespace == job.DefaultNamespace {
		return ""
	}
	return m.Namespace
}

// lines are the details, a label and a value each.
func (m *Message) lines() (out [][2]string) {
	for _, l := range [][2]string{{"Job", strings.TrimSpace(m.Name + " " + m.JobID.String())}, {"Namespace", m.space()},
		{"Run", m.RunID},
		{"Status", m.Status}, {"Reason", m.Reason}, {"Scheduled", instant(m.ScheduledAt)}, {"At", instant(m.At)}} {
		if l[1] != "" {
			out = append(out, l)
		}
	}
	return out
}

func instant(t job.Instant) string {
	if t == 0 {
		return ""
	}
	return t.String()
}

// Outcome is how a try ended.
type Outcome uint8

// The outcomes.
const (
	Sent      Outcome = iota
	Retry             // it certainly did not arrive, and may later
	Permanent         // it did not arrive, and will not
	Unknown           // it may have arrived
)

// Result is the end of one try.
type Result struct {
	Outcome Outcome
	Err     error         // says why it is not Sent; also what went wrong beside what was sent
	After   time.Duration // Retry: the receiver asked to be left alone for this long
}

func sent() Result             { return Result{} }
func again(err error) Result   { return Result{Outcome: Retry, Err: err} }
func refused(err error) Result { return Result{Outcome: Permanent, Err: err} }
func unknown(err error) Result { return Result{Outcome: Unknown, Err: err} }
func (r Result) because(s string) Result {
	r.Err = fmt.Errorf("%s: %w", s, r.Err)
	return r
}
