package bench

import "testing"

// Rounds are compared one by one: a machine that is slow for all of a round changes no ratio. What a scenario does not
// have is left out.
func TestRatios(t *testing.T) {
	round := func(rates ...float64) (out []Measured) {
		for i, v := range WithGroups([]int{1, 4, 8})[:len(rates)] {
			out = append(out, Measured{v.Name, &Result{Rate: rates[i], Lag: &Spread{P50: float64(2 + i), P99: 10}}})
		}
		return out
	}
	got := ratios([][]Measured{round(1000, 900, 2000), round(100, 95, 100), round(10, 5, 5)})
	want := []Ratio{{"rate", "4 groups", "1 group", 95, 100, 0.9}, {"rate", "8 groups", "1 group", 100, 100, 1},
		{"lag p50", "4 groups", "1 group", 3, 2, 1.5}, {"lag p50", "8 groups", "1 group", 4, 2, 2},
		{"lag p99", "4 groups", "1 group", 10, 10, 1}, {"lag p99", "8 groups", "1 group", 10, 10, 1}}
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
	if got := ratios(nil); len(got) != 0 {
		t.Errorf("of no rounds: %+v", got)
	}
}
