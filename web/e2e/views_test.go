//go:build carillon_browser

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/carillon-scheduler/carillon/job"
)

// views are those of a node that busy made: how their pictures are called, and where they are.
func views(run string) [][2]string {
	return [][2]string{{"overview", "/ui/"}, {"jobs", "/ui/jobs"}, {"new", "/ui/jobs/new"}, {"job", "/ui/jobs/hello?span=1h"},
		{"job-skips", "/ui/jobs/thumbnails?span=1h"}, {"job-runs", "/ui/jobs/ledger-sync?tab=runs"},
		{"definition", "/ui/jobs/nightly-report?tab=definition&form=yaml"}, {"edit", "/ui/jobs/nightly-report/edit"},
		{"runs", "/ui/runs"}, {"runs-dead", "/ui/runs?status=dead"}, {"runs-all", "/ui/runs?status=all"}, {"run", "/ui/runs/" + run},
		{"upcoming", "/ui/upcoming?ns=reports"}, {"upcoming-week", "/ui/upcoming?view=7d&ns=reports"}, {"dead", "/ui/dead"},
		{"queues", "/ui/queues"}, {"workers", "/ui/workers"}, {"calendars", "/ui/calendars"}, {"cluster", "/ui/cluster"},
		{"demo", "/ui/demo"}, {"no-view", "/ui/no/such/view"}, {"no-job", "/ui/jobs/no-such-job"}}
}

// misprints are times as the API writes them, where people read, words that are there twice, and words that run into
// one another: what stands at the end of a line of a template loses the space behind it.
const misprints = `[...document.body.innerText.matchAll(/\S*\d{4}-\d\d-\d\dT\d\d:\S*|\b([a-z]{2,})\b[ ·]+\1\b/gi)].map((m) => m[0]).concat(
	[...document.querySelectorAll('.sub')].map((e) => e.textContent).filter((s) => /[a-z][A-Z][a-z]+ \d/.test(s)))`

// Every view, in both themes and as narrow as a telephone: the console has nothing to say, the policy refuses nothing,
// nothing is asked for elsewhere, and nothing has to be scrolled sideways. With CARILLON_PICTURES=DIR there is a picture
// of each.
func TestViewsAreClean(t *testing.T) {
	t.Parallel()
	n, run := busy(t)
	looks := []look{{"light", "Europe/Berlin", 1280}, {"dark", "UTC", 320}}
	if pictures() {
		looks = append(looks, look{"dark", "Asia/Kathmandu", 1280}, look{"light", "UTC", 320})
	}
	for _, l := range looks {
		t.Run(fmt.Sprint(l.theme, l.width), func(t *testing.T) {
			t.Parallel()
			b := open(t, "http://"+n.Addr, l)
			wrongs := b.wrongs()
			for _, v := range views(run) {
				name, path := v[0], v[1]
				b.resize(l.width, 900)
				b.visit(path)
				b.settled()
				if got := eval[[]string](b, `refused`); len(got) > 0 {
					t.Errorf("%s: the policy refused %q", path, got)
				}
				if got := b.foreign(); len(got) > 0 {
					t.Errorf("%s asks elsewhere: %q", path, got)
				}
				if got := eval[int64](b, `document.documentElement.scrollWidth`); got > l.width {
					t.Errorf("%s is %d wide on a screen of %d", path, got, l.width)
				}
				if got := eval[[]string](b, misprints); len(got) > 0 && name != "definition" {
					t.Errorf("%s says %q", path, got)
				}
				if got := eval[string](b, `document.documentElement.dataset.theme`); got != l.theme {
					t.Errorf("%s: theme %s", path, got)
				}
				b.picture(fmt.Sprintf("%s-%s-%d", name, l.theme, l.width), l.width)
			}
			for _, w := range wrongs() {
				if !strings.Contains(w, "no-such-job") { // that answer is 404, and the browser says so
					t.Errorf("the console says: %s", w)
				}
			}
		})
	}
}

// axe finds nothing to mend in any view, in either theme, wide or as narrow as a telephone.
func TestViewsAreAccessible(t *testing.T) {
	t.Parallel()
	n, run := busy(t)
	axe, err := os.ReadFile("testdata/axe.min.js")
	must(t, err)
	for _, l := range []look{{"light", "UTC", 1280}, {"dark", "UTC", 1280}, {"light", "UTC", 320}, {"dark", "UTC", 320}} {
		t.Run(fmt.Sprint(l.theme, l.width), func(t *testing.T) {
			t.Parallel()
			b := open(t, "http://"+n.Addr, l)
			// axe adds styles of its own, which the policy would refuse.
			_, err := chromedp.Call(b.ctx, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true})
			must(t, err)
			for _, v := range views(run) {
				b.visit(v[1])
				b.settled()
				b.accessible(string(axe), v[1])
			}
			b.visit("/ui/jobs")
			b.press("?")
			b.sees("without a modifier key")
			b.accessible(string(axe), "the dialog")
		})
	}
}

func (b *tab) accessible(axe, what string) {
	b.t.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](axe+"; null")); err != nil {
		b.t.Fatal(err)
	}
	got := eval[[]string](b, `axe.run({preload: false, runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']}).then((r) =>
		r.violations.flatMap((v) => v.nodes.slice(0, 3).map((n) => v.id + ': ' + n.html.slice(0, 160) + ' ' +
			n.any.map((a) => a.message).join('; '))))`)
	for _, v := range got {
		b.t.Errorf("%s: %s", what, v)
	}
}

// What jobs say is text, wherever it stands.
func TestTextStaysText(t *testing.T) {
	t.Parallel()
	n := node(t)
	const evil = `<img/src=x/onerror=document.title='evil'>`
	name := strings.ReplaceAll(evil, "/", "_")
	create(t, n, name, "@every 1s", "echo "+"'"+strings.ReplaceAll(evil, "'", `'\''`)+"'")
	run := ran(t, n, name, job.RunSucceeded)
	b := open(t, "http://"+n.Addr, look{"dark", "UTC", 1280})
	for _, path := range []string{"/ui/jobs", "/ui/runs?status=succeeded", "/ui/runs/" + run} {
		b.visit(path)
		b.sees("onerror")
		if eval[bool](b, `document.querySelector('#app img') !== null || document.title === 'evil'`) {
			t.Errorf("%s made markup of it", path)
		}
	}
	b.sees(evil) // the output
}

// The address is the state: filters are there after a reload and for who follows the link, and Back goes back.
func TestTheAddressIsTheState(t *testing.T) {
	t.Parallel()
	n := node(t)
	for i := range 3 {
		create(t, n, fmt.Sprint("alpha-", i), "@hourly", "true")
		create(t, n, fmt.Sprint("beta-", i), "@daily", "true")
	}
	call(t, n, "POST", "/jobs/beta-1:pause", "")
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/jobs")
	const rows = `[...document.querySelectorAll('[data-row] a.main')].map((e) => e.textContent).join()`
	b.until("all jobs", rows+`.split(',').length === 6`)
	b.fill("select[aria-label=State]", "paused")
	b.until("the paused one", rows+` === 'beta-1'`)
	must(t, chromedp.Do(b.ctx, chromedp.Reload()))
	b.until("the paused one after a reload", rows+` === 'beta-1'`)
	must(t, chromedp.Do(b.ctx, chromedp.NavigateBack()))
	b.until("all of them after Back", rows+`.split(',').length === 6`)
	b.visit("/ui/jobs?status=paused")
	b.until("the paused one by its link", rows+` === 'beta-1'`)
}
