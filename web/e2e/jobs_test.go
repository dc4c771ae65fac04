//go:build carillon_browser

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// tabTo presses Tab until something has the focus.
func (b *tab) tabTo(what, expression string) {
	b.t.Helper()
	for range 60 {
		if eval[bool](b, expression) {
			return
		}
		b.press("\t")
	}
	b.t.Fatalf("Tab does not reach %s", what)
}

// From nothing to a job that runs, by keyboard alone and without loading the page again.
func TestCreateByKeyboard(t *testing.T) {
	t.Parallel()
	n := node(t)
	b := open(t, "http://"+n.Addr, look{"light", "Europe/Berlin", 1280})
	b.visit("/ui/jobs")
	b.sees("No jobs yet")
	eval[bool](b, `(window.same = true)`)
	b.press("n")
	b.until("the form", `document.activeElement?.id === 'f-name'`)
	b.press("by-keyboard")
	b.tabTo("the schedule", `document.activeElement?.id === 'f-schedule'`)
	eval[bool](b, `document.activeElement.select() === undefined`)
	b.press("@every 1s")
	b.sees("every second")
	b.tabTo("Shell", `document.activeElement?.textContent === 'Shell'`)
	b.press("\r")
	b.tabTo("the command", `document.activeElement?.id === 'p-command'`)
	b.press("echo typed")
	b.tabTo("Create", `document.activeElement?.textContent.trim() === 'Create'`)
	b.press("\r")
	b.until("the job", `location.pathname === '/ui/jobs/by-keyboard'`)
	b.chip("succeeded")
	if !eval[bool](b, `window.same === true`) {
		t.Error("the page was loaded again")
	}
}

// The preview says what daylight saving does to a schedule, in the zone of the job, whatever the browser's own is.
func TestPreviewOverAGapAndAnOverlap(t *testing.T) {
	t.Parallel()
	n := node(t)
	b := open(t, "http://"+n.Addr, look{"light", "America/New_York", 1280})
	b.visit("/ui/jobs/new")
	b.fill("#f-timezone", "Europe/Berlin")
	b.fill("#f-schedule", "30 2 28 3 *") // does not exist in 2027: clocks go from 02:00 to 03:00
	b.until("the gap", `/28 Mar/.test(document.querySelector('.preview')?.innerText) && `+
		`document.querySelectorAll('.preview .note').length > 0`)
	text := eval[string](b, `document.querySelector('.preview').innerText`)
	for _, want := range []string{"Europe/Berlin", "America/New_York (here)", "UTC"} {
		if !strings.Contains(text, want) {
			t.Errorf("the preview has no %s: %s", want, text)
		}
	}
	b.fill("#f-schedule", "30 2 31 10 *") // twice in 2027
	b.until("the overlap", `/31 Oct/.test(document.querySelector('.preview')?.innerText) && `+
		`document.querySelectorAll('.preview .note').length > 0`)
	b.fill("#f-schedule", "61 * * * *")
	b.until("what is wrong with it", `document.querySelector('.preview .s-failed')?.innerText.length > 10`)
	b.until("that at the field", `document.querySelector('#f-schedule[aria-invalid=true] ~ .wrong') !== null`)
	// What is wrong has the focus, and is said beside the button too.
	b.fill("#f-schedule", "*/5 * * * *")
	b.until("the times of that", `document.querySelector('.preview .s-failed') === null && `+
		`document.querySelectorAll('.preview .times li, .preview tbody tr').length > 0`)
	b.click("button", "Create")
	b.until("the field that is wrong", `document.activeElement?.id === 'p-url'`)
	b.until("why", `document.querySelector('form .banner')?.innerText.includes('URL: the URL is missing')`)
	// What is typed moves nothing: the error that it mends keeps its place.
	was := eval[float64](b, `document.querySelector('form .primary').getBoundingClientRect().top + scrollY`)
	b.fill("#p-url", "nowhere")
	b.until("the error to go", `!document.querySelector('form .banner').checkVisibility({ visibilityProperty: true })`)
	if is := eval[float64](b, `document.querySelector('form .primary').getBoundingClientRect().top + scrollY`); is != was {
		t.Errorf("the button was at %v and is at %v", was, is)
	}
}

