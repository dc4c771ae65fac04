package meters

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/insight"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/store"
)

// groups are what the groups of a node have that is no event. What all replicas have alike is said by the leader only:
// a sum over nodes would count it three times.
type groups struct {
	leader, hold, term, commit, applied, contact, storeBytes *prometheus.Desc

	jobs, unscheduled, deadLetters, openRuns, backlog, oldest, slots, workers, skew, outbox *prometheus.Desc

	queueBacklog, queueRunning, queueWorkers, queuesOmitted *prometheus.Desc

	passes passes

	mu sync.Mutex
	by map[uint32]*Group // that have a state
}

// passes number the scrapes that count what is due. That takes a while, and scrapes come one after the other: those
// that waited for one another share what was counted after they came.
type passes struct {
	began atomic.Uint64
	last  uint64 // begun by those that have the lock
}

// come is called before one waits.
func (p *passes) come() uint64 { return p.began.Load() }

// next says whether one that came has to count, and begins a pass then.
func (p *passes) next(came uint64) bool {
	if p.last > came {
		return false
	}
	p.last = p.began.Add(1)
	return true
}

func newGroups() *groups {
	queue := []string{groupLabel, "namespace", "queue"}
	return &groups{
		leader: desc("leader", "1 on the leader, 0 elsewhere.", groupLabel),
		hold: desc("hold", "1 while the cluster holds for this reason and nothing is started: the leader's clock, "+
			"or a restore. On every node.", groupLabel, "reason"),
		term:    desc("raft_term", "The term that Raft is in.", groupLabel),
		commit:  desc("raft_commit_index", "The last entry of the log that is known to be committed.", groupLabel),
		applied: desc("raft_applied_index", "The last entry of the log that was applied.", groupLabel),
		contact: desc("raft_last_contact_seconds", "How long ago this node heard from the leader; 0 on the leader.",
			groupLabel),
		storeBytes: desc("store_bytes", "Size of the file with the state.", groupLabel),

		jobs: desc("jobs", "Jobs, by status. On the leader.", groupLabel, statusLabel),
		unscheduled: desc("jobs_unscheduled", "Jobs that should have one next occurrence and have none, or more. "+
			"0 unless something is broken. On the leader.", groupLabel),
		deadLetters: desc("dead_letters", "Dead letters, to be redriven or purged. On the leader.", groupLabel),
		openRuns: desc("open_runs", "Open runs: pending, waiting, claimed, retrying or canceling. On the leader.",
			groupLabel),
		backlog: desc("backlog_runs", "What is due and not claimed; counting stops at 50,000 of a priority. "+
			"On the leader.", groupLabel),
		oldest: desc("backlog_oldest_seconds", "How long the oldest of what is due and not claimed has been due; "+
			"0: there is none. On the leader.", groupLabel),
		slots: desc("worker_slots", "Slots of all registered workers, by state. On the leader. Groups share them: "+
			"what is busy adds up over groups, and what is free in one is so in the others.", groupLabel, "state"),
		workers: desc("workers", "Workers that are registered. On the leader.", groupLabel),
		skew: desc("clock_skew_seconds", "How far a node's clock is from the majority's. On the leader.",
			groupLabel, "node"),
		outbox: desc("notifications_pending", "Notifications that wait to be sent. On the leader.", groupLabel),

		queueBacklog: desc("queue_backlog", "What is due and not claimed of a queue. On the leader, of the "+
			strconv.Itoa(maxQueues)+" queues with most of it.", queue...),
		queueRunning:  desc("queue_running", "Runs of a queue that workers have. As carillon_queue_backlog.", queue...),
		queueWorkers:  desc("queue_workers", "Workers that take a queue. As carillon_queue_backlog.", queue...),
		queuesOmitted: desc("queues_omitted", "Queues of groups that this node leads that are not shown."),
		by:            map[uint32]*Group{},
	}
}

// Describe implements prometheus.Collector.
func (a *groups) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{a.leader, a.hold, a.term, a.commit, a.applied, a.contact, a.storeBytes,
		a.jobs, a.unscheduled, a.deadLetters, a.openRuns, a.backlog, a.oldest, a.slots, a.workers, a.skew, a.outbox,
		a.queueBacklog, a.queueRunning, a.queueWorkers, a.queuesOmitted} {
		ch <- d
	}
}

// Collect implements prometheus.Collector: what is a state and not an event is read when it is asked for. A group
// whose files are about to be closed waits for that.
func (a *groups) Collect(ch chan<- prometheus.Metric) {
	came := a.passes.come()
	a.mu.Lock()
	defer a.mu.Unlock()
	count := a.passes.next(came)
	shown, omitted := newShown(), 0
	for _, g := range a.by {
		g.collect(ch, count)
		for _, q := range g.due.queues {
			shown.Add(q)
		}
		omitted += g.due.omitted
	}
	a.collectQueues(ch, shown.Rows(), omitted+shown.Omitted)
}

// GroupState is what a group has that is no event.
type GroupState struct {
	Store   *store.Store
	Raft    *raft.Raft
	Members *membership.Members
	Tracker *forward.Tracker
	Backlog func(context.Context) (insight.Backlog, error) // what is due and not claimed
	Now     func() int64
}

// Attach adds the metrics of a group's state, when all of that is open.
func (g *Group) Attach(s GroupState) {
	g.m.groups.mu.Lock()
	defer g.m.groups.mu.Unlock()
	g.state = s
	g.store.Store(s.Store)
	g.m.groups.by[g.number] = g
}

