package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// A request id answers a repeat with the first outcome, also across a restart; the same id for another request is refused.
func TestARequestIsDoneOnce(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100), overlap(job.OverlapAllow))
	q := Request{ID: "r1", Fingerprint: 7, Expires: T(1000)}
	first := w.want(CodeOK, &Trigger{Request: q, Job: uint64(id)})
	if first.Replay {
		t.Fatal("it was not a repeat")
	}
	w.st.Close()
	w.open()
	before := w.digest()
	again := w.want(CodeOK, &Trigger{Request: q, Job: uint64(id)})
	if !again.Replay || again.Run != first.Run || w.digest() != before {
		t.Fatalf("%+v, first %+v", again, first)
	}
	w.unchanged(CodeKeyReused, &Trigger{Request: Request{ID: "r1", Fingerprint: 8}, Job: uint64(id)}, &Delete{Request: Request{ID: "r1"}, Job: uint64(id)})
	w.unchanged(CodeRefused, &Trigger{Request: Request{ID: strings.Repeat("x", maxRequestID+1)}, Job: uint64(id)})
}

func TestEveryMutatingRequestIsRemembered(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100), overlap(job.OverlapAllow))
	w.complete(w.claim(id, T(160)), ResultDead, 0)
	w.complete(w.claim(id, T(220)), ResultDead, 0)
	s, _ := w.state(id)
	w.now = T(200)
	n := 0
	q := func() Request { n++; return Request{ID: fmt.Sprint("r", n), Fingerprint: uint64(n), Expires: T(9999)} }
	// Each is made from the state as it then is, applied, and applied again word for word.
	for _, mk := range []func() Command{
		func() Command { return &Backfill{Request: q(), Job: uint64(id), At: []int64{T(50)}} },
		func() Command { return &Redrive{Request: q(), Seqs: []uint64{s.HistHead}} },
		func() Command { return &Purge{Request: q(), Seqs: []uint64{s.HistHead - 1}} },
		func() Command { return &Cancel{Request: q(), Job: uint64(id), All: true} },
		func() Command {
			u := w.updateOf(id, T(220), func(s *job.Spec) { s.Timeout++ })
			u.Request = q()
			return u
		},
		func() Command { return &Pause{Request: q(), Job: uint64(id)} },
		func() Command {
			r := w.resumeOf(id, T(220), Gap{})
			r.Request = q()
			return r
		},
		func() Command { return &Calendar{Request: q(), Name: "c", Data: []byte("{}")} },
		func() Command { return &ClockReset{Request: q()} },
		func() Command {
			return &Create{Items: []CreateItem{{Job: w.st.Counters().NextJob + 1, Def: w.def(testSpec(nil), 1), Request: q()}}}
		},
		func() Command { return &Delete{Request: q(), Job: uint64(id)} },
	} {
		cmd := mk()
		first := w.want(CodeOK, cmd)
		before := w.digest()
		again := w.want(CodeOK, cmd)
		again.Replay = false
		if w.digest() != before || again.Count != first.Count || again.Job != first.Job || again.Version != first.Version || again.Named != first.Named ||
			!slices.Equal(again.Times, first.Times) {
			t.Errorf("%T: the repeat was answered with %+v, first %+v", cmd, again, first)
		}
		look := Lookup{Request: Request{ID: fmt.Sprint("r", n), Fingerprint: uint64(n)}}
		read := w.want(CodeOK, &look)
		if again.Replay = true; w.digest() != before || !reflect.DeepEqual(read, again) {
			t.Errorf("%T: looked up %+v, want %+v", cmd, read, again)
		}
		look.Request.Fingerprint++
		w.unchanged(CodeKeyReused, &look)
	}
	w.unchanged(CodeNotFound, &Lookup{Request: Request{ID: "another"}}, &Lookup{})
	if o := w.want(CodeOK, &Lookup{Request: Request{ID: "r2", Fingerprint: 2}}); o.Named != 1 || o.Version != 0 {
		t.Errorf("redrive: %+v", o)
	}
}

