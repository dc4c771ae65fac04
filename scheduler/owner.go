package scheduler

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
)

// The lowest bits of an owner.
const (
	ownedByNode = 1 << iota // the worker of a node
	ownsName                // its process has a secret, and the name to itself
	ownerFlags  = 1<<iota - 1
)

// ownerOf is what the secret of a process comes to. It is in the text of its sessions and is committed with every
// claim, in eight bytes of the run's row, so that the next leader can tell the process that has a run in hand from any
// other of that name without having heard of either. The secret itself is in no log. A worker without a secret gets a
// number.
func ownerOf(p *job.Poll, worker string) uint64 {
	if p.Secret == "" {
		return max(rand.Uint64()&^ownerFlags, ownerFlags+1)
	}
	sum := sha256.Sum256([]byte("carillon worker\x00" + worker + "\x00" + p.Secret))
	owner := binary.BigEndian.Uint64(sum[:])&^ownerFlags | ownsName
	if p.Node != nil {
		owner |= ownedByNode
	}
	return owner
}

// takeNameLocked makes a name that belongs to one process the one of a session that polls for the first time, and ends
// the sessions that it replaces.
//
// A session is there until its lease has ended or its worker has left, and until then its runs may be under way. Only
// one living process at a time has a secret: it is random, or sealed to a directory that the process has locked. So a
// new process with the secret of a session proves that the one before it ended, and releases its runs at once, unless
// that one has a poll open at this very moment: then both live, whatever made them alike. Any other process of that
// name waits until the lease has ended; not the time since the last call counts, but that the lease loop ended the
// session, which knows whether this leader listened at all.
//
// After a reboot a node has another secret. If it is the whole cluster, its earlier process has ended all the same:
// what that claimed it claimed in the directory that is locked now. With other members this proves nothing: one of them
// may have gone on with a process that is cut off from this one.
func (s *Scheduler) takeNameLocked(key sessionKey, owner uint64, p *job.Poll) error {
	if owner&ownsName == 0 {
		return nil
	}
	var older []*session
	for k, x := range s.sessions {
		if k.worker != key.worker || k == key || x.owner&ownsName == 0 {
			continue
		}
		mine := x.owner == owner || !x.present() && p.Sole && x.owner&ownedByNode != 0 ||
			mutant.On(mutant.ReleaseUnproven) || !x.present() && mutant.On(mutant.InheritedDead)
		switch {
		case !mine && !x.drained():
			return nameInUse(x, "a living worker has the name %q", key.worker)
		case mine && k.incarnation > key.incarnation:
			return forkedError(x, p)
		case x.poll != nil && !mutant.On(mutant.ReleaseUnproven):
			return nameInUse(x, "the earlier process of the worker %q still has a call open", key.worker)
		}
		older = append(older, x)
	}
	for _, x := range older {
		if len(x.claims) > 0 {
			s.log.Warn("worker restarted; the runs of its old process are released", "worker", x.key.worker,
				"incarnation", x.key.incarnation, "runs", len(x.claims))
		}
		s.removeLocked(x)
	}
	return nil
}

// nameInUse refuses a poll because of the session of another process.
func nameInUse(x *session, format string, args ...any) error {
	err := job.Errorf(job.CodeWorkerNameInUse,
		"stop the other worker, wait until its lease has ended, or give this one another name; if its directory is "+
			"a copy, empty the copy", format, args...)
	err.Message += ": " + cmp.Or(x.where, "it is not known where it runs: it has not talked to this leader yet")
	return err
}

// forkedError refuses a process whose session another one goes on with: a machine that was copied with its memory, or
// resumed twice from one image, has two such processes. The copy of a poll that the network made is refused as well,
// and nobody reads that.
func forkedError(x *session, p *job.Poll) error {
	return job.Errorf(job.CodeWorkerForked, "stop one of them; each worker needs a machine of its own",
		"two processes act as the worker %q (%s): one from %s and one from %s", x.key.worker, x.where,
		cmp.Or(x.from, "this node"), cmp.Or(p.From, "this node"))
}

func sessionUnknown(worker string, why string) error {
	return job.Errorf(job.CodeSessionUnknown, "poll without a session",
		"this leader knows no such session of the worker %q: %s", worker, why)
}
