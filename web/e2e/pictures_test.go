//go:build carillon_browser

package e2e

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "make the pictures of docs/page.md again")

const docs = "../../docs/page"

// shown are the views that docs/page.md has pictures of.
var shown = map[string]string{"overview-dark-1280": "overview", "job-skips-dark-1280": "job", "edit-light-1280": "edit",
	"dead-light-1280": "dead", "upcoming-dark-1280": "upcoming", "jobs-dark-320": "narrow"}

// pictures says whether any are wanted.
func pictures() bool { return *update || os.Getenv("CARILLON_PICTURES") != "" }

// picture makes one of the whole view, if pictures are wanted: all of them in $CARILLON_PICTURES, or those of the docs.
func (b *tab) picture(name string, width int64) {
	b.t.Helper()
	take := func(path string, most int64) {
		b.resize(width, min(most, max(600, eval[int64](b, `document.documentElement.scrollHeight`))))
		eval[bool](b, `new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r(true))))`)
		data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		must(b.t, err)
		must(b.t, os.WriteFile(path, reduced(b.t, data), 0o644)) //nolint:gosec // a picture for the docs
	}
	if dir := os.Getenv("CARILLON_PICTURES"); dir != "" {
		take(filepath.Join(dir, name+".png"), 4000)
	}
	if as := shown[name]; as != "" && *update {
		take(filepath.Join(docs, as+".png"), 1100)
	}
}

// reduced is a picture with 160 colours, which is a third of the bytes: those that it has most of, and that differ.
func reduced(t *testing.T, data []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(data))
	must(t, err)
	count := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	area := from.Bounds()
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	most := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) })
	var palette color.Palette
	for _, c := range most {
		near := func(p color.Color) bool {
			q := p.(color.RGBA)
			d := func(a, b uint8) int { return (int(a) - int(b)) * (int(a) - int(b)) }
			return d(c.R, q.R)+d(c.G, q.G)+d(c.B, q.B) < 150
		}
		if len(palette) < 24 || len(palette) < 160 && !slices.ContainsFunc(palette, near) {
			palette = append(palette, c)
		}
	}
	to := image.NewPaletted(area, palette)
	known := map[color.RGBA]uint8{}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			c := at(x, y)
			i, ok := known[c]
			if !ok {
				i = uint8(palette.Index(c))
				known[c] = i
			}
			to.SetColorIndex(x, y, i)
		}
	}
	var out bytes.Buffer
	must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to))
	return out.Bytes()
}
