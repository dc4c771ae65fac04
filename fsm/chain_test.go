package fsm

import (
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm/chain"
)

// stampEntry is a stamp that says which state its leader has.
func stampEntry(t testing.TB, index uint64, says chain.Point) *raft.Log {
	t.Helper()
	data, err := Encode(&Stamp{Head: Head{Now: T(int64(index)), Term: 1}, Index: says.Index, Chain: says.Chain})
	if err != nil {
		t.Fatal(err)
	}
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}
}

// chainWorld is an empty state whose differences are noted.
func chainWorld(t *testing.T) (*world, *[]chain.Difference) {
	w := newWorld(t)
	var told []chain.Difference
	w.f = New(w.st, Options{Differs: func(d chain.Difference) { told = append(told, d) }})
	return w, &told
}

// The hash is over the entries and nothing else: not how they were batched, nor what raft writes between them.
func TestChainIsOfTheEntries(t *testing.T) {
	one, _ := chainWorld(t)
	other, _ := chainWorld(t)
	var logs []*raft.Log
	for i := uint64(1); i <= 20; i++ {
		l := stampEntry(t, i, chain.Point{})
		if i == 7 {
			l = &raft.Log{Index: i, Term: 1, Type: raft.LogConfiguration}
		}
		if i != 9 { // a no-op
			logs = append(logs, l)
		}
	}
	one.f.ApplyBatch(logs)
	for _, l := range logs {
		other.f.Apply(l)
	}
	for i := uint64(0); i <= 20; i++ {
		a, known := one.f.Recent.At(i)
		if b, too := other.f.Recent.At(i); !known || !too || a != b {
			t.Errorf("at %d: %x, %v and %x, %v", i, a, known, b, too)
		}
	}
	if a, _ := one.f.Recent.At(8); a == 0 {
		t.Error("no hash")
	} else if b, _ := one.f.Recent.At(9); a != b {
		t.Error("a no-op changed it")
	}
	if _, known := one.f.Recent.At(21); known {
		t.Error("what is not applied is known")
	}
	if c := one.st.Counters().Chain; c == 0 || c != other.st.Counters().Chain {
		t.Errorf("%x in the state", c)
	}
	// After a start only the last is known.
	again := New(one.st, Options{})
	if d, known := again.Recent.Compare(chain.Point{Index: 20, Chain: one.st.Counters().Chain}); d != nil || !known {
		t.Errorf("%v, %v", d, known)
	}
	if _, known := again.Recent.Compare(chain.Point{Index: 19, Chain: 1}); known {
		t.Error("what came before the start is known")
	}
}

// A replica that applied another entry hears of it with the leader's next stamp. What it applies is the same for all.
func TestReplicaThatDiffersIsTold(t *testing.T) {
	same, quiet := chainWorld(t)
	other, told := chainWorld(t)
	for i := uint64(1); i <= 3; i++ {
		same.f.Apply(stampEntry(t, i, chain.Point{}))
		l := stampEntry(t, i, chain.Point{})
		if i == 2 {
			l.Data = stampEntry(t, 99, chain.Point{}).Data
		}
		other.f.Apply(l)
	}
	at1, _ := same.f.Recent.At(1)
	at3, _ := same.f.Recent.At(3)
	before := stampEntry(t, 4, chain.Point{Index: 1, Chain: at1}) // of before the difference
	batch := []*raft.Log{stampEntry(t, 5, chain.Point{Index: 3, Chain: at3}), stampEntry(t, 6, chain.Point{Index: 3, Chain: at3})}
	for _, w := range []*world{same, other} {
		w.f.Apply(before)
	}
	if len(*told) != 0 {
		t.Errorf("told of %v", *told)
	}
	if a, b := same.f.ApplyBatch(batch), other.f.ApplyBatch(batch); !reflect.DeepEqual(a, b) {
		t.Errorf("the answers differ: %v and %v", a, b)
	}
	mine, _ := other.f.Recent.At(3)
	if want := (chain.Difference{Mine: chain.Point{Index: 3, Chain: mine}, Theirs: at3}); len(*told) != 1 || (*told)[0] != want {
		t.Errorf("told of %v, want %v", *told, want)
	}
	if len(*quiet) != 0 {
		t.Errorf("a replica that is the same was told of %v", *quiet)
	}
	if a, b := same.st.Counters(), other.st.Counters(); a.Index != b.Index || a.Mark == b.Mark && a.Chain == b.Chain {
		t.Errorf("%+v and %+v", a, b)
	}
	// A stamp that another term's leader wrote, or one that says nothing, is not compared; nor what is too old.
	*told = nil
	late := stampEntry(t, 7, chain.Point{Index: 3, Chain: at3})
	late.Term = 2
	other.f.Apply(late)
	other.f.Apply(stampEntry(t, 8, chain.Point{}))
	New(other.st, other.f.o).Apply(stampEntry(t, 9, chain.Point{Index: 3, Chain: at3}))
	if len(*told) != 0 {
		t.Errorf("told of %v", *told)
	}
}

// The hash goes with the state, and the node that got it goes on from there.
func TestChainGoesWithASnapshot(t *testing.T) {
	from, _ := chainWorld(t)
	to, told := chainWorld(t)
	for i := uint64(1); i <= 5; i++ {
		from.f.Apply(stampEntry(t, i, chain.Point{}))
	}
	to.f.Apply(stampEntry(t, 77, chain.Point{})) // a history of its own
	install(t, from, to, 5)
	want := from.st.Counters().Chain
	if got, known := to.f.Recent.At(5); !known || got != want {
		t.Errorf("%x, %v and not %x", got, known, want)
	}
	if _, known := to.f.Recent.At(4); known {
		t.Error("it knows what it never applied")
	}
	next := stampEntry(t, 6, chain.Point{Index: 5, Chain: want})
	from.f.Apply(next)
	to.f.Apply(next)
	if from.st.Counters().Chain != to.st.Counters().Chain || len(*told) != 0 {
		t.Errorf("%x and %x, %v", from.st.Counters().Chain, to.st.Counters().Chain, *told)
	}
}
