package wire

import (
	"reflect"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/job"
)

// draw fills every field there is, by reflection, so that one that is added later is drawn too.
func draw(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			draw(t, v.Field(i))
		}
	case reflect.String:
		v.SetString(rapid.SampledFrom([]string{"", "queue", "http", rapid.String().Draw(t, "text"), string(make([]byte, 300)), string(make([]byte, 70_000))}).Draw(t, "string"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "int"))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint") >> (64 - v.Type().Bits()))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Slice:
		n := rapid.SampledFrom([]int{0, 1, 3, 20, 300}).Draw(t, "length")
		if v.Type().Elem().Kind() != reflect.Uint8 {
			n = min(n, 20)
		}
		if n == 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			if v.Type().Elem().Kind() == reflect.Uint8 {
				v.Index(i).SetUint(uint64(i))
				continue
			}
			draw(t, v.Index(i))
		}
	default:
		t.Fatalf("cannot draw a %s", v.Kind())
	}
}

// What is packed by hand the library reads, and what the library packs is read by hand: the other side may have another version.
func TestPackedByHandAgreesWithTheLibrary(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	for _, kind := range []any{job.PollReply{}, job.Report{}, job.ReportReply{}} {
		typ := reflect.TypeOf(kind)
		t.Run(typ.Name(), rapid.MakeCheck(func(t *rapid.T) {
			m := reflect.New(typ)
			draw(t, m.Elem())
			mine, ok := packMessage(m.Interface())
			if !ok {
				t.Fatal("not packed by hand")
			}
			if _, ok := packMessage(m.Elem().Interface()); !ok && typ != reflect.TypeOf(job.Report{}) {
				t.Fatal("an answer is not packed by hand when it is no pointer")
			}
			got := reflect.New(typ)
			if err := codec.NewDecoderBytes(mine, handle).Decode(got.Interface()); err != nil {
				t.Fatal(err)
			}
			same(t, "the library reads", got, m)
			var theirs []byte
			if err := codec.NewEncoderBytes(&theirs, handle).Encode(m.Interface()); err != nil {
				t.Fatal(err)
			}
			for _, data := range [][]byte{mine, theirs} {
				got := reflect.New(typ)
				if unpackMessage(data, got.Interface()) {
					same(t, "read by hand", got, m)
				} else if err := UnmarshalMsgpack(data, got.Interface()); err != nil {
					t.Fatal(err)
				}
			}
			if got := reflect.New(typ); !unpackMessage(mine, got.Interface()) {
				t.Fatal("what was packed by hand is not read by hand")
			}
			if cut := rapid.IntRange(0, len(mine)-1).Draw(t, "cut"); unpackMessage(mine[:cut], reflect.New(typ).Interface()) {
				t.Fatalf("the first %d of %d bytes are taken for a message", cut, len(mine))
			}
		}))
	}
}

// same compares, with an empty list as good as none.
func same(t *rapid.T, what string, got, want reflect.Value) {
	plain := func(v reflect.Value) any {
		switch m := v.Interface().(type) {
		case *job.PollReply:
			for i := range m.Assignments {
				if len(m.Assignments[i].Payload) == 0 {
					m.Assignments[i].Payload = nil
				}
			}
		case *job.Report:
			if len(m.Results) == 0 {
				m.Results = nil
			}
		case *job.ReportReply:
			if len(m.Acks) == 0 {
				m.Acks = nil
			}
		}
		return v.Interface()
	}
	if a, b := plain(got), plain(want); !reflect.DeepEqual(a, b) {
		t.Fatalf("%s\n%+v\nand not\n%+v", what, a, b)
	}
}

func BenchmarkPollReply(b *testing.B) {
	m := &job.PollReply{}
	for i := range 1000 {
		m.Assignments = append(m.Assignments, job.Assignment{Number: uint64(i), Term: 3, Run: job.RunKey{Job: job.ID(i + 1<<20), At: 1_793_620_800_000, Origin: job.OriginSchedule},
			JobName: "9e3779b97f4a7c15-hot-12345", Attempt: 1, Fence: uint64(i + 1<<30), Key: "j_abcde:1793620800", Type: job.TypeQueue, Payload: []byte(`{"queue":"bench","data":{"bench":true}}`),
			Timeout: 30e9, Delivery: "at_least_once", ClaimedAt: 1_793_620_800_123})
	}
	hand, _ := packMessage(m)
	b.Run("pack/hand", func(b *testing.B) {
		for b.Loop() {
			packMessage(m)
		}
	})
	b.Run("pack/library", func(b *testing.B) {
		for b.Loop() {
			var out []byte
			if err := codec.NewEncoderBytes(&out, handle).Encode(m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read/hand", func(b *testing.B) {
		for b.Loop() {
			var got job.PollReply
			if !unpackMessage(hand, &got) {
				b.Fatal("not read")
			}
		}
	})
	b.Run("read/library", func(b *testing.B) {
		for b.Loop() {
			var got job.PollReply
			if err := codec.NewDecoderBytes(hand, handle).Decode(&got); err != nil {
				b.Fatal(err)
			}
		}
	})
}
