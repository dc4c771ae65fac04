//go:build carillon_browser

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// What a form does not show it does not change: a number that a double cannot hold, an empty text, a null.
func TestAFormKeepsWhatItDoesNotShow(t *testing.T) {
	t.Parallel()
	const payload = `{"queue":"q","data":{"id":9007199254740993,"sum":1234567890.123456789,"note":null,"comment":"","n":1.5}}`
	n := node(t)
	call(t, n, "POST", "/jobs", `{"name":"exact","type":"queue","schedule":"@hourly","tags":{"legacy":""},"payload":`+payload+`}`)
	kept := func(name, tags string) {
		t.Helper()
		j, err := n.Client.GetJob(context.Background(), name)
		must(t, err)
		if string(j.Payload) != payload || fmt.Sprint(j.Tags) != tags {
			t.Errorf("%s has %s and the tags %v", name, j.Payload, j.Tags)
		}
	}
	b := open(t, "http://"+n.Addr, usual)
	for _, schedule := range []string{"30 * * * *", "45 * * * *"} {
		b.visit("/ui/jobs/exact/edit")
		b.until("the form", `document.querySelector('#f-schedule') !== null`)
		if schedule == "45 * * * *" { // by way of the text
			b.click("button", "JSON")
			b.until("its number", `document.querySelector('#f-raw').value.includes('9007199254740993,')`)
			b.click("button", "Form")
		}
		if empty := eval[[]string](b, `[...document.querySelectorAll('select')].filter((e) => e.selectedIndex < 0).map((e) => e.id)`); len(empty) > 0 {
			t.Errorf("nothing is chosen in %v", empty)
		}
		b.until("its data", `document.querySelector('#p-data').value.includes('"id": 9007199254740993,')`)
		b.fill("#f-schedule", schedule)
		b.click("button", "Review and save")
		b.until("the difference", `document.querySelector('dialog .diff') !== null`)
		if names := eval[string](b, `[...document.querySelectorAll('dialog .diff .name')].map((e) => e.textContent).join()`); names != "schedule" {
			t.Errorf("what is said to change: %s", names)
		}
		b.click("dialog button", "Save")
		b.until("the job", `location.pathname === '/ui/jobs/exact'`)
		kept("exact", "map[legacy:]")
	}
	b.visit("/ui/jobs/exact?tab=definition")
	b.visit("/ui/jobs/new")
	b.click("button", "JSON")
	b.fill("#f-raw", `{"name":"written","type":"queue","schedule":"@hourly","tags":{"legacy":""},"payload":`+payload+`}`)
	b.click("button", "Create")
	b.until("the job", `location.pathname === '/ui/jobs/written'`)
	kept("written", "map[legacy:]")
}

// The limit of a queue is changed alone: who paused it meanwhile did so. What is new takes the place of nothing.
func TestQueuesAndCalendarsAreNotOverwritten(t *testing.T) {
	t.Parallel()
	n := node(t)
	call(t, n, "PUT", "/queues/mail", `{"concurrency":3}`)
	call(t, n, "PUT", "/calendars/holidays", `{"timezone":"UTC","dates":["12-25"]}`)
	queue := func(concurrency int) {
		t.Helper()
		var q client.Queue
		must(t, json.Unmarshal(call(t, n, "GET", "/queues/mail", ""), &q))
		if q.Concurrency != concurrency || !q.Paused {
			t.Errorf("%+v", q)
		}
	}
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/queues")
	b.click("button", "Limit")
	b.until("its limit", `document.querySelector('#q-limit')?.value === '3'`)
	call(t, n, "POST", "/queues/mail:pause", "")
	b.fill("#q-limit", "5")
	b.click("dialog button", "Save")
	b.until("no dialog", `document.querySelector('dialog') === null`)
	queue(5)
	b.click("button", "New queue")
	b.fill("#q-name", "mail")
	b.click("dialog button", "Save")
	b.sees("There is a queue of this name.")
	queue(5)
	b.fill("#q-name", "other")
	b.click("dialog button", "Save")
	b.until("no dialog", `document.querySelector('dialog') === null`)
	b.sees("other")

	// One that only jobs name has a limit from now on.
	call(t, n, "POST", "/jobs", `{"name":"names-it","type":"queue","schedule":"@hourly","payload":{"queue":"aa-named"}}`)
	b.visit("/ui/queues")
	b.sees("aa-named")
	b.click("button", "Limit")
	b.sees("Limit of aa-named")
	b.fill("#q-limit", "7")
	b.click("dialog button", "Save")
	b.until("no dialog", `document.querySelector('dialog') === null`)
	if text := string(call(t, n, "GET", "/queues/aa-named", "")); !strings.Contains(text, `"concurrency":7`) {
		t.Error(text)
	}

	b.visit("/ui/calendars")
	b.click("button", "New calendar")
	b.fill("#c-name", "holidays")
	b.click("dialog button", "Save")
	b.sees("There is a calendar of this name.")
	if text := string(call(t, n, "GET", "/calendars/holidays", "")); !strings.Contains(text, "12-25") {
		t.Error(text)
	}
}