// A preview says no time that will not be: what depends on the id that a job gets is called so, and the job's own page
// knows it.
func TestPreviewOfTimesThatDependOnTheJob(t *testing.T) {
	t.Parallel()
	n := node(t)
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/jobs/new")
	b.fill("#f-schedule", "@every 10m")
	b.sees("The first run is at most 10 min after its creation")
	b.until("no times", `document.querySelector('.preview .times') === null`)
	b.picture("new-every-light-1280", 1280)
	b.fill("#f-schedule", "every 5 seconds")
	b.sees(`for an interval, "@every 5s"`)
	b.fill("#f-schedule", "H * * * *")
	b.sees("H depends on the id that the job gets")
	b.until("some times", `document.querySelectorAll('.preview .times tbody tr').length === 3`)
	b.picture("new-spread-light-1280", 1280)
	b.fill("#f-name", "spread")
	b.fill("#p-url", "http://127.0.0.1:1/")
	b.click("button", "Create")
	b.until("the job", `location.pathname === '/ui/jobs/spread'`)
	narrow := open(t, "http://"+n.Addr, look{"dark", "UTC", 320})
	narrow.visit("/ui/jobs/new")
	narrow.fill("#f-schedule", "every 5 seconds")
	narrow.sees(`for an interval, "@every 5s"`)
	narrow.picture("new-wrong-dark-320", 320)
	b.until("its minute", `/at minute \d+ of every hour/.test(document.querySelector('.title')?.innerText)`)
}

// An edit shows what it changes before it is saved; one that meets another is merged by who saves last.
func TestEditAndConflict(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "edited", "@hourly", "true")
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/jobs/edited/edit")
	b.fill("#f-schedule", "30 * * * *")
	b.press("\r") // as the button does
	b.until("the difference", `/@hourly[^]*30 \* \* \* \*/.test(document.querySelector('dialog .diff')?.innerText)`)
	b.click("dialog button", "Save")
	b.until("the job", `location.pathname === '/ui/jobs/edited'`)

	b.visit("/ui/jobs/edited/edit")
	b.fill("#f-schedule", "15 * * * *")
	call(t, n, "PATCH", "/jobs/edited", `{"schedule":"45 * * * *","timezone":"Europe/Berlin"}`)
	b.click("button", "Review and save")
	if !eval[bool](b, `new Promise((done) => { const look = () => { const d = document.querySelector('dialog');
		if (!d) setTimeout(look, 20); else done(!d.innerText.includes('Another client')) }; look() })`) {
		b.sees("Another client saved this job")
	} else {
		b.click("dialog button", "Save")
		b.sees("Another client saved this job")
	}
	text := eval[string](b, `document.querySelector('dialog').innerText`)
	for _, want := range []string{"30 * * * *", "15 * * * *", "45 * * * *"} {
		if !strings.Contains(text, want) {
			t.Errorf("the three versions are not there: %s", text)
		}
	}
	b.click("dialog label", "Yours")
	b.click("dialog button", "Merge")
	b.click("button", "Review and save")
	b.until("the difference", `document.querySelector('dialog .diff') !== null`)
	b.click("dialog button", "Save")
	b.until("the job", `location.pathname === '/ui/jobs/edited'`)
	j, err := n.Client.GetJob(context.Background(), "edited")
	must(t, err)
	if j.Schedule != "15 * * * *" || j.Timezone != "Europe/Berlin" {
		t.Errorf("saved: %s in %s", j.Schedule, j.Timezone)
	}
}

