package fsm

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// MaxNotices bounds the outbox. More than that is one thing to tell.
	MaxNotices = 10_000
	// maxJobNotices bounds a job's part of it: one that comes and goes while its receiver is down must not take
	// everybody's room.
	maxJobNotices = 20
)

// judge looks at the end of a run: is it a change of the job's health that is to be notified? It is in the transaction
// that closes the run, so a change is told once under any leader, and commit order decides between runs that were open
// at the same time. The caller writes the state.
func (a *applier) judge(k job.RunKey, s *store.State, rec *store.Record) error {
	if s == nil || s.Notify == 0 {
		return nil
	}
	switch rec.Status {
	case job.RunSucceeded:
		if !s.Failing {
			return nil
		}
	case job.RunDead, job.RunLost, job.RunExpired:
		if s.Failing {
			return nil
		}
	default:
		return nil // canceled, skipped, missed: a user's decision, and not the job's health
	}
	n := store.Notice{Job: k.Job, At: a.now, RunAt: k.At, Origin: k.Origin, Status: rec.Status, Reason: rec.Reason,
		Error: head(rec.Error)}
	if s.Failing {
		return a.recovered(s, &n)
	}
	return a.failed(s, &n)
}

// failed makes a healthy job a failing one.
func (a *applier) failed(s *store.State, n *store.Notice) (err error) {
	if s.Notify == 0 || s.Failing {
		return nil
	}
	n.Kind = store.NotifyFailure
	s.Failing, err = a.tell(s, n)
	return err
}

// recovered makes a failing job a healthy one.
func (a *applier) recovered(s *store.State, n *store.Notice) error {
	if s.Notify == 0 || !s.Failing {
		return nil
	}
	n.Kind = store.NotifyRecovery
	told, err := a.tell(s, n)
	s.Failing = !told
	return err
}

// tell puts a change into the outbox, if it is one that the job tells about. If there is no room it says false: the
// change has not happened yet as far as anybody was told, and the next run that ends alike makes it.
func (a *applier) tell(s *store.State, n *store.Notice) (bool, error) {
	if s.Notify&n.Kind == 0 {
		return true, nil
	}
	if a.b.Notices() >= MaxNotices {
		return false, nil
	}
	pending, err := a.b.JobNotices(n.Job)
	if err != nil || len(pending) >= maxJobNotices {
		return false, err
	}
	return true, a.b.AddNotice(n)
}

