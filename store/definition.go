package store

import (
	"fmt"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/pack"
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

// DecodeDefinition reads what Append wrote.
func DecodeDefinition(b []byte) (Definition, error) {
	if d, ok := readDefinition(b); ok {
		return d, nil
	}
	d, err := decodeDefinition(b)
	if err != nil {
		return d, fmt.Errorf("%w: definition: %w", errCorrupt, err)
	}
	return d, nil
}

// decodeDefinition reads a definition with the library, whatever a newer binary may have added to it.
func decodeDefinition(b []byte) (d Definition, err error) {
	w := struct {
		Spec      job.Spec `codec:"s"`
		Version   uint64   `codec:"v"`
		CreatedAt int64    `codec:"c"`
		UpdatedAt *int64   `codec:"u"`
	}{Spec: usualSpec()}
	if err := codec.NewDecoderBytes(b, handle).Decode(&w); err != nil {
		return d, err
	}
	d = Definition{Spec: w.Spec, Version: w.Version, CreatedAt: w.CreatedAt, UpdatedAt: w.CreatedAt}
	if w.UpdatedAt != nil {
		d.UpdatedAt = *w.UpdatedAt
	}
	return d, nil
}

// readDefinition reads a definition without reflection: the scheduler reads one for every run of a job that it does not know. It gives up
// on whatever it does not expect (a field that it does not know, a number that does not fit) and leaves that to the library.
func readDefinition(b []byte) (d Definition, ok bool) {
	r := defReader{pack.Reader{B: b}}
	d.Spec = usualSpec()
	updated := false
	r.Fields(func(key []byte) {
		switch string(key) {
		case "s":
			r.spec(&d.Spec)
		case "v":
			d.Version = r.Uint()
		case "c":
			d.CreatedAt = r.Int()
		case "u":
			d.UpdatedAt, updated = r.Int(), true
		default:
			r.Bad = true
		}
	})
	if !updated {
		d.UpdatedAt = d.CreatedAt
	}
	return d, !r.Bad && len(r.B) == 0
}

func (r *defReader) spec(s *job.Spec) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "n":
			s.Name = r.Str()
		case "t":
			s.Type = job.Type(r.word())
		case "s":
			s.Schedule = r.Str()
		case "z":
			s.Timezone = r.word()
		case "p":
			s.Payload = r.Bin()
		case "r":
			r.retry(&s.Retry)
		case "to":
			s.Timeout = job.Duration(r.Int())
		case "dl":
			s.Deadline = job.Duration(r.Int())
		case "m":
			r.missed(&s.Missed)
		case "o":
			s.Overlap = r.word()
		case "d":
			s.Delivery = r.word()
		case "pr":
			s.Priority = r.word()
		case "c":
			s.Concurrency = int(r.Int())
		case "j":
			s.Jitter = job.Duration(r.Int())
		case "sa":
			s.StartAt = job.Instant(r.Int())
		case "ea":
			s.EndAt = job.Instant(r.Int())
		case "mr":
			s.MaxRuns = int(r.Int())
		case "ik":
			s.IdempotencyKey = r.Str()
		case "re":
			s.Retention = job.Duration(r.Int())
		case "nt":
			s.Notify = &job.Notify{}
			r.notify(s.Notify)
		case "dg":
			s.DSTGap = r.word()
		case "do":
			s.DSTOverlap = r.word()
		case "ca":
			for range r.Len() {
				s.Calendars = append(s.Calendars, r.Str())
			}
		case "tg":
			s.Tags = r.Strs()
		case "w":
			s.Workers = r.Strs()
		default:
			r.Bad = true
		}
	})
}

func (r *defReader) retry(v *job.Retry) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "n":
			n := int(r.Int())
			v.MaxRetries = &n
		case "b":
			v.Backoff = r.word()
		case "s":
			v.Base = job.Duration(r.Int())
		case "c":
			v.Cap = job.Duration(r.Int())
		case "j":
			f := r.Float()
			v.Jitter = &f
		default:
			r.Bad = true
		}
	})
}

func (r *defReader) notify(v *job.Notify) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "o":
			for range r.Len() {
				v.On = append(v.On, r.word())
			}
		case "w":
			v.Webhook = r.Str()
		case "e":
			for range r.Len() {
				v.Email = append(v.Email, r.Str())
			}
		default:
			r.Bad = true
		}
	})
}

func (r *defReader) missed(v *job.Missed) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "p":
			v.Policy = r.word()
		case "w":
			v.Window = r.word()
		case "m":
			v.Max = int(r.Int())
		case "g":
			v.Grace = job.Duration(r.Int())
		default:
			r.Bad = true
		}
	})
}

// defReader knows the words of a definition.
type defReader struct{ pack.Reader }

// word is a string that is the same in most definitions.
func (r *defReader) word() string {
	b := r.Raw()
	if w, ok := words[string(b)]; ok {
		return w
	}
	return string(b)
}

// words spare an allocation each.
var words = func() map[string]string {
	m := map[string]string{}
	for _, w := range []string{"http", "shell", "message", "queue", "UTC", "skip", "queue", "allow", "replace", "run_once", "run_all", "auto", "at_least_once",
		"at_most_once", "critical", "high", "normal", "low", "immediate", "linear", "exponential", "run_after", "first", "both", "failure", "recovery"} {
		m[w] = w
	}
	return m
}()
