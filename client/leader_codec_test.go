package client_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	someSession = "s1.AAECAwQ"
	someAt      = job.Instant(1_793_620_800_123)
)

var someRun = job.RunKey{Job: 1<<63 + 17, At: 1_793_620_800_123, Origin: job.OriginBackfill}

// messages are the messages of the worker protocol, with every field set and with as few as possible.
func messages() []any {
	ran := job.Duration(time.Second)
	ref, claim := job.Ref{Fence: math.MaxUint64}, job.Ref{Claim: "c_1.5.m.7"}
	return []any{
		&job.Poll{Session: someSession, Worker: "wörker", Free: 7, Wait: job.Duration(10*time.Second + 1), Hold: ran,
			Leave: true, Secret: "s\x00ecret", Namespace: "team", Types: []job.Type{job.TypeHTTP, job.TypeShell},
			Tags: map[string]string{"zone": "a"}, Slots: 1280, Version: "v1", Where: "here", Shared: true,
			Told: true, Node: &job.NodeRef{Cluster: "c", Epoch: 2, Recovery: "r", Instance: "i", Address: "a:1"}},
		&job.Poll{},
		&job.PollReply{Session: someSession, Lease: job.Duration(30 * time.Second), Waited: ran, Runs: []job.Assignment{
			{Run: someRun, JobName: "nightly", Namespace: "team", Attempt: 2, Fence: 99, Key: "j_1:1793620800",
				Type:    job.TypeHTTP,
				Payload: json.RawMessage(`{"url":"https://example.com/?a=1&b=<2>","body":{"n":12345678901234567890}}`),
				Timeout: job.Duration(time.Minute), Delivery: "at_least_once", Traceparent: "00-aa-bb-01",
				ClaimedAt: someAt, Secrets: []string{"x"}, Hosts: []string{"h"}},
			{Run: job.RunKey{Job: 2, Origin: job.OriginSchedule},
				Payload: json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)},
		}, Stop: []job.Stop{{Ref: ref, Why: job.StopTimeout}}, Watch: []job.Ref{ref, {Fence: 1}}, Ready: 5},
		&job.PollReply{},
		&job.Heartbeat{Session: someSession, Runs: []job.Ref{ref, claim}},
		&job.Heartbeat{},
		&job.HeartbeatReply{Lease: ran, Runs: []job.Answer{{Ref: ref, Status: job.StatusStop, Why: job.StopCanceled}}},
		&job.HeartbeatReply{},
		&job.Report{Session: someSession, Results: []job.Result{
			{Ref: ref, Outcome: job.OutcomeFailed, Permanent: true, TimedOut: true, EgressDenied: true,
				RetryAfter: job.Duration(time.Hour), Error: "status 500: \"<boom>\"", Output: "a\nb\u2028ü\x1b[0m",
				StartedAt: someAt, FinishedAt: someAt + 1},
			{Ref: claim, Outcome: job.OutcomeReturned},
		}},
		&job.ReportReply{Results: []job.Answer{{Ref: ref, Status: job.StatusOK, Repeated: true}, {}}},
		&job.Output{Session: someSession, Ref: ref, Offset: 3, Data: []byte("a\xff")},
		&job.OutputReply{Watched: true},
	}
}

// What goes in comes out, in msgpack as in JSON, and both use the same names. Runs look different in JSON: see package
// job.
func TestEveryMessageRoundTrips(t *testing.T) {
	for _, m := range messages() {
		fresh := func() any { return reflect.New(reflect.TypeOf(m).Elem()).Interface() }
		packed, err := wire.MarshalMsgpack(m)
		if err != nil {
			t.Fatal(err)
		}
		got := fresh()
		if err := wire.UnmarshalMsgpack(packed, got); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("msgpack: %v\n got %+v\nwant %+v", err, got, m)
		}
		if _, runs := m.(*job.PollReply); !runs {
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			got = fresh()
			if err := json.Unmarshal(text, got); err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("JSON: %v\n got %+v\nwant %+v", err, got, m)
			}
			for _, name := range names(t, text) {
				if !bytes.Contains(packed, []byte(name)) {
					t.Errorf("%T: %q is in JSON but not in msgpack: %q", m, name, packed)
				}
			}
		}
		for cut := range min(len(packed), 500) {
			if err := wire.UnmarshalMsgpack(packed[:cut], fresh()); err == nil {
				t.Errorf("%T: the first %d of %d bytes are taken for a message", m, cut, len(packed))
			}
		}
		if err := wire.UnmarshalMsgpack(append(packed, 0xc0), got); err == nil {
			t.Errorf("%T: what follows the message is not noticed", m)
		}
	}
}

