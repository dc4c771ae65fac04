package store

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/carillon-scheduler/carillon/job"
)

// Definition is a job as its owner wrote it, with what an edit changes. Only an edit rewrites it.
type Definition struct {
	Spec      job.Spec `codec:"s"`
	Version   uint64   `codec:"v"`
	CreatedAt int64    `codec:"c"`
	UpdatedAt int64    `codec:"u"`
}

var handle = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.Canonical = true // map order must not differ between nodes
	return h
}()

// Encode is the stored form.
func (d *Definition) Encode() ([]byte, error) {
	var b []byte
	err := codec.NewEncoderBytes(&b, handle).Encode(d)
	return b, err
}

// DecodeDefinition reads what Encode wrote.
func DecodeDefinition(b []byte) (Definition, error) {
	if d, ok := readDefinition(b); ok {
		return d, nil
	}
	var d Definition
	if err := codec.NewDecoderBytes(b, handle).Decode(&d); err != nil {
		return d, fmt.Errorf("%w: definition: %w", errCorrupt, err)
	}
	return d, nil
}

// readDefinition reads a definition without reflection: the scheduler reads one for every run of a job that it does not know. It gives up
// on whatever it does not expect (a field that it does not know, a number that does not fit) and leaves that to the library.
func readDefinition(b []byte) (d Definition, ok bool) {
	r := unpacker{b: b}
	r.fields(func(key []byte) {
		switch string(key) {
		case "s":
			r.spec(&d.Spec)
		case "v":
			d.Version = r.uint()
		case "c":
			d.CreatedAt = r.int()
		case "u":
			d.UpdatedAt = r.int()
		default:
			r.bad = true
		}
	})
	return d, !r.bad && len(r.b) == 0
}

func (r *unpacker) spec(s *job.Spec) {
	r.fields(func(key []byte) {
		switch string(key) {
		case "n":
			s.Name = r.str()
		case "t":
			s.Type = job.Type(r.word())
		case "s":
			s.Schedule = r.str()
		case "z":
			s.Timezone = r.word()
		case "p":
			s.Payload = r.bytes()
		case "r":
			r.retry(&s.Retry)
		case "to":
			s.Timeout = job.Duration(r.int())
		case "dl":
			s.Deadline = job.Duration(r.int())
		case "m":
			r.missed(&s.Missed)
		case "o":
			s.Overlap = r.word()
		case "d":
			s.Delivery = r.word()
		case "pr":
			s.Priority = r.word()
		case "c":
			s.Concurrency = int(r.int())
		case "j":
			s.Jitter = job.Duration(r.int())
		case "sa":
			s.StartAt = job.Instant(r.int())
		case "ea":
			s.EndAt = job.Instant(r.int())
		case "mr":
			s.MaxRuns = int(r.int())
		case "ik":
			s.IdempotencyKey = r.str()
		case "re":
			s.Retention = job.Duration(r.int())
		case "dg":
			s.DSTGap = r.word()
		case "do":
			s.DSTOverlap = r.word()
		case "ca":
			for range r.head(0x90, 0xdc) {
				s.Calendars = append(s.Calendars, r.str())
			}
		case "tg":
			s.Tags = r.strings()
		case "w":
			s.Workers = r.strings()
		default:
			r.bad = true
		}
	})
}

func (r *unpacker) retry(v *job.Retry) {
	r.fields(func(key []byte) {
		switch string(key) {
		case "n":
			n := int(r.int())
			v.MaxRetries = &n
		case "b":
			v.Backoff = r.word()
		case "s":
			v.Base = job.Duration(r.int())
		case "c":
			v.Cap = job.Duration(r.int())
		case "j":
			f := r.float()
			v.Jitter = &f
		default:
			r.bad = true
		}
	})
}

