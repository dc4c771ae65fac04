package store

import (
	"fmt"
	"slices"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/carillon-scheduler/carillon/internal/pack"
	"github.com/carillon-scheduler/carillon/job"
)

// Definition is a job as its owner wrote it, with what an edit changes. Only an edit rewrites it.
type Definition struct {
	Spec      job.Spec `codec:"s"`
	Version   uint64   `codec:"v"`
	CreatedAt int64    `codec:"c"`
	UpdatedAt int64    `codec:"u"`
	// Follows is the time after which the occurrences are those of this schedule, all of them: what was before the last
	// change of the schedule is known from the history only. 0: it is that of the creation.
	Follows int64 `codec:"f"`
}

var handle = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.Canonical = true // map order must not differ between nodes
	return h
}()

// Append appends the stored form: msgpack, byte by byte as the library would write the fields that are not as usual,
// and those in the order of their names. It is written and read without reflection: bulk creates write tens of
// thousands a second, and the scheduler reads one for every run of a job that it does not know. What is as usual is
// half of the bytes of most jobs.
func (d *Definition) Append(b []byte) []byte {
	f := pack.Begin(slices.Grow(b, 320+len(d.Spec.Payload)+len(d.Spec.Name)+len(d.Spec.Schedule)))
	f.Int("c", d.CreatedAt)
	f.IntUnless("f", d.Follows, 0)
	storeSpec(&f, "s", &d.Spec)
	if d.UpdatedAt != d.CreatedAt {
		f.Int("u", d.UpdatedAt)
	}
	f.Uint("v", d.Version)
	return f.End()
}

// DecodeDefinition reads what Append wrote, and steps over fields that a newer binary may have added.
func DecodeDefinition(b []byte) (d Definition, err error) {
	r := pack.Reader{B: b}
	setDefaults(&d.Spec)
	r.Fields(func(key []byte) {
		switch string(key) {
		case "c":
			d.CreatedAt = r.Int()
			d.UpdatedAt = d.CreatedAt // which comes behind it, if it is another
		case "f":
			d.Follows = r.Int()
		case "s":
			readSpec(&r, &d.Spec)
		case "u":
			d.UpdatedAt = r.Int()
		case "v":
			d.Version = r.Uint()
		default:
			r.Skip()
		}
	})
	if r.Bad || len(r.B) > 0 {
		return Definition{}, fmt.Errorf("%w: definition", ErrCorrupt)
	}
	return d, nil
}

// readWords reads a list of which most jobs have the same elements.
func readWords(r *pack.Reader) (out []string) {
	for range r.Len() {
		out = append(out, job.Word(r.Raw()))
	}
	return out
}
