package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// least is the ratio below which a time fails, and most the ratio above which a count does.
const (
	least = 0.95
	most  = 1.05
)

// row is one figure of both builds.
type row struct {
	scenario  string
	figure    figure
	base, new []float64 // by pairs
}

// table has the rows in their order.
type table struct{ rows []*row }

// add takes up the figures of one pair. What was counted in one of the builds only has no row.
func (t *table) add(s scenario, base, new values) {
	known := slices.Clone(s.figures)
	for _, name := range slices.Sorted(maps.Keys(new)) {
		if !slices.ContainsFunc(known, func(f figure) bool { return f.name == name }) {
			known = append(known, figure{name: name, count: true})
		}
	}
	for _, f := range known {
		b, ok := base[f.name]
		n, also := new[f.name]
		if !ok || !also || b == 0 && n == 0 {
			continue
		}
		i := slices.IndexFunc(t.rows, func(r *row) bool { return r.figure.name == f.name })
		if i < 0 {
			i = len(t.rows)
			t.rows = append(t.rows, &row{scenario: s.name, figure: f})
		}
		t.rows[i].base, t.rows[i].new = append(t.rows[i].base, b), append(t.rows[i].new, n)
	}
}

// ratio is that of the medians. Of a time, above 1 is better than the base; of a count, above 1 is more than the base.
func (r *row) ratio() float64 {
	b, n := median(r.base), median(r.new)
	if r.figure.count || r.figure.higher {
		return n / b
	}
	return b / n
}

// spread is half the distance between the quartiles of the pairs' ratios.
func (r *row) spread() float64 {
	var v []float64
	for i := range r.base {
		x := r.new[i] / r.base[i]
		if !r.figure.count && !r.figure.higher {
			x = 1 / x
		}
		v = append(v, x)
	}
	return (quantile(v, 0.75) - quantile(v, 0.25)) / 2
}

// failed says that the ratio is beyond its limit by more than the spread.
func (r *row) failed() bool {
	if r.figure.count {
		return r.ratio()-r.spread() > most
	}
	return r.ratio()+r.spread() < least
}

func median(v []float64) float64 { return quantile(v, 0.5) }

// quantile interpolates between the two nearest values.
func quantile(v []float64, q float64) float64 {
	v = slices.Sorted(slices.Values(v))
	at := q * float64(len(v)-1)
	i := int(at)
	if i+1 == len(v) {
		return v[i]
	}
	return v[i] + (at-float64(i))*(v[i+1]-v[i])
}

// last describes the newest pair of a scenario.
func (t *table) last(s scenario) string {
	var out []string
	for _, r := range t.rows {
		if r.scenario == s.name && len(r.base) > 0 && !r.figure.count {
			i := len(r.base) - 1
			_, name, _ := strings.Cut(r.figure.name, ": ")
			out = append(out, fmt.Sprintf("%s %.4g -> %.4g", name, r.base[i], r.new[i]))
		}
	}
	return strings.Join(out, ", ")
}

// print writes the table in Markdown.
func (t *table) print(w io.Writer) {
	section := func(title string, count bool) {
		fmt.Fprintf(w, "\n| %s | base | new | ratio | spread | |\n|---|---|---|---|---|---|\n", title)
		for _, r := range t.rows {
			if r.figure.count == count {
				note := ""
				if r.failed() {
					note = "**failed**"
				}
				fmt.Fprintf(w, "| %s | %.4g | %.4g | %.3f | ±%.3f | %s |\n", r.figure.name, median(r.base),
					median(r.new), r.ratio(), r.spread(), note)
			}
		}
	}
	section("times: above 1 is better", false)
	section("counts: above 1 is more", true)
}

// verdict is nil unless a row failed.
func (t *table) verdict() error {
	var failed []string
	for _, r := range t.rows {
		if r.failed() {
			failed = append(failed, fmt.Sprintf("%s: %.3f ± %.3f of the base", r.figure.name, r.ratio(), r.spread()))
		}
	}
	switch {
	case len(t.rows) == 0:
		return errors.New("nothing was measured")
	case len(failed) > 0:
		return fmt.Errorf("slower, or does more, than the base:\n%s", strings.Join(failed, "\n"))
	}
	return nil
}
