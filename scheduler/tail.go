package scheduler

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

const (
	// tailLease is how long output is asked for after it was last read, tailAgain after how long a worker that sends
	// none is asked again: its poll's answer may have been lost.
	tailLease = 15 * time.Second
	tailAgain = 2 * time.Second
	maxTail   = 64 << 10
	// maxTails bounds how many attempts are watched at once.
	maxTails = 256
)

// tailing is the output of a running attempt that is watched. It is in the leader's memory only, and goes when it is
// not read any more.
type tailing struct {
	until, asked time.Duration // Clock.Mono
	begin        int64         // of data, in the output
	data         []byte
	changed      chan struct{} // closed, and replaced, when there is more
}

// Tail is the output of a running attempt from an offset on. It waits for more as long as ctx lasts; found is false if
// the worker has no such attempt any more.
func (s *Scheduler) Tail(ctx context.Context, worker string, incarnation, fence uint64,
	after int64) (out job.Output, found bool, err error) {
	for {
		s.mu.Lock()
		if err := s.servingLocked(); err != nil {
			s.mu.Unlock()
			return out, false, err
		}
		now := s.o.Clock.Mono()
		c := s.claims[fence]
		if c == nil || c.x.key != (sessionKey{worker, incarnation}) {
			s.mu.Unlock()
			return out, false, nil
		}
		t := s.tails[fence]
		if t == nil {
			s.sweepTailsLocked(now)
			if len(s.tails) >= maxTails {
				s.mu.Unlock()
				return out, true, job.Errorf(job.CodeUnavailable, "try again later",
					"the output of %d runs is being watched already", maxTails)
			}
			t = &tailing{changed: make(chan struct{}), asked: now - 2*tailAgain}
			if s.tails == nil {
				s.tails = map[uint64]*tailing{}
			}
			s.tails[fence] = t
		}
		t.until = now + tailLease
		if now-t.asked > tailAgain {
			t.asked = now
			c.x.watch = append(c.x.watch, c.ref())
			c.x.wakePoll()
		}
		end := t.begin + int64(len(t.data))
		if end > after {
			from := max(after, t.begin)
			out = job.Output{Ref: c.ref(), Offset: from, Data: append([]byte(nil), t.data[from-t.begin:]...)}
			s.mu.Unlock()
			return out, true, nil
		}
		changed := t.changed
		s.mu.Unlock()
		again := time.NewTimer(tailAgain / 4) // also to see that the attempt has ended
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return job.Output{Ref: c.ref(), Offset: after}, true, nil
		case <-s.done:
		}
		again.Stop()
	}
}

// Output takes what a worker sends of an attempt's output, and says whether anybody wants more.
func (s *Scheduler) Output(_ context.Context, o job.Output) (job.OutputReply, error) {
	from, err := s.parseSession(o.Session)
	if err != nil {
		return job.OutputReply{}, err
	}
	now := s.o.Clock.Mono()
	s.mu.Lock()
	c, err := s.claimLocked(from, &o)
	if c != nil && c.unmasked != nil {
		u := c.unmasked
		s.mu.Unlock()
		// Not under the lock, for which everything waits: it takes its time, and may ask the vault. It is about what
		// its worker did not mask, as far as it is in one piece.
		s.maskerOf(u).Blot(o.Data)
		s.mu.Lock()
		c, err = s.claimLocked(from, &o)
	}
	defer s.mu.Unlock()
	if err != nil || c == nil {
		return job.OutputReply{}, err
	}
	t := s.tails[o.Fence]
	if t == nil || now > t.until || o.Offset < 0 {
		delete(s.tails, o.Fence)
		return job.OutputReply{}, nil
	}
	t.asked = now // it is being sent
	end := t.begin + int64(len(t.data))
	switch {
	case o.Offset+int64(len(o.Data)) <= end && len(t.data) > 0: // heard before
	case o.Offset != end:
		t.begin, t.data = o.Offset, append([]byte(nil), o.Data...)
	default:
		t.data = append(t.data, o.Data...)
	}
	if over := len(t.data) - maxTail; over > 0 {
		t.data = append([]byte(nil), t.data[over:]...)
		t.begin += int64(over)
	}
	if len(o.Data) > 0 {
		close(t.changed)
		t.changed = make(chan struct{})
	}
	return job.OutputReply{Watched: true}, nil
}

// claimLocked is the claim that output is of; nil: it is another worker's.
func (s *Scheduler) claimLocked(from job.Session, o *job.Output) (*claim, error) {
	var a job.Answer
	return s.namedLocked(from, o.Ref, &a), s.servingLocked()
}

func (s *Scheduler) sweepTailsLocked(now time.Duration) {
	for f, t := range s.tails {
		if now > t.until {
			delete(s.tails, f)
		}
	}
}
