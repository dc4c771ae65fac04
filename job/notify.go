package job

import (
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// What a job can notify about.
const (
	NotifyFailure  = "failure"
	NotifyRecovery = "recovery"
)

// The limits of a job's notify.
const (
	MaxNotifyEmails = 16
	maxWebhookURL   = 2048
)

// Notify says who is told that a job began to fail, and that it works again.
type Notify struct {
	// What to notify about. Left out: both.
	On []string `json:"on,omitempty" codec:"o" enum:"failure,recovery"`
	// An http or https URL, or the name of a webhook that the nodes were started with (--notify-webhook).
	Webhook string `json:"webhook,omitempty" codec:"w"`
	// Addresses, at most 16. The nodes need --smtp-addr.
	Email []string `json:"email,omitempty" codec:"e"`
}

// Wants says whether a kind of change is to be told.
func (n *Notify) Wants(kind string) bool {
	return n != nil && (len(n.On) == 0 || slices.Contains(n.On, kind))
}

// WebhookName is the name of the webhook, if it is one and not a URL.
func (n *Notify) WebhookName() (string, bool) {
	if n == nil || n.Webhook == "" || strings.Contains(n.Webhook, ":") {
		return "", false
	}
	return n.Webhook, true
}

// The outcomes of a notification.
const (
	NotificationPending = "pending" // not sent yet, or to be tried again
	NotificationSending = "sending" // a leader has it in hand
	NotificationSent    = "sent"
	NotificationUnknown = "unknown" // it may have arrived; it is not repeated
	NotificationFailed  = "failed"  // given up
)

// Notification is the newest notification of a job, as the API shows it.
type Notification struct {
	Kind        string  `json:"kind"`
	At          Instant `json:"at"` // when the change was committed
	RunID       string  `json:"run_id,omitempty"`
	ScheduledAt Instant `json:"scheduled_at,omitzero"`
	Status      string  `json:"status"` // how the run ended, or "quarantined"
	Outcome     string  `json:"outcome"`
	Attempts    int     `json:"attempts"`
	Error       string  `json:"error,omitempty"`      // what went wrong with sending it
	NextTryAt   Instant `json:"next_try_at,omitzero"` // pending: not before this
	FinishedAt  Instant `json:"finished_at,omitzero"`
}

var webhookNameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// WebhookName says whether a text can be the name of a webhook.
func WebhookName(s string) bool { return webhookNameRE.MatchString(s) }

// normalize gives a new one: the spec that it came from may be shared.
func (n *Notify) normalize() *Notify {
	if n == nil {
		return nil
	}
	c := Notify{On: n.On, Webhook: strings.TrimSpace(n.Webhook)}
	if len(c.On) == 0 {
		c.On = []string{NotifyFailure, NotifyRecovery}
	} else {
		c.On = slices.Clone(c.On)
		slices.Sort(c.On) // failure, recovery
		c.On = slices.Compact(c.On)
	}
	for _, e := range n.Email {
		if e = strings.TrimSpace(e); !slices.Contains(c.Email, e) {
			c.Email = append(c.Email, e)
		}
	}
	return &c
}

func checkNotify(s *Spec) *Error {
	n := s.Notify
	if n == nil {
		return nil
	}
	if n.Webhook == "" && len(n.Email) == 0 {
		return Invalid("notify", "set notify.webhook or notify.email, or leave notify out", "there is nobody to notify")
	}
	for _, on := range n.On {
		if err := oneOf("notify.on", on, NotifyFailure, NotifyRecovery); err != nil {
			return err
		}
	}
	if n.Webhook != "" {
		if err := CheckWebhook("notify.webhook", n.Webhook); err != nil {
			return err
		}
	}
	if len(n.Email) > MaxNotifyEmails {
		return Invalid("notify.email", "use a mailing list", "%d addresses, at most %d are allowed", len(n.Email),
			MaxNotifyEmails)
	}
	for _, e := range n.Email {
		if !EmailAddress(e) {
			return Invalid("notify.email", "use a bare address such as ops@example.com",
				"%q is not an e-mail address", e)
		}
	}
	return nil
}

// CheckWebhook checks a webhook as a job names it: a URL or a name.
func CheckWebhook(field, s string) *Error {
	if WebhookName(s) {
		return nil
	}
	// The URL is often a secret: it is not repeated in the error.
	if len(s) > maxWebhookURL {
		return Invalid(field, "shorten it", "the URL has %d bytes, at most %d are allowed", len(s), maxWebhookURL)
	}
	if err := checkSecretURL(field, s); err != nil {
		return err
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.ContainsAny(s, " \t\r\n") {
		return Invalid(field,
			"use a full URL such as https://hooks.example.com/x, or a name that the nodes were started with "+
				"(--notify-webhook NAME=URL)", "it is neither an http or https URL nor a name")
	}
	return nil
}

// EmailAddress says whether a text is one bare e-mail address.
func EmailAddress(s string) bool {
	if len(s) > 254 || strings.ContainsAny(s, " \t\r\n<>,;\"()\x00") {
		return false
	}
	a, err := mail.ParseAddress(s)
	return err == nil && a.Address == s && a.Name == ""
}
