// Package meters are the metrics of a node: events are counted when they happen, and what is a state is read when it is
// asked for.
package meters

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/disk"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/listen"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/store"
)

// Meters are the node's metrics, in a registry of their own: several nodes may live in one process.
type Meters struct {
	registry *prometheus.Registry
	state    State

	lag          prometheus.Histogram
	duration     prometheus.Histogram
	runs         *prometheus.CounterVec
	notRun       *prometheus.CounterVec
	claims       *prometheus.CounterVec
	notified     *prometheus.CounterVec
	egressDenied *prometheus.CounterVec
	refusals     *prometheus.CounterVec
	limited      *limited
	apply        prometheus.Histogram
	propose      prometheus.Histogram

	deadLetters, backlog, jobs, openRuns *prometheus.Desc
	slots, leader, skew                  *prometheus.Desc
	outbox                               *prometheus.Desc
	diskFree, diskLimit, hold            *prometheus.Desc
	connections, refused, insecure       *prometheus.Desc
}

var (
	// lagBuckets resolve the goals: p50 10 ms, p99 50 ms.
	lagBuckets      = []float64{.001, .0025, .005, .01, .02, .035, .05, .075, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	durationBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	commitBuckets   = []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5}
)

// State is what a node has that is no event.
type State struct {
	Store   *store.Store
	Raft    *raft.Raft
	Disk    *disk.Watch
	Port    *listen.Port
	Members *membership.Members
	// Insecure says that the node serves without TLS and tokens on purpose.
	Insecure bool
	Tracker  *forward.Tracker
	Backlog  func() (int64, error) // what is due and not claimed
}

// New makes the metrics of events. Those of the state follow with Attach.
func New(log *slog.Logger) *Meters {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "carillon_" + name, Help: help, Buckets: buckets})
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carillon_" + name, Help: help}, []string{label})
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("carillon_"+name, help, labels, nil)
	}
	m := &Meters{
		registry: prometheus.NewRegistry(),
		lag: histogram("schedule_lag_seconds", "How long after it was ready an occurrence was claimed.",
			lagBuckets),
		duration: histogram("run_duration_seconds",
			"How long attempts took, from their start to their end as their workers saw it.", durationBuckets),
		runs:   counter("runs_total", "Ends of attempts that were committed, by status.", "status"),
		notRun: counter("not_run_total", "Occurrences that were recorded as not run, by reason.", "reason"),
		claims: counter("claims_total", "Claims that were proposed, by outcome.", "outcome"),
		notified: counter("notifications_total",
			"Tries to send a notification that were recorded, by outcome: sent, retried, unknown, failed.", "outcome"),
		egressDenied: counter("egress_denied_total",
			"Connections of http and message jobs and of webhooks that the rules of egress denied, by class.", "class"),
		refusals: counter("requests_refused_total",
			"Requests that were refused before anything was done, by code: 400, 401, 403 and 429.", "code"),
		apply: histogram("apply_seconds", "How long it took to apply a batch of log entries to the state.",
			commitBuckets),
		propose: histogram("commit_seconds", "How long it took from proposing a command to its answer.",
			commitBuckets),

		deadLetters: desc("dead_letters", "Dead letters that wait to be redriven or purged."),
		backlog:     desc("backlog", "Entries that are due and not claimed; counting stops at 10,000. On the leader."),
		jobs:        desc("jobs", "Jobs."),
		openRuns:    desc("open_runs", "Open runs: pending, waiting, claimed or retrying."),
		outbox:      desc("notifications_pending", "Notifications that wait to be sent."),
		slots:       desc("worker_slots", "Slots of all registered workers, by state. On the leader.", "state"),
		leader:      desc("leader", "1 on the leader, 0 elsewhere."),
		diskFree:    desc("disk_free_bytes", "Room left on the file system of the data directory."),
		diskLimit:   desc("disk_limit_bytes", "With less room than this on the leader no jobs are created."),
		connections: desc("connections", "Connections that are open on the node's port."),
		refused:     desc("connections_refused_total", "Connections that were closed because too many were open."),
		insecure: desc("insecure",
			"1 if the node serves without TLS and tokens on purpose (--insecure), 0 otherwise."),
		hold: desc("hold",
			"1 while the cluster holds for this reason and nothing is started: the leader's clock, or "+
				"a restore. On every node.", "reason"),
		skew: desc("clock_skew_seconds", "How far a node's clock is from the majority's. On the leader.",
			"node"),
	}
	m.limited = newLimited(log, counter("limited_total",
		"Requests that were refused because a token, an address or a worker asked for too much, by reason.", "reason"))
	m.registry.MustRegister(m.lag, m.duration, m.runs, m.notRun, m.claims, m.notified, m.egressDenied, m.refusals,
		m.limited.counter, m.apply, m.propose,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Attach adds the metrics of a node's state. It comes once, when all of that is open.
func (m *Meters) Attach(s State) {
	m.state = s
	m.registry.MustRegister(m)
}

// Handler serves them.
func (m *Meters) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Hooks are what the scheduler calls.
func (m *Meters) Hooks() scheduler.Metrics {
	return scheduler.Metrics{
		Lag:       func(d time.Duration) { m.lag.Observe(d.Seconds()) },
		Claims:    func(outcome string, n int) { m.claims.WithLabelValues(outcome).Add(float64(n)) },
		Completed: func(s job.RunStatus, n int) { m.runs.WithLabelValues(s.String()).Add(float64(n)) },
		Full:      func(worker string) { m.Limited(api.RefusedWorkers, worker) },
		NotRun:    func(r job.Reason, n int64) { m.notRun.WithLabelValues(r.String()).Add(float64(n)) },
	}
}

// Applied is told by the state machine of every batch.
func (m *Meters) Applied(_ int, took time.Duration) { m.apply.Observe(took.Seconds()) }

// Observe sees every command that was answered.
func (m *Meters) Observe(cmd fsm.Command, reply *fsm.Reply, took time.Duration) {
	m.propose.Observe(took.Seconds())
	c, ok := cmd.(*fsm.Complete)
	if !ok {
		return
	}
	for i := range reply.Items {
		if reply.Items[i].Code == fsm.CodeOK && c.Started[i] != 0 && c.Ended[i] >= c.Started[i] {
			m.duration.Observe(float64(c.Ended[i]-c.Started[i]) / 1000)
		}
	}
}

// Notified counts a try to send a notification.
func (m *Meters) Notified(outcome string) { m.notified.WithLabelValues(outcome).Inc() }

// EgressDenied counts a connection that the rules of egress denied.
func (m *Meters) EgressDenied(class egress.Class) {
	m.egressDenied.WithLabelValues(string(class)).Inc()
}

// Refused counts a request that was refused before anything was done.
func (m *Meters) Refused(code job.Code) { m.refusals.WithLabelValues(string(code)).Inc() }

// Describe implements prometheus.Collector.
func (m *Meters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.deadLetters, m.backlog, m.jobs, m.openRuns, m.outbox, m.slots, m.leader,
		m.skew, m.diskFree, m.diskLimit, m.hold, m.connections, m.refused, m.insecure} {
		ch <- d
	}
}

