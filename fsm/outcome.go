package fsm

import (
	"cmp"
	"fmt"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/carillon-scheduler/carillon/fsm/ends"
	msg "github.com/carillon-scheduler/carillon/internal/pack"
	"github.com/carillon-scheduler/carillon/job"
)

// Code is the outcome of one item.
type Code uint8

// The outcomes. A stale item changed nothing.
const (
	CodeOK        Code = 1  // done
	CodeClaimed   Code = 2  // claimed: Fence and Attempt are set
	CodeSkipped   Code = 3  // the overlap policy skipped it, with a record
	CodeQueued    Code = 4  // it waits behind another run of its job
	CodeStale     Code = 5  // the entry, generation, fence or term is no longer that one
	CodeExists    Code = 6  // create: the same job is there already
	CodeDuplicate Code = 7  // create, update: another job has that name
	CodeNotFound  Code = 8  // no such job or run
	CodeMoved     Code = 9  // the state moved since it was read; recompute and propose again
	CodeConflict  Code = 10 // the version is another
	CodeRefused   Code = 11 // not in this state; Text says why
	CodeKeyReused Code = 12 // the request id belongs to another request
	CodeBusy      Code = 13 // claim: its queue is paused or at its limit
	CodePending   Code = 14 // whether another request's job takes the name is not decided yet
	CodeAborted   Code = 15 // the reservation of the name is over, or there is none: reserve it
)

// Outcome is what became of one item.
type Outcome struct {
	Code    Code       `codec:"c"`
	Replay  bool       `codec:"-"` // answered from requests
	Job     job.ID     `codec:"j,omitempty"`
	Version uint64     `codec:"v,omitempty"` // reserve: the number of the reservation
	Run     job.RunKey `codec:"r,omitempty"`
	Class   uint32     `codec:"-"` // complete: that of the run
	Fence   uint64     `codec:"f,omitempty"`
	Attempt uint16     `codec:"a,omitempty"`
	Group   uint32     `codec:"g,omitempty"` // reserve: which has the job, or is to make it
	Key     string     `codec:"k,omitempty"` // claim: the run's idempotency key if it is not the default
	Count   int        `codec:"n,omitempty"`
	Named   int        `codec:"m,omitempty"` // redrive, purge: how many dead letters the command names
	Times   []int64    `codec:"t,omitempty"` // backfill: what was made
	Skipped []int64    `codec:"s,omitempty"` // backfill: what was there already
	Text    string     `codec:"x,omitempty"`
}

// Reply is the answer to a command: one outcome an item (a command about one thing has one item). Commands that cancel
// claimed runs name them in Canceling, so that their workers can be told.
type Reply struct {
	Items     []Outcome
	Canceling []Canceling
	Ends      ends.Tally
}

// Canceling is a claimed run whose worker is to be told to stop.
type Canceling struct {
	Run         job.RunKey
	Fence       uint64
	Worker      string
	Incarnation uint64
}

// storedOutcome is what requests keeps.
type storedOutcome struct {
	Fingerprint uint64  `codec:"f"`
	Outcome     Outcome `codec:"o"`
}

// encodeStored is what requests keeps of an outcome. That of a create, which is most of them, is written without
// reflection, byte by byte as the library would.
func encodeStored(fingerprint uint64, o *Outcome) ([]byte, error) {
	plain := o.Run == (job.RunKey{}) && o.Fence == 0 && o.Attempt == 0 && o.Group == 0 && o.Key == "" &&
		o.Count == 0 && o.Named == 0 && len(o.Times)+len(o.Skipped) == 0 && o.Text == ""
	if plain {
		return appendStored(make([]byte, 0, 64), fingerprint, o), nil
	}
	var data []byte
	err := codec.NewEncoderBytes(&data, handle).Encode(&storedOutcome{fingerprint, *o})
	return data, err
}

func appendStored(b []byte, fingerprint uint64, o *Outcome) []byte {
	b = msg.Map(b, 2)
	b = msg.Uint(msg.Str(b, "f"), fingerprint)
	b = msg.Map(msg.Str(b, "o"), 1+msg.Given(o.Job != 0, o.Version != 0))
	b = msg.Uint(msg.Str(b, "c"), uint64(o.Code))
	if o.Job != 0 {
		b = msg.Uint(msg.Str(b, "j"), uint64(o.Job))
	}
	if o.Version != 0 {
		b = msg.Uint(msg.Str(b, "v"), o.Version)
	}
	return b
}

// once answers a repeated request with its first outcome. Only outcomes that changed something are kept: what was
// refused may be tried again under the same key.
func (a *applier) once(q Request, do func(*applier) (Outcome, error)) error {
	a.request = q.ID
	if o, ok, err := a.repeat(q); err != nil || ok {
		a.outcome(o)
		return err
	}
	o, err := do(a)
	if err != nil {
		return err
	}
	a.outcome(o)
	return a.remember(q, o)
}

// maxRequestID bounds what becomes a key of the store; bbolt's own bound would end the process.
const maxRequestID = 1 << 10

// repeat is the answer to a request that need not, or may not, be done.
func (a *applier) repeat(q Request) (Outcome, bool, error) {
	if q.ID == "" {
		return Outcome{}, false, nil
	}
	if len(q.ID) > maxRequestID {
		return Outcome{Code: CodeRefused, Text: "the request id is too long"}, true, nil
	}
	data := a.b.Request(q.ID)
	if data == nil {
		return Outcome{}, false, nil
	}
	s, err := decodeStored(q.ID, data)
	if err != nil {
		return Outcome{}, false, err
	}
	if s.Fingerprint != q.Fingerprint {
		return Outcome{Code: CodeKeyReused}, true, nil
	}
	s.Outcome.Replay = true
	return s.Outcome, true, nil
}

func decodeStored(id string, data []byte) (s storedOutcome, err error) {
	if err = codec.NewDecoderBytes(data, handle).Decode(&s); err != nil {
		err = fmt.Errorf("fsm: stored outcome of request %q: %w", id, err)
	}
	return s, err
}

// forgotten is the end of a request's outcome: the home of its key need not send repetitions here any more.
func (a *applier) forgotten(id string, data []byte) error {
	if data == nil || !a.b.ManyGroups() {
		return nil
	}
	s, err := decodeStored(id, data)
	return cmp.Or(err, a.b.OweRequest(s.Outcome.Job, id))
}

func (a *applier) remember(q Request, o Outcome) error {
	if q.ID == "" || (o.Code != CodeOK && o.Code != CodeQueued) {
		return nil
	}
	data, err := encodeStored(q.Fingerprint, &o)
	if err != nil {
		return err
	}
	return a.b.PutRequest(q.ID, data, q.Expires)
}
