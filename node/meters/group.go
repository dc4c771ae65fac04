package meters

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/fsm/ends"
	"github.com/carillon-scheduler/carillon/internal/metric"
	"github.com/carillon-scheduler/carillon/internal/traceid"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

var (
	// lagBuckets resolve the goals: p50 10 ms, p99 50 ms.
	lagBuckets      = []float64{.001, .0025, .005, .01, .02, .035, .05, .075, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	durationBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	commitBuckets   = []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5}
)

// The values of labels, which are all there from the start: an increase from nothing is none to Prometheus.
var (
	runStatuses     = []job.RunStatus{job.RunSucceeded, job.RunDead, job.RunCanceled, job.RunExpired, job.RunLost}
	attemptStatuses = []job.RunStatus{job.RunSucceeded, job.RunFailed, job.RunCanceled, job.RunLost}
	notRunReasons   = []job.Reason{job.ReasonOverlap, job.ReasonQueueFull, job.ReasonOutage, job.ReasonPaused,
		job.ReasonBlackout, job.ReasonDSTGap, job.ReasonDeadline, job.ReasonReplaced, job.ReasonCanceled,
		job.ReasonDeleted, job.ReasonEdited, job.ReasonQuarantined, job.ReasonAlreadyRan, job.ReasonRestored,
		job.ReasonWaiting, job.ReasonPast}
	noticeOutcomes = []string{"sent", "retried", "unknown", "failed"}
)

const (
	// groupLabel is the number of a Raft group.
	groupLabel  = "group"
	typeLabel   = "type"
	statusLabel = "status"
)

// events are what is counted of all groups that a node has a replica of.
type events struct {
	lag, duration, apply, propose            *prometheus.HistogramVec
	runs, attempts, notRun, claims, notified *prometheus.CounterVec
	sessionsExpired, leaderChanges           *prometheus.CounterVec
}

func newEvents() *events {
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: "carillon_" + name, Help: help, Buckets: buckets}
	}
	return &events{
		lag: prometheus.NewHistogramVec(metric.Native(histogram("schedule_lag_seconds",
			"How long after it was ready an occurrence was claimed.", lagBuckets)), []string{groupLabel}),
		duration: prometheus.NewHistogramVec(metric.Native(histogram("run_duration_seconds",
			"How long attempts took, from their start to their end as their workers saw it.", durationBuckets)),
			[]string{groupLabel, typeLabel}),
		apply: prometheus.NewHistogramVec(histogram("apply_seconds",
			"How long it took to apply a batch of log entries to the state.", commitBuckets), []string{groupLabel}),
		propose: prometheus.NewHistogramVec(histogram("commit_seconds",
			"How long it took from proposing a command to its answer.", commitBuckets), []string{groupLabel}),
		runs: counter("runs_total", "Runs that ended for good, by status. Counted by the leader.",
			groupLabel, typeLabel, statusLabel),
		attempts: counter("attempts_total", "Attempts that ended, by status: the last one of a run that is dead is "+
			"failed as those before it. Counted by the leader.", groupLabel, typeLabel, statusLabel),
		notRun: counter("not_run_total", "Occurrences that were recorded as not run, by reason. Counted by the leader.",
			groupLabel, "reason"),
		claims: counter("claims_total", "Claims that were proposed, by outcome.", groupLabel, "outcome"),
		notified: counter("notifications_total",
			"Tries to send a notification that were recorded, by outcome: sent, retried, unknown, failed.",
			groupLabel, "outcome"),
		sessionsExpired: counter("sessions_expired_total",
			"Sessions of workers that fell silent for as long as their lease. Counted by the leader.", groupLabel),
		leaderChanges: counter("leader_changes_total", "How often this node began to lead.", groupLabel),
	}
}

func (a *events) all() []prometheus.Collector {
	return []prometheus.Collector{a.lag, a.duration, a.apply, a.propose, a.runs, a.attempts, a.notRun, a.claims,
		a.notified, a.sessionsExpired, a.leaderChanges}
}

// Group are the metrics of one group.
type Group struct {
	m      *Meters
	number uint32
	label  string
	state  GroupState
	due    due // as of the last scrape that counted

	lag, apply, propose                      prometheus.Observer
	duration                                 prometheus.ObserverVec
	runs, attempts, notRun, claims, notified *prometheus.CounterVec
	sessionsExpired, leaderChanges           prometheus.Counter

	traces   atomic.Pointer[traceid.Sampler]
	exemplar atomic.Int64 // when there was the last one

	store atomic.Pointer[store.Store]
	led   atomic.Pointer[[]uint64] // the last terms in which this node led
	mu    sync.Mutex
	types map[uint32]string // by class
}