// Collect implements prometheus.Collector: what is a state and not an event is read when it is asked for.
func (m *Meters) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := &m.state
	c := s.Store.Counters()
	gauge(m.deadLetters, float64(c.Dead))
	gauge(m.jobs, float64(c.Jobs))
	gauge(m.openRuns, float64(s.Store.OpenRunCount()))
	gauge(m.outbox, float64(s.Store.NoticeCount()))
	if d := s.Disk.Last(); d.Total > 0 {
		gauge(m.diskFree, float64(d.Free))
		gauge(m.diskLimit, float64(d.Limit))
	}
	gauge(m.connections, float64(s.Port.Open()))
	ch <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(s.Port.Refused()))
	gauge(m.insecure, boolValue(s.Insecure))
	held := stamp.HoldNone
	if h := s.Members.Hold(); h != nil {
		held = h.Kind
	}
	for _, k := range stamp.HoldKinds() {
		gauge(m.hold, boolValue(k == held), string(k))
	}
	gauge(m.hold, boolValue(s.Store.Info().Hold.On), "restored")
	if s.Raft.State() != raft.Leader {
		gauge(m.leader, 0)
		return
	}
	gauge(m.leader, 1)
	if n, err := s.Backlog(); err == nil { // otherwise the node is closing: there is nothing to say
		gauge(m.backlog, float64(n))
	}
	busy, slots := 0, 0
	if e := s.Tracker.Epoch(); e != nil {
		for _, w := range e.Scheduler.Workers() {
			busy += w.Busy
			slots += w.Slots
		}
	}
	s.Members.EachSkew(func(node string, d time.Duration) { gauge(m.skew, d.Seconds(), node) })
	gauge(m.slots, float64(busy), "busy")
	gauge(m.slots, float64(max(0, slots-busy)), "free")
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