// What was refused may be tried again under the same key.
func TestARefusalIsNotRemembered(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapSkip))
	o := w.claim(id, T(70))
	q := Request{ID: "r1", Fingerprint: 7, Expires: T(1000)}
	w.want(CodeRefused, &Trigger{Request: q, Job: uint64(id)})
	w.complete(o, ResultSucceeded, 0)
	if got := w.want(CodeOK, &Trigger{Request: q, Job: uint64(id)}); got.Replay {
		t.Fatalf("%+v", got)
	}
}

func TestTwoCreatesWithOneKeyInOneBatch(t *testing.T) {
	w := newWorld(t)
	q := Request{ID: "r1", Fingerprint: 7, Expires: T(1000)}
	items := w.do(&Create{Items: []CreateItem{
		{Job: 1, Def: w.def(testSpec(nil), 1), Request: q}, {Job: 2, Def: w.def(testSpec(nil), 1), Request: q},
	}})[0].Items
	if items[0].Code != CodeOK || items[1].Code != CodeOK || !items[1].Replay || items[1].Job != 1 || w.st.Counters().Jobs != 1 {
		t.Fatalf("%+v", items)
	}
}

func TestRequestsAreForgottenAfterTheirTime(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100), overlap(job.OverlapAllow))
	q := Request{ID: "r1", Fingerprint: 7, Expires: T(50)}
	a := w.want(CodeOK, &Trigger{Request: q, Job: uint64(id)})
	w.now = T(49)
	w.want(CodeOK, &Trim{Limit: 10})
	if o := w.want(CodeOK, &Trigger{Request: q, Job: uint64(id)}); !o.Replay {
		t.Fatalf("%+v", o)
	}
	w.now = T(50)
	// Who has it done again as long as there is more goes by the count.
	for limit, want := range []int{0, 1, 0} {
		if o := w.want(CodeOK, &Trim{Limit: limit}); o.Count != want {
			t.Fatalf("at most %d: %+v", limit, o)
		}
	}
	if o := w.want(CodeOK, &Trigger{Request: q, Job: uint64(id)}); o.Replay || o.Run == a.Run {
		t.Fatalf("%+v", o)
	}
}

func TestTheMarkIsTheHighestStamp(t *testing.T) {
	w := newWorld(t)
	mark := func() int64 { return w.st.Counters().Mark }
	w.want(CodeOK, &Stamp{Head: Head{Now: T(50), Term: 1}})
	w.want(CodeOK, &Stamp{Head: Head{Now: T(40), Term: 1}})
	if mark() != T(50) {
		t.Fatalf("%d", mark())
	}
	w.unchanged(CodeRefused, &Stamp{Head: Head{Now: 1 << 60, Term: 1}}, &Stamp{Head: Head{Now: -1, Term: 1}})
	if mark() != T(50) {
		t.Fatal("a stamp out of range moved the mark")
	}
	w.want(CodeOK, &ClockReset{Head: Head{Now: T(10), Term: 1}})
	if mark() != T(10) {
		t.Fatalf("%d", mark())
	}
}

func TestOutagesAreRecordedAndPruned(t *testing.T) {
	w := newWorld(t)
	outages := func() []store.Outage { return w.st.Info().Outages }
	takeover := func(at int64) {
		w.Helper()
		w.now = at
		w.want(CodeOK, &Stamp{Takeover: true})
	}
	takeover(T(0)) // the first leader of all: there was no outage before it
	if len(outages()) != 0 {
		t.Fatalf("%+v", outages())
	}
	w.now = T(100)
	w.want(CodeOK, &Stamp{})
	takeover(T(100) + minOutage)
	if len(outages()) != 0 {
		t.Fatalf("too short to matter: %+v", outages())
	}
	id := w.create(T(150), nil)
	stamped := w.st.Counters().Mark
	takeover(T(200))
	want := []store.Outage{{From: stamped, To: T(200)}}
	if !slices.Equal(outages(), want) {
		t.Fatalf("%+v", outages())
	}
	// Another failover must not forget it: an entry that may have fallen into it is still there.
	takeover(T(300))
	want = append(want, store.Outage{From: T(200), To: T(300)})
	if !slices.Equal(outages(), want) {
		t.Fatalf("%+v", outages())
	}
	// Also if nothing is due any more that fell into it: what waits for a resume is in no index.
	w.want(CodeOK, w.advanceOf(id, T(350), gap(T(150), T(150), 1, job.RunMissed, job.ReasonOutage)))
	takeover(T(400))
	want = append(want, store.Outage{From: T(300), To: T(400)})
	if !slices.Equal(outages(), want) {
		t.Fatalf("%+v", outages())
	}
	w.st.Close()
	w.open()
	if !slices.Equal(outages(), want) {
		t.Fatal("they did not survive a restart")
	}
	for i := range int64(2 * maxOutages) {
		takeover(T(500 + 10*i))
	}
	if n := len(outages()); n != maxOutages {
		t.Fatalf("%d outages are kept", n)
	}
}

