package job

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestClaimRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Ref{
			Run: RunKey{Job: ID(rapid.Uint64Min(1).Draw(t, "job")), At: rapid.Int64().Draw(t, "at"),
				Origin: rapid.SampledFrom([]Origin{OriginSchedule, OriginManual, OriginBackfill}).Draw(t, "origin")},
			Fence: rapid.Uint64().Draw(t, "fence"),
		}
		if got, err := ParseClaim(c.Text()); err != nil || got != c {
			t.Fatalf("%+v is read as %+v, %v", c, got, err)
		}
	})
	good := Ref{Run: RunKey{Job: 1, At: 5, Origin: OriginManual}, Fence: math.MaxUint64}
	if s := good.Text(); s != "c_1.5.m.fvvvvvvvvvvvv" {
		t.Error(s)
	}
	for _, bad := range []string{"", "c_", "r_1.5.m", "c_1.5.m", "c_1.5.m.", "c_1.5.m.0.1", "c_1.5.x.1", "c_c_1.5.m.1", "c_1.5.m.-1",
		"c_1.5.m.01"} {
		if c, err := ParseClaim(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, c)
		}
	}
}

func TestSessionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
		s := Session{Group: rapid.Uint32().Draw(t, "group"), Worker: rapid.String().Draw(t, "worker"), Cluster: n("c"), Epoch: n("e"), Incarnation: n("i"),
			Owner: n("o"), Term: n("t"), Serial: n("s"), Fence: n("f"), Nonce: n("n")}
		if got, err := ParseSession(s.String()); err != nil || got != s {
			t.Fatalf("%s is read as %+v, %v", s, got, err)
		}
	})
	for _, bad := range []string{"", "s1.", "s1.AAAA", "AAAAAAAAAAAA", "s1.!", "2g001.1.oqlqfec4nqg6.dzE"} {
		if s, err := ParseSession(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, s)
		}
	}
}

// An assignment is read as it was written: by workers in other languages as JSON that names the run, and for a queue
// its data.
func TestAssignmentJSON(t *testing.T) {
	for _, a := range []Assignment{
		{Fence: 7, Run: RunKey{Job: 1, At: 5, Origin: OriginManual}, Type: TypeHTTP, Payload: []byte(`{"url":"http://x"}`), Namespace: "team"},
		{Claim: "c_1.5.m.7", Fence: 7, Run: RunKey{Job: 1, At: 5, Origin: OriginManual}, Type: TypeQueue,
			Payload: []byte(`{"queue":"mail","data":{"to":"ada"}}`), Attempt: 2, Key: "k", Secrets: []string{"x"}},
	} {
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var back Assignment
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(a, back) {
			t.Errorf("%s is read as %+v, %v", text, back, err)
		}
	}
}
