// Package meters are the metrics of a node: events are counted when they happen, and what is a state is read when it is
// asked for. What concerns a Raft group has the group's number as a label, also in a cluster of one group: what reads
// the metrics need not change when there are more.
package meters

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/internal/metric"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/disk"
	"github.com/carillon-scheduler/carillon/node/listen"
)

// Meters are the node's metrics, in a registry of their own: several nodes may live in one process.
type Meters struct {
	registry *prometheus.Registry
	state    State
	events   *events
	groups   *groups
	began    time.Time

	egressDenied *prometheus.CounterVec
	refusals     *prometheus.CounterVec
	limited      *limited
	http         *prometheus.HistogramVec

	diskFree, diskLimit            *prometheus.Desc
	connections, refused, insecure *prometheus.Desc
}

// State is what a node has that is no event.
type State struct {
	Disk *disk.Watch
	Port *listen.Port
	// Insecure says that the node serves without TLS and tokens on purpose.
	Insecure bool
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "carillon_" + name, Help: help}, labels)
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("carillon_"+name, help, labels, nil)
}

// New makes the metrics of events. Those of the state follow with Attach.
func New(log *slog.Logger, version string) *Meters {
	m := &Meters{
		registry: metric.New(version),
		events:   newEvents(),
		groups:   newGroups(),
		began:    time.Now(),
		http:     newHTTP(),
		egressDenied: counter("egress_denied_total",
			"Connections of http and message jobs and of webhooks that the rules of egress denied, by class.", "class"),
		refusals: counter("requests_refused_total",
			"Requests that were refused before anything was done, by code: 400, 401, 403 and 429.", "code"),

		diskFree:    desc("disk_free_bytes", "Room left on the file system of the data directory."),
		diskLimit:   desc("disk_limit_bytes", "With less room than this on the leader no jobs are created."),
		connections: desc("connections", "Connections that are open on the node's port."),
		refused:     desc("connections_refused_total", "Connections that were closed because too many were open."),
		insecure: desc("insecure",
			"1 if the node serves without TLS and tokens on purpose (--insecure), 0 otherwise."),
	}
	m.limited = newLimited(log, counter("limited_total",
		"Requests that were refused because a token, an address or a worker asked for too much, by reason.", "reason"))
	for _, c := range []egress.Class{egress.Loopback, egress.Self, egress.LinkLocal, egress.Metadata,
		egress.Unspecified, egress.Multicast, egress.Broadcast, egress.Operator, egress.Unknown} {
		m.egressDenied.WithLabelValues(string(c))
	}
	for _, c := range []job.Code{job.CodeInvalid, job.CodeUnknownField, job.CodeMalformed, job.CodeUnauthenticated,
		job.CodeForbidden, job.CodeTooManyRequests} {
		m.refusals.WithLabelValues(string(c))
	}
	m.registry.MustRegister(m.egressDenied, m.refusals, m.limited.counter, m.http, m.groups)
	m.registry.MustRegister(m.events.all()...)
	return m
}

// Attach adds the metrics of a node's state. It comes once, when all of that is open.
func (m *Meters) Attach(s State) {
	m.state = s
	m.registry.MustRegister(m)
}

// Register adds metrics that another part of the node keeps.
func (m *Meters) Register(c prometheus.Collector) { m.registry.MustRegister(c) }

// Handler serves them.
func (m *Meters) Handler() http.Handler {
	return metric.Handler(m.registry)
}

// EgressDenied counts a connection that the rules of egress denied.
func (m *Meters) EgressDenied(class egress.Class) {
	m.egressDenied.WithLabelValues(string(class)).Inc()
}

// Refused counts a request that was refused before anything was done.
func (m *Meters) Refused(code job.Code) { m.refusals.WithLabelValues(string(code)).Inc() }

// Describe implements prometheus.Collector.
func (m *Meters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.diskFree, m.diskLimit, m.connections, m.refused, m.insecure} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Meters) Collect(ch chan<- prometheus.Metric) {
	s := &m.state
	if d := s.Disk.Last(); d.Total > 0 {
		gauge(ch, m.diskFree, float64(d.Free))
		gauge(ch, m.diskLimit, float64(d.Limit))
	}
	gauge(ch, m.connections, float64(s.Port.Open()))
	ch <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(s.Port.Refused()))
	gauge(ch, m.insecure, boolValue(s.Insecure))
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