// Trimming goes by age and by count, from the old end; the newest record of a job stays until it is superseded.
func TestTrimKeepsTheNewestRecordOfAJob(t *testing.T) {
	w := newWorld(t)
	quiet, busy := w.create(T(10), nil), w.create(T(10), nil)
	w.complete(w.claim(quiet, T(1000)), ResultSucceeded, 0) // record 1
	for i := range int64(5) {                               // records 2 to 6
		w.now = T(20 + 10*i)
		w.complete(w.claim(busy, T(10+60*(i+1))), ResultSucceeded, 0)
	}
	seqs := func() (out []uint64) {
		w.st.View(func(v *store.View) error {
			return v.EachRecord(0, func(seq uint64, _ store.Record) bool { out = append(out, seq); return true })
		})
		return out
	}
	w.want(CodeOK, &Trim{Before: T(40), Limit: 2}) // a bounded number at a time
	if !slices.Equal(seqs(), []uint64{1, 3, 4, 5, 6}) || w.st.Counters().HistFloor != 2 {
		t.Fatalf("%v", seqs())
	}
	w.want(CodeOK, &Trim{Before: T(40), Limit: 100})
	if !slices.Equal(seqs(), []uint64{1, 4, 5, 6}) {
		t.Fatalf("%v", seqs())
	}
	w.want(CodeOK, &Trim{MaxCount: 1, Limit: 100})
	if !slices.Equal(seqs(), []uint64{1, 6}) || w.st.Counters().HistFloor != 5 {
		t.Fatalf("%v", seqs())
	}
	w.want(CodeOK, &Trim{Before: T(10_000), Limit: 100}) // the kept one is not counted again, and record 6 is busy's newest
	if !slices.Equal(seqs(), []uint64{1, 6}) {
		t.Fatalf("%v", seqs())
	}
	// Superseded, it goes; the chain ends there.
	w.complete(w.claim(quiet, T(2000)), ResultSucceeded, 0)
	if !slices.Equal(seqs(), []uint64{6, 7}) {
		t.Fatalf("%v", seqs())
	}
	if h := w.history(quiet); len(h) != 1 || h[0].Prev != 0 {
		t.Fatalf("%+v", h)
	}
	// And it goes with its job.
	w.want(CodeOK, &Delete{Job: uint64(busy)})
	if !slices.Equal(seqs(), []uint64{7}) {
		t.Fatalf("%v", seqs())
	}
}

func TestInitNamesTheClusterOnce(t *testing.T) {
	w := newWorld(t)
	w.want(CodeOK, &Init{ClusterID: "c1"})
	w.unchanged(CodeRefused, &Init{ClusterID: "c2"})
	if w.st.Info().ClusterID != "c1" {
		t.Fatalf("%+v", w.st.Info())
	}
}

func TestCalendars(t *testing.T) {
	w := newWorld(t)
	get := func(name string) (b []byte) {
		w.st.View(func(v *store.View) error { b = v.Calendar(job.DefaultNamespace, name); return nil })
		return b
	}
	w.want(CodeOK, &Calendar{Name: "holidays", Data: []byte(`{"a":1}`)})
	w.want(CodeOK, &Calendar{Name: "holidays", Data: []byte(`{"a":2}`)})
	if string(get("holidays")) != `{"a":2}` {
		t.Fatalf("%s", get("holidays"))
	}
	w.want(CodeOK, &Calendar{Name: "holidays"})
	w.unchanged(CodeNotFound, &Calendar{Name: "holidays"})
	w.unchanged(CodeRefused, &Calendar{Data: []byte("{}")}, &Calendar{Name: strings.Repeat("x", 40_000), Data: []byte("{}")})
}

