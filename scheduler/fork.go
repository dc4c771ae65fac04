package scheduler

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"github.com/carillon-scheduler/carillon/job"
)

// beatWindow is how many heartbeats a session remembers. One that is older came so late that nothing it says counts.
const beatWindow = 64

// beatSeen is a heartbeat that was heard: the nonce that it brought back, and where it came from.
type beatSeen struct {
	nonce uint64
	from  string
}

// hearLocked looks whether a heartbeat comes from the process that sent those before it. A machine that was copied with
// its memory, or resumed twice from one image, has two processes that cannot be told apart by what they know: both have
// the secret, the session and what it holds. But each answer carries another nonce, which the next heartbeat brings
// back: from the second one on, two heartbeats of one number differ, while one that a network doubled does not.
func (s *Scheduler) hearLocked(x *session, h *job.Heartbeat) error {
	if h.Number == 0 { // a worker that does not count
		return nil
	}
	if h.Number+beatWindow <= x.beatLast {
		return job.Errorf(job.CodeSessionUnknown, "register again", "heartbeat %d of the worker %q came after heartbeat %d", h.Number, x.key.worker, x.beatLast)
	}
	if first, ok := x.beatsSeen[h.Number]; ok {
		if first.nonce == h.Nonce {
			return nil
		}
		x.forked = fmt.Sprintf("one from %s and one from %s", cmp.Or(first.from, "this node"), cmp.Or(h.From, "this node"))
		x.leaving = true // it gets nothing more
		s.version++
		x.wakePolls() // its polls end
		s.log.Error("session forked: two processes have one worker's memory; both are refused, and its runs stay until the lease ends",
			"worker", x.key.worker, "registered", x.where, "heartbeats", x.forked, "runs", len(x.claims))
		return forkedError(x)
	}
	if x.beatsSeen == nil {
		x.beatsSeen = make(map[uint64]beatSeen, 4)
	}
	x.beatsSeen[h.Number] = beatSeen{h.Nonce, h.From}
	x.beatLast = max(x.beatLast, h.Number)
	if len(x.beatsSeen) > beatWindow {
		for n := range x.beatsSeen {
			if n+beatWindow <= x.beatLast {
				delete(x.beatsSeen, n)
			}
		}
	}
	return nil
}

// newNonce is what the next heartbeat brings back.
func newNonce() uint64 { return rand.Uint64() | 1 }

func forkedError(x *session) error {
	return job.Errorf(job.CodeWorkerForked, "stop one of them; each worker needs a machine of its own", "two processes speak as the worker %q (%s): %s",
		x.key.worker, x.where, x.forked)
}
