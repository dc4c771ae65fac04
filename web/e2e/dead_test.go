//go:build carillon_browser

package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// die has a job that fails run once, and waits until it is dead.
func die(t *testing.T, n *harness.Node, name string, code int) {
	t.Helper()
	create(t, n, name, "@manual", fmt.Sprint("exit ", code), `"retry":{"max_retries":0}`)
	call(t, n, "POST", "/jobs/"+name+":run", "")
	ran(t, n, name, job.RunDead)
}

// Redrive and purge always ask, and say how many they are about and which.
func TestDeadLettersAreAskedAbout(t *testing.T) {
	t.Parallel()
	n := node(t)
	for _, name := range []string{"one", "two", "three"} {
		die(t, n, name, 1)
	}
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/dead")
	const focus = `document.activeElement.textContent.trim()`
	ask := func(button, title, scope string) {
		t.Helper()
		b.until("to find "+button, find("#main button", button)+` !== undefined`)
		eval[bool](b, `(() => { const e = `+find("#main button", button)+`; e.focus(); e.click(); return true })()`)
		b.until("a question", `document.querySelector('dialog h2')?.textContent === `+quote(title))
		b.sees(scope)
	}
	no := func(button string) {
		t.Helper()
		b.press("\x1b")
		b.until("no question", `document.querySelector('dialog') === null`)
		b.until("the focus where it was", focus+` === `+quote(button))
	}
	ask("Redrive all 3", "Redrive 3 dead letters?", "All dead letters of the namespace default.")
	no("Redrive all 3")
	ask("Purge all 3", "Purge 3 dead letters?", "All dead letters of the namespace default.")
	no("Purge all 3")
	b.visit("/ui/dead?job=two")
	ask("Redrive all 1 of two", "Redrive 1 dead letter?", "All dead letters of the job two.")
	no("Redrive all 1 of two")
	eval[bool](b, `document.querySelector('details.group summary').click() === undefined`)
	ask("Purge these 1", "Purge 1 dead letter?", "Those with the error")
	no("Purge these 1")
	ask("Purge all 1 of two", "Purge 1 dead letter?", "All dead letters of the job two.")
	b.click("dialog button", "Purge 1")
	b.sees("1 dead letter purged.")
	b.sees("No dead letters")
	b.until("a focus", `document.activeElement.id === 'main'`)
	b.visit("/ui/dead?ns=*")
	b.until("no way to act on all namespaces at once", `[...document.querySelectorAll('.title button')].every((e) =>
		e.disabled && e.title.includes('one namespace'))`)
}

// What comes while a list is pointed at moves nothing, not even an error above it that is new.
func TestDeadLettersStayUnderThePointer(t *testing.T) {
	t.Parallel()
	n := node(t)
	die(t, n, "first", 1)
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/dead")
	const row = `document.querySelector('[aria-label="Dead letters"] [data-row]')`
	b.until("a letter", row+` !== null`)
	at := func() []float64 {
		return eval[[]float64](b, `(() => { const r = `+row+`.getBoundingClientRect(); return [r.x + 60, r.y + r.height / 2] })()`)
	}
	was := at()
	must(t, chromedp.Do(b.ctx, chromedp.MouseEvent("mouseMoved", was[0], was[1])))
	die(t, n, "second", 2)
	b.until("what is new", `[...document.querySelectorAll('.fresh')].filter((e) => e.textContent.trim() === '1 new').length === 2`)
	if is := at(); is[1] != was[1] {
		t.Errorf("the row moved from %v to %v", was, is)
	}
	must(t, chromedp.Do(b.ctx, chromedp.MouseEvent("mouseMoved", 5, 5)))
	b.until("both errors", `document.querySelectorAll('details.group').length === 2`)
	b.until("both letters", `document.querySelectorAll('[aria-label="Dead letters"] [data-row]').length === 2`)
}