func (r *unpacker) missed(v *job.Missed) {
	r.fields(func(key []byte) {
		switch string(key) {
		case "p":
			v.Policy = r.word()
		case "w":
			v.Window = r.word()
		case "m":
			v.Max = int(r.int())
		case "g":
			v.Grace = job.Duration(r.int())
		default:
			r.bad = true
		}
	})
}

// unpacker reads the part of msgpack that a definition consists of.
type unpacker struct {
	b   []byte
	bad bool
}

// take cuts n bytes off.
func (r *unpacker) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *unpacker) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0xc1 // what msgpack never uses
}

func (r *unpacker) big(size int) (n uint64) {
	for _, c := range r.take(size) {
		n = n<<8 | uint64(c)
	}
	return n
}

// head reads the length of an array (0x90, 0xdc) or a map (0x80, 0xde).
func (r *unpacker) head(fix, wide byte) int {
	switch c := r.byte(); {
	case c&0xf0 == fix:
		return int(c & 0x0f)
	case c == wide:
		return int(r.big(2))
	}
	r.bad = true
	return 0
}

// fields calls fn with each key of a map; fn reads the value.
func (r *unpacker) fields(fn func(key []byte)) {
	for range r.head(0x80, 0xde) {
		key := r.raw()
		if r.bad {
			return
		}
		fn(key)
	}
}

// raw is the bytes of a string.
func (r *unpacker) raw() []byte {
	switch c := r.byte(); {
	case c&0xe0 == 0xa0:
		return r.take(int(c & 0x1f))
	case c == 0xd9:
		return r.take(int(r.big(1)))
	case c == 0xda:
		return r.take(int(r.big(2)))
	case c == 0xdb:
		return r.take(int(r.big(4)))
	}
	r.bad = true
	return nil
}

func (r *unpacker) str() string { return string(r.raw()) }

// word is a string that is the same in most definitions.
func (r *unpacker) word() string {
	b := r.raw()
	if w, ok := words[string(b)]; ok {
		return w
	}
	return string(b)
}

// words spare an allocation each.
var words = func() map[string]string {
	m := map[string]string{}
	for _, w := range []string{"http", "shell", "message", "queue", "UTC", "skip", "queue", "allow", "replace", "run_once", "run_all", "auto", "at_least_once",
		"at_most_once", "critical", "high", "normal", "low", "immediate", "linear", "exponential", "run_after", "first", "both"} {
		m[w] = w
	}
	return m
}()

func (r *unpacker) bytes() []byte {
	var n int
	switch c := r.byte(); c {
	case 0xc4:
		n = int(r.big(1))
	case 0xc5:
		n = int(r.big(2))
	case 0xc6:
		n = int(r.big(4))
	default:
		r.bad = true
		return nil
	}
	return append([]byte{}, r.take(n)...)
}

func (r *unpacker) strings() map[string]string {
	n := r.head(0x80, 0xde)
	if n > len(r.b) {
		r.bad = true
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		k := r.str()
		m[k] = r.str()
	}
	return m
}

func (r *unpacker) int() int64 {
	switch c := r.byte(); {
	case c < 0x80:
		return int64(c)
	case c >= 0xe0:
		return int64(int8(c))
	case c >= 0xcc && c <= 0xcf:
		n := r.big(1 << (c - 0xcc))
		r.bad = r.bad || n > math.MaxInt64
		return int64(n)
	case c >= 0xd0 && c <= 0xd3:
		size := 1 << (c - 0xd0)
		shift := 64 - 8*size
		return int64(r.big(size)<<shift) >> shift
	}
	r.bad = true
	return 0
}

func (r *unpacker) uint() uint64 {
	n := r.int()
	r.bad = r.bad || n < 0
	return uint64(n)
}

func (r *unpacker) float() float64 {
	if r.byte() != 0xcb {
		r.bad = true
		return 0
	}
	b := r.take(8)
	if b == nil {
		return 0
	}
	return math.Float64frombits(binary.BigEndian.Uint64(b))
}
