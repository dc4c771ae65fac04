// Package tracing makes the spans of runs and exports them: on the leader, from the history that it and those before it
// have committed. So there is a span for every way in which an attempt or a run can end, and nothing is asked of the
// workers or kept in the state.
package tracing

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-scheduler/carillon/internal/otlp"
	"github.com/carillon-scheduler/carillon/internal/traceid"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// lookEvery is how often the history is looked at. Spans wait for each other in any case.
	lookEvery = 500 * time.Millisecond
	// readChunk is how many records are read in one view: views are short.
	readChunk = 256
	// again is how far back a leader begins: its predecessor may have died with the spans of its last seconds. What
	// that had sent already is sent again, with the same ids and the same content.
	again      = 15 * time.Second
	againCount = 4096
	// walkBack bounds how many records of a job are looked at for the first attempt of a run.
	walkBack = 256
	maxError = 256

	crowdedPause = 5 * time.Millisecond
	crowdedTries = 100
)

// Tracer exports the spans of a node. A nil one stands for no tracing.
type Tracer struct {
	exp     *otlp.Exporter
	sampler *traceid.Sampler
	now     func() time.Time
}

// New begins to export, if cfg is not nil.
func New(cfg *otlp.Config, node, version string, now func() time.Time, log *slog.Logger) *Tracer {
	if cfg == nil {
		return nil
	}
	return &Tracer{exp: otlp.New(*cfg, log, otlp.String("service.instance.id", node),
		otlp.String("service.version", version)), sampler: cfg.Sampler(), now: now}
}

// Close sends what is left, for some seconds at most, or not at all.
func (t *Tracer) Close(atOnce bool) {
	if t != nil {
		t.exp.Close(atOnce)
	}
}

// Lead is the part of a leadership that makes the spans of a group.
func (t *Tracer) Lead(st *store.Store) func(*forward.Epoch) func(context.Context) {
	return func(*forward.Epoch) func(context.Context) {
		if t == nil {
			return func(context.Context) {}
		}
		f := &follower{t: t, st: st, cluster: st.Info().ClusterID}
		return f.run
	}
}

// follower reads the history of a group as it grows.
type follower struct {
	t       *Tracer
	st      *store.Store
	cluster string
	seq     uint64 // of the last record that was looked at
}

func (f *follower) run(ctx context.Context) {
	f.seq = f.begin()
	for wait.For(ctx, lookEvery) {
		f.look(ctx)
	}
	f.look(ctx) // the next leader would have to make them again
}

// begin is the record after which this leadership makes spans.
func (f *follower) begin() (seq uint64) {
	from := f.t.now().Add(-again).UnixMilli()
	_ = f.st.View(func(v *store.View) error {
		seq = v.C.HistSeq
		n := 0
		return v.EachRecordBack(0, func(at uint64, r store.Record) bool {
			if n++; n > againCount || r.Recorded < from {
				return false
			}
			seq = at - 1
			return true
		})
	})
	return seq
}

// look makes the spans of what was recorded since. It reads no further than what is there now, so that it ends, and
// lets the exporter keep up while the leadership lasts: the history waits, the queue does not.
func (f *follower) look(ctx context.Context) {
	last := f.st.Counters().HistSeq
	for f.seq < last {
		var spans []otlp.Span
		n := 0
		err := f.st.View(func(v *store.View) error {
			return v.EachRecord(f.seq, func(seq uint64, r store.Record) bool {
				f.seq = seq
				spans = f.append(spans, v, seq, &r)
				n++
				return n < readChunk
			})
		})
		f.t.exp.Add(spans...)
		if err != nil || n == 0 {
			return // not readable, which others say, or trimmed
		}
		for i := 0; i < crowdedTries && f.t.exp.Crowded(); i++ {
			if !wait.For(ctx, crowdedPause) {
				break
			}
		}
	}
}

// append adds the spans of a record.
func (f *follower) append(spans []otlp.Span, v *store.View, seq uint64, r *store.Record) []otlp.Span {
	if r.Interval.Count > 0 {
		return spans // occurrences that did not become runs
	}
	trace := traceid.Of(f.cluster, r.Run())
	if !f.t.sampler.Sampled(trace) {
		return spans
	}
	attrs, kind := describe(v, r)
	end := r.EndedAt
	if end == 0 {
		end = r.Recorded
	}
	root := trace.Run()
	failed, why := failure(r)
	// A run that was closed while it waited for another attempt has the fence of the one before, and no worker.
	if r.Attempt > 0 && r.Worker != "" {
		of := append(attrs[:len(attrs):len(attrs)], otlp.Int("carillon.attempt", int64(r.Attempt)),
			otlp.Int("carillon.fence", int64(r.Fence)), otlp.String("carillon.worker", r.Worker))
		ready := r.ClaimedAt
		if r.Ready != 0 {
			ready = min(r.Ready, r.ClaimedAt)
		}
		spans = append(spans, otlp.Span{Trace: trace, ID: trace.Wait(r.Fence), Parent: root, Name: "wait",
			Kind: otlp.Internal, Start: ready, End: r.ClaimedAt, Attrs: of})
		started := r.StartedAt
		if started == 0 {
			started = r.ClaimedAt
		}
		of = outcome(of[:len(of):len(of)], r, failed)
		spans = append(spans, otlp.Span{Trace: trace, ID: trace.Attempt(r.Fence), Parent: root, Name: "attempt",
			Kind: kind, Start: started, End: end, Attrs: of, Failed: failed, Error: why})
	}
	if r.Status == job.RunFailed {
		return spans // it is tried again
	}
	of := append(attrs[:len(attrs):len(attrs)], otlp.Int("carillon.attempts", int64(r.Attempt)))
	return append(spans, otlp.Span{Trace: trace, ID: root, Name: "run", Kind: otlp.Internal,
		Start: f.began(v, seq, r), End: end, Attrs: outcome(of, r, failed), Failed: failed, Error: why})
}