// Group are the metrics of a group: what was counted before a replica left the node goes on when it comes back.
func (m *Meters) Group(number uint32) *Group {
	a, label := m.events, strconv.FormatUint(uint64(number), 10)
	of := prometheus.Labels{groupLabel: label}
	g := &Group{m: m, number: number, label: label, types: map[uint32]string{},
		lag: a.lag.With(of), duration: a.duration.MustCurryWith(of), apply: a.apply.With(of),
		propose: a.propose.With(of),
		runs:    a.runs.MustCurryWith(of), attempts: a.attempts.MustCurryWith(of), notRun: a.notRun.MustCurryWith(of),
		claims: a.claims.MustCurryWith(of), notified: a.notified.MustCurryWith(of),
		sessionsExpired: a.sessionsExpired.With(of), leaderChanges: a.leaderChanges.With(of),
	}
	g.led.Store(&[]uint64{})
	for _, t := range job.Types() {
		g.duration.WithLabelValues(t)
		for _, s := range runStatuses {
			g.runs.WithLabelValues(t, s.String())
		}
		for _, s := range attemptStatuses {
			g.attempts.WithLabelValues(t, s.String())
		}
	}
	for _, r := range notRunReasons {
		g.notRun.WithLabelValues(r.String())
	}
	for _, o := range scheduler.ClaimOutcomes {
		g.claims.WithLabelValues(o)
	}
	for _, o := range noticeOutcomes {
		g.notified.WithLabelValues(o)
	}
	return g
}

// Hooks are what the scheduler calls. Of the runs that traces has recorded some become exemplars; nil: none is.
func (g *Group) Hooks(traces *traceid.Sampler) scheduler.Metrics {
	g.traces.Store(traces)
	return scheduler.Metrics{
		Lag:     func(run job.RunKey, d time.Duration) { g.observe(g.lag, d.Seconds(), run) },
		Claims:  func(outcome string, n int) { g.claims.WithLabelValues(outcome).Add(float64(n)) },
		Expired: g.sessionsExpired.Inc,
		Full:    func(worker string) { g.m.Limited(api.RefusedWorkers, worker) },
	}
}

// exemplarEvery is how often a run may become an exemplar: a histogram keeps the last one of each bucket, and it costs
// more than the observation.
const exemplarEvery = 10 * time.Millisecond

// observe counts something of a run, whose trace leads from the histogram to what happened.
func (g *Group) observe(h prometheus.Observer, v float64, run job.RunKey) {
	if traces, st := g.traces.Load(), g.store.Load(); traces != nil && st != nil {
		now, last := time.Now().UnixNano(), g.exemplar.Load()
		if now-last >= int64(exemplarEvery) && g.exemplar.CompareAndSwap(last, now) {
			trace := traceid.Of(st.Info().ClusterID, run)
			if x, ok := h.(prometheus.ExemplarObserver); ok && traces.Sampled(trace) {
				x.ObserveWithExemplar(v, prometheus.Labels{"trace_id": trace.String()})
				return
			}
		}
	}
	h.Observe(v)
}

// ledKept is how many terms are remembered: an entry may be applied after the term that it was written in, but not
// many terms later.
const ledKept = 16

// Leading is told of a term in which this node leads, before it proposes anything.
func (g *Group) Leading(term uint64) {
	old := *g.led.Load()
	if slices.Contains(old, term) {
		return // another try to take up the same leadership
	}
	led := append(slices.Clone(old[max(0, len(old)-ledKept+1):]), term)
	g.led.Store(&led)
	g.leaderChanges.Inc()
}

// Applied is told by the state machine of every batch. An entry is counted by the node that led in its term: that is
// one, and it applies it too, also when it leads no more. The reply that a proposal waits for would be forgotten then.
func (g *Group) Applied(logs []*raft.Log, replies []any, took time.Duration) {
	g.apply.Observe(took.Seconds())
	led := *g.led.Load()
	for i, l := range logs {
		if r, ok := replies[i].(*fsm.Reply); ok && slices.Contains(led, l.Term) {
			g.ended(&r.Ends)
		}
	}
}

func (g *Group) ended(t *ends.Tally) {
	for _, e := range t.All {
		c := g.runs
		if e.Attempt {
			c = g.attempts
		}
		c.WithLabelValues(g.typeOf(e.Class), e.Status.String()).Add(float64(e.Count))
	}
	for _, n := range t.NotRun {
		g.notRun.WithLabelValues(n.Reason.String()).Add(float64(n.Count))
	}
}

// typeOf is the type of the jobs of a class. Classes are never changed.
func (g *Group) typeOf(class uint32) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t, ok := g.types[class]; ok {
		return t
	}
	st := g.store.Load()
	if st == nil {
		return ""
	}
	var t string
	err := st.View(func(v *store.View) error {
		t = string(job.ParseClass(v.Class(class)).Type)
		return nil
	})
	if err == nil {
		g.types[class] = t
	}
	return t
}

// Observe sees every command that was answered.
func (g *Group) Observe(cmd fsm.Command, reply *fsm.Reply, took time.Duration) {
	g.propose.Observe(took.Seconds())
	c, ok := cmd.(*fsm.Complete)
	if !ok {
		return
	}
	var h prometheus.Observer
	var class uint32
	for i := range reply.Items {
		o := &reply.Items[i]
		if o.Code != fsm.CodeOK || c.Started[i] == 0 || c.Ended[i] < c.Started[i] {
			continue
		}
		if h == nil || o.Class != class {
			h, class = g.duration.WithLabelValues(g.typeOf(o.Class)), o.Class
		}
		g.observe(h, float64(c.Ended[i]-c.Started[i])/1000, o.Run)
	}
}

// Notified counts a try to send a notification.
func (g *Group) Notified(outcome string) { g.notified.WithLabelValues(outcome).Inc() }
