package meters

import (
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/store"
)

// groupLabel is the number of a Raft group.
const groupLabel = "group"

var (
	// lagBuckets resolve the goals: p50 10 ms, p99 50 ms.
	lagBuckets      = []float64{.001, .0025, .005, .01, .02, .035, .05, .075, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	durationBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	commitBuckets   = []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5}
)

// events are what is counted of all groups that a node has a replica of.
type events struct {
	lag, duration, apply, propose  *prometheus.HistogramVec
	runs, notRun, claims, notified *prometheus.CounterVec
}

func newEvents() *events {
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "carillon_" + name, Help: help,
			Buckets: buckets}, []string{groupLabel})
	}
	return &events{
		lag: histogram("schedule_lag_seconds", "How long after it was ready an occurrence was claimed.",
			lagBuckets),
		duration: histogram("run_duration_seconds",
			"How long attempts took, from their start to their end as their workers saw it.", durationBuckets),
		apply: histogram("apply_seconds", "How long it took to apply a batch of log entries to the state.",
			commitBuckets),
		propose: histogram("commit_seconds", "How long it took from proposing a command to its answer.",
			commitBuckets),
		runs: counter("runs_total", "Ends of attempts that were committed, by status.", groupLabel, "status"),
		notRun: counter("not_run_total", "Occurrences that were recorded as not run, by reason.", groupLabel,
			"reason"),
		claims: counter("claims_total", "Claims that were proposed, by outcome.", groupLabel, "outcome"),
		notified: counter("notifications_total",
			"Tries to send a notification that were recorded, by outcome: sent, retried, unknown, failed.",
			groupLabel, "outcome"),
	}
}

func (a *events) all() []prometheus.Collector {
	return []prometheus.Collector{a.lag, a.duration, a.apply, a.propose, a.runs, a.notRun, a.claims, a.notified}
}

// Group are the metrics of one group.
type Group struct {
	m      *Meters
	number uint32
	label  string
	state  GroupState

	lag, duration, apply, propose  prometheus.Observer
	runs, notRun, claims, notified *prometheus.CounterVec
}

// Group are the metrics of a group: what was counted before a replica left the node goes on when it comes back.
func (m *Meters) Group(number uint32) *Group {
	a, label := m.events, strconv.FormatUint(uint64(number), 10)
	of := prometheus.Labels{groupLabel: label}
	return &Group{m: m, number: number, label: label,
		lag: a.lag.With(of), duration: a.duration.With(of), apply: a.apply.With(of), propose: a.propose.With(of),
		runs: a.runs.MustCurryWith(of), notRun: a.notRun.MustCurryWith(of), claims: a.claims.MustCurryWith(of),
		notified: a.notified.MustCurryWith(of),
	}
}

// Hooks are what the scheduler calls.
func (g *Group) Hooks() scheduler.Metrics {
	return scheduler.Metrics{
		Lag:       func(d time.Duration) { g.lag.Observe(d.Seconds()) },
		Claims:    func(outcome string, n int) { g.claims.WithLabelValues(outcome).Add(float64(n)) },
		Completed: func(s job.RunStatus, n int) { g.runs.WithLabelValues(s.String()).Add(float64(n)) },
		Full:      func(worker string) { g.m.Limited(api.RefusedWorkers, worker) },
		NotRun:    func(r job.Reason, n int64) { g.notRun.WithLabelValues(r.String()).Add(float64(n)) },
	}
}

// Applied is told by the state machine of every batch.
func (g *Group) Applied(_ int, took time.Duration) { g.apply.Observe(took.Seconds()) }

// Observe sees every command that was answered.
func (g *Group) Observe(cmd fsm.Command, reply *fsm.Reply, took time.Duration) {
	g.propose.Observe(took.Seconds())
	c, ok := cmd.(*fsm.Complete)
	if !ok {
		return
	}
	for i := range reply.Items {
		if reply.Items[i].Code == fsm.CodeOK && c.Started[i] != 0 && c.Ended[i] >= c.Started[i] {
			g.duration.Observe(float64(c.Ended[i]-c.Started[i]) / 1000)
		}
	}
}

