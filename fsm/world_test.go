package fsm

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// world is a state machine under test with the hand that proposes to it.
type world struct {
	tb
	path  string
	st    *store.Store
	f     *FSM
	index uint64
	term  uint64
	now   int64
	fatal []error
	log   []*raft.Log // everything that was applied
}

// tb is what rapid.T and testing.TB have in common.
type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Cleanup(func())
}

// T is a time in these tests: seconds after a fixed moment.
func T(seconds int64) int64 { return 1_700_000_000_000 + seconds*1000 }

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldAt(t, filepath.Join(t.TempDir(), "state.db"))
}

func newWorldAt(t tb, path string) *world {
	t.Helper()
	w := &world{tb: t, path: path, term: 1, now: T(0)}
	w.open()
	return w
}

func (w *world) open() {
	w.Helper()
	st, err := store.Open(w.path, store.Options{NoSync: true, MmapSize: 1 << 28, RecentNames: 3})
	if err != nil {
		w.Fatal(err)
	}
	w.st = st
	w.f = New(st, Options{Fatal: func(err error) { w.fatal = append(w.fatal, err) }, Level: 1 << 30})
	w.Cleanup(func() { st.Close() })
}

// stamp fills in a command's head, unless it has one.
func (w *world) stamp(cmd Command) Command {
	h := reflect.ValueOf(cmd).Elem().FieldByName("Head")
	if h.IsZero() {
		h.Set(reflect.ValueOf(Head{Now: w.now, Term: w.term}))
	}
	return cmd
}

func (w *world) entry(cmd Command) *raft.Log {
	w.Helper()
	data, err := Encode(w.stamp(cmd))
	if err != nil {
		w.Fatal(err)
	}
	w.index++
	l := &raft.Log{Index: w.index, Term: w.term, Type: raft.LogCommand, Data: data}
	w.log = append(w.log, l)
	return l
}

// do applies commands in one batch, and holds the state against its invariants.
func (w *world) do(cmds ...Command) []*Reply {
	w.Helper()
	var logs []*raft.Log
	for _, c := range cmds {
		logs = append(logs, w.entry(c))
	}
	var out []*Reply
	for i, r := range w.f.ApplyBatch(logs) {
		reply, ok := r.(*Reply)
		if !ok {
			w.Fatalf("%T was answered with %v", cmds[i], r)
		}
		if n := cmds[i].items(); len(reply.Items) != n {
			w.Fatalf("%T has %d items and %d outcomes", cmds[i], n, len(reply.Items))
		}
		out = append(out, reply)
	}
	w.check()
	return out
}

// one applies one command about one thing.
func (w *world) one(cmd Command) Outcome {
	w.Helper()
	return w.do(cmd)[0].Items[0]
}

func (w *world) check() {
	w.Helper()
	problems, _, err := w.st.Check()
	if err != nil || len(problems) > 0 {
		w.Fatalf("the state is not sound: %v %q", err, problems)
	}
}

// want applies a command about one thing and holds its outcome against a code.
func (w *world) want(code Code, cmd Command) Outcome {
	w.Helper()
	o := w.one(cmd)
	if o.Code != code {
		w.Fatalf("%T was answered with code %d (%s), want %d", cmd, o.Code, o.Text, code)
	}
	return o
}

// unchanged applies commands that must not change anything but the applied index and the mark.
func (w *world) unchanged(code Code, cmds ...Command) {
	w.Helper()
	for _, c := range cmds {
		before, count := w.digest(), w.st.Counters()
		for _, o := range w.do(c)[0].Items {
			if o.Code != code {
				w.Fatalf("%+v was answered with code %d (%s), want %d", c, o.Code, o.Text, code)
			}
		}
		after := w.st.Counters()
		after.Index, after.Term, after.Mark, after.Chain = count.Index, count.Term, count.Mark, count.Chain
		if w.digest() != before || after != count {
			w.Fatalf("%+v changed the state: %+v, before %+v", c, after, count)
		}
	}
}

func (w *world) digest() string {
	w.Helper()
	d, err := w.st.DigestContent()
	if err != nil {
		w.Fatal(err)
	}
	return d
}

func testSpec(mut func(*job.Spec)) job.Spec {
	s := job.Spec{Type: job.TypeHTTP, Schedule: "* * * * *", Payload: json.RawMessage(`{"url":"http://localhost/"}`)}
	if mut != nil {
		mut(&s)
	}
	s.Normalize()
	return s
}

