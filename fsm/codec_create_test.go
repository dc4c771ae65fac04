package fsm

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/job"
)

// A create in the log is what the library makes of it, and is read as the library reads it: nodes of one cluster may run binaries from
// before and after this was written by hand.
func TestCreateAgreesWithTheLibrary(t *testing.T) {
	same := func(t interface{ Fatalf(string, ...any) }, c *Create) {
		var want []byte
		if err := codec.NewEncoderBytes(&want, handle).Encode(c); err != nil {
			t.Fatalf("%v", err)
		}
		got, err := encode(c)
		if err != nil || !bytes.Equal(got[2:], want) {
			t.Fatalf("%+v is written as\n%x and not\n%x, %v", c, got[2:], want, err)
		}
		var theirs Create
		if err := codec.NewDecoderBytes(want, handle).Decode(&theirs); err != nil {
			t.Fatalf("%v", err)
		}
		if mine := new(Create); mine.read(want) && !reflect.DeepEqual(mine, &theirs) {
			t.Fatalf("%x is read as\n%+v and not\n%+v", want, mine, theirs)
		}
		for _, cut := range []int{0, 1, len(want) / 2, len(want) - 1} {
			if new(Create).read(want[:cut]) {
				t.Fatalf("the first %d of %d bytes are believed", cut, len(want))
			}
		}
		if new(Create).read(append(want, 0)) {
			t.Fatalf("a byte behind it is not noticed")
		}
	}
	same(t, &Create{})
	same(t, &Create{Items: []CreateItem{{}}})
	rapid.Check(t, func(t *rapid.T) {
		c := &Create{Head: Head{Now: rapid.Int64().Draw(t, "now"), Term: rapid.Uint64().Draw(t, "term")}}
		caller := func() Caller {
			text := func(what string) string { return rapid.StringN(0, 20, 100).Draw(t, what) }
			return Caller{text("token"), text("name"), text("address"), text("key"), rapid.Bool().Draw(t, "bulk")}
		}
		if rapid.Bool().Draw(t, "by") {
			by := caller()
			c.By = &by
		}
		for range rapid.IntRange(0, 3).Draw(t, "callers") {
			c.Callers = append(c.Callers, caller())
		}
		for range rapid.IntRange(0, 40).Draw(t, "items") {
			it := CreateItem{Job: rapid.Uint64().Draw(t, "job"), Next: When{rapid.Int64().Draw(t, "at"), rapid.Int64().Draw(t, "ready")}}
			it.By = rapid.Uint64Range(0, 3).Draw(t, "caller")
			if rapid.Bool().Draw(t, "request") {
				it.Request = Request{rapid.StringN(0, 40, 300).Draw(t, "id"), rapid.Uint64().Draw(t, "print"), rapid.Int64().Draw(t, "expires")}
			}
			if rapid.Bool().Draw(t, "has definition") {
				it.Def = bytes.Repeat([]byte{7}, rapid.SampledFrom([]int{0, 1, 255, 256, 70_000}).Draw(t, "definition"))
			}
			c.Items = append(c.Items, it)
		}
		same(t, c)
	})
}

// What creates usually look like must not need the library.
func TestReadsUsualCreatesByItself(t *testing.T) {
	c := &Create{Head: Head{Now: T(0), Term: 7}, Callers: []Caller{{Address: "192.0.2.1"}}}
	for i := range 2000 {
		c.Items = append(c.Items, CreateItem{Job: 1<<60 + uint64(i), Def: []byte{1, 2, byte(i)}, Next: When{T(1), T(2)}, Request: Request{"s:key", 9, T(3)}, By: 1})
	}
	data, err := encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if got := new(Create); !got.read(data[2:]) || !reflect.DeepEqual(got, c) {
		t.Error("it does")
	}
}

// The outcome of a request is kept as the library writes it: replicas are compared byte by byte.
func TestStoredOutcomesAgreeWithTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Outcome{Code: Code(rapid.Byte().Draw(t, "code"))}
		if rapid.Bool().Draw(t, "a job") {
			o.Job, o.Version = job.ID(rapid.Uint64().Draw(t, "job")), rapid.Uint64().Draw(t, "version")
		}
		if rapid.IntRange(0, 3).Draw(t, "more") == 0 {
			o.Run, o.Fence, o.Count, o.Text, o.Times = job.RunKey{Job: 1, At: 2, Origin: 3}, rapid.Uint64().Draw(t, "fence"), rapid.Int().Draw(t, "count"), rapid.String().Draw(t, "text"), []int64{1}
		}
		print := rapid.Uint64().Draw(t, "fingerprint")
		var want []byte
		if err := codec.NewEncoderBytes(&want, handle).Encode(&storedOutcome{print, o}); err != nil {
			t.Fatal(err)
		}
		if got, err := encodeStored(print, &o); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%+v is written as\n%x and not\n%x, %v", o, got, want, err)
		}
	})
}
