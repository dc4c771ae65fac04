package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// lateLimit is how late the loop, or a claim that could be made, may be before this node is not ready.
const lateLimit = 5 * time.Second

// Ready is nil while runs are given out as they should be.
func (s *Scheduler) Ready() error {
	if err := s.stamp.Refused(); err != nil {
		return err
	}
	still := s.o.Clock.Mono() - time.Duration(s.lastTurn.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.servingLocked(); err != nil {
		return err
	}
	switch {
	case still > s.o.Pace.Of(lateLimit):
		return notReady(fmt.Sprintf("the scheduling loop has been stuck for %s", still.Round(time.Millisecond)))
	case s.stuck != "":
		return notReady(s.stuck)
	case s.unknown > 0:
		return notReady(fmt.Sprintf("the outcome of %d proposals is unknown", s.unknown))
	}
	return nil
}

// watch looks for work that could be claimed and is not.
func (l *loop) watch(mono time.Duration, stamping bool) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = l.scanErr
	if !stamping {
		l.progress = mono
		return
	}
	l.round++
	oldest, found := int64(0), false
	for _, b := range l.buckets {
		if b.head.len() == 0 || !b.class.jobQueue.room() {
			continue
		}
		b.class.prepare(l)
		if at := b.head.all()[0].Ready; b.class.least(l.shared) != nil && (!found || at < oldest) {
			oldest, found = at, true
		}
	}
	if !found {
		l.progress = mono
		return
	}
	// A backlog that is being worked off is old and healthy: what counts is that claims are committed.
	if age := time.Duration(l.now-oldest) * time.Millisecond; age > lateLimit &&
		mono-l.progress > s.o.Pace.Of(lateLimit) && s.stuck == "" {
		s.stuck = fmt.Sprintf("a run has been ready for %s, a worker is free, and it is still not claimed",
			age.Round(time.Second))
	}
}

// WaitReason says why a job that is due does not run, empty if it does or is not due. It opens a view of the store.
func (s *Scheduler) WaitReason(id job.ID) string {
	why := ""
	now := s.o.Clock.Now().UnixMilli()
	err := s.st.View(func(v *store.View) error {
		st, p, ok, err := v.State(id)
		if err != nil || !ok {
			return err
		}
		due := !p.Parked && p.Ready <= now
		for _, ref := range v.Open(id) {
			due = due || ref.Status == job.RunPending
		}
		if due {
			why = s.ClassReason(v, v.Class(st.Class))
		}
		return nil
	})
	if err != nil {
		return ""
	}
	return why
}

// ClassReason says why runs of a class (job.Spec.Class) that are due would not be claimed now, empty if they would. Of
// the view it only asks for the queue.
func (s *Scheduler) ClassReason(v *store.View, text string) string {
	if why := s.stamp.Holding(); why != "" {
		return why
	}
	if key, queued := newClass(text).QueueKey(); queued {
		q := v.Queue(key)
		if why := queueReason(&q); why != "" {
			return why
		}
	}
	return s.NoSlot(text)
}

// NoSlot says why no worker has a free slot for a run of a class, empty if one has.
func (s *Scheduler) NoSlot(text string) string {
	why, _ := s.takers(newClass(text))
	return why
}

// NoWorker says which worker runs of a class wait for, empty if there is one that takes them.
func (s *Scheduler) NoWorker(text string) string {
	why, taken := s.takers(newClass(text))
	if taken {
		return ""
	}
	return why
}

// How near the nearest worker comes to taking a run.
const (
	unserved = iota
	withoutTags
	withoutSecrets
	notPolling // it does not ask, and has nothing in hand
	busy
	keepsRest // what is free is kept for other namespaces
	free
)

// takers says why no worker has a slot for a run of a class, empty if one has, and whether there is one that takes such
// runs.
func (s *Scheduler) takers(c *class) (why string, taken bool) {
	c.space = s.space(c.Namespace)
	shared := s.shared.Load()
	nearest := unserved
	s.mu.Lock()
	for _, x := range s.sessions {
		if x.present() && !x.draining {
			nearest = max(nearest, c.nears(x, shared))
		}
	}
	s.mu.Unlock()
	who, where := "executor "+string(c.Type), ""
	none := "no worker has " + who + " enabled"
	if key, _ := c.QueueKey(); c.Type == job.TypeQueue {
		who = "queue " + key.String()
		none = "no worker takes " + who
	} else if c.Namespace != job.DefaultNamespace { // said where it is not the usual one
		where = " for namespace " + c.Namespace
	}
	var tags []string
	for _, k := range slices.Sorted(maps.Keys(c.Selector)) {
		tags = append(tags, k+"="+c.Selector[k])
	}
	return []string{
		unserved:       none + where,
		withoutTags:    "no worker of " + who + where + " has tags " + strings.Join(tags, ","),
		withoutSecrets: "no worker that takes this run may have its secrets: " + strings.Join(c.Secrets, ", "),
		notPolling:     "no worker polls " + who + " at the moment",
		busy:           "all matching slots are busy",
		keepsRest: "namespace " + c.Namespace +
			" has its share of the slots: those that are free are kept for other namespaces",
		free: "",
	}[nearest], nearest >= notPolling
}

// nears says how near a session comes to taking a run of the class.
func (c *class) nears(x *session, shared bool) int {
	switch {
	case !takesFrom(x, c) || !takesType(x, c) || !takesQueue(x, c):
		return unserved
	case !hasTags(x, c):
		return withoutTags
	case !maySee(x, c.Secrets):
		return withoutSecrets
	case c.mayTake(x, shared):
		return free
	case x.free() > 0:
		return keepsRest
	case x.offers || x.busy() > 0:
		return busy
	}
	return notPolling
}

// WorkerInfo is a session as the leader sees it.
type WorkerInfo struct {
	Worker      string
	Incarnation uint64
	Version     string
	Namespace   string // whose runs it takes; empty: those of all
	Types       []job.Type
	Tags        map[string]string
	Slots, Busy int
	LastHeard   time.Time
	Where       string // host, process and directory, as it told
	Waiting     bool   // it has runs in hand from before this leadership and has not come yet
}

// Workers are the sessions, by name.
func (s *Scheduler) Workers() []WorkerInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]WorkerInfo, 0, len(s.sessions))
	now, mono := s.o.Clock.Now(), s.o.Clock.Mono()
	for k, x := range s.sessions {
		out = append(out, WorkerInfo{Worker: k.worker, Incarnation: k.incarnation, Version: x.version,
			Namespace: x.namespace, Types: x.types, Tags: x.tags,
			Slots: x.slots, Busy: x.open, Where: x.where, Waiting: !x.present(),
			LastHeard: now.Add(x.heard - mono)})
	}
	slices.SortFunc(out, func(a, b WorkerInfo) int {
		if a.Worker != b.Worker {
			return strings.Compare(a.Worker, b.Worker)
		}
		return int(min(max(int64(a.Incarnation)-int64(b.Incarnation), -1), 1))
	})
	return out
}

// Started says when an attempt began, as its worker told; the run is claimed and not running if it is not known.
func (s *Scheduler) Started(worker string, incarnation, fence uint64) (job.Instant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[fence]; c != nil && c.x.key == (sessionKey{worker, incarnation}) && c.started != 0 {
		return c.started, true
	}
	return 0, false
}
