package store

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/job"
)

func genTime() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64(), rapid.Int64Range(1_600_000_000_000, 1_900_000_000_000), rapid.Just(int64(math.MaxInt64)), rapid.Just(int64(math.MinInt64)))
}

func genInterval() *rapid.Generator[Interval] {
	return rapid.Custom(func(t *rapid.T) Interval {
		if rapid.Bool().Draw(t, "none") {
			return Interval{}
		}
		return Interval{First: genTime().Draw(t, "first"), Last: genTime().Draw(t, "last"), Count: rapid.Int64Range(1, math.MaxInt64).Draw(t, "count"),
			AtLeast: rapid.Bool().Draw(t, "m"), Status: job.RunStatus(rapid.Byte().Draw(t, "s")), Reason: job.Reason(rapid.Byte().Draw(t, "r"))}
	})
}

func genState() *rapid.Generator[State] {
	return rapid.Custom(func(t *rapid.T) State {
		s := State{
			Gen: rapid.Uint32().Draw(t, "gen"), Class: rapid.Uint32().Draw(t, "class"), Lane: job.Lane(rapid.Byte().Draw(t, "lane")),
			Overlap: Overlap(rapid.IntRange(0, 3).Draw(t, "overlap")), Concurrency: rapid.Uint16().Draw(t, "c"),
			Paused: rapid.Bool().Draw(t, "p"), Quarantined: rapid.Bool().Draw(t, "q"), OneOff: rapid.Bool().Draw(t, "o"), Manual: rapid.Bool().Draw(t, "m"), AtMostOnce: rapid.Bool().Draw(t, "a"),
			Notify: NotifyOn(rapid.IntRange(0, 3).Draw(t, "n")), Failing: rapid.Bool().Draw(t, "f"),
			LastNominal: genTime().Draw(t, "ln"), HistHead: rapid.Uint64().Draw(t, "hh"), Runs: rapid.Uint32().Draw(t, "r"), LastStatus: job.RunStatus(rapid.Byte().Draw(t, "ls")),
			LastAt: genTime().Draw(t, "la"), Active: rapid.Uint32().Draw(t, "ac"), Waiting: rapid.Uint32().Draw(t, "w"), Dead: rapid.Uint32().Draw(t, "d"),
			LastManual: genTime().Draw(t, "lm"), BusyUntil: genTime().Draw(t, "cu"), NotRun: genInterval().Draw(t, "nr"),
			ParkedAt: genTime().Draw(t, "pa"), ParkedReady: genTime().Draw(t, "pr"),
		}
		if s.OneOff {
			s.Retention = rapid.Uint32().Draw(t, "ret")
		}
		return s
	})
}

func genRow() *rapid.Generator[Row] {
	return rapid.Custom(func(t *rapid.T) Row {
		b := func() uint8 { return rapid.Byte().Draw(t, "b") }
		return Row{Status: job.RunStatus(b()), Held: job.RunStatus(b()), Serial: rapid.Bool().Draw(t, "s"), Delayed: rapid.Bool().Draw(t, "d"), AtMostOnce: rapid.Bool().Draw(t, "a"),
			Attempt: rapid.Uint16().Draw(t, "at"), Failures: rapid.Uint16().Draw(t, "f"), Losses: b(), Lane: job.Lane(b()), Class: rapid.Uint32().Draw(t, "c"), Fence: rapid.Uint64().Draw(t, "fe"),
			ClaimedAt: genTime().Draw(t, "ca"), Ready: genTime().Draw(t, "re"), Incarnation: rapid.Uint64().Draw(t, "i"), Worker: rapid.String().Draw(t, "w"), Key: rapid.String().Draw(t, "k"), Cancel: job.Reason(b())}
	})
}

