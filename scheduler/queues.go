package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// jobQueue is a queue as the loop knows it. What is in hand is counted by the store, from committed claims alone, so
// that it does not matter whose claims they are and which leader made them; only what is on its way through the log is
// counted here.
type jobQueue struct {
	key      job.QueueKey
	use      store.QueueUse // at the last look
	inFlight int            // picked, and not known to be in the store's count
	buckets  []*bucket
}

// room says that one more run of the queue may be claimed. Between the commit of a claim and the news of it that claim
// counts twice: then there seems to be less room than there is, never more.
func (n *jobQueue) room() bool {
	return n == nil || mutant.On(mutant.IgnoreQueue) ||
		!n.use.Paused && (n.use.Concurrency == 0 || n.use.Claimed+n.inFlight < n.use.Concurrency)
}

// queueOf finds the queue of a class, nil if its type has none.
func (l *loop) queueOf(v *store.View, c *class) *jobQueue {
	key, ok := c.QueueKey()
	if !ok {
		return nil
	}
	n := l.queues[key]
	if n == nil {
		n = &jobQueue{key: key, use: v.Queue(key)}
		l.queues[key] = n
	}
	return n
}

// lookAtQueues takes over rows and counts, if any of them moved, and brings the buckets back that have room again. It
// happens in every turn, and every commit makes the loop turn; anyway is by the second, whatever was announced.
func (l *loop) lookAtQueues(v *store.View, anyway bool) {
	if moves := v.QueueMoves(); moves != l.moves || anyway {
		l.moves = moves
		for _, n := range l.queues {
			n.use = v.Queue(n.key)
			l.listQueue(n)
		}
	}
}

func (l *loop) listQueue(n *jobQueue) {
	if n.room() {
		for _, b := range n.buckets {
			l.list(b)
		}
	}
}

// claimResolved is for a pick that is no longer on its way.
func (l *loop) claimResolved(p *pick, claimed bool) {
	n := p.b.class.jobQueue
	if n == nil {
		return
	}
	n.inFlight--
	if claimed {
		// It counts from here on, also if the store cannot be read; the next look, which must come even if nothing
		// moves, says whether it was counted already.
		n.use.Claimed++
		l.moves = neverMoved
		return
	}
	l.listQueue(n)
}

// neverMoved makes the next look count.
const neverMoved = ^uint64(0)

// unclaimed puts entries back whose queue was paused or got a lower limit while their claims were on their way.
func (l *loop) unclaimed(picks []pick) {
	for i := range slices.Backward(picks) {
		l.putBack(&picks[i])
	}
}

// queueReason says why no run of a queue is claimed, whatever workers there are; empty if that is not the queue's
// doing.
func queueReason(q *store.QueueUse) string {
	switch {
	case q.Room():
		return ""
	case q.Paused:
		return "queue " + q.Key().String() + " is paused"
	}
	return fmt.Sprintf("queue %s is at its limit (%d of %d running)", q.Key(), q.Claimed, q.Concurrency)
}

// QueueWorkers are the names of the registered workers that take runs from a queue, in order.
func (s *Scheduler) QueueWorkers(k job.QueueKey) []string {
	c := &class{Class: job.Class{Namespace: k.Namespace, Type: job.TypeQueue, Queue: k.Name}}
	var out []string
	s.mu.Lock()
	for _, x := range s.sessions {
		if x.present() && c.takenBy(x) {
			out = append(out, x.key.worker)
		}
	}
	s.mu.Unlock()
	slices.Sort(out)
	return slices.Compact(out)
}

// queuesNamed is how many queues an error names.
const queuesNamed = 10

// KnownQueue is nil for a queue that was declared or that a job uses, and otherwise an error with the code
// unknown_queue that names those which exist in its namespace. It costs a look into a map: every poll may ask.
func KnownQueue(st *store.Store, k job.QueueKey) error {
	if q := st.Queue(k); q.Known() {
		return nil
	}
	var names []string
	if err := st.View(func(v *store.View) error {
		v.EachQueue(func(q store.QueueUse) bool {
			if q.Namespace == k.Namespace {
				names = append(names, q.Name)
			}
			return true
		})
		return nil
	}); err != nil {
		return err
	}
	slices.Sort(names)
	text := "there are none"
	if n := len(names); n > 0 {
		text = "known are " + strings.Join(names[:min(n, queuesNamed)], ", ")
		if n > queuesNamed {
			text += fmt.Sprintf(" and %d more", n-queuesNamed)
		}
	}
	return job.Errorf(job.CodeUnknownQueue,
		"create a job of type queue that names it, or declare it with PUT /api/v1/queues/NAME",
		"no job uses a queue %q in namespace %q and it was not declared; %s", k.Name, k.Namespace, text)
}