// In the view of all namespaces what is selected is acted on; what matches is not, and that is said.
func TestActInAllNamespaces(t *testing.T) {
	t.Parallel()
	n := node(t)
	create(t, n, "here", "@hourly", "true")
	create(t, n, "there", "@hourly", "true", `"namespace":"team-a"`)
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/jobs?ns=*")
	b.until("two rows", `document.querySelectorAll('[data-row]').length === 2`)
	b.click("[aria-label='Select all of this page']", "Select")
	b.sees("2 selected")
	b.click(".bulk button", "Pause")
	b.click("dialog button", "Pause 2")
	b.until("two that are paused", `[...document.querySelectorAll('[data-row] .chip')].filter((e) => e.textContent === 'paused').length === 2`)
	page, err := n.Client.In(job.AllNamespaces).ListJobs(context.Background(), client.JobQuery{Status: job.StatusPaused})
	must(t, err)
	if len(page.Jobs) != 2 {
		t.Errorf("%d are paused", len(page.Jobs))
	}
}

// A list says where it ends, and a page that has become empty leads back.
func TestListsSayWhereTheyEnd(t *testing.T) {
	t.Parallel()
	n := node(t)
	const many = 205
	bulk(t, n, many, func(i int) string {
		return fmt.Sprintf(`{"name":"j%d","type":"shell","schedule":"@manual","payload":{"command":"exit 1"},"retry":{"max_retries":0}}`, i)
	})
	bulk(t, n, many, func(i int) string {
		return fmt.Sprintf(`{"name":"hourly%d","type":"shell","schedule":"0 * * * *","payload":{"command":"true"}}`, i)
	})
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/upcoming?view=1h")
	b.click("button", "Show later ones")
	b.sees("The first 200 jobs. More are due from")

	call(t, n, "POST", "/jobs:act", `{"filter":{"prefix":"j"},"action":"run"}`)
	b.visit("/ui/dead")
	b.until("all of them", `document.querySelector('details.group b')?.textContent === '205'`)
	const link = `document.querySelector('[aria-label="Dead letters"] [data-row] a')?.href`
	first := eval[string](b, link)
	b.click(".more button", "Next page")
	b.until("the next page", link+` !== `+quote(first))
	b.click(".more button", "Next page")
	b.until("five rows", `document.querySelectorAll('[aria-label="Dead letters"] [data-row]').length === 5`)
	var page client.DeadPage
	must(t, json.Unmarshal(call(t, n, "GET", "/dead?limit=205", ""), &page))
	var last []uint64
	for _, d := range page.Dead[200:] {
		last = append(last, d.Seq)
	}
	ids, err := json.Marshal(map[string]any{"ids": last})
	must(t, err)
	call(t, n, "DELETE", "/dead", string(ids))
	b.until("none here", `document.querySelectorAll('[aria-label="Dead letters"] [data-row]:not([inert])').length === 0`)
	if eval[bool](b, `document.body.innerText.includes('No dead letters')`) {
		t.Error("200 dead letters are said to be none")
	}
	b.click(".more button", "First page")
	b.until("a page", `document.querySelectorAll('[aria-label="Dead letters"] [data-row]').length === 100`)
}
