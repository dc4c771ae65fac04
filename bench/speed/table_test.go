package main

import (
	"strings"
	"testing"
)

func filled(t *testing.T, s scenario, base, new []values) *table {
	t.Helper()
	out := &table{}
	for i := range base {
		out.add(s, base[i], new[i])
	}
	return out
}

// A ratio fails only if it is beyond its limit by more than the pairs differ among themselves.
func TestVerdict(t *testing.T) {
	rate, cpu := figure{"rate", "", true, false}, figure{"cpu", "", false, false}
	s := scenario{name: "x", figures: []figure{rate, cpu}}
	pairs := func(name string, v ...float64) (out []values) {
		for _, x := range v {
			out = append(out, values{name: x})
		}
		return out
	}
	for _, c := range []struct {
		what, name string
		base, new  []float64
		fails      bool
	}{
		{"as fast", "rate", []float64{100, 101, 99}, []float64{99, 101, 100}, false},
		{"slower", "rate", []float64{100, 101, 99}, []float64{89, 91, 90}, true},
		{"faster", "rate", []float64{100, 101, 99}, []float64{120, 121, 119}, false},
		{"slower in some pairs only", "rate", []float64{100, 100, 100, 100}, []float64{80, 90, 100, 110}, false},
		{"more processor time", "cpu", []float64{2, 2, 2}, []float64{2.4, 2.4, 2.4}, true},
		{"less processor time", "cpu", []float64{2, 2, 2}, []float64{1.4, 1.4, 1.4}, false},
		{"more of what is counted", "x: fsyncs a run", []float64{10, 10, 10}, []float64{11, 11, 11}, true},
		{"a little more of it", "x: fsyncs a run", []float64{10, 10, 10}, []float64{10.4, 10.4, 10.4}, false},
		{"less of it", "x: fsyncs a run", []float64{10, 10, 10}, []float64{1, 1, 1}, false},
	} {
		got := filled(t, s, pairs(c.name, c.base...), pairs(c.name, c.new...))
		if err := got.verdict(); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.what, err)
		}
		var page strings.Builder
		got.print(&page)
		if strings.Contains(page.String(), "**failed**") != c.fails || !strings.Contains(page.String(), "| "+c.name+" |") {
			t.Errorf("%s:\n%s", c.what, page.String())
		}
	}
	if (&table{}).verdict() == nil {
		t.Error("nothing was measured, and that is a success")
	}
}

func TestField(t *testing.T) {
	v := map[string]any{"a": map[string]any{"b": 2.0}, "c": 1.0}
	if x, ok := field(v, "a.b"); x != 2 || !ok {
		t.Errorf("a.b is %v, %v", x, ok)
	}
	for _, path := range []string{"a", "a.c", "d.b", "c.b"} {
		if _, ok := field(v, path); ok {
			t.Errorf("there is a %s", path)
		}
	}
}