func overlap(policy string) func(*job.Spec) { return func(s *job.Spec) { s.Overlap = policy } }

func oneOff(s *job.Spec) { s.Schedule = "2030-01-01T00:00:00Z" }

func (w *world) def(spec job.Spec, version uint64) []byte {
	w.Helper()
	d := store.Definition{Spec: spec, Version: version, CreatedAt: w.now, UpdatedAt: w.now}
	return d.Append(nil)
}

// create makes a job whose next occurrence is at a time; 0: none.
func (w *world) create(next int64, mut func(*job.Spec)) job.ID {
	w.Helper()
	id := w.st.Counters().NextJob + 1
	o := w.want(CodeOK, &Create{Items: []CreateItem{{Job: id, Def: w.def(testSpec(mut), 1), Next: When{next, next}}}})
	return o.Job
}

func (w *world) state(id job.ID) (s store.State, p store.Place) {
	w.Helper()
	err := w.st.View(func(v *store.View) (err error) {
		var ok bool
		if s, p, ok, err = v.State(id); err == nil && !ok {
			w.Fatalf("%s has no state", id)
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return s, p
}

func (w *world) row(k job.RunKey) (row store.Row, ok bool) {
	w.Helper()
	err := w.st.View(func(v *store.View) (err error) {
		row, ok, err = v.Run(k)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return row, ok
}

func (w *world) openRuns(id job.ID) (refs []store.OpenRef) {
	w.st.View(func(v *store.View) error {
		refs = slices.Clone(v.Open(id))
		return nil
	})
	return refs
}

// history is a job's, oldest first, by a walk over the whole log: it is there also when the job is gone.
func (w *world) history(id job.ID) (out []store.Record) {
	w.Helper()
	err := w.st.View(func(v *store.View) error {
		return v.EachRecord(0, func(_ uint64, r store.Record) bool {
			if r.Job == id {
				out = append(out, r)
			}
			return true
		})
	})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// line is what tests compare of a history record.
type line struct {
	Status  job.RunStatus
	Reason  job.Reason
	At      int64 // or First
	Count   int64 // of an interval
	Attempt uint16
}

func (w *world) wantHistory(id job.ID, want ...line) {
	w.Helper()
	var got []line
	for _, r := range w.history(id) {
		l := line{Status: r.Status, Reason: r.Reason, At: r.At, Attempt: r.Attempt}
		if !r.Interval.Empty() {
			l.At, l.Count = r.Interval.First, r.Interval.Count
		}
		got = append(got, l)
	}
	if !slices.Equal(got, want) {
		w.Fatalf("history of %s:\n got %+v\nwant %+v", id, got, want)
	}
}

// keys of the due index that are about a job, clean-ups aside.
func (w *world) due(id job.ID) (keys []store.DueKey) {
	w.Helper()
	w.st.View(func(v *store.View) error {
		for lane := range job.Lane(job.Lanes) {
			err := v.ScanDue(store.DueKey{Lane: lane}, 1<<60, func(e store.DueEntry) bool {
				if e.Job == id && e.Kind != store.KindCleanup {
					keys = append(keys, e.DueKey)
				}
				return true
			})
			if err != nil {
				w.Fatal(err)
			}
		}
		return nil
	})
	return keys
}

var worker1 = WorkerRef{Name: "w1", Incarnation: 1}

// addClaim puts an item into a claim batch.
func addClaim(c *Claim, k store.DueKey, gen uint32, next int64) {
	if c.Workers == nil {
		c.Workers = []WorkerRef{worker1}
	}
	c.Lane = append(c.Lane, byte(k.Lane))
	c.Kind = append(c.Kind, byte(k.Kind)<<4|byte(k.Origin))
	c.Ready = append(c.Ready, k.Ready)
	c.Jobs = append(c.Jobs, uint64(k.Job))
	c.At = append(c.At, k.At)
	c.Gen = append(c.Gen, gen)
	c.Next = append(c.Next, next)
	c.NextReady = append(c.NextReady, next)
	c.Worker = append(c.Worker, 0)
	c.Timeout = append(c.Timeout, 30_000)
	c.Version = append(c.Version, 1)
}

// claimOf is a claim of a job's occurrence as it stands now.
func (w *world) claimOf(id job.ID, next int64) *Claim {
	w.Helper()
	s, p := w.state(id)
	c := &Claim{}
	addClaim(c, p.Due(id), s.Gen, next)
	return c
}

// claim claims a job's occurrence and moves it to next.
func (w *world) claim(id job.ID, next int64) Outcome {
	w.Helper()
	return w.one(w.claimOf(id, next))
}

// claimRun claims a run that is pending or retrying.
func (w *world) claimRun(k job.RunKey) Outcome {
	w.Helper()
	row, ok := w.row(k)
	due, has := row.Due(k)
	if !ok || !has {
		w.Fatalf("%s is not in the due index: %+v", k, row)
	}
	s, _ := w.state(k.Job)
	c := &Claim{}
	addClaim(c, due, s.Gen, 0)
	return w.want(CodeClaimed, c)
}

// addResult puts an item into a complete batch.
func addResult(c *Complete, k job.RunKey, fence uint64, res Result, retryAt int64) *Complete {
	c.Jobs = append(c.Jobs, uint64(k.Job))
	c.At = append(c.At, k.At)
	c.Origin = append(c.Origin, byte(k.Origin))
	c.Fence = append(c.Fence, fence)
	c.Result = append(c.Result, byte(res))
	c.Reason = append(c.Reason, 0)
	c.RetryAt = append(c.RetryAt, retryAt)
	c.Started = append(c.Started, 0)
	c.Ended = append(c.Ended, 0)
	return c
}

func (w *world) complete(o Outcome, res Result, retryAt int64) {
	w.Helper()
	w.want(CodeOK, addResult(&Complete{}, o.Run, o.Fence, res, retryAt))
}

func expireOf(o Outcome) *Expire {
	return &Expire{Jobs: []uint64{uint64(o.Run.Job)}, At: []int64{o.Run.At}, Origin: []byte{byte(o.Run.Origin)}, Fence: []uint64{o.Fence}, Started: []int64{0}}
}

// advanceOf moves a job's occurrence as it stands now.
func (w *world) advanceOf(id job.ID, next int64, g Gap, rows ...int64) *Advance {
	w.Helper()
	s, p := w.state(id)
	k := p.Due(id)
	c := &Advance{Lane: []byte{byte(k.Lane)}, Kind: []byte{byte(k.Kind)<<4 | byte(k.Origin)}, Ready: []int64{k.Ready},
		Jobs: []uint64{uint64(id)}, At: []int64{k.At}, Gen: []uint32{s.Gen}, Next: []int64{next}, NextReady: []int64{next}, Gaps: []Gap{g}}
	for _, at := range rows {
		c.Rows = append(c.Rows, CatchUp{At: at})
	}
	return c
}

// admitOf decides about a job's occurrence as it stands now, which is the only one that is due.
func (w *world) admitOf(id job.ID, next int64) *Admit {
	w.Helper()
	s, p := w.state(id)
	return &Admit{Lane: []byte{byte(p.Lane)}, Ready: []int64{p.Ready}, Jobs: []uint64{uint64(id)}, At: []int64{p.At}, Gen: []uint32{s.Gen},
		Next: []int64{next}, NextReady: []int64{next}, Past: []int64{next}, PastReady: []int64{next}, Gaps: []Gap{gap(p.At, p.At, 1, job.RunSkipped, job.ReasonOverlap)}}
}

func (w *world) seen(id job.ID) Seen {
	w.Helper()
	s, p := w.state(id)
	return Seen{Gen: s.Gen, Parked: p.Parked, At: p.At, Ready: p.Ready}
}

// updateOf is an edit as a proposer would make it now.
func (w *world) updateOf(id job.ID, next int64, mut func(*job.Spec)) *Update {
	w.Helper()
	var def store.Definition
	err := w.st.View(func(v *store.View) (err error) {
		def, _, err = v.Definition(id)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	spec := def.Spec
	mut(&spec)
	return &Update{Job: uint64(id), Version: def.Version, Seen: w.seen(id), Def: w.def(spec, def.Version+1), Next: When{next, next}}
}

func (w *world) resumeOf(id job.ID, next int64, g Gap) *Resume {
	w.Helper()
	return &Resume{Job: uint64(id), Seen: w.seen(id), Next: When{next, next}, NotRun: g}
}

func gap(first, last, count int64, status job.RunStatus, reason job.Reason) Gap {
	return Gap{First: first, Last: last, Count: count, Status: status, Reason: reason}
}

func scheduled(id job.ID, at int64) job.RunKey {
	return job.RunKey{Job: id, At: at, Origin: job.OriginSchedule}
}

func equalBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %x\nwant %x", what, got, want)
	}
}
