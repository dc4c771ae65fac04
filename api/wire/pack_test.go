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
			if v.Type().Field(i).Tag.Get("json") != "-" {
				draw(t, v.Field(i))
			}
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

// What is packed by hand is read by hand, with nothing lost; and the library reads it, and packs what is read by hand:
// the other side may have another version. What the library does not know are assignments, which only we write.
func TestPackedByHandAgreesWithTheLibrary(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	for _, kind := range []any{job.PollReply{}, job.Report{}, job.ReportReply{}} {
		typ := reflect.TypeOf(kind)
		t.Run(typ.Name(), rapid.MakeCheck(func(t *rapid.T) {
			m := reflect.New(typ)
			draw(t, m.Elem())
			poll, ours := m.Interface().(*job.PollReply)
			for i := 0; ours && i < len(poll.Runs); i++ {
				poll.Runs[i].Claim = "" // it is not packed
			}
			mine, ok := packMessage(m.Interface())
			if !ok {
				t.Fatal("not packed by hand")
			}
			if _, ok := packMessage(m.Elem().Interface()); !ok && typ != reflect.TypeOf(job.Report{}) {
				t.Fatal("an answer is not packed by hand when it is no pointer")
			}
			all := [][]byte{mine}
			if !ours {
				got := reflect.New(typ)
				if err := codec.NewDecoderBytes(mine, handle).Decode(got.Interface()); err != nil {
					t.Fatal(err)
				}
				same(t, "the library reads", got, m)
				var theirs []byte
				if err := codec.NewEncoderBytes(&theirs, handle).Encode(m.Interface()); err != nil {
					t.Fatal(err)
				}
				all = append(all, theirs)
			}
			for _, data := range all {
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

// A field that a newer version has is passed over, wherever it stands, and a claim is among the fields of its item.
func TestUnknownFieldsArePassedOver(t *testing.T) {
	item := map[string]any{"fence": 7, "later": map[string]any{"a": []int{1, 2}}, "claim": "c_1.5.m.7", "status": "ok", "outcome": 1, "why": "canceled"}
	run := map[string]any{"fence": 7, "attempt": 2, "later": 3.5, "run": map[string]any{"job_id": 1, "origin": 2, "scheduled_at_ms": 5, "later": "x"}}
	data := func(v any) []byte {
		var b []byte
		if err := codec.NewEncoderBytes(&b, handle).Encode(v); err != nil {
			t.Fatal(err)
		}
		return b
	}
	list := []any{item}
	in := map[string]any{"session": "s", "later": "x", "results": list, "runs": []any{run}, "stop": list, "watch": list}
	var polled job.PollReply
	var report job.Report
	var reported job.ReportReply
	for _, v := range []any{&polled, &report, &reported} {
		if !unpackMessage(data(in), v) {
			t.Fatalf("%T is not read by hand", v)
		}
	}
	ref := job.Ref{Claim: "c_1.5.m.7", Fence: 7}
	if a := polled.Runs[0]; polled.Session != "s" || a.Fence != 7 || a.Attempt != 2 || a.Run != (job.RunKey{Job: 1, At: 5, Origin: job.OriginManual}) ||
		polled.Stop[0] != (job.Stop{Ref: ref, Why: "canceled"}) || polled.Watch[0] != ref {
		t.Errorf("%+v", polled)
	}
	if report.Session != "s" || report.Results[0] != (job.Result{Ref: ref, Outcome: job.OutcomeSucceeded}) || reported.Results[0].Ref != ref {
		t.Errorf("%+v, %+v", report, reported)
	}
	if err := UnmarshalMsgpack(data(map[string]any{"runs": "x"}), &polled); err == nil {
		t.Error("what is no answer to a poll is taken for one")
	}
	// The library has the fields of a Ref among those of what has it.
	beat := job.Heartbeat{Session: "s", Runs: []job.Ref{{Fence: 7}, {Claim: "c"}}}
	packed, err := MarshalMsgpack(&beat)
	if err != nil {
		t.Fatal(err)
	}
	var fields struct {
		Runs []map[string]any `json:"runs"`
	}
	var back job.Heartbeat
	if err := UnmarshalMsgpack(packed, &back); err != nil || !reflect.DeepEqual(back, beat) {
		t.Errorf("%+v, %v", back, err)
	}
	if err := UnmarshalMsgpack(packed, &fields); err != nil || len(fields.Runs) != 2 || len(fields.Runs[0]) != 1 ||
		len(fields.Runs[1]) != 1 || fields.Runs[0]["fence"] == nil || fields.Runs[1]["claim"] == nil {
		t.Errorf("%+v, %v", fields, err)
	}
}

// same compares, with an empty list as good as none.
func same(t *rapid.T, what string, got, want reflect.Value) {
	plain := func(v reflect.Value) any {
		switch m := v.Interface().(type) {
		case *job.PollReply:
			for i := range m.Runs {
				if len(m.Runs[i].Payload) == 0 {
					m.Runs[i].Payload = nil
				}
			}
		case *job.Report:
			if len(m.Results) == 0 {
				m.Results = nil
			}
		case *job.ReportReply:
			if len(m.Results) == 0 {
				m.Results = nil
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
		m.Runs = append(m.Runs, job.Assignment{Run: job.RunKey{Job: job.ID(i + 1<<20), At: 1_793_620_800_000, Origin: job.OriginSchedule},
			JobName: "9e3779b97f4a7c15-hot-12345", Attempt: 1, Fence: uint64(i + 1<<30), Key: "j_abcde:1793620800", Type: job.TypeQueue, Payload: []byte(`{"queue":"bench","data":{"bench":true}}`),
			Timeout: 30e9, Delivery: "at_least_once", ClaimedAt: 1_793_620_800_123})
	}
	hand, _ := packMessage(m)
	b.Run("pack", func(b *testing.B) {
		for b.Loop() {
			packMessage(m)
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			var got job.PollReply
			if !unpackMessage(hand, &got) {
				b.Fatal("not read")
			}
		}
	})
}
