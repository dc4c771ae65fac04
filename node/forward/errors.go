package forward

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// ErrNoLeader answers what needs a leader when none is known.
func ErrNoLeader() error {
	return job.Errorf(job.CodeNoLeader, "try again in a moment", "there is no leader right now; nothing was changed")
}

// ErrNoQuorum is ErrNoLeader with why: "who is missing; what to do about it", empty if that is not known.
func ErrNoQuorum(why string) error {
	if why == "" {
		return ErrNoLeader()
	}
	text, remedy, _ := strings.Cut(why, "; ")
	return job.Errorf(job.CodeNoLeader, remedy, "no leader: %s; nothing was changed", text)
}

// writeError answers that the group's leader could not be asked. Where there are several groups others may well answer.
func (f *Forwarder) writeError(w http.ResponseWriter, err error) {
	if known, ok := errors.AsType[*job.Error](err); ok && f.o.Group != 0 {
		err = known.InGroup(f.o.Group)
	}
	api.WriteError(w, err)
}

func errNotLeader(l Leader) error {
	return job.Errorf(job.CodeNotLeader, "talk to "+l.Addr, "this node does not lead; %s does", l.ID)
}

var errReplaced = job.Errorf(job.CodeNotLeader, "ask the new leader", "another node leads now")

func errStopping() error {
	return job.Errorf(job.CodeNotReady, "ask another node, or wait until this one is back",
		"this node is stopping; nothing was changed")
}

// Leading is this node's current leadership. It does not wait for one: a request comes here when there is one, and is
// sent on if there is none any more.
func (t *Tracker) Leading() (*Epoch, error) {
	l := t.Leader()
	switch err := t.Halted(); {
	case err != nil:
		return nil, err
	case l.Epoch != nil:
		return l.Epoch, nil
	case l.Elsewhere():
		return nil, errNotLeader(l)
	}
	return nil, ErrNoLeader()
}

// why is which voters are missing, asked for only if no node leads.
func (t *Tracker) why(ctx context.Context) string {
	if l := t.Leader(); l.Epoch != nil || l.ID != "" || t.leadsSoon() || t.left() || t.o.Why == nil {
		return ""
	}
	return t.o.Why(ctx)
}

// Explain turns the error of a proposal into what a client is told.
func Explain(err error) error {
	var known *job.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, fsm.ErrTooLarge):
		return job.Errorf(job.CodeTooLarge, "make it smaller", "the request is too large for a log entry")
	case errors.Is(err, scheduler.ErrNotApplied):
		return job.Errorf(job.CodeNoLeader, "try again", "this node lost its leadership; nothing was changed")
	}
	return job.Errorf(job.CodeOutcomeUnknown, "repeat it with the same Idempotency-Key",
		"it may or may not have been done: %v", err)
}

// maxTries bounds how often one request is sent. Each but the first follows a failure that may pass.
const maxTries = 50

// Attempts paces the repetitions of one request while leaders come and go. It is the only retry of the server: what is
// below it tries once and says how that ended.
type Attempts struct {
	t     *Tracker
	until time.Time // no attempt begins after this, so that attempts and pauses together are bounded
	n     int
}

// NewAttempts begins with the first one.
func (t *Tracker) NewAttempts() *Attempts { return &Attempts{t: t, until: Deadline()} }

// Leader waits for one to send the request to.
func (a *Attempts) Leader(ctx context.Context) (Leader, bool) {
	return a.t.Wait(ctx, a.until, Leader.Known)
}

// Again pauses after an attempt that l did not answer: the news of a new leader is on its way, or the one that there is
// has a hiccup. It says false when there is no more time, or there were too many.
func (a *Attempts) Again(ctx context.Context, l Leader) bool {
	a.n++
	a.t.doubt()
	d := min(20*time.Millisecond+rand.N(60*time.Millisecond), time.Until(a.until))
	if a.n >= maxTries || d <= 0 || ctx.Err() != nil {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.Changed:
	case <-ctx.Done():
		return false
	}
	return true
}
