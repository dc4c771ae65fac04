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
)

// Text that is not JSON where JSON belongs keeps a job from being created or saved. The field is marked and named.
func TestInvalidJSONIsNotSaved(t *testing.T) {
	t.Parallel()
	n := node(t)
	b := open(t, "http://"+n.Addr, usual)
	stopped := func(button, field, label, text string) {
		t.Helper()
		b.fill(field, text)
		b.click("button", button)
		b.until("the focus on "+label, `document.activeElement?.matches(`+quote(field+`[aria-invalid=true]`)+`)`)
		b.until("why, by name", `document.querySelector('form .banner:not(.calm)')?.innerText.startsWith(`+
			quote(label+": this is not valid JSON")+`)`)
		b.until("why, at the field", `document.querySelector(`+quote(field+" ~ .wrong")+`)?.innerText.length > 20`)
		if eval[bool](b, `document.querySelector('dialog') !== null`) {
			t.Errorf("%s: %s is about to be saved", label, text)
		}
		b.click(".segments button", "JSON") // is of no help before it is mended
		if !eval[bool](b, `document.querySelector('#f-raw') === null && document.querySelector(`+quote(field)+`).value === `+quote(text)) {
			t.Errorf("%s: the text became something else", label)
		}
	}
	b.visit("/ui/jobs/new")
	b.fill("#f-name", "wrong")
	b.fill("#p-url", "http://127.0.0.1:1/")
	stopped("Create", "#p-headers", "Headers", `{"X-Team": billing}`)
	for _, l := range []look{{"light", "UTC", 1280}, {"dark", "UTC", 1280}, {"light", "UTC", 390}, {"dark", "UTC", 390}} {
		if !pictures() {
			break
		}
		w := open(t, "http://"+n.Addr, l)
		w.visit("/ui/jobs/new")
		w.fill("#f-name", "wrong")
		w.fill("#p-headers", `{"X-Team": billing}`)
		w.click("button", "Create")
		w.until("why", `document.querySelector('form .banner:not(.calm)') !== null`)
		w.settled()
		w.picture(fmt.Sprintf("new-invalid-%s-%d", l.theme, l.width), l.width)
		w.click("a.item", "Jobs")
		w.until("a question", question)
		w.picture(fmt.Sprintf("new-discard-%s-%d", l.theme, l.width), l.width)
	}
	b.fill("#p-headers", "")
	stopped("Create", "#p-body", "Body", `{"a": 1,}`)
	b.click("button", "Shell")
	b.fill("#p-command", "true")
	stopped("Create", "#p-env", "Environment", `{"LANG": "C"`)
	b.click("button", "Message")
	b.fill("#p-broker", "nats://127.0.0.1:1")
	stopped("Create", "#p-data", "Data", `[1, 2`)
	b.click("button", "Queue")
	b.fill("#p-queue", "q")
	stopped("Create", "#p-data", "Data", `nothing`)
	found, err := n.Client.ListJobs(context.Background(), client.JobQuery{})
	must(t, err)
	if len(found.Jobs) != 0 {
		t.Errorf("%+v were created", found.Jobs)
	}
	b.fill("#p-data", `{"n": 1}`)
	b.click("button", "Create")
	b.until("the job", `location.pathname === '/ui/jobs/wrong'`)

	const payload = `{"url":"http://127.0.0.1:1/","headers":{"X-Team":"core"},"body":"{ this is text }"}`
	call(t, n, "POST", "/jobs", `{"name":"right","type":"http","schedule":"@manual","payload":`+payload+`}`)
	b.visit("/ui/jobs/right/edit")
	stopped("Review", "#p-headers", "Headers", `{"X-Team": "core"`)
	b.fill("#p-headers", `{"X-Team": "core"}`)
	b.until("text between quotes", `document.querySelector('#p-body').value === '"{ this is text }"'`)
	b.fill("#p-body", `"{ this is text } "`)
	b.fill("#p-body", `"{ this is text }"`)
	b.click("button", "Review")
	b.until("that nothing was changed", `document.querySelector('dialog')?.innerText.includes('Nothing was changed')`)
}