func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := genState().Draw(rt, "state")
		if got, err := DecodeState(s.Encode()); err != nil || got != s {
			rt.Fatalf("%+v %v", got, err)
		}
		r := genRow().Draw(rt, "row")
		if got, err := decodeRow(r.encode()); err != nil || got != r {
			rt.Fatalf("%+v %v", got, err)
		}
		d := Dead{Run: job.RunKey{Job: job.ID(rapid.Uint64().Draw(rt, "j")), At: genTime().Draw(rt, "at"), Origin: 2}, Row: r, Reason: 3, DiedAt: genTime().Draw(rt, "d"), Error: "e", Output: rapid.String().Draw(rt, "o")}
		if got, err := decodeDead(d.encode()); err != nil || got != d {
			rt.Fatalf("%+v %v", got, err)
		}
		rec := Record{Prev: rapid.Uint64().Draw(rt, "p"), Job: d.Run.Job, Recorded: genTime().Draw(rt, "rec"),
			Namespace: rapid.SampledFrom(spaces).Draw(rt, "ns")}
		if rec.Interval = genInterval().Draw(rt, "iv"); !rec.Interval.Empty() {
			rec.Status, rec.Reason = rec.Interval.Status, rec.Interval.Reason
		} else {
			rec.Status, rec.Reason, rec.At, rec.Origin, rec.Attempt, rec.Fence = 17, 14, d.Run.At, 2, r.Attempt, r.Fence
			rec.ClaimedAt, rec.StartedAt, rec.EndedAt = genTime().Draw(rt, "c"), genTime().Draw(rt, "s"), genTime().Draw(rt, "e")
			rec.Worker, rec.Error, rec.Output = r.Worker, d.Error, d.Output
		}
		if got, err := decodeRecord(rec.encode()); err != nil || got != rec {
			rt.Fatalf("\n got %+v\nwant %+v (%v)", got, rec, err)
		}
		c := Counters{Index: r.Fence, Term: 2, NextJob: 3, Fence: 4, HistSeq: 5, HistFloor: 6, Mark: rec.Recorded, Jobs: 7, Dead: 8, Chain: r.Fence}
		if got, err := decodeCounters(c.encode()); err != nil || got != c {
			rt.Fatalf("%+v %v", got, err)
		}
		// What is cut off or has something behind it is not taken for whole.
		for _, b := range [][]byte{s.Encode(), r.encode(), d.encode(), c.encode()} {
			n := rapid.IntRange(0, len(b)-1).Draw(rt, "n")
			for _, bad := range [][]byte{b[:n], append(slices.Clone(b), 0)} {
				_, e1 := DecodeState(bad)
				_, e2 := decodeRow(bad)
				_, e3 := decodeDead(bad)
				_, e4 := decodeCounters(bad)
				if e1 == nil && e2 == nil && e3 == nil && e4 == nil {
					rt.Fatalf("%x was read", bad)
				}
			}
		}
	})
}

// Keys sort as what they stand for does, times before 1970 included.
func TestKeysSort(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		due := func(name string) DueKey {
			return DueKey{Lane: job.Lane(rapid.IntRange(0, 3).Draw(rt, name)), Ready: genTime().Draw(rt, name), Job: job.ID(rapid.Uint64().Draw(rt, name)),
				Kind: Kind(rapid.IntRange(1, 4).Draw(rt, name)), Origin: job.Origin(rapid.IntRange(0, 3).Draw(rt, name)), At: genTime().Draw(rt, name)}
		}
		a, b := due("a"), due("b")
		if got, err := parseDueKey(a.Append(nil)); err != nil || got != a {
			rt.Fatalf("%+v %v", got, err)
		}
		order := func(k DueKey) []int64 {
			return []int64{int64(k.Lane), k.Ready, int64(uint64(k.Job) ^ 1<<63), int64(k.Kind), int64(k.Origin), k.At}
		}
		if got, want := bytes.Compare(a.Append(nil), b.Append(nil)), slices.Compare(order(a), order(b)); got != want {
			rt.Fatalf("%+v and %+v compare as %d, want %d", a, b, got, want)
		}
		ra, rb := a.Run(), b.Run()
		if got, err := parseRunKey(appendRunKey(nil, ra)); err != nil || got != ra {
			rt.Fatalf("%+v %v", got, err)
		}
		less := func(a, b job.RunKey) int {
			return slices.Compare([]int64{a.At, int64(uint64(a.Job) ^ 1<<63), int64(a.Origin)}, []int64{b.At, int64(uint64(b.Job) ^ 1<<63), int64(b.Origin)})
		}
		if got, want := bytes.Compare(appendRunKey(nil, ra), appendRunKey(nil, rb)), less(ra, rb); got != want {
			rt.Fatalf("%+v and %+v compare as %d, want %d", ra, rb, got, want)
		}
	})
	for _, n := range []int{0, 1, dueKeyLen - 1, dueKeyLen + 1} {
		if _, err := parseDueKey(make([]byte, n)); err == nil {
			t.Errorf("a due key of %d bytes", n)
		}
		if _, err := parseRunKey(make([]byte, n)); err == nil {
			t.Errorf("a run key of %d bytes", n)
		}
	}
}

func TestPlacesFitIntoTheIndex(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := Place{Lane: job.Lane(rapid.IntRange(0, 3).Draw(rt, "l")), Ready: rapid.Int64Range(-1<<54, 1<<54).Draw(rt, "r"), At: rapid.Int64().Draw(rt, "a")}
		if got, ok := packSpot(p, nil).place(); !ok || got != p {
			rt.Fatalf("%+v, want %+v", got, p)
		}
	})
	if got, ok := packSpot(Place{Parked: true, Ready: 5}, &State{}).place(); !ok || got != (Place{Parked: true}) {
		t.Fatalf("%+v", got)
	}
	if _, ok := (spot{}).place(); ok {
		t.Fatal("nothing is a place")
	}
}

// Chunks whose jobs are all gone are freed: job numbers are never reused.
func TestTheIndexFreesEmptyChunks(t *testing.T) {
	x := newIndex()
	for id := job.ID(1); id <= 5000; id++ {
		x.set(id, packSpot(Place{Ready: int64(id)}, nil))
		x.set(id, packSpot(Place{Ready: int64(id) + 1}, nil))
	}
	if len(x.chunks) != 5 || x.jobs() != 5000 {
		t.Fatalf("%d chunks, %d jobs", len(x.chunks), x.jobs())
	}
	for id := job.ID(1); id < 4990; id++ {
		x.set(id, spot{})
		x.set(id, spot{})
	}
	if len(x.chunks) != 1 || x.jobs() != 11 {
		t.Fatalf("%d chunks, %d jobs", len(x.chunks), x.jobs())
	}
	x.set(1<<50, spot{})
	if len(x.chunks) != 1 {
		t.Fatal("nothing made a chunk")
	}
}