// Whatever becomes of an occurrence is in the strip with its reason, and none is unaccounted for.
func TestEveryFateIsExplained(t *testing.T) {
	t.Parallel()
	n := node(t)
	const now = `"missed":{"policy":"skip","grace":"1s"}`
	create(t, n, "skipped", "@every 1s", "sleep 3", now)
	create(t, n, "dead", "@every 1s", "exit 1", now, `"retry":{"max_retries":0}`)
	create(t, n, "lost", "@every 1s", "sleep 300", now, `"delivery":"at_most_once","retry":{"max_retries":0}`)
	create(t, n, "canceled", "@every 1s", "sleep 300", now)
	create(t, n, "missed", "@every 1s", "true", now)
	create(t, n, "paused", "@every 1s", "true", now)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	call(t, n, "PUT", "/calendars/always", fmt.Sprintf(`{"timezone":"UTC","windows":[{"from":%q,"to":%q}]}`,
		today.Format(time.RFC3339), today.Add(72*time.Hour).Format(time.RFC3339)))
	create(t, n, "blackout", "@every 1s", "true", now)
	call(t, n, "POST", "/jobs", `{"name":"expired","type":"queue","schedule":"@every 1s","deadline":"1s",`+
		`"payload":{"queue":"unpolled"},`+now+`}`)
	has := func(name, fate string) {
		t.Helper()
		harness.Eventually(t, patience, name+" to be "+fate, func() bool {
			for _, o := range occurrences(t, n, name).Occurrences {
				if o.Fate == fate {
					return true
				}
			}
			return false
		})
	}
	ran(t, n, "paused", job.RunSucceeded)
	call(t, n, "POST", "/jobs/paused:pause", "")
	has("lost", "running")
	has("canceled", "running")
	call(t, n, "POST", "/jobs/canceled:cancel", "")
	call(t, n, "PATCH", "/jobs/blackout", `{"calendars":["always"]}`)
	for _, name := range []string{"skipped", "dead", "canceled", "expired"} {
		has(name, name)
	}
	killed := n.Kill("to lose what runs, and to miss what is due")
	harness.Eventually(t, patience, "an outage of some seconds", func() bool { return time.Since(killed.Dead) > 4*time.Second })
	n.Start()
	has("lost", "lost")
	has("missed", "missed")
	call(t, n, "POST", "/jobs/paused:resume", "")
	b := open(t, "http://"+n.Addr, usual)
	call(t, n, "POST", "/jobs/paused:pause", "")
	b.visit("/ui/jobs/paused?span=1h")
	const expected = `Number(document.querySelector('.sum b')?.innerText)`
	b.until("a strip", expected+` > 0`)
	first := eval[int](b, expected)
	b.until("a strip that goes on while nothing happens", fmt.Sprint(expected, " > ", first+1))
	// A remedy is what can be done here, not a call of the API.
	b.until("a remedy", `/press Resume/i.test(document.querySelector('.why .blocked')?.innerText)`)
	// What is to come never takes the place of what was.
	b.visit("/ui/jobs/skipped?span=30d")
	b.until("now in the strip", `(({ ariaValueNow: at, ariaValueMax: n }) => at > 3 && at >= n / 2)(`+
		`document.querySelector('.strip canvas') ?? {})`)
	call(t, n, "POST", "/jobs/paused:resume", "")
	for _, name := range []string{"skipped", "dead", "lost", "canceled", "missed", "paused", "blackout", "expired"} {
		b.visit("/ui/jobs/" + name + "?span=1h")
		b.until("the strip of "+name, `[...document.querySelectorAll('.legend .chip')].some((e) => `+
			`e.textContent.trim().startsWith(`+quote(name)+`))`)
		if name == "dead" { // says why, without a click
			b.until("what fails", `/Failing since .* in a row, \d+ dead letters?\s+exit/.test(document.querySelector('.banner.bad')?.innerText)`)
		}
		b.until(name+" without a hole", `/(^|\n)0\s*unaccounted/.test(document.querySelector('.sum').innerText)`)
		// The reason of a cell is said to those who do not see its colour.
		eval[bool](b, `document.querySelector('.strip canvas').focus() === undefined`)
		b.press(kb.ArrowLeft)
		b.until("a cell in words", `document.querySelector('.readout .chip') !== null`)
	}
}

// A hole in the records is found because the schedule says what should be there, and looks like the bug it is. Such a
// binary forgets what did not run.
func TestAHoleIsShown(t *testing.T) {
	t.Parallel()
	chromium(t)
	n := harness.NewNode(t, harness.Build(t, "carillon_mutants"), t.TempDir(), "--executors", "shell",
		"--log-level", "error")
	n.Wrap = []string{"env", "CARILLON_MUTANT=forget-not-run"}
	n.Start()
	create(t, n, "holes", "@every 1s", "sleep 2.5")
	harness.Eventually(t, patience, "an occurrence without a record", func() bool {
		return occurrences(t, n, "holes").Summary.Unaccounted > 0
	})
	call(t, n, "POST", "/jobs/holes:pause", "") // what is shown stays as it is
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/jobs/holes?span=1h")
	b.until("the sum that says so",
		`/[1-9]\d*\s*unaccounted: this is a bug/.test(document.querySelector('.sum .bug')?.innerText)`)
	b.until("holes in the legend", `document.querySelector('.legend .s-unaccounted') !== null`)
	eval[bool](b, `document.querySelector('.strip canvas').focus() === undefined`)
	b.press(kb.Home)
	for i := 0; !eval[bool](b, `document.querySelector('.readout .s-unaccounted') !== null`); i++ {
		if i > 100 {
			t.Fatal("no cell of the strip says that it is unaccounted for")
		}
		b.press(kb.ArrowRight)
	}
}

