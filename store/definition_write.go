package store

import (
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/pack"
)

// Encode is the stored form.
func (d *Definition) Encode() ([]byte, error) { return d.Append(nil), nil }

// Append appends the stored form. It is written without reflection, byte by byte as the library would: bulk creates write tens of
// thousands a second, and members of one cluster may run binaries from before and after this was so.
func (d *Definition) Append(b []byte) []byte {
	b = slices.Grow(b, 320+len(d.Spec.Payload)+len(d.Spec.Name)+len(d.Spec.Schedule))
	b = pack.Map(b, 4)
	b = pack.Signed(pack.Str(b, "c"), d.CreatedAt)
	b = appendSpec(pack.Str(b, "s"), &d.Spec)
	b = pack.Signed(pack.Str(b, "u"), d.UpdatedAt)
	return pack.Uint(pack.Str(b, "v"), d.Version)
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

func (f *fields) str(k, v string) {
	if v != "" {
		f.key(k)
		f.b = pack.Str(f.b, v)
	}
}

func (f *fields) int(k string, v int64) {
	if v != 0 {
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

// appendSpec writes the fields in the order of their short names.
func appendSpec(b []byte, s *job.Spec) []byte {
	f := begin(b)
	f.int("c", int64(s.Concurrency))
	f.list("ca", s.Calendars)
	f.str("d", s.Delivery)
	f.str("dg", s.DSTGap)
	f.int("dl", int64(s.Deadline))
	f.str("do", s.DSTOverlap)
	f.int("ea", int64(s.EndAt))
	f.str("ik", s.IdempotencyKey)
	f.int("j", int64(s.Jitter))
	f.key("m")
	f.b = appendMissed(f.b, &s.Missed)
	f.int("mr", int64(s.MaxRuns))
	f.str("n", s.Name)
	if s.Notify != nil {
		f.key("nt")
		f.b = appendNotify(f.b, s.Notify)
	}
	f.str("o", s.Overlap)
	f.key("p")
	if s.Payload == nil {
		f.b = pack.Nil(f.b)
	} else {
		f.b = pack.Bin(f.b, s.Payload)
	}
	f.str("pr", s.Priority)
	f.key("r")
	f.b = appendRetry(f.b, &s.Retry)
	f.int("re", int64(s.Retention))
	f.key("s")
	f.b = pack.Str(f.b, s.Schedule)
	f.int("sa", int64(s.StartAt))
	f.key("t")
	f.b = pack.Str(f.b, string(s.Type))
	f.strs("tg", s.Tags)
	f.int("to", int64(s.Timeout))
	f.strs("w", s.Workers)
	f.str("z", s.Timezone)
	return f.end()
}

func appendMissed(b []byte, m *job.Missed) []byte {
	f := begin(b)
	f.int("g", int64(m.Grace))
	f.int("m", int64(m.Max))
	f.str("p", m.Policy)
	f.str("w", m.Window)
	return f.end()
}

func appendRetry(b []byte, r *job.Retry) []byte {
	f := begin(b)
	f.str("b", r.Backoff)
	f.int("c", int64(r.Cap))
	if r.Jitter != nil {
		f.key("j")
		f.b = pack.Float(f.b, *r.Jitter)
	}
	if r.MaxRetries != nil {
		f.key("n")
		f.b = pack.Signed(f.b, int64(*r.MaxRetries))
	}
	f.int("s", int64(r.Base))
	return f.end()
}

func appendNotify(b []byte, n *job.Notify) []byte {
	f := begin(b)
	f.list("e", n.Email)
	f.list("o", n.On)
	f.str("w", n.Webhook)
	return f.end()
}
