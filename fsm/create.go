package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hashicorp/go-msgpack/v2/codec"

	msg "github.com/carillon-scheduler/carillon/internal/pack"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Create makes jobs. The leader picks the numbers, because H, jitter and @every depend on them: they must exceed every
// number given out before, in order.
type Create struct {
	Head  `codec:"h"`
	Items []CreateItem `codec:"i"`

	Callers []Caller `codec:"b,omitempty"` // those who asked for its items: one entry may have those of many
}

// CreateItem is one new job.
type CreateItem struct {
	Job     uint64  `codec:"j"`
	Def     []byte  `codec:"d"` // store.Definition, encoded
	Next    When    `codec:"n"`
	Request Request `codec:"q"`
	By      uint64  `codec:"b,omitempty"` // which of the callers asked for it, from 1; 0: none

	// The reservation of its name, or of its request key if it has none, if its home is another group.
	Home        uint32 `codec:"h,omitempty"`
	Reservation uint64 `codec:"r,omitempty"`
}

func (c *Create) items() int { return len(c.Items) }

// maxClasses bounds how many kinds of work there are: each has a line of its own in the leader's memory.
const maxClasses = 1 << 16

func (c *Create) apply(a *applier) error {
	chunks := make([]chunkTally, len(c.Callers))
	for i := range c.Items {
		it := &c.Items[i]
		a.made = made{}
		if err := a.once(it.Request, it.do); err != nil {
			return err
		}
		if err := a.recordItem(c, it, chunks); err != nil {
			return err
		}
	}
	return a.recordChunks(c, chunks)
}

func (it *CreateItem) do(a *applier) (Outcome, error) {
	id := job.ID(it.Job)
	def, err := store.DecodeDefinition(it.Def)
	if err != nil {
		return Outcome{}, err
	}
	a.made = made{def.Spec.Name, def.Spec.Namespace}
	if it.Job <= a.b.C.NextJob {
		return Outcome{Code: CodeStale, Text: "the number was given out before"}, nil
	}
	if uint32(id.Group()) != a.b.Group() {
		return Outcome{Code: CodeRefused, Text: "the number is one of another group"}, nil
	}
	if why := wrong(it.Next, Gap{}, 0); why != "" {
		return Outcome{Code: CodeRefused, Text: why}, nil
	}
	if why := a.unfit(&def.Spec); why != "" {
		return Outcome{Code: CodeRefused, Text: why}, nil
	}
	if def.Spec.Name != "" {
		if other, taken := a.b.Named(def.Spec.Namespace, def.Spec.Name); taken {
			return a.sameJob(other, &def.Spec)
		}
	}
	name := it.name(&def.Spec)
	if o, err := a.entitled(name, it.Home, it.Reservation); err != nil || o.Code != 0 {
		return o, err
	}
	s := store.State{Gen: 1}
	if err := a.adopt(&s, &def.Spec); err != nil {
		return Outcome{}, err
	}
	a.b.C.NextJob = it.Job
	a.b.C.Jobs++
	if def.Spec.Name != "" {
		if err := a.b.PutName(def.Spec.Namespace, def.Spec.Name, id); err != nil {
			return Outcome{}, err
		}
	}
	if err := a.hold(name, it.Home, it.Reservation, id); err != nil {
		return Outcome{}, err
	}
	if err := a.b.PutDefinition(id, it.Def); err != nil {
		return Outcome{}, err
	}
	p := place(&s, it.Next)
	if err := a.settle(id, &s, p); err != nil { // a one-off that has no time to run at
		return Outcome{}, err
	}
	return Outcome{Code: CodeOK, Job: id, Version: def.Version}, a.b.PutState(id, &s, p)
}

// name is what only one job of the cluster may have: its name, or if it has none, the key of its request.
func (it *CreateItem) name(spec *job.Spec) job.NameRef {
	if spec.Name == "" {
		return job.NameRef{Kind: job.NameRequest, Namespace: spec.Namespace, Name: it.Request.ID}
	}
	return job.NameRef{Kind: job.NameJob, Namespace: spec.Namespace, Name: spec.Name}
}

