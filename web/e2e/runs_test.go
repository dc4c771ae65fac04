//go:build carillon_browser

package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/carillon-scheduler/carillon/job"
)

// What a run writes is seen while it writes it, and it can be canceled there.
func TestOutputIsLive(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "talks", "@manual", "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done")
	b := open(t, "http://"+n.Addr, look{"dark", "UTC", 1280})
	b.visit("/ui/jobs/talks")
	b.click("button", "Run now")
	b.until("its run", `location.pathname.startsWith('/ui/runs/')`)
	b.sees("line 3")
	b.sees("line 6")
	b.fill("[aria-label='Find in output']", "line 2")
	b.until("what was looked for", `document.querySelector('.output mark')?.textContent === 'line 2'`)
	b.click("button", "Cancel")
	b.chip("canceled")
}

// A run that failed shows each of its attempts, and why.
func TestAttemptsOfARun(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "tries", "@manual", "echo attempt $CARILLON_ATTEMPT failed; exit 7", `"retry":{"max_retries":1,"base":"100ms"}`)
	call(t, n, "POST", "/jobs/tries:run", "")
	run := ran(t, n, "tries", job.RunDead)
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/runs/" + run)
	b.chip("dead")
	b.until("two attempts", `document.querySelectorAll('[aria-label=Attempts] [data-row]').length === 2`)
	b.sees("attempt 2 failed")
}

// A run says what it called and in which zone, has what each of its attempts wrote, and that it died before.
func TestARunThatWasRedriven(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "second", "@manual", "echo said by $CARILLON_ATTEMPT; test $CARILLON_ATTEMPT -gt 2", `"timezone":"Asia/Tokyo"`,
		`"retry":{"max_retries":1,"base":"100ms"}`)
	call(t, n, "POST", "/jobs", `{"name":"called","type":"http","schedule":"@manual","retry":{"max_retries":0},`+
		`"payload":{"url":"http://127.0.0.1:1/hook","body":{"a":1}}}`)
	call(t, n, "POST", "/jobs/second:run", "")
	call(t, n, "POST", "/jobs/called:run", "")
	run := ran(t, n, "second", job.RunDead)
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/runs/" + run)
	b.chip("dead")
	b.sees("Asia/Tokyo")
	b.sees("said by 2")
	b.click("[aria-label=Attempt] button", "1")
	b.sees("said by 1")
	b.click("button", "Redrive")
	b.sees("The run of second that was scheduled at")
	b.click("dialog button", "Redrive 1")
	b.chip("succeeded")
	b.until("that it died before", `/Redriven\s+after it died of attempt 2/.test(document.querySelector('.facts').innerText)`)
	b.click("[aria-label=Attempt] button", "2")
	b.sees("said by 2")
	b.picture("run-redriven-light-1280", 1280)
	b.click("[aria-label=Attempt] button", "3")
	b.sees("said by 3")
	if eval[bool](b, `[...document.querySelectorAll('button')].some((e) => /^(Redrive|Cancel)/.test(e.textContent.trim()))`) {
		t.Error("a run that succeeded can be redriven or canceled")
	}

	b.visit("/ui/runs/" + ran(t, n, "called", job.RunDead))
	b.sees("POST http://127.0.0.1:1/hook")
	// A letter that is gone cannot be redriven, and the page says so.
	b.until("a redrive", find("button", "Redrive")+` !== undefined`)
	call(t, n, "DELETE", "/dead", `{"all":true}`)
	b.until("no redrive", `[...document.querySelectorAll('button')].find((e) => e.textContent.trim() === 'Redrive')
		?.title.includes('purged')`)
}

// Between two attempts a run shows what came of the last one, and when the next is.
func TestARunBetweenAttempts(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "again", "@manual", "echo said by $CARILLON_ATTEMPT; echo no disk >&2; exit 7", `"retry":{"max_retries":5,"base":"1h"}`)
	call(t, n, "POST", "/jobs/again:run", "")
	run := ran(t, n, "again", job.RunFailed)
	for _, l := range []look{usual, {"dark", "UTC", 320}} {
		b := open(t, "http://"+n.Addr, l)
		b.visit("/ui/runs/" + run)
		b.chip("retrying")
		b.sees("said by 1")
		b.until("the error and the next attempt", `/Attempt 1 failed\.\s+The next attempt is due in \d+ min[^]*exit/
			.test(document.querySelector('.banner.bad')?.innerText)`)
		b.until("when it ended", `/Next attempt[^]*Finished/.test(document.querySelector('.facts').innerText)`)
		b.picture(fmt.Sprintf("run-between-%s-%d", l.theme, l.width), l.width)
	}
}