// names are all names of fields in a JSON text, except inside of tags.
func names(t *testing.T, text []byte) []string {
	t.Helper()
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for k, e := range v {
				out = append(out, k)
				if k != "tags" {
					walk(e)
				}
			}
		}
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	walk(v)
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

// A newer worker may say more than this leader knows, and the other way round.
func TestUnknownFieldsArePassedOver(t *testing.T) {
	type newer struct {
		job.Poll
		More struct {
			Deep []map[string]any `json:"deep"`
		} `json:"more"`
		Blob []byte `json:"blob"`
	}
	n := newer{Poll: job.Poll{Session: someSession, Free: 3}, Blob: make([]byte, 300)}
	n.More.Deep = []map[string]any{{"a": []int{1, 2}}, nil}
	data, err := wire.MarshalMsgpack(&n)
	if err != nil {
		t.Fatal(err)
	}
	var p job.Poll
	if err := wire.UnmarshalMsgpack(data, &p); err != nil || !reflect.DeepEqual(p, n.Poll) {
		t.Errorf("%+v, %v", p, err)
	}
}

// The reader of a body may use its buffer again.
func TestDecodedSharesNoMemory(t *testing.T) {
	for _, m := range messages() {
		data, err := wire.MarshalMsgpack(m)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(m).Elem()).Interface()
		if err := wire.UnmarshalMsgpack(data, got); err != nil {
			t.Fatal(err)
		}
		for i := range data {
			data[i] = 0xff
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%T shares memory with what it was read from", m)
		}
	}
}

// A depth that would exhaust the stack and lengths that would exhaust the memory are refused.
func TestHostileMsgpack(t *testing.T) {
	deep := bytes.Repeat([]byte{0x91}, 4<<20)
	for name, data := range map[string][]byte{
		"deep":              append([]byte{0x81, 0xa1, 'x'}, deep...),
		"long list":         append([]byte{0x81, 0xa4, 'r', 'u', 'n', 's', 0xdd}, 0xff, 0xff, 0xff, 0xff),
		"long map":          {0xdf, 0xff, 0xff, 0xff, 0xff},
		"long string":       append([]byte{0x81, 0xdb}, 0xff, 0xff, 0xff, 0xff),
		"long unknown blob": append([]byte{0x81, 0xa1, 'x', 0xc6}, 0xff, 0xff, 0xff, 0xff),
		"long extension":    append([]byte{0x81, 0xa1, 'x', 0xc9}, 0xff, 0xff, 0xff, 0xff, 1),
		"a number":          {0x05},
		"nothing":           {},
	} {
		t.Run(name, func(t *testing.T) {
			if err := wire.UnmarshalMsgpack(data, &job.Heartbeat{}); err == nil {
				t.Error("taken for a message")
			}
		})
	}
}

// FuzzMsgpack: nothing panics, and what was read is written and read again as the same.
func FuzzMsgpack(f *testing.F) {
	kinds := messages()
	for i, m := range kinds {
		data, err := wire.MarshalMsgpack(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		typ := reflect.TypeOf(kinds[int(kind)%len(kinds)]).Elem()
		one, two := reflect.New(typ).Interface(), reflect.New(typ).Interface()
		if len(data) > 1<<16 || wire.UnmarshalMsgpack(data, one) != nil {
			return
		}
		again, err := wire.MarshalMsgpack(one)
		if err != nil {
			t.Fatal(err)
		}
		if err := wire.UnmarshalMsgpack(again, two); err != nil {
			t.Fatalf("%v: %x", err, again)
		}
		third, err := wire.MarshalMsgpack(two)
		if err != nil || len(third) != len(again) { // the order of tags is free
			t.Fatalf("%v\n%x\n%x", err, again, third)
		}
	})
}