// unfit says why a definition cannot be stored; "" if it can.
func (a *applier) unfit(spec *job.Spec) string {
	if len(spec.Name) > job.MaxName {
		return "the name is too long"
	}
	if !job.NamespaceName(spec.Namespace) {
		return "the namespace has no usable name"
	}
	if a.b.ClassCount() >= maxClasses && !a.b.KnownClass(spec.Class()) {
		return "too many different namespaces, worker selectors and queues"
	}
	return ""
}

// sameJob answers a create whose name is taken: it is a repetition if the two say the same.
func (a *applier) sameJob(other job.ID, spec *job.Spec) (Outcome, error) {
	def, ok, err := a.b.Definition(other)
	if err != nil || !ok {
		return Outcome{}, errors.Join(err, fmt.Errorf("fsm: the name of %s leads nowhere", other))
	}
	x, err := encodeSpec(&def.Spec)
	if err != nil {
		return Outcome{}, err
	}
	y, err := encodeSpec(spec)
	if err != nil {
		return Outcome{}, err
	}
	if bytes.Equal(x, y) {
		return Outcome{Code: CodeExists, Job: other, Version: def.Version}, nil
	}
	return Outcome{Code: CodeDuplicate, Job: other}, nil
}

func encodeSpec(s *job.Spec) ([]byte, error) {
	var b []byte
	err := codec.NewEncoderBytes(&b, handle).Encode(s)
	return b, err
}

// adopt takes over into the state what claim and complete need to know of a definition.
func (a *applier) adopt(s *store.State, spec *job.Spec) error {
	class, err := a.b.Class(spec.Class())
	if err != nil {
		return err
	}
	lane, _ := job.LaneOf(spec.Priority)
	s.Class = class
	s.Lane = lane
	s.Overlap = store.OverlapOf(spec.Overlap)
	s.Concurrency = uint16(min(spec.Concurrency, 1<<16-1))
	s.OneOff = spec.OneOff()
	s.Manual = spec.Manual()
	s.AtMostOnce = spec.Delivery == job.DeliverAtMostOnce
	s.Notify = store.NotifyOnOf(spec.Notify)
	s.Retention = uint32(min(int64(spec.Retention)/1e9, 1<<32-1))
	return nil
}

// append writes the form in the log without reflection, byte by byte as the library would: a bulk load is a stream of
// these.
func (c *Create) append(b []byte) []byte {
	size := 64
	for i := range c.Items {
		size += 84 + len(c.Items[i].Def) + len(c.Items[i].Request.ID)
	}
	b = slices.Grow(b, size)
	b = msg.Map(b, 2+msg.Given(len(c.Callers) > 0))
	if len(c.Callers) > 0 {
		b = msg.Array(msg.Str(b, "b"), len(c.Callers))
		for i := range c.Callers {
			b = appendCaller(b, &c.Callers[i])
		}
	}
	b = appendHead(msg.Str(b, "h"), c.Head)
	b = msg.Str(b, "i")
	if c.Items == nil {
		return msg.Nil(b)
	}
	b = msg.Array(b, len(c.Items))
	for i := range c.Items {
		b = appendCreateItem(b, &c.Items[i])
	}
	return b
}

func appendHead(b []byte, h Head) []byte {
	b = msg.Map(b, 2+msg.Given(h.By != nil))
	if h.By != nil {
		b = appendCaller(msg.Str(b, "b"), h.By)
	}
	b = msg.Uint(msg.Str(b, "t"), h.Term)
	return msg.Signed(msg.Str(b, "w"), h.Now)
}

