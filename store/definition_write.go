package store

import (
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/pack"
)

// usual is what a stored definition leaves out. It is a part of the format: what is stored was written against these values, so
// they stay as they are, whatever the defaults of a job become.
var usual = usualSpec()

func usualSpec() job.Spec {
	own := struct { // allocated together
		retries int
		jitter  float64
	}{3, 0.2}
	return job.Spec{Timezone: "UTC", Overlap: "skip", Delivery: "at_least_once", Priority: "normal", DSTGap: "run_after", Timeout: 300e9, Retention: 86400e9,
		Missed: job.Missed{Policy: "run_once", Window: "auto", Max: 10, Grace: 60e9},
		Retry:  job.Retry{MaxRetries: &own.retries, Backoff: "exponential", Base: 1e9, Cap: 300e9, Jitter: &own.jitter}}
}

// Append appends the stored form, without reflection and readable by the library: bulk creates write tens of thousands a second. It has
// the fields that are not as usual, which halves the bytes of most jobs.
func (d *Definition) Append(b []byte) []byte {
	b = slices.Grow(b, 320+len(d.Spec.Payload)+len(d.Spec.Name)+len(d.Spec.Schedule))
	f := begin(b)
	f.key("c")
	f.b = pack.Signed(f.b, d.CreatedAt)
	f.key("s")
	f.b = appendSpec(f.b, &d.Spec)
	if d.UpdatedAt != d.CreatedAt {
		f.key("u")
		f.b = pack.Signed(f.b, d.UpdatedAt)
	}
	f.key("v")
	f.b = pack.Uint(f.b, d.Version)
	return f.end()
}

// fields is a map whose head is written at its end: how many fields there are depends on which are empty. It has at most 31.
type fields struct {
	b    []byte
	head int
	n    int
}

func begin(b []byte) fields { return fields{b: append(b, 0x80), head: len(b)} }

func (f *fields) end() []byte {
	if f.n < 16 {
		f.b[f.head] = 0x80 | byte(f.n)
		return f.b
	}
	f.b = append(f.b, 0, 0)
	copy(f.b[f.head+3:], f.b[f.head+1:len(f.b)-2])
	f.b[f.head], f.b[f.head+1], f.b[f.head+2] = 0xde, 0, byte(f.n)
	return f.b
}

func (f *fields) key(k string) {
	f.n++
	f.b = pack.Str(f.b, k)
}

func (f *fields) str(k, v, left string) {
	if v != left {
		f.key(k)
		f.b = pack.Str(f.b, v)
	}
}

func (f *fields) int(k string, v, left int64) {
	if v != left {
		f.key(k)
		f.b = pack.Signed(f.b, v)
	}
}

func (f *fields) list(k string, v []string) {
	if len(v) > 0 {
		f.key(k)
		f.b = pack.Array(f.b, len(v))
		for _, s := range v {
			f.b = pack.Str(f.b, s)
		}
	}
}

func (f *fields) strs(k string, v map[string]string) {
	if len(v) > 0 {
		f.key(k)
		f.b = pack.Map(f.b, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			f.b = pack.Str(pack.Str(f.b, key), v[key])
		}
	}
}

// appendSpec writes the fields in the order of their short names, without those that are as usual.
func appendSpec(b []byte, s *job.Spec) []byte {
	left := &usual
	f := begin(b)
	f.int("c", int64(s.Concurrency), 0)
	f.list("ca", s.Calendars)
	f.str("d", s.Delivery, left.Delivery)
	f.str("dg", s.DSTGap, left.DSTGap)
	f.int("dl", int64(s.Deadline), 0)
	f.str("do", s.DSTOverlap, "")
	f.int("ea", int64(s.EndAt), 0)
	f.str("ik", s.IdempotencyKey, "")
	f.int("j", int64(s.Jitter), 0)
	if s.Missed != left.Missed {
		f.key("m")
		f.b = appendMissed(f.b, &s.Missed, &left.Missed)
	}
	f.int("mr", int64(s.MaxRuns), 0)
	f.str("n", s.Name, "")
	if s.Notify != nil {
		f.key("nt")
		f.b = appendNotify(f.b, s.Notify)
	}
	f.str("o", s.Overlap, left.Overlap)
	f.key("p")
	if s.Payload == nil {
		f.b = pack.Nil(f.b)
	} else {
		f.b = pack.Bin(f.b, s.Payload)
	}
	f.str("pr", s.Priority, left.Priority)
	if !sameRetry(&s.Retry, &left.Retry) {
		f.key("r")
		f.b = appendRetry(f.b, &s.Retry, &left.Retry)
	}
	f.int("re", int64(s.Retention), int64(left.Retention))
	f.key("s")
	f.b = pack.Str(f.b, s.Schedule)
	f.int("sa", int64(s.StartAt), 0)
	f.key("t")
	f.b = pack.Str(f.b, string(s.Type))
	f.strs("tg", s.Tags)
	f.int("to", int64(s.Timeout), int64(left.Timeout))
	f.strs("w", s.Workers)
	f.str("z", s.Timezone, left.Timezone)
	return f.end()
}

func appendMissed(b []byte, m, left *job.Missed) []byte {
	f := begin(b)
	f.int("g", int64(m.Grace), int64(left.Grace))
	f.int("m", int64(m.Max), int64(left.Max))
	f.str("p", m.Policy, left.Policy)
	f.str("w", m.Window, left.Window)
	return f.end()
}

func appendRetry(b []byte, r, left *job.Retry) []byte {
	f := begin(b)
	f.str("b", r.Backoff, left.Backoff)
	f.int("c", int64(r.Cap), int64(left.Cap))
	switch {
	case r.Jitter == nil:
		f.key("j")
		f.b = pack.Nil(f.b)
	case *r.Jitter != *left.Jitter:
		f.key("j")
		f.b = pack.Float(f.b, *r.Jitter)
	}
	switch {
	case r.MaxRetries == nil:
		f.key("n")
		f.b = pack.Nil(f.b)
	case *r.MaxRetries != *left.MaxRetries:
		f.key("n")
		f.b = pack.Signed(f.b, int64(*r.MaxRetries))
	}
	f.int("s", int64(r.Base), int64(left.Base))
	return f.end()
}

func sameRetry(a, b *job.Retry) bool {
	return a.Backoff == b.Backoff && a.Base == b.Base && a.Cap == b.Cap && same(a.Jitter, b.Jitter) && same(a.MaxRetries, b.MaxRetries)
}

func same[T comparable](a, b *T) bool { return a != nil && b != nil && *a == *b }

func appendNotify(b []byte, n *job.Notify) []byte {
	f := begin(b)
	f.list("e", n.Email)
	f.list("o", n.On)
	f.str("w", n.Webhook, "")
	return f.end()
}
