package pack_test

import (
	"bytes"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/internal/pack"
)

var handle = &codec.MsgpackHandle{WriteExt: true}

// value is one of each kind.
type value struct {
	S string            `codec:"s"`
	B []byte            `codec:"b"`
	U uint64            `codec:"u"`
	I int64             `codec:"i"`
	Y bool              `codec:"y"`
	F float64           `codec:"f"`
	L []uint64          `codec:"l"`
	M map[string]string `codec:"m"`
}

func read(data []byte) (v value, ok bool) {
	r := pack.Reader{B: data}
	r.Fields(func(key []byte) {
		switch string(key) {
		case "s":
			v.S = r.Str()
		case "b":
			v.B = r.Bin()
		case "u":
			v.U = r.Uint()
		case "i":
			v.I = r.Int()
		case "y":
			v.Y = r.Bool()
		case "f":
			v.F = r.Float()
		case "l":
			for range r.Len() {
				v.L = append(v.L, r.Uint())
			}
		case "m":
			v.M = r.Strs()
		default:
			r.Bad = true
		}
	})
	return v, !r.Bad && len(r.B) == 0
}

func write(v value) []byte {
	b := pack.Map(nil, 6)
	b = pack.Str(pack.Str(b, "s"), v.S)
	b = pack.Bin(pack.Str(b, "b"), v.B)
	b = pack.Uint(pack.Str(b, "u"), v.U)
	b = pack.Int(pack.Str(b, "i"), v.I)
	b = pack.Bool(pack.Str(b, "y"), v.Y)
	b = pack.Array(pack.Str(b, "l"), len(v.L))
	for _, n := range v.L {
		b = pack.Uint(b, n)
	}
	return b
}

func same(a, b value) bool {
	if a.S != b.S || !bytes.Equal(a.B, b.B) || a.U != b.U || a.I != b.I || a.Y != b.Y || len(a.L) != len(b.L) {
		return false
	}
	for i := range a.L {
		if a.L[i] != b.L[i] {
			return false
		}
	}
	return true
}

func TestAgreesWithTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SampledFrom([]int{0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536})
		v := value{S: string(bytes.Repeat([]byte("x"), lengths.Draw(t, "s"))), B: bytes.Repeat([]byte{7}, lengths.Draw(t, "b")), U: rapid.Uint64().Draw(t, "u"),
			I: rapid.Int64().Draw(t, "i"), Y: rapid.Bool().Draw(t, "y"), F: rapid.Float64().Draw(t, "f"), L: make([]uint64, lengths.Draw(t, "l")), M: map[string]string{"a": "b"}}
		var theirs []byte
		if err := codec.NewEncoderBytes(&theirs, handle).Encode(v); err != nil {
			t.Fatal(err)
		}
		if got, ok := read(theirs); !ok || !same(got, v) || got.F != v.F || got.M["a"] != "b" {
			t.Fatalf("read %t %+v and not %+v", ok, got, v)
		}
		mine := write(v)
		var got value
		if err := codec.NewDecoderBytes(mine, handle).Decode(&got); err != nil || !same(got, v) {
			t.Fatalf("the library reads %+v and not %+v: %v", got, v, err)
		}
		if cut := rapid.IntRange(0, len(mine)-1).Draw(t, "cut"); true {
			if _, ok := read(mine[:cut]); ok {
				t.Fatalf("the first %d of %d bytes are believed", cut, len(mine))
			}
		}
	})
}

// A value of any kind is stepped over as a whole, and one that is cut short is noticed.
func TestSkip(t *testing.T) {
	values := []any{nil, true, 1, -33, 200, 1 << 40, -1 << 40, 0.5, float32(0.5), "x", string(make([]byte, 300)), string(make([]byte, 70_000)), make([]byte, 300),
		[]any{1, "a", []any{}}, make([]int, 20), make([]int, 70_000), map[string]any{"a": []any{nil, 0.5}, "b": "c"}}
	for _, v := range values {
		var data []byte
		enc := codec.NewEncoderBytes(&data, handle)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		r := pack.Reader{B: append(data, 7)}
		if r.Skip(); r.Bad || r.Int() != 7 || len(r.B) > 0 {
			t.Errorf("%.20v: bad %t, %d bytes are left", v, r.Bad, len(r.B))
		}
		r = pack.Reader{B: data[:len(data)-1]}
		if r.Skip(); !r.Bad {
			t.Errorf("%.20v: the last byte is not missed", v)
		}
	}
	deep := pack.Reader{B: bytes.Repeat([]byte{0x91}, 1<<20)}
	if deep.Skip(); !deep.Bad {
		t.Error("lists in lists are followed to any depth")
	}
}

func FuzzReader(f *testing.F) {
	f.Add(write(value{S: "a", B: []byte{1}, U: 1 << 40, I: -5, L: []uint64{1, 2}}))
	f.Add([]byte{0x81, 0xa1, 'l', 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := read(data)
		if !ok {
			return
		}
		var want value
		if err := codec.NewDecoderBytes(data, handle).Decode(&want); err != nil {
			t.Skip("a text that the library does not take")
		}
		if !same(got, want) {
			t.Errorf("read %+v and not %+v", got, want)
		}
	})
}
