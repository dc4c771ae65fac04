package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
)

// Pair is one measurement of a plain cluster and one of a secure cluster, right after each other.
type Pair struct {
	Plain  *Result `json:"plain"`
	Secure *Result `json:"secure"`
}

// Ratio is a figure of secure clusters in terms of that of plain ones.
type Ratio struct {
	Figure string  `json:"figure"`
	Plain  float64 `json:"plain"` // the median
	Secure float64 `json:"secure"`
	Ratio  float64 `json:"ratio"` // the median of those of the pairs
}

// Comparison is what pairs come to. A machine differs from one minute to the next, so only what was measured in one
// pair is compared.
type Comparison struct {
	Pairs  []Pair  `json:"pairs"`
	Ratios []Ratio `json:"ratios"`
}

// Compare measures plain and secure clusters in turn, n of each; which comes first alternates.
func Compare(ctx context.Context, o Options, n int, run func(*Bench, context.Context) (*Result, error),
	each func(*Result)) (*Comparison, error) {
	out := &Comparison{}
	one := func(secure bool) (r *Result, err error) {
		o := o
		o.Secure = secure
		if o.Dir, err = os.MkdirTemp(o.Dir, "pair-"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(o.Dir)
		b, err := Open(ctx, o)
		if err != nil {
			return nil, err
		}
		defer b.Close()
		if r, err = run(b, ctx); err == nil {
			each(r)
		}
		return r, err
	}
	for i := range n {
		var p Pair
		for _, secure := range []bool{i%2 == 1, i%2 == 0} {
			r, err := one(secure)
			if err != nil {
				return out, err
			}
			if secure {
				p.Secure = r
			} else {
				p.Plain = r
			}
		}
		out.Pairs = append(out.Pairs, p)
	}
	out.Ratios = ratios(out.Pairs)
	return out, nil
}

// figures are those that are compared. One that a scenario does not have is 0.
var figures = []struct {
	name string
	of   func(*Result) float64
}{
	{"rate", func(r *Result) float64 { return r.Rate }},
	{"CPU of nodes", func(r *Result) float64 { return r.CPUPer1000 }},
	{"CPU of workers", func(r *Result) float64 { return r.WorkerCPU }},
	{"lag p50", func(r *Result) float64 { return r.Lag.middle() }},
	{"lag p99", func(r *Result) float64 { return r.Lag.end() }},
	{"latency p50", func(r *Result) float64 { return r.Latency.middle() }},
	{"latency p99", func(r *Result) float64 { return r.Latency.end() }},
	{"gap p50", func(r *Result) float64 { return r.Gap.middle() }},
}

func (s *Spread) middle() float64 {
	if s == nil {
		return 0
	}
	return s.P50
}

func (s *Spread) end() float64 {
	if s == nil {
		return 0
	}
	return s.P99
}

func ratios(pairs []Pair) (out []Ratio) {
	for _, f := range figures {
		var plain, secure, ratio []float64
		for _, p := range pairs {
			if a, b := f.of(p.Plain), f.of(p.Secure); a > 0 && b > 0 {
				plain, secure, ratio = append(plain, a), append(secure, b), append(ratio, b/a)
			}
		}
		if len(ratio) > 0 {
			out = append(out, Ratio{f.name, median(plain), median(secure), median(ratio)})
		}
	}
	return out
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// Lines is the comparison for people: a name and a value each.
func (c *Comparison) Lines() (out [][2]string) {
	for _, r := range c.Ratios {
		out = append(out, [2]string{r.Figure, fmt.Sprintf("secure is %.2f of plain (%.4g, %.4g), median of %d pairs",
			r.Ratio, r.Secure, r.Plain, len(c.Pairs))})
	}
	return out
}
