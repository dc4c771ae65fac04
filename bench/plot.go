package bench

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Plot draws runs a second over the number of jobs in the cluster, as SVG. Jobs are on a logarithmic axis.
func Plot(w io.Writer, results []*Result) error {
	const width, height, left, right, top, bottom = 720, 400, 80, 30, 50, 60
	if len(results) == 0 {
		return fmt.Errorf("nothing to draw")
	}
	low, high, most := math.Inf(1), math.Inf(-1), 0.0
	for _, r := range results {
		x := math.Log10(float64(r.Jobs))
		low, high, most = min(low, x), max(high, x), max(most, r.Rate)
	}
	low, high = math.Floor(low), math.Ceil(high)
	if low == high {
		high++
	}
	step := math.Pow(10, math.Floor(math.Log10(most)))
	if most/step < 3 {
		step /= 2
	}
	most = math.Ceil(most/step) * step
	x := func(jobs float64) float64 { return left + (math.Log10(jobs)-low)/(high-low)*(width-left-right) }
	y := func(rate float64) float64 { return height - bottom - rate/most*(height-top-bottom) }
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`, width,
		height)
	p(`<rect width="100%%" height="100%%" fill="white"/>`)
	p(`<text x="%d" y="28" font-size="16">%s jobs due in one second: runs a second, by jobs in the cluster</text>`,
		left, count(float64(results[0].Runs)))
	for v := 0.0; v <= most+step/2; v += step {
		p(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			left, y(v), width-right, y(v), left-8, y(v)+4, count(v))
	}
	for e := low; e <= high; e++ {
		v := math.Pow(10, e)
		p(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			x(v), top, x(v), height-bottom, x(v), height-bottom+20, count(v))
	}
	var line []string
	for _, r := range results {
		line = append(line, fmt.Sprintf("%.1f,%.1f", x(float64(r.Jobs)), y(r.Rate)))
	}
	p(`<polyline points="%s" fill="none" stroke="#1f6feb" stroke-width="2"/>`, strings.Join(line, " "))
	for _, r := range results {
		p(`<circle cx="%.1f" cy="%.1f" r="4" fill="#1f6feb"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			x(float64(r.Jobs)), y(r.Rate), x(float64(r.Jobs)), y(r.Rate)-10, count(r.Rate))
	}
	p(`<text x="%d" y="%d" text-anchor="middle">jobs in the cluster</text>`, (left+width-right)/2, height-14)
	p(`</svg>`)
	_, err := io.WriteString(w, b.String())
	return err
}
