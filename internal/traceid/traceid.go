// Package traceid derives the ids of a run's trace and spans from what identifies the run: every leader and every node
// comes to the same ones, and nothing of them is stored.
package traceid

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/carillon-scheduler/carillon/job"
)

// Trace is the id of a run's trace. It is never zero, which W3C Trace Context forbids.
type Trace [16]byte

// Span is the id of a span in a trace. It is never zero.
type Span [8]byte

// Of is the trace of a run of a cluster: the same over its attempts and over leaders.
func Of(cluster string, run job.RunKey) Trace {
	var buf [96]byte
	b := append(buf[:0], "carillon trace\x00"...)
	b = binary.BigEndian.AppendUint64(b, uint64(run.Job))
	b = binary.BigEndian.AppendUint64(b, uint64(run.At))
	b = append(b, byte(run.Origin))
	b = append(b, cluster...)
	sum := sha256.Sum256(b)
	t := Trace(sum[:16])
	if t == (Trace{}) {
		t[15] = 1
	}
	return t
}

// What a span stands for; part of its id.
const (
	spanRun byte = iota + 1
	spanWait
	spanAttempt
)

// Run is the span of the whole run, the root of the trace.
func (t Trace) Run() Span { return t.span(spanRun, 0) }

// Wait is the span in which the attempt with a fence waited to be claimed.
func (t Trace) Wait(fence uint64) Span { return t.span(spanWait, fence) }

// Attempt is the span of the attempt with a fence. The target's spans are its children.
func (t Trace) Attempt(fence uint64) Span { return t.span(spanAttempt, fence) }

func (t Trace) span(kind byte, fence uint64) Span {
	var buf [25]byte
	b := append(buf[:0], t[:]...)
	b = binary.BigEndian.AppendUint64(append(b, kind), fence)
	sum := sha256.Sum256(b)
	s := Span(sum[:8])
	if s == (Span{}) {
		s[7] = 1
	}
	return s
}

// String is the id in hexadecimal, as W3C Trace Context and OpenTelemetry write it.
func (t Trace) String() string { return hex.EncodeToString(t[:]) }

// String is the id in hexadecimal.
func (s Span) String() string { return hex.EncodeToString(s[:]) }

// Parent is the trace context for the target of an attempt, as a W3C traceparent: what the target does is a child of
// the attempt's span.
func (t Trace) Parent(fence uint64, sampled bool) string {
	span := t.Attempt(fence)
	var buf [55]byte
	b := hex.AppendEncode(append(buf[:0], "00-"...), t[:])
	b = hex.AppendEncode(append(b, '-'), span[:])
	if sampled {
		return string(append(b, "-01"...))
	}
	return string(append(b, "-00"...))
}

// Sampler decides which traces are recorded, by their ids alone: all attempts, nodes and leaders agree. A nil one
// stands for no tracing at all.
type Sampler struct{ below uint64 }

// NewSampler is one that records a share of all traces, 0 to 1.
func NewSampler(ratio float64) *Sampler {
	if ratio >= 1 {
		return &Sampler{1 << 63}
	}
	return &Sampler{uint64(max(ratio, 0) * (1 << 63))}
}

// Sampled says whether a trace is recorded. It is the rule of OpenTelemetry's TraceIdRatioBased as its SDK for Go has
// it, so that a target with the same ratio and no regard for its parent decides the same.
func (s *Sampler) Sampled(t Trace) bool {
	return s != nil && binary.BigEndian.Uint64(t[8:])>>1 < s.below
}

// Traceparent is what the target of an attempt is told. Without tracing, too: what it does for all attempts of a run is
// then in one trace. The flag is on in that case, because a target that follows its parent would drop its part
// otherwise.
func (s *Sampler) Traceparent(cluster string, run job.RunKey, fence uint64) string {
	t := Of(cluster, run)
	return t.Parent(fence, s == nil || s.Sampled(t))
}