// head is the beginning of a text.
func head(s string) string {
	if len(s) <= store.MaxNoticeText {
		return s
	}
	s = s[:store.MaxNoticeText]
	for i := 0; i < utf8.UTFMax && !utf8.ValidString(s[max(0, len(s)-utf8.UTFMax):]) && len(s) > 0; i++ {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// forget drops what was to be told about a job that tells nothing any more.
func (a *applier) forget(id job.ID, s, before *store.State) error {
	if s.Notify != 0 || before.Notify == 0 {
		return nil
	}
	s.Failing = false
	return a.b.DropNotices(id)
}

// ClaimNotices gives notifications of the outbox to the leader that proposes it: only then may it send them. Want are
// all the channels that the job names now, Try those that are tried this time.
type ClaimNotices struct {
	Head `codec:"h"`
	Node string  `codec:"n"`
	Jobs Numbers `codec:"j"`
	Seqs Numbers `codec:"s"`
	Want []byte  `codec:"w"`
	Try  []byte  `codec:"y"`
}

func (c *ClaimNotices) items() int      { return len(c.Jobs) }
func (*ClaimNotices) stopsOnHold() bool { return true }

func (c *ClaimNotices) check() error {
	return sameLength(len(c.Jobs), len(c.Seqs), len(c.Want), len(c.Try))
}

// apply gives notifications to the leader, which sends them only after this is committed: no other leader will.
func (c *ClaimNotices) apply(a *applier) error {
	for i := range c.Jobs {
		want, try := store.Channels(c.Want[i]), store.Channels(c.Try[i])
		if want == 0 || try&^want != 0 || want&^store.AllChannels != 0 || len(c.Node) > job.MaxName {
			a.outcome(Outcome{Code: CodeRefused, Text: "there are no such channels"})
			continue
		}
		n, ok, err := a.b.Notice(job.ID(c.Jobs[i]), c.Seqs[i])
		if err != nil {
			return err
		}
		if !ok || n.Trying != 0 || try&n.Settled() != 0 {
			a.outcome(Outcome{Code: CodeStale})
			continue
		}
		if try == 0 { // an edit took away what was left to be tried
			if want&^n.Settled() != 0 {
				a.outcome(Outcome{Code: CodeRefused, Text: "there is something left to be tried"})
				continue
			}
			n.Want, n.DoneAt = want, max(a.now, 1)
			if err := a.b.FinishNotice(&n); err != nil {
				return err
			}
			a.outcome(Outcome{Code: CodeOK, Job: n.Job, Count: int(n.Attempts)})
			continue
		}
		n.Attempts++
		n.Want, n.Trying, n.Term, n.Node, n.TriedAt, n.NextTry = want, try, a.term, c.Node, a.now, 0
		if err := a.b.PutNotice(&n); err != nil {
			return err
		}
		a.outcome(Outcome{Code: CodeOK, Job: n.Job, Count: int(n.Attempts)})
	}
	return nil
}

// SettleNotices records what became of claimed notifications, channel by channel. Channels that were tried and are in
// none of the three are tried again, not before RetryAt.
type SettleNotices struct {
	Head    `codec:"h"`
	Jobs    Numbers  `codec:"j"`
	Seqs    Numbers  `codec:"s"`
	Attempt Gens     `codec:"a"`
	Sent    []byte   `codec:"t"`
	Unknown []byte   `codec:"u"`
	Failed  []byte   `codec:"f"`
	RetryAt Times    `codec:"y"`
	Error   []string `codec:"m"` // empty, or one an item
}

func (c *SettleNotices) items() int { return len(c.Jobs) }

func (c *SettleNotices) check() error {
	n := len(c.Jobs)
	return cmp.Or(optional(n, len(c.Error)),
		sameLength(n, len(c.Seqs), len(c.Attempt), len(c.Sent), len(c.Unknown), len(c.Failed), len(c.RetryAt)))
}

// apply records what became of claimed notifications. What is neither sent nor unknown nor given up is tried again.
func (c *SettleNotices) apply(a *applier) error {
	for i := range c.Jobs {
		sent, unknown, failed := store.Channels(c.Sent[i]), store.Channels(c.Unknown[i]), store.Channels(c.Failed[i])
		n, ok, err := a.b.Notice(job.ID(c.Jobs[i]), c.Seqs[i])
		if err != nil {
			return err
		}
		if !ok || n.Trying == 0 || n.Attempts != c.Attempt[i] {
			a.outcome(Outcome{Code: CodeStale})
			continue
		}
		if sent&unknown != 0 || (sent|unknown)&failed != 0 || (sent|unknown|failed)&^n.Trying != 0 {
			a.outcome(Outcome{Code: CodeRefused, Text: "these are not the channels that were tried"})
			continue
		}
		n.Trying = 0
		n.Sent, n.Unknown, n.Failed = n.Sent|sent, n.Unknown|unknown, n.Failed|failed
		if note := at(c.Error, i); note != "" {
			n.Note = head(strings.ToValidUTF8(note, "�"))
		}
		if n.Want&^n.Settled() == 0 {
			n.DoneAt = max(a.now, 1)
			err = a.b.FinishNotice(&n)
		} else {
			n.NextTry = min(max(c.RetryAt[i], 0), maxTime)
			err = a.b.PutNotice(&n)
		}
		if err != nil {
			return err
		}
		a.outcome(Outcome{Code: CodeOK, Job: n.Job})
	}
	return nil
}

// disownNotices ends the notifications of a backup: the cluster that it was taken from may have sent them since. What
// came up here after the restore stays. There are few enough for one step.
func (a *applier) disownNotices(restored int64) error {
	var old []store.Notice
	err := a.b.EachNotice(func(n store.Notice) bool {
		if n.At <= restored {
			old = append(old, n)
		}
		return true
	})
	if err != nil {
		return err
	}
	for i := range old {
		n := &old[i]
		n.Unknown |= store.AllChannels &^ n.Settled()
		n.Trying, n.DoneAt = 0, max(a.now, 1)
		n.Note = "it had not been sent when the backup was taken; its outcome is not known here"
		if err := a.b.FinishNotice(n); err != nil {
			return err
		}
	}
	return nil
}