// A node that meets an entry which it cannot read stops; nothing of the batch is in the state.
func TestAnUnknownCommandStopsTheNode(t *testing.T) {
	pause := numbers[reflect.TypeFor[*Pause]()]
	for name, data := range map[string][]byte{
		"type": {200, 1, 0x80}, "version": {pause, 9, 0x80}, "empty": {}, "one byte": {1}, "garbage": {pause, 1, 0xff, 0xff},
		"columns": mustEncode(t, &Claim{Jobs: []uint64{1, 2}}),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create(T(10), nil)
			before, _ := w.st.Digest()
			good := w.entry(&Pause{Job: 1})
			out := w.f.ApplyBatch([]*raft.Log{good, {Index: good.Index + 1, Term: 1, Type: raft.LogCommand, Data: data}})
			if len(w.fatal) != 1 || out[0] != w.fatal[0] || out[1] != w.fatal[0] {
				t.Fatalf("%v, fatal %v", out, w.fatal)
			}
			if after, _ := w.st.Digest(); after != before {
				t.Fatal("half a batch is in the state")
			}
			if r := w.f.Apply(good); r != w.fatal[0] {
				t.Fatalf("it went on: %v", r)
			}
			if _, err := w.f.Snapshot(); err == nil {
				t.Fatal("it would still make snapshots")
			}
			var entry *EntryError
			if !errors.As(w.fatal[0], &entry) || entry.Index != good.Index+1 || entry.Term != 1 {
				t.Fatalf("it does not say which entry: %v", w.fatal[0])
			}
			var unknown *UnknownCommandError
			if errors.As(w.fatal[0], &unknown) != (name == "type" || name == "version") {
				t.Fatalf("%v", w.fatal[0])
			}
		})
	}
}

func TestAnEntryCanBePassedOverByOrder(t *testing.T) {
	w := newWorld(t)
	w.create(T(10), nil)
	var log bytes.Buffer
	w.f = New(w.st, Options{Skip: map[uint64]uint64{2: 9, 3: 1}, Logger: slog.New(slog.NewTextHandler(&log, nil))}) // 2 of another term: not meant
	out := w.f.ApplyBatch([]*raft.Log{
		{Index: 2, Term: 1, Type: raft.LogCommand, Data: w.entry(&Pause{Job: 1}).Data},
		{Index: 3, Term: 1, Type: raft.LogCommand, Data: []byte{200, 1}},
	})
	if _, ok := out[0].(*Reply); !ok || out[1] != errSkipped || !strings.Contains(log.String(), "log entry skipped") {
		t.Fatalf("%v, log %q", out, log.String())
	}
	if s, _ := w.state(1); !s.Paused {
		t.Fatal("its neighbour was not applied")
	}
}

// A bug that panics must stop the node as an entry that cannot be read does: with the entry's number, and nothing half done.
func TestAPanicIsAboutItsEntry(t *testing.T) {
	w := newWorld(t)
	w.create(T(10), nil)
	before, _ := w.st.Digest()
	commands[250] = of[panicking](1, unrecorded)
	defer func() { commands[250] = kind{} }()
	good := w.entry(&Pause{Job: 1})
	w.f.ApplyBatch([]*raft.Log{good, {Index: good.Index + 1, Term: 1, Type: raft.LogCommand, Data: []byte{250, commandVersion, 0x80}}})
	var entry *EntryError
	if len(w.fatal) != 1 || !errors.As(w.fatal[0], &entry) || entry.Index != good.Index+1 || !strings.Contains(entry.Error(), "panic: boom") {
		t.Fatalf("%v", w.fatal)
	}
	if after, _ := w.st.Digest(); after != before {
		t.Fatal("half a batch is in the state")
	}
}

type panicking struct {
	Head `codec:"h"`
}

func (*panicking) check() error { panic("boom") }

func (*panicking) apply(*applier) error { return nil }

func mustEncode(t testing.TB, cmd Command) []byte {
	t.Helper()
	b, err := Encode(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