// What keeps a job from running is marked, each thing by itself.
func TestWhyForEachBlocker(t *testing.T) {
	t.Parallel()
	n := node(t, "--slots", "2")
	today := time.Now().UTC().Truncate(24 * time.Hour)
	call(t, n, "PUT", "/calendars/always", fmt.Sprintf(`{"timezone":"UTC","windows":[{"from":%q,"to":%q}]}`,
		today.Format(time.RFC3339), today.Add(72*time.Hour).Format(time.RFC3339)))
	call(t, n, "PUT", "/queues/shut", `{"concurrency":1,"paused":true}`)
	create(t, n, "State", "@hourly", "true")
	call(t, n, "POST", "/jobs/State:pause", "")
	create(t, n, "Blackout", "@hourly", "true", `"calendars":["always"]`)
	create(t, n, "Due", "@hourly", "true")
	create(t, n, "Overlap", "@every 1s", "sleep 300", `"overlap":"queue"`)
	create(t, n, "Tags", "@every 1s", "true", `"workers":{"region":"nowhere"}`)
	call(t, n, "POST", "/jobs", `{"name":"Type","type":"message","schedule":"@every 1s","payload":{"broker":"none","subject":"x"}}`)
	call(t, n, "POST", "/jobs", `{"name":"Queue","type":"queue","schedule":"@every 1s","payload":{"queue":"shut"}}`)
	create(t, n, "Concurrency", "@every 1s", "sleep 300", `"overlap":"allow","concurrency":1`)
	harness.Eventually(t, patience, "no slot that is free", func() bool {
		s, err := n.Client.Status(context.Background())
		return err == nil && len(s.Workers) == 1 && s.Workers[0].Busy == 2
	})
	create(t, n, "Slots", "@every 1s", "true")
	b := open(t, "http://"+n.Addr, usual)
	for _, name := range []string{"State", "Blackout", "Overlap", "Concurrency", "Queue", "Type", "Tags", "Slots"} {
		b.visit("/ui/jobs/" + name)
		b.until(name+" to be what blocks", fmt.Sprintf(`[...document.querySelectorAll('.why .blocked .what')].some((e) => `+
			`e.textContent === %s)`, quote(name)))
		if eval[int](b, `document.querySelectorAll('.why li').length`) < 10 {
			t.Errorf("%s: not every check is shown", name)
		}
	}
	// One whose time has not come waits for nothing that is wrong.
	b.visit("/ui/jobs/Due")
	b.until("a time that has not come", `document.querySelector('.why .later .what')?.textContent === 'Due'`)
	if eval[int](b, `document.querySelectorAll('.why .blocked').length`) > 1 {
		t.Errorf("it is blocked by more than its time")
	}
}

// More queues than fit on a page are on the next one.
func TestManyQueues(t *testing.T) {
	t.Parallel()
	n := node(t)
	for i := range 201 {
		call(t, n, "PUT", fmt.Sprintf("/queues/q%03d", i), `{}`)
	}
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/queues")
	b.sees("q000")
	b.click(".more button", "Next")
	b.sees("q200")
	if eval[bool](b, `document.body.textContent.includes('q000')`) {
		t.Error("the next page has the queues of the first")
	}
	b.click(".more button", "First")
	b.sees("q000")
}