// A job leads to its dead letters for as long as there are any, and what was redriven leaves a trace.
func TestDeadLettersLeaveATrace(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "mended", "@manual", "exit 3", `"retry":{"max_retries":0}`, `"overlap":"allow"`)
	call(t, n, "POST", "/jobs/mended:run", "")
	ran(t, n, "mended", job.RunDead)
	call(t, n, "PATCH", "/jobs/mended", `{"payload":{"command":"true"}}`)
	call(t, n, "POST", "/jobs/mended:run", "")
	ran(t, n, "mended", job.RunSucceeded)
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/jobs/mended")
	b.until("its letter", `/1 dead letter to/.test(document.querySelector('.banner.warn')?.innerText)`)
	b.picture("job-letters-light-1280", 1280)
	call(t, n, "POST", "/dead:redrive", `{"all":true}`)
	b.until("no letter", `document.querySelector('.banner.warn') === null`)
	b.visit("/ui/runs?status=dead")
	b.until("what became of it", `/then succeeded/.test(document.querySelector('[aria-label=Runs]')?.innerText)`)
	b.picture("runs-redriven-light-1280", 1280)
	b.visit("/ui/jobs/mended")
	b.until("the trace", `/1 after a redrive/.test(document.querySelector('.tiles')?.innerText)`)
}

// All runs are in one list, those that are open and those that ended.
func TestAllRuns(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "good", "@manual", "true")
	create(t, n, "bad", "@manual", "exit 1", `"retry":{"max_retries":0}`)
	create(t, n, "long", "@manual", "sleep 600")
	for _, name := range []string{"good", "bad", "long"} {
		call(t, n, "POST", "/jobs/"+name+":run", "")
	}
	ran(t, n, "good", job.RunSucceeded)
	ran(t, n, "bad", job.RunDead)
	b := open(t, "http://"+n.Addr, look{"light", "UTC", 320})
	b.visit("/ui/runs")
	b.until("all of them", `(() => { const all = document.querySelector('[aria-label=Runs]')?.innerText ?? '';
		return ['good', 'bad', 'long'].every((name) => all.includes(name)) })()`)
	b.click("[aria-label=Status] button", "Open")
	b.until("only what is open", `(() => { const all = document.querySelector('[aria-label=Runs]')?.innerText ?? '';
		return all.includes('long') && !all.includes('good') && !all.includes('bad') })()`)
	if got := eval[string](b, `location.search`); got != "?status=open" {
		t.Errorf("the address is %s", got)
	}
}

// Rows stay where they are while they are pointed at: what came since waits for a click, or for the pointer to leave.
func TestRowsStayUnderThePointer(t *testing.T) {
	t.Parallel()
	n := node(t)
	begin := func(name string) {
		create(t, n, name, "@manual", "sleep 600")
		call(t, n, "POST", "/jobs/"+name+":run", "")
	}
	begin("one")
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/runs?status=open")
	const first = `document.querySelector('[aria-label=Runs] [data-row]')?.innerText.includes`
	point := func(x, y float64) {
		t.Helper()
		must(t, chromedp.Do(b.ctx, chromedp.MouseEvent(chromedp.MouseMoved, x, y)))
	}
	b.until("the first run", first+`('one')`)
	b.until("the longest", `document.querySelector('[aria-label="Running longest"]') !== null`)
	b.settled()
	at := eval[[]float64](b, `(({ x, y }) => [x + 30, y + 12])(document.querySelector('[aria-label=Runs] [data-row]')
		.getBoundingClientRect())`)
	point(at[0], at[1])
	begin("two")
	const button = ".still:has([aria-label=Runs]) .fresh"
	const fresh = `document.querySelector('` + button + `')?.innerText`
	b.until("that there is a new one", fresh+` === '1 new'`)
	if !eval[bool](b, first+`('one')`) {
		t.Error("the row that was pointed at has moved")
	}
	b.click(button, "1 new")
	b.until("the new one", first+`('two')`)
	begin("three")
	b.until("that there is another", fresh+` === '1 new'`)
	// One that went away stays where it was, and can do nothing.
	call(t, n, "POST", "/jobs/two:cancel", "")
	b.until("a pale row", `document.querySelector('[aria-label=Runs] [inert]')?.innerText.includes('two')`)
	point(5, 5)
	b.until("all that is there", first+`('three') && document.querySelector('[inert]') === null`)

	// The focus holds them as the pointer does.
	b.press("j")
	b.press("j")
	begin("four")
	b.until("that there is a fourth", fresh+` === '1 new'`)
	if !eval[bool](b, first+`('three')`) {
		t.Error("the row that has the focus has moved")
	}
	// Another question is answered at once.
	b.click("[aria-label=Status] button", "All")
	b.until("the answer to that", first+`('four')`)
}
