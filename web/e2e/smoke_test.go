//go:build carillon_browser

package e2e

import (
	"os"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/carillon-scheduler/carillon/job"
)

// The overview, a job and the dead letters have what they are about, in both themes: the console has nothing to say, the
// policy refuses nothing, nothing is asked for elsewhere, and axe finds nothing to mend. It is what the gate looks at.
func TestSmoke(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "hello", "@every 1s", "echo hello")
	create(t, n, "breaks", "@manual", "exit 9", `"retry":{"max_retries":0}`)
	call(t, n, "POST", "/jobs/breaks:run", "")
	ran(t, n, "breaks", job.RunDead)
	ran(t, n, "hello", job.RunSucceeded)
	axe, err := os.ReadFile("testdata/axe.min.js")
	must(t, err)
	views := [][2]string{
		{"/ui/", `document.querySelector('.failure')?.innerText.includes('breaks')`},
		{"/ui/jobs/hello?span=1h", `document.querySelector('.strip canvas') !== null`},
		{"/ui/dead", `document.querySelector('details.group')?.innerText.includes('exit status 9')`},
	}
	for _, theme := range []string{"light", "dark"} {
		b := open(t, "http://"+n.Addr, look{theme, "UTC", 1280})
		wrongs := b.wrongs()
		show := func(path, has string) {
			t.Helper()
			b.visit(path)
			b.until("what "+path+" is about", has)
			b.settled()
		}
		for _, v := range views {
			show(v[0], v[1])
			if got := eval[[]string](b, `refused`); len(got) > 0 {
				t.Errorf("%s, %s: the policy refused %q", v[0], theme, got)
			}
			if got := b.foreign(); len(got) > 0 {
				t.Errorf("%s, %s asks elsewhere: %q", v[0], theme, got)
			}
		}
		// axe adds styles of its own, which the policy would refuse.
		_, err := chromedp.Call(b.ctx, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true})
		must(t, err)
		for _, v := range views {
			show(v[0], v[1])
			b.accessible(string(axe), v[0]+", "+theme)
		}
		for _, w := range wrongs() {
			t.Errorf("%s: the console says: %s", theme, w)
		}
	}
}
