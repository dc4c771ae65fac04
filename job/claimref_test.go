package job

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestClaimRefRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := ClaimRef{
			Run: RunKey{Job: ID(rapid.Uint64Min(1).Draw(t, "job")), At: rapid.Int64().Draw(t, "at"),
				Origin: rapid.SampledFrom([]Origin{OriginSchedule, OriginManual, OriginBackfill}).Draw(t, "origin")},
			Group: rapid.Uint32().Draw(t, "group"), Fence: rapid.Uint64().Draw(t, "fence"),
		}
		if got, err := ParseClaimRef(c.String()); err != nil || got != c {
			t.Fatalf("%s is read as %+v, %v", c, got, err)
		}
	})
	good := ClaimRef{Run: RunKey{Job: 1, At: 5, Origin: OriginManual}, Fence: math.MaxUint64}
	if s := good.String(); s != "c_1.5.m.0.fvvvvvvvvvvvv" {
		t.Error(s)
	}
	for _, bad := range []string{"", "c_", "r_1.5.m", "c_1.5.m", "c_1.5.m.0", "c_1.5.m.0.", "c_1.5.m.0.1.1", "c_1.5.m.00.1", "c_1.5.x.0.1",
		"c_c_1.5.m.0.1", "c_1.5.m.-1.1", "c_1.5.m.0.01"} {
		if c, err := ParseClaimRef(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, c)
		}
	}
}
