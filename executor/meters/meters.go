// Package meters are the metrics of a worker that is no node, and the port that serves them.
package meters

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-scheduler/carillon/internal/metric"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// Meters are the metrics of a worker.
type Meters struct {
	registry *prometheus.Registry
	of       atomic.Pointer[worker.Worker]

	attempts *prometheus.CounterVec
	duration *prometheus.HistogramVec

	slots, registered, waiting *prometheus.Desc
}

var buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("carillon_worker_"+name, help, labels, nil)
}

// New makes the metrics of a worker of some types, before that is there.
func New(version string, types []job.Type) *Meters {
	m := &Meters{
		registry: metric.New(version),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carillon_worker_attempts_total",
			Help: "Attempts that ended on this worker, by status."}, []string{"type", "status"}),
		duration: prometheus.NewHistogramVec(metric.Native(prometheus.HistogramOpts{
			Name: "carillon_worker_attempt_duration_seconds", Buckets: buckets,
			Help: "How long attempts took, from their start to their end."}), []string{"type"}),
		slots: desc("slots", "Slots of this worker, by state: busy or free.", "state"),
		registered: desc("registered", "1 while this worker has a session with the leader of the group, 0 otherwise.",
			"group"),
		waiting: desc("results_waiting", "Results that no leader has acknowledged yet."),
	}
	for _, t := range types {
		m.duration.WithLabelValues(string(t))
		for o := job.OutcomeSucceeded; o <= job.OutcomeReturned; o++ { // an increase from nothing is none to Prometheus
			m.attempts.WithLabelValues(string(t), o.String())
		}
	}
	m.registry.MustRegister(m.attempts, m.duration, m)
	return m
}

// Attempt counts an attempt that ended.
func (m *Meters) Attempt(a job.Assignment, r job.Result) {
	m.attempts.WithLabelValues(string(a.Type), r.Outcome.String()).Inc()
	if r.StartedAt != 0 && r.FinishedAt >= r.StartedAt {
		m.duration.WithLabelValues(string(a.Type)).Observe(float64(r.FinishedAt-r.StartedAt) / 1000)
	}
}

// Watch adds the state of the worker.
func (m *Meters) Watch(w *worker.Worker) { m.of.Store(w) }

// Describe implements prometheus.Collector.
func (m *Meters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.slots, m.registered, m.waiting} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Meters) Collect(ch chan<- prometheus.Metric) {
	w := m.of.Load()
	if w == nil {
		return
	}
	put := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	s := w.Standing()
	put(m.slots, s.Busy, "busy")
	put(m.slots, max(0, s.Slots-s.Busy), "free")
	put(m.waiting, s.Waiting)
	for group, registered := range s.Registered {
		n := 0
		if registered {
			n = 1
		}
		put(m.registered, n, strconv.FormatUint(uint64(group), 10))
	}
}

// Handler serves the metrics at /metrics, and nothing else.
func (m *Meters) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metric.Handler(m.registry))
	return mux
}

// slow bounds every step of a scrape: who is slower is cut off.
const slow = 30 * time.Second

// Listen serves them at an address until stop is called; "": nowhere.
func (m *Meters) Listen(addr string, log *slog.Logger) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, job.Invalid("--metrics-listen", "choose another address", "listen on %s: %v", addr, err)
	}
	server := &http.Server{Handler: m.Handler(), ReadTimeout: slow, WriteTimeout: slow, IdleTimeout: 4 * slow,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("metrics no longer served", "address", addr, "error", err)
		}
	}()
	log.Info("metrics served", "address", l.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		<-done
	}, nil
}