func TestIntervals(t *testing.T) {
	a := Interval{First: 10, Last: 20, Count: 2, Status: job.RunMissed, Reason: job.ReasonOutage}
	i := Interval{}
	if !i.Add(Interval{}) || !i.Empty() || !i.Add(a) || i != a {
		t.Fatalf("%+v", i)
	}
	if !i.Add(Interval{First: 30, Last: 40, Count: 3, AtLeast: true, Status: job.RunMissed, Reason: job.ReasonOutage}) ||
		i != (Interval{First: 10, Last: 40, Count: 5, AtLeast: true, Status: job.RunMissed, Reason: job.ReasonOutage}) {
		t.Fatalf("%+v", i)
	}
	before := i
	if i.Add(Interval{First: 50, Last: 50, Count: 1, Status: job.RunSkipped, Reason: job.ReasonOutage}) || i.Add(Interval{First: 50, Last: 50, Count: 1, Status: job.RunMissed}) || i != before {
		t.Fatalf("%+v", i)
	}
	i.Count = math.MaxInt64 - 1
	if !i.Add(a) || i.Count != math.MaxInt64 {
		t.Fatalf("%+v", i)
	}
}

func TestDefinitionsRoundTripInOneForm(t *testing.T) {
	d := Definition{Spec: testSpec(func(s *job.Spec) {
		s.Name, s.Tags, s.Workers = "x", map[string]string{"c": "3", "a": "1", "b": "2"}, map[string]string{"z": "1", "y": "2"}
		s.StartAt, s.Calendars = 5, []string{"h"}
	}), Version: 3, CreatedAt: 1, UpdatedAt: 2}
	first := d.Append(nil)
	for range 20 { // map order must not differ between nodes
		if !bytes.Equal(first, d.Append(nil)) {
			t.Fatal("two encodings of one definition")
		}
	}
	got, err := DecodeDefinition(first)
	if err != nil || !reflect.DeepEqual(got, d) {
		t.Fatalf("%+v %v", got, err)
	}
	if _, err := DecodeDefinition([]byte{0xc1, 0xff}); err == nil {
		t.Fatal("garbage was read")
	}
}

func TestOverlapNames(t *testing.T) {
	names := []string{job.OverlapSkip, job.OverlapQueue, job.OverlapAllow, job.OverlapReplace}
	for i, n := range names {
		if OverlapOf(n) != Overlap(i) {
			t.Errorf("%s is %d", n, OverlapOf(n))
		}
	}
	if !sort.IsSorted(sort.IntSlice([]int{int(OverlapSkip), int(OverlapQueue), int(OverlapAllow), int(OverlapReplace)})) {
		t.Error("the numbers are part of the stored format")
	}
}

// The decoders: any bytes give a record or an error, and a record that was read is written as the same bytes, or as bytes that mean
// the same (numbers have more than one varint form, and unused flags are dropped).

func FuzzDecodeState(f *testing.F) {
	f.Add((&State{}).Encode())
	f.Add((&State{OneOff: true, Retention: 3, Concurrency: 2, LastManual: 1, BusyUntil: 2, ParkedAt: 3, NotRun: Interval{First: 1, Last: 2, Count: 3}}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(b)
		if err != nil {
			return
		}
		if again, err := DecodeState(s.Encode()); err != nil || again != s {
			t.Fatalf("%+v, then %+v (%v)", s, again, err)
		}
	})
}

func FuzzDecodeRow(f *testing.F) {
	f.Add((&Row{}).encode())
	f.Add((&Row{Status: job.RunClaimed, Worker: "w", Key: "k", Serial: true}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRow(b)
		if err != nil {
			return
		}
		if again, err := decodeRow(r.encode()); err != nil || again != r {
			t.Fatalf("%+v, then %+v (%v)", r, again, err)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add((&Record{Job: 1, At: 5, Recorded: 9, Worker: "w", Error: "e", Output: "o", StartedAt: 3}).encode())
	f.Add((&Record{Interval: Interval{First: 1, Last: 2, Count: 3}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		if again, err := decodeRecord(r.encode()); err != nil || again != r {
			t.Fatalf("%+v, then %+v (%v)", r, again, err)
		}
	})
}

func FuzzDecodeDead(f *testing.F) {
	f.Add((&Dead{Run: job.RunKey{Job: 1, At: 2, Origin: 3}, Row: Row{Worker: "w"}, Error: "e"}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeDead(b)
		if err != nil {
			return
		}
		if again, err := decodeDead(d.encode()); err != nil || again != d {
			t.Fatalf("%+v, then %+v (%v)", d, again, err)
		}
	})
}