// Notified counts a try to send a notification.
func (g *Group) Notified(outcome string) { g.notified.WithLabelValues(outcome).Inc() }

// GroupState is what a group has that is no event.
type GroupState struct {
	Store   *store.Store
	Raft    *raft.Raft
	Members *membership.Members
	Tracker *forward.Tracker
	Backlog func() (int64, error) // what is due and not claimed
}

// Attach adds the metrics of a group's state, when all of that is open.
func (g *Group) Attach(s GroupState) {
	g.state = s
	g.m.groups.put(g.number, g)
}

// Detach takes them away: the files of the group are about to be closed.
func (g *Group) Detach() { g.m.groups.put(g.number, nil) }

// groups collect the states of the groups that a node has a replica of.
type groups struct {
	mu sync.Mutex // held while they are read
	by map[uint32]*Group

	deadLetters, backlog, jobs, openRuns, slots *prometheus.Desc
	leader, skew, outbox, hold                  *prometheus.Desc
}

func newGroups() *groups {
	return &groups{
		by:          map[uint32]*Group{},
		deadLetters: desc("dead_letters", "Dead letters that wait to be redriven or purged.", groupLabel),
		backlog: desc("backlog", "Entries that are due and not claimed; counting stops at 10,000. On the leader.",
			groupLabel),
		jobs:     desc("jobs", "Jobs.", groupLabel),
		openRuns: desc("open_runs", "Open runs: pending, waiting, claimed or retrying.", groupLabel),
		outbox:   desc("notifications_pending", "Notifications that wait to be sent.", groupLabel),
		slots: desc("worker_slots", "Slots of all registered workers, by state. On the leader.", groupLabel,
			"state"),
		leader: desc("leader", "1 on the leader, 0 elsewhere.", groupLabel),
		hold: desc("hold",
			"1 while the cluster holds for this reason and nothing is started: the leader's clock, or "+
				"a restore. On every node.", groupLabel, "reason"),
		skew: desc("clock_skew_seconds", "How far a node's clock is from the majority's. On the leader.", groupLabel,
			"node"),
	}
}

// put is how a group comes, or with nil goes.
func (a *groups) put(number uint32, g *Group) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if g == nil {
		delete(a.by, number)
	} else {
		a.by[number] = g
	}
}

// Describe implements prometheus.Collector.
func (a *groups) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{a.deadLetters, a.backlog, a.jobs, a.openRuns, a.outbox, a.slots, a.leader,
		a.skew, a.hold} {
		ch <- d
	}
}

// Collect implements prometheus.Collector: what is a state and not an event is read when it is asked for.
func (a *groups) Collect(ch chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.by {
		a.collect(ch, g)
	}
}

func (a *groups) collect(ch chan<- prometheus.Metric, g *Group) {
	put := func(d *prometheus.Desc, v float64, labels ...string) {
		gauge(ch, d, v, append([]string{g.label}, labels...)...)
	}
	s := &g.state
	c := s.Store.Counters()
	put(a.deadLetters, float64(c.Dead))
	put(a.jobs, float64(c.Jobs))
	put(a.openRuns, float64(s.Store.OpenRunCount()))
	put(a.outbox, float64(s.Store.NoticeCount()))
	held := stamp.HoldNone
	if h := s.Members.Hold(); h != nil {
		held = h.Kind
	}
	for _, k := range stamp.HoldKinds() {
		put(a.hold, boolValue(k == held), string(k))
	}
	put(a.hold, boolValue(s.Store.Info().Hold.On), "restored")
	if s.Raft.State() != raft.Leader {
		put(a.leader, 0)
		return
	}
	put(a.leader, 1)
	if n, err := s.Backlog(); err == nil { // otherwise the node is closing: there is nothing to say
		put(a.backlog, float64(n))
	}
	busy, slots := 0, 0
	if e := s.Tracker.Epoch(); e != nil {
		for _, w := range e.Scheduler.Workers() {
			busy += w.Busy
			slots += w.Slots
		}
	}
	s.Members.EachSkew(func(node string, d time.Duration) { put(a.skew, d.Seconds(), node) })
	put(a.slots, float64(busy), "busy")
	put(a.slots, float64(max(0, slots-busy)), "free")
}
