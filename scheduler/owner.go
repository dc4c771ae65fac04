package scheduler

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
)

// ownerOf is what the secret of a registration comes to. It is committed with every claim of the session, in eight
// bytes of the run's row, so that the next leader can tell the process that has a run in hand from any other of that
// name without having heard of either. The secret itself is in no log. Zero stands for none; the lowest bit says that
// it is the worker of a node.
func ownerOf(r *job.Register) uint64 {
	sum := sha256.Sum256([]byte("carillon worker\x00" + r.Worker + "\x00" + r.Secret))
	owner := max(binary.BigEndian.Uint64(sum[:])&^ownedByNode, 2)
	if r.Node != nil {
		owner |= ownedByNode
	}
	return owner
}

const ownedByNode = 1

// predecessor says that an inherited session was that of an earlier process of the registering worker's node, and that
// this process has ended. The node is the whole cluster: what it has claimed it claimed in the directory that it has
// locked now. After a reboot, or where the directory was put elsewhere, the secret is another one; waiting for the
// lease would only let a single node stand idle. With other members this proves nothing: one of them may have gone on
// with a process that is cut off from this one.
func predecessor(x *session, r *job.Register) bool {
	return r.Sole && !x.registered && x.owner&ownedByNode != 0
}

// sessionForLocked finds or makes the session of a registration, and ends those that it replaces. onHold says that the
// runs of a backup are not released yet.
//
// A session is there until its lease has ended or its worker has drained, and until then its runs may be under way.
// Only one living process at a time has a secret: it is random, or sealed to a directory that the process has locked.
// So a new process with the secret of a session proves that the one before it ended, and releases its runs at once,
// unless that one has a call open at this very moment: then both live, whatever made them alike. Any other process of
// that name waits until the lease has ended; not the time since the last heartbeat counts, but that the lease loop
// ended the session, which knows whether this leader listened at all.
func (s *Scheduler) sessionForLocked(r *job.Register, mono time.Duration, onHold bool) (*session, error) {
	if r.Incarnation>>incarnationBits > s.o.Term || isPull(r.Incarnation) {
		return nil, job.Errorf(job.CodeStale, "register as a new process",
			"incarnation %d was not issued in this cluster's history", r.Incarnation)
	}
	owner := ownerOf(r)
	key := sessionKey{r.Worker, r.Incarnation}
	own := s.sessions[key]
	var older []*session
	for k, x := range s.sessions {
		if k.worker != r.Worker || x.pull != nil { // pull workers have no names to themselves
			continue
		}
		mine := x.owner == owner || predecessor(x, r) || mutant.On(mutant.ReleaseUnproven) ||
			!x.registered && mutant.On(mutant.InheritedDead)
		switch {
		case mine && x.forked != "":
			return nil, forkedError(x)
		case !mine && !x.drained():
			if k.incarnation < r.Incarnation && own != nil && own.owner == owner {
				continue // let in after that one's lease; the commands that take its runs were lost with their leader
			}
			return nil, nameInUse(x, "a living worker has the name %q", r.Worker)
		case r.Incarnation != 0 && k.incarnation > r.Incarnation, !mine && k.incarnation == r.Incarnation:
			return nil, job.Errorf(job.CodeStale, "register as a new process",
				"a newer process of the worker %q has registered", r.Worker)
		case k.incarnation == r.Incarnation:
		case x.polling > 0 && !mutant.On(mutant.ReleaseUnproven):
			return nil, nameInUse(x, "the earlier process of the worker %q still has a call open", r.Worker)
		default:
			older = append(older, x)
		}
	}
	if own == nil && len(older) == 0 && r.Node == nil {
		if err := s.roomLocked(r.Worker); err != nil {
			return nil, err
		}
	}
	if r.Incarnation == 0 || s.takenLocked(key) {
		var err error
		if key.incarnation, err = s.issueLocked(); err != nil {
			return nil, err
		}
	}
	for _, x := range older {
		if len(x.claims) > 0 {
			s.log.Warn("worker restarted; the runs of its old process are released", "worker", r.Worker,
				"incarnation", x.key.incarnation, "runs", len(x.claims))
		}
		s.removeLocked(x)
	}
	if own == nil {
		own = newSession(key, mono)
		s.addSessionLocked(own)
	} else {
		s.adoptLocked(own, r.Held, onHold)
	}
	return own, nil
}

// takenLocked says whether runs are being taken from a worker that went on as the same process: its session ended, and
// the commands for that are not committed yet. It is told to stop those runs, and forgets them. Were the commands lost
// with this leader, the next one would take a worker that has none of its runs for one that was never told of them, and
// give them out again under the same fences. So it goes on as a new process: what the next leader finds of the one
// before is then taken away by that one.
func (s *Scheduler) takenLocked(k sessionKey) bool {
	x := s.removed[k]
	return x != nil && x.inHand() && !mutant.On(mutant.SameProcess)
}

// nameInUse refuses a registration because of the session of another process.
func nameInUse(x *session, format string, args ...any) error {
	err := job.Errorf(job.CodeWorkerNameInUse,
		"stop the other worker, wait until its lease has ended, or give this one another name; if its directory is "+
			"a copy, empty the copy", format, args...)
	err.Message += ": " + cmp.Or(x.where, "it is not known where it runs: it has not talked to this leader yet")
	return err
}

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
		return job.Errorf(job.CodeSessionUnknown, "register again",
			"heartbeat %d of the worker %q came after heartbeat %d", h.Number, x.key.worker, x.beatLast)
	}
	if first, ok := x.beatsSeen[h.Number]; ok {
		if first.nonce == h.Nonce {
			return nil
		}
		x.forked = fmt.Sprintf("one from %s and one from %s", cmp.Or(first.from, "this node"),
			cmp.Or(h.From, "this node"))
		x.leaving = true // it gets nothing more
		s.version++
		x.wakePolls() // its polls end
		s.log.Error("session forked: two processes act as one worker; both are refused, and its runs stay claimed "+
			"until the lease ends",
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
	return job.Errorf(job.CodeWorkerForked, "stop one of them; each worker needs a machine of its own",
		"two processes act as the worker %q (%s): %s", x.key.worker, x.where, x.forked)
}