// Each type of job keeps what was typed for it.
func TestEachTypeKeepsItsPayload(t *testing.T) {
	t.Parallel()
	n := node(t)
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/jobs/new")
	b.fill("#f-name", "kept")
	b.fill("#p-url", "http://127.0.0.1:1/typed")
	b.fill("#p-headers", `{"X-Team": "core"}`)
	b.click("button", "Queue")
	b.fill("#p-data", `{"n": 1}`)
	b.click("button", "Message")
	b.until("no data of the other type", `document.querySelector('#p-subject') && document.querySelector('#p-data').value === ''`)
	b.click("button", "Shell")
	b.fill("#p-command", "echo typed")
	b.click("button", "HTTP")
	b.until("what was typed", `document.querySelector('#p-url')?.value === 'http://127.0.0.1:1/typed' && `+
		`document.querySelector('#p-headers').value.includes('core')`)
	b.click("button", "Queue")
	b.until("its data", `document.querySelector('#p-data')?.value.includes('"n": 1')`)
	b.click("button", "Shell")
	b.until("its command", `document.querySelector('#p-command')?.value === 'echo typed'`)
	b.click("button", "HTTP")
	b.click("button", "Create")
	b.until("the job", `location.pathname === '/ui/jobs/kept'`)
	j, err := n.Client.GetJob(context.Background(), "kept")
	must(t, err)
	if want := `{"url":"http://127.0.0.1:1/typed","headers":{"X-Team":"core"}}`; j.Type != job.TypeHTTP || string(j.Payload) != want {
		t.Errorf("%s %s", j.Type, j.Payload)
	}
}

// question says that the page asks, and that keys are for its question.
const question = `document.activeElement?.closest('dialog')?.querySelector('h2').innerText === 'Discard your changes?'`

// A form that was edited is left only by who says so; one that was not is left as any other view.
func TestLeavingAnEditedFormAsks(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "edited", "@hourly", "true")
	b := open(t, "http://"+n.Addr, usual)
	const form = "/ui/jobs/edited/edit"
	at := func(path string) {
		t.Helper()
		b.until("the view "+path, `location.pathname === `+quote(path)+` && document.querySelector('dialog') === null`)
	}
	asked := func(button string) {
		t.Helper()
		b.until("a question", question)
		b.click("dialog button", button)
	}
	kept := func() {
		t.Helper()
		asked("Keep")
		at(form)
		b.until("what was typed", `document.querySelector('#f-name')?.value === 'edited2'`)
	}
	ways := map[string]func(){
		"a link":     func() { b.click("a.item", "Runs") },
		"Cancel":     func() { b.click("form a", "Cancel") },
		"a key":      func() { eval[bool](b, `document.activeElement.blur() === undefined`); b.press("g"); b.press("r") },
		"going back": func() { eval[bool](b, `history.back() === undefined`) },
	}
	for name, leave := range ways {
		b.visit("/ui/jobs/edited")
		b.click("a", "Edit")
		b.until("the form", `document.querySelector('#f-name') !== null`)
		leave() // nothing was typed
		b.until("another view by "+name, `location.pathname !== `+quote(form))
		b.click("a.item", "Jobs")
		at("/ui/jobs")
		b.click("[data-row] a", "edited")
		b.click("a", "Edit")
		b.fill("#f-name", "edited2")
		leave()
		kept()
		leave() // the address and the history are what they were
		kept()
		leave()
		asked("Discard")
		b.until("another view by "+name, `location.pathname !== `+quote(form)+` && document.querySelector('dialog') === null`)
		if name == "going back" {
			at("/ui/jobs/edited")
			eval[bool](b, `history.forward() === undefined`)
			at(form)
		}
	}

	// The tab is loaded again, or closed: the browser asks.
	reloads := func(want bool) {
		t.Helper()
		b.stays.Store(want)
		defer b.stays.Store(false)
		eval[bool](b, `(window.same = true) && setTimeout(() => location.reload()) > 0`)
		if !want {
			b.until("the page again", `window.same !== true && document.querySelector('#f-name') !== null`)
			return
		}
		select {
		case <-b.asked:
		case <-time.After(patience):
			t.Error("the browser does not ask")
		}
		if !eval[bool](b, `window.same === true`) {
			t.Error("the page was loaded again")
		}
	}
	b.visit(form)
	b.until("the form", `document.querySelector('#f-name') !== null`)
	b.press("\t")
	reloads(false)
	b.tabTo("the name", `document.activeElement?.id === 'f-name'`)
	b.press("x")
	reloads(true)
	b.press(kb.Backspace) // as it was
	b.fill("#f-name", "edited")
	reloads(false)

	// What is saved is left without a question.
	b.fill("#f-name", "edited2")
	b.click("button", "Review")
	b.click("dialog button", "Save")
	at("/ui/jobs/edited2")
}