// What is selected is paused, and a delete asks for the number.
func TestActOnSeveral(t *testing.T) {
	t.Parallel()
	n := node(t)
	for i := range 5 {
		create(t, n, fmt.Sprint("many-", i), "@hourly", "true")
	}
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/jobs")
	b.until("five rows", `document.querySelectorAll('[data-row]').length === 5`)
	b.press("j")
	b.press("x")
	b.press("j")
	b.press("x")
	b.sees("2 selected")
	b.click(".bulk button", "Pause")
	b.click("dialog button", "Pause 2")
	b.until("two that are paused", `[...document.querySelectorAll('[data-row] .chip')].filter((e) => e.textContent === 'paused').length === 2`)
	b.click("[aria-label='Select all of this page']", "Select")
	b.click(".bulk button", "Delete")
	b.until("a button that waits for the number", `document.querySelector('dialog .danger').disabled`)
	b.fill("#ask-type", "5")
	b.click("dialog button", "Delete 5")
	b.sees("No jobs yet")
	page, err := n.Client.ListJobs(context.Background(), client.JobQuery{})
	must(t, err)
	if len(page.Jobs) != 0 {
		t.Errorf("%d jobs are left", len(page.Jobs))
	}
}

// What fails in another namespace is on the overview too, says so, and leads there.
func TestFailuresOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "breaks", "@manual", "exit 9", `"namespace":"team-a","retry":{"max_retries":0}`)
	call(t, n, "POST", "/jobs/breaks:run?namespace=team-a", "")
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/")
	b.until("what fails", `document.querySelector('.failure')?.innerText.includes('team-a: breaks')`)
	// A number leads to what it counts.
	const tile = `[...document.querySelectorAll('a.tile')].find((e) => e.innerText.startsWith('Dead letters'))`
	b.until("its number", tile+`.querySelector('.value').textContent.trim() === '1'`)
	eval[bool](b, tile+`.click() === undefined`)
	b.until("the letter", `document.querySelectorAll('[aria-label="Dead letters"] [data-row]').length === 1`)
	b.visit("/ui/")
	b.click(".failure", "1")
	b.until("its letters", `document.querySelector('details.group[open]')?.innerText.includes('exit status 9')`)
}

// The strip of a few seconds has bars of a bounded width and an axis that tells its ends apart.
func TestStripOfSomeSeconds(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "young", "@every 1s", "true")
	ran(t, n, "young", job.RunSucceeded)
	for _, l := range []look{usual, {"dark", "UTC", 320}} {
		b := open(t, "http://"+n.Addr, l)
		b.visit("/ui/jobs/young")
		b.until("the ends", `(() => { const [a, , z] = [...document.querySelectorAll('.strip .axis span')].map((e) => e.innerText)
			return /^\d\d:\d\d:\d\d$/.test(a) && /^\d\d:\d\d:\d\d$/.test(z) && a !== z })()`)
		if widest := eval[float64](b, `(() => { const c = document.querySelector('.strip canvas'), s = devicePixelRatio
			const d = c.getContext('2d').getImageData(0, c.height - 6 * s, c.width, 1).data
			let most = 0, run = 0
			for (let x = 0; x < c.width; x++) { run = d[4 * x + 3] > 200 ? run + 1 : 0; most = Math.max(most, run) }
			return most / s })()`); widest > 24 {
			t.Errorf("a bar has %v pixels", widest)
		}
		b.picture("job-young-"+l.theme, l.width)
	}
}

// The list says how many match, and which jobs fail or have to be started by hand; from the filter the keyboard goes on
// to what was found.
func TestFindingAJob(t *testing.T) {
	t.Parallel()
	n := node(t)
	for i := range 5 {
		create(t, n, fmt.Sprint("export-", i), "@hourly", "true")
	}
	create(t, n, "by-hand", "@manual", "true")
	create(t, n, "breaks", "@every 1s", "exit 3", `"retry":{"max_retries":0}`)
	ran(t, n, "breaks", job.RunDead)
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/jobs")
	b.sees("7 in all")
	b.chip("failing")
	b.chip("manual")
	b.fill("[aria-label='Name contains']", "port-3")
	b.press("\r")
	b.until("the focus on what was found", `document.activeElement.textContent === 'export-3'`)
	b.sees("1 of 7 match")
	b.press("/")
	b.until("the search", `document.activeElement.id === 'find'`)
	b.press("abc\x1b")
	b.until("it is left", `document.activeElement.id !== 'find' && document.getElementById('find').value === ''`)
	b.fill("#find", "export-4")
	b.until("names to choose from", `document.querySelector('#found option')?.value === 'export-4'`)
	b.press("\r")
	b.until("the job", `location.pathname === '/ui/jobs/export-4'`)
}