// began is when a run began: its scheduled time. A backfill is about a time that may be years ago, and began when it
// might be claimed first.
func (f *follower) began(v *store.View, seq uint64, r *store.Record) int64 {
	if r.Origin != job.OriginBackfill {
		return r.At
	}
	began, left := r.Ready, walkBack
	if r.Attempt > 1 {
		_ = v.EachOfJob(seq, func(_ uint64, earlier store.Record) bool {
			if earlier.Interval.Count == 0 && earlier.Run() == r.Run() && earlier.Attempt <= r.Attempt {
				began = min(began, earlier.Ready)
			}
			left--
			return left > 0 && (earlier.Run() != r.Run() || earlier.Attempt != 1)
		})
	}
	if began == 0 {
		began = r.Recorded // it never might
	}
	return began
}

// describe says which run a record is of. Nothing of the job's payload is in it but the name of its queue.
func describe(v *store.View, r *store.Record) ([]otlp.Attr, otlp.Kind) {
	space := r.Namespace
	if space == "" {
		space = job.DefaultNamespace
	}
	attrs := make([]otlp.Attr, 0, 14)
	attrs = append(attrs, otlp.String("carillon.job", r.Job.String()), otlp.String("carillon.namespace", space),
		otlp.String("carillon.run", r.Run().String()), otlp.String("carillon.origin", r.Origin.String()),
		otlp.String("carillon.scheduled_at", job.Instant(r.At).String()))
	def, ok, err := v.Definition(r.Job)
	if err != nil || !ok {
		return attrs, otlp.Internal // it was deleted, and its history stays
	}
	if def.Spec.Name != "" {
		attrs = append(attrs, otlp.String("carillon.job_name", def.Spec.Name))
	}
	attrs = append(attrs, otlp.String("carillon.type", string(def.Spec.Type)))
	kind := otlp.Internal
	switch def.Spec.Type {
	case job.TypeHTTP:
		kind = otlp.Client
	case job.TypeMessage:
		kind = otlp.Producer
	case job.TypeQueue:
		kind = otlp.Producer
		class := job.ParseClass(def.Spec.Class())
		attrs = append(attrs, otlp.String("carillon.queue", class.Queue))
	}
	return attrs, kind
}

// outcome adds how it ended.
func outcome(attrs []otlp.Attr, r *store.Record, failed bool) []otlp.Attr {
	attrs = append(attrs, otlp.String("carillon.status", r.Status.String()))
	if why := r.Reason.String(); why != "" {
		attrs = append(attrs, otlp.String("carillon.reason", why))
	}
	if failed {
		kind := r.Reason.String()
		if kind == "" {
			kind = r.Status.String()
		}
		attrs = append(attrs, otlp.String("error.type", kind))
	}
	return attrs
}

// failure says whether a record is of something that failed, and how. What was canceled did what it was told.
func failure(r *store.Record) (bool, string) {
	switch r.Status {
	case job.RunFailed, job.RunDead, job.RunLost, job.RunExpired:
		text := r.Error
		if strings.HasPrefix(text, "status ") {
			text, _, _ = strings.Cut(text, ": ") // what follows is what the target answered
		}
		return true, job.Head(text, maxError)
	}
	return false, ""
}

var (
	exported = prometheus.NewDesc("carillon_spans_exported_total", "Spans that the receiver of traces has taken.",
		nil, nil)
	dropped = prometheus.NewDesc("carillon_spans_dropped_total",
		"Spans that were dropped: the receiver was too slow, away or refused them, or the node ended.",
		[]string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (*Tracer) Describe(ch chan<- *prometheus.Desc) {
	ch <- exported
	ch <- dropped
}

// Collect implements prometheus.Collector. Without tracing everything is 0, so that rules and panels find it.
func (t *Tracer) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	var n int64
	if t != nil {
		n = t.exp.Exported()
	}
	count(exported, n)
	for _, r := range otlp.Reasons() {
		n = 0
		if t != nil {
			n = t.exp.Dropped(r)
		}
		count(dropped, n, string(r))
	}
}