// A dialog with a form asks as well, however it is closed.
func TestClosingAnEditedDialogAsks(t *testing.T) {
	t.Parallel()
	n := node(t)
	call(t, n, "PUT", "/queues/mail", `{"concurrency":3}`)
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/queues")
	const none = `document.querySelector('dialog') === null`
	ways := []func(){func() { b.press(kb.Escape) }, func() { b.click("dialog button", "Cancel") }}
	for i, leave := range ways {
		b.click("button", "Limit")
		b.until("its limit", `document.activeElement?.closest('dialog') && document.querySelector('#q-limit')?.value === '3'`)
		leave()
		b.until("no dialog", none)
		b.click("button", "Limit")
		for range 2 {
			b.fill("#q-limit", fmt.Sprint(5+i))
			leave()
			b.until("a question", question)
			b.press(kb.Escape)
			b.until("the first dialog alone", `document.querySelectorAll('dialog').length === 1`)
		}
		leave()
		b.click("dialog button", "Discard")
		b.until("no dialog", none)
	}
	if text := string(call(t, n, "GET", "/queues/mail", "")); !strings.Contains(text, `"concurrency":3`) {
		t.Error(text)
	}
}

// The review of an edit has as many times before as after, also where a schedule ends: then it says so.
func TestReviewComparesAsManyTimes(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "hourly", "@hourly", "true")
	create(t, n, "once", time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "true")
	create(t, n, "halted", "@hourly", "true")
	call(t, n, "POST", "/jobs/halted:pause", "")
	b := open(t, "http://"+n.Addr, usual)
	review := func(name, field, value string) {
		t.Helper()
		b.visit("/ui/jobs/" + name + "/edit")
		b.fill(field, value)
		b.click("button", "Review")
		b.until("the difference", `document.querySelector('dialog .diff') !== null`)
	}
	const cells = `[0, 1].map((i) => [...document.querySelectorAll('dialog tbody tr')].map((r) => r.cells[i].innerText))`
	for _, e := range [][3]string{{"hourly", "#f-schedule", "*/5 * * * *"}, {"hourly", "#f-max_runs", "2"},
		{"once", "#f-schedule", "@hourly"}} {
		review(e[0], e[1], e[2])
		got := eval[[][]string](b, cells)
		if len(got) != 2 || len(got[0]) != 10 || len(got[1]) != 10 {
			t.Errorf("%v: %q", e, got)
			continue
		}
		if e[0] == "once" && got[0][1] != "none" || e[1] == "#f-max_runs" && (got[1][2] != "none" || got[1][1] != got[0][1]) {
			t.Errorf("%v: %q", e, got)
		}
		b.picture("review-"+e[0]+strings.ReplaceAll(e[1], "#f-", "-"), 1280)
	}
	review("halted", "#f-schedule", "30 * * * *")
	if text := eval[string](b, `document.querySelector('dialog').innerText`); strings.Contains(text, "stay the same") {
		t.Errorf("it is paused and has another schedule: %s", text)
	}
}
