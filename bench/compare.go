package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
)

// Variant is a kind of cluster that is compared with others.
type Variant struct {
	Name string
	Set  func(*Options)
}

// PlainAndSecure are a cluster that anyone may talk to, and one with TLS and tokens.
func PlainAndSecure() []Variant {
	return []Variant{{"plain", func(o *Options) { o.Secure = false }}, {"secure", func(o *Options) { o.Secure = true }}}
}

// WithGroups are clusters with several numbers of groups.
func WithGroups(numbers []int) (out []Variant) {
	for _, n := range numbers {
		name := fmt.Sprintf("%d groups", n)
		if n == 1 {
			name = "1 group"
		}
		out = append(out, Variant{name, func(o *Options) { o.Groups = n }})
	}
	return out
}

// Measured is what was measured of a variant.
type Measured struct {
	Variant string  `json:"variant"`
	Result  *Result `json:"result"`
}

// Ratio is a figure of a variant in terms of that of the first one.
type Ratio struct {
	Figure  string  `json:"figure"`
	Variant string  `json:"variant"`
	Of      string  `json:"of"`    // the first variant
	Value   float64 `json:"value"` // the median
	Base    float64 `json:"base"`  // that of the first variant
	Ratio   float64 `json:"ratio"` // the median of those of the rounds
}

// Comparison is what rounds come to. A machine differs from one minute to the next, so only what was measured in one
// round is compared.
type Comparison struct {
	Rounds [][]Measured `json:"rounds"` // each has the variants in their order
	Ratios []Ratio      `json:"ratios"`
}

// Compare measures clusters of all variants in turn, n of each. Each round begins with another one.
func Compare(ctx context.Context, o Options, variants []Variant, n int,
	run func(*Bench, context.Context) (*Result, error), each func(*Result)) (*Comparison, error) {
	out := &Comparison{}
	one := func(v Variant) (r *Result, err error) {
		o := o
		v.Set(&o)
		if o.Dir, err = os.MkdirTemp(o.Dir, "compared-"); err != nil {
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
		round := make([]Measured, len(variants))
		for k := range variants {
			k = (k + i) % len(variants)
			r, err := one(variants[k])
			if err != nil {
				return out, err
			}
			round[k] = Measured{variants[k].Name, r}
		}
		out.Rounds = append(out.Rounds, round)
	}
	out.Ratios = ratios(out.Rounds)
	return out, nil
}

// figures are those that are compared. One that a scenario does not have is 0.
var figures = []struct {
	name string
	of   func(*Result) float64
}{
	{"rate", func(r *Result) float64 { return r.Rate }},
	{"loaded", func(r *Result) float64 { return r.LoadRate }},
	{"CPU of nodes", func(r *Result) float64 { return r.CPUPer1000 }},
	{"CPU of workers", func(r *Result) float64 { return r.WorkerCPU }},
	{"CPU at rest", func(r *Result) float64 { return r.CPUPercent }},
	{"lag p50", func(r *Result) float64 { return r.Lag.middle() }},
	{"lag p99", func(r *Result) float64 { return r.Lag.end() }},
	{"latency p50", func(r *Result) float64 { return r.Latency.middle() }},
	{"latency p99", func(r *Result) float64 { return r.Latency.end() }},
	{"gap p50", func(r *Result) float64 { return r.Gap.middle() }},
	{"disk a job", func(r *Result) float64 { return r.DiskPerJob }},
	{"leader's memory", func(r *Result) float64 { return float64(r.LeaderAnon) }},
	{"start", func(r *Result) float64 { return r.StartMS }},
	{"takeover", func(r *Result) float64 { return r.TakeoverMS }},
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

func ratios(rounds [][]Measured) (out []Ratio) {
	for _, f := range figures {
		for k := 1; len(rounds) > 0 && k < len(rounds[0]); k++ {
			var base, value, ratio []float64
			for _, r := range rounds {
				if a, b := f.of(r[0].Result), f.of(r[k].Result); a > 0 && b > 0 {
					base, value, ratio = append(base, a), append(value, b), append(ratio, b/a)
				}
			}
			if len(ratio) > 0 {
				out = append(out, Ratio{f.name, rounds[0][k].Variant, rounds[0][0].Variant, median(value), median(base),
					median(ratio)})
			}
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
		line := fmt.Sprintf("%s: %.2f of %s (%.4g, %.4g)", r.Variant, r.Ratio, r.Of, r.Value, r.Base)
		if n := len(c.Rounds); n > 1 {
			line += fmt.Sprintf(", median of %d rounds", n)
		}
		out = append(out, [2]string{r.Figure, line})
	}
	return out
}
