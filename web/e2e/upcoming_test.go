//go:build carillon_browser

package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// What is ahead begins now and has all of its hours; a cell says its number, and shows what is due in it where one sees
// it; a job that is due every second does not hide the others.
func TestUpcoming(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "ticks", "@every 1s", "true")
	create(t, n, "minutely", "* * * * *", "true")
	b := open(t, "http://"+n.Addr, usual)
	b.resize(1280, 800)
	for view, cells := range map[string]int{"": 1440, "1h": 60, "7d": 168} {
		b.visit("/ui/upcoming?view=" + view)
		b.until("the cells", `document.querySelectorAll('td[data-at]').length > 0`)
		got := eval[[]float64](b, `(() => { const all = [...document.querySelectorAll('td[data-at]')];
			return [all.length, (Date.now() - Date.parse(all[0].dataset.at)) / 1000] })()`)
		if int(got[0]) != cells || got[1] > 3700 || view != "7d" && got[1] > 130 {
			t.Errorf("%q has %v cells, the first began %v seconds ago", view, got[0], got[1])
		}
	}
	b.visit("/ui/upcoming")
	const cell = `document.querySelectorAll('td[data-at]')[700]`
	b.until("the cells", cell+` !== undefined`)
	at := eval[[]float64](b, `(() => { const r = `+cell+`.getBoundingClientRect(); return [r.x + 3, r.y + 3] })()`)
	must(t, chromedp.Do(b.ctx, chromedp.MouseEvent("mouseMoved", at[0], at[1])))
	b.until("its number", `/: 6\d due$/.test(document.querySelector('.over').textContent.trim())`)
	must(t, chromedp.Do(b.ctx, chromedp.MouseClickXY(at[0], at[1])))
	const due = `document.querySelector('[aria-label=Schedules] [data-row]')`
	b.until("what is due, in view", due+`?.getBoundingClientRect().bottom < innerHeight`)
	b.visit("/ui/upcoming?view=1h")
	const rows = `[...document.querySelectorAll('[aria-label="Next occurrences"] [data-row]')]`
	b.click("button", "Show later ones")
	b.until("a row for a job", rows+`.length === 2 && /\d+ more until/.test(`+rows+`[0].innerText)`)
}
