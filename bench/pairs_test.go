package bench

import "testing"

// Pairs are compared one by one: a machine that is slow for both of a pair changes no ratio. What a scenario does not
// have is left out.
func TestRatios(t *testing.T) {
	pair := func(plain, secure float64) Pair {
		return Pair{&Result{Rate: plain, Lag: &Spread{P50: 2, P99: 10}}, &Result{Rate: secure, Lag: &Spread{P50: 3, P99: 10}}}
	}
	got := ratios([]Pair{pair(1000, 900), pair(100, 95), pair(10, 5)})
	want := []Ratio{{"rate", 100, 95, 0.9}, {"lag p50", 2, 3, 1.5}, {"lag p99", 10, 10, 1}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, r := range got {
		if r != want[i] {
			t.Errorf("%+v, want %+v", r, want[i])
		}
	}
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("a median of %v", m)
	}
}
