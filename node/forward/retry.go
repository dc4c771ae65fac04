package forward

import (
	"context"
	"math/rand/v2"
	"time"
)

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