func appendCreateItem(b []byte, it *CreateItem) []byte {
	b = msg.Map(b, 4+msg.Given(it.By != 0, it.Home != 0, it.Reservation != 0))
	if it.By != 0 {
		b = msg.Uint(msg.Str(b, "b"), it.By)
	}
	b = msg.Str(b, "d")
	if it.Def == nil {
		b = msg.Nil(b)
	} else {
		b = msg.Bin(b, it.Def)
	}
	if it.Home != 0 {
		b = msg.Uint(msg.Str(b, "h"), uint64(it.Home))
	}
	b = msg.Uint(msg.Str(b, "j"), it.Job)
	b = appendWhen(msg.Str(b, "n"), it.Next)
	b = appendRequest(msg.Str(b, "q"), &it.Request)
	if it.Reservation != 0 {
		b = msg.Uint(msg.Str(b, "r"), it.Reservation)
	}
	return b
}

func appendWhen(b []byte, w When) []byte {
	b = msg.Map(b, msg.Given(w.At != 0, w.Ready != 0))
	if w.At != 0 {
		b = msg.Signed(msg.Str(b, "a"), w.At)
	}
	if w.Ready != 0 {
		b = msg.Signed(msg.Str(b, "r"), w.Ready)
	}
	return b
}

func appendRequest(b []byte, q *Request) []byte {
	b = msg.Map(b, msg.Given(q.Expires != 0, q.Fingerprint != 0, q.ID != ""))
	if q.Expires != 0 {
		b = msg.Signed(msg.Str(b, "e"), q.Expires)
	}
	if q.Fingerprint != 0 {
		b = msg.Uint(msg.Str(b, "f"), q.Fingerprint)
	}
	if q.ID != "" {
		b = msg.Str(msg.Str(b, "i"), q.ID)
	}
	return b
}

// createReader gives up on what it does not expect and leaves that to the library.
type createReader struct{ msg.Reader }

// read reads what append wrote; false leaves it to the library. The definitions stay in the memory of the entry, which
// does not change.
func (c *Create) read(data []byte) bool {
	r := createReader{msg.Reader{B: data}}
	r.Fields(func(key []byte) {
		switch string(key) {
		case "b":
			r.callers(c)
		case "h":
			r.head(&c.Head)
		case "i":
			r.items(c)
		default:
			r.Bad = true
		}
	})
	return !r.Bad && len(r.B) == 0
}

func (r *createReader) head(h *Head) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "b":
			h.By = &Caller{}
			r.caller(h.By)
		case "t":
			h.Term = r.Uint()
		case "w":
			h.Now = r.Int()
		default:
			r.Bad = true
		}
	})
}

// minItem is the shortest that an item can be: four names of fields and something for each.
const minItem = 12

func (r *createReader) items(c *Create) {
	n := r.Len()
	if r.Bad || n > len(r.B)/minItem { // memory is not taken on the word of a few bytes
		r.Bad = true
		return
	}
	c.Items = make([]CreateItem, n)
	for i := range c.Items {
		if r.item(&c.Items[i]); r.Bad {
			return
		}
	}
}

func (r *createReader) callers(c *Create) {
	n := r.Len()
	if r.Bad || n == 0 || n > len(r.B) {
		r.Bad = true
		return
	}
	c.Callers = make([]Caller, n)
	for i := range c.Callers {
		if r.caller(&c.Callers[i]); r.Bad {
			return
		}
	}
}

func (r *createReader) item(it *CreateItem) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "b":
			it.By = r.Uint()
		case "d":
			it.Def = r.Bytes()
		case "h":
			home := r.Uint()
			it.Home, r.Bad = uint32(home), r.Bad || home > math.MaxUint32
		case "j":
			it.Job = r.Uint()
		case "n":
			r.when(&it.Next)
		case "q":
			r.request(&it.Request)
		case "r":
			it.Reservation = r.Uint()
		default:
			r.Bad = true
		}
	})
}

func (r *createReader) when(w *When) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "a":
			w.At = r.Int()
		case "r":
			w.Ready = r.Int()
		default:
			r.Bad = true
		}
	})
}

func (r *createReader) request(q *Request) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "e":
			q.Expires = r.Int()
		case "f":
			q.Fingerprint = r.Uint()
		case "i":
			q.ID = r.Str()
		default:
			r.Bad = true
		}
	})
}