// Detach is the end of that: the state is not looked at any more.
func (g *Group) Detach() {
	g.m.groups.mu.Lock()
	defer g.m.groups.mu.Unlock()
	if g.m.groups.by[g.number] == g {
		delete(g.m.groups.by, g.number)
	}
}

// backlogTimeout bounds how long a scrape counts what is due.
const backlogTimeout = 2 * time.Second

// due is what was counted of a group: nothing unless it is led here.
type due struct {
	known   bool
	backlog insight.DueWork
	queues  []queueUse // those to be shown
	omitted int
}

func (g *Group) collect(ch chan<- prometheus.Metric, count bool) {
	a, s := g.m.groups, &g.state
	put := func(d *prometheus.Desc, v float64, labels ...string) {
		gauge(ch, d, v, append([]string{g.label}, labels...)...)
	}
	held := stamp.HoldNone
	if h := s.Members.Hold(); h != nil {
		held = h.Kind
	}
	for _, k := range stamp.HoldKinds() {
		put(a.hold, boolValue(k == held), string(k))
	}
	put(a.hold, boolValue(s.Store.Info().Hold.On), "restored")
	leads := s.Raft.State() == raft.Leader
	put(a.leader, boolValue(leads))
	put(a.term, float64(s.Raft.CurrentTerm()))
	put(a.commit, float64(s.Raft.CommitIndex()))
	put(a.applied, float64(g.applied()))
	put(a.contact, g.lastContact(leads).Seconds())
	put(a.storeBytes, float64(s.Store.Size()))
	e := s.Tracker.Epoch()
	if e == nil {
		g.due = due{}
		return
	}
	for i, n := range s.Store.JobsByStatus() {
		put(a.jobs, float64(n), string(job.Statuses[i]))
	}
	lost, _ := e.Scheduler.Unscheduled()
	put(a.unscheduled, float64(lost))
	put(a.deadLetters, float64(s.Store.Counters().Dead))
	put(a.openRuns, float64(s.Store.OpenRunCount()))
	put(a.outbox, float64(s.Store.NoticeCount()))
	busy, slots, workers := 0, 0, 0
	for _, w := range e.Scheduler.Workers() {
		busy += w.Busy
		slots += w.Slots
		if !w.Waiting {
			workers++
		}
	}
	put(a.slots, float64(busy), "busy")
	put(a.slots, float64(max(0, slots-busy)), "free")
	put(a.workers, float64(workers))
	s.Members.EachSkew(func(node string, d time.Duration) { put(a.skew, d.Seconds(), node) })
	if count {
		g.due = g.count()
	}
	if !g.due.known {
		return
	}
	put(a.backlog, float64(g.due.backlog.Count))
	age := int64(0)
	if g.due.backlog.Count > 0 {
		age = max(0, s.Now()-g.due.backlog.Oldest)
	}
	put(a.oldest, float64(age)/1000)
}

// count counts what is due. If the node is closing, or it takes too long, there is nothing to say.
func (g *Group) count() (d due) {
	ctx, cancel := context.WithTimeout(context.Background(), backlogTimeout)
	defer cancel()
	b, err := g.state.Backlog(ctx)
	if err != nil {
		return d
	}
	d.known, d.backlog = true, b.DueWork
	shown := newShown()
	err = g.state.Store.View(func(v *store.View) error {
		v.EachQueue(func(q store.QueueUse) bool {
			shown.Add(queueUse{g, q.Key(), b.Queues[q.Key()].Count, q.Claimed})
			return true
		})
		return nil
	})
	if err == nil {
		d.queues, d.omitted = shown.Rows(), shown.Omitted
	}
	return d
}

// newShown are the queues that are shown, of those that are added: there may be as many as there are jobs.
func newShown() insight.Firsts[queueUse] {
	return insight.Firsts[queueUse]{Most: maxQueues, Compare: byUse}
}

// applied is the last entry that is in the state. Entries of Raft's own never get there: while nothing waits to be
// applied, that is as far as Raft is.
func (g *Group) applied() uint64 {
	index := g.state.Raft.AppliedIndex()
	if g.state.Raft.Stats()["fsm_pending"] != "0" {
		index = min(index, g.state.Store.Counters().Index)
	}
	return index
}

// lastContact is how long ago this node heard from a leader.
func (g *Group) lastContact(leads bool) time.Duration {
	if leads {
		return 0
	}
	last := g.state.Raft.LastContact()
	if last.IsZero() {
		last = g.m.began
	}
	return time.Since(last)
}

// maxQueues is how many queues are shown: each is three series of every node that ever led its group.
const maxQueues = 200

type queueUse struct {
	g       *Group
	key     job.QueueKey
	backlog int64
	running int
}

// byUse has those first that are shown rather than others.
func byUse(x, y queueUse) int {
	return cmp.Or(cmp.Compare(y.backlog, x.backlog), cmp.Compare(y.running, x.running),
		cmp.Compare(x.key.Namespace, y.key.Namespace), cmp.Compare(x.key.Name, y.key.Name))
}

func (a *groups) collectQueues(ch chan<- prometheus.Metric, shown []queueUse, omitted int) {
	for i := range shown {
		q := &shown[i]
		put := func(d *prometheus.Desc, v int64) {
			gauge(ch, d, float64(v), q.g.label, q.key.Namespace, q.key.Name)
		}
		put(a.queueBacklog, q.backlog)
		put(a.queueRunning, int64(q.running))
		if e := q.g.state.Tracker.Epoch(); e != nil {
			put(a.queueWorkers, int64(len(e.Scheduler.QueueWorkers(q.key))))
		}
	}
	gauge(ch, a.queuesOmitted, float64(omitted))
}
