//go:build carillon_browser

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// bulk makes many jobs, each from a line of JSON.
func bulk(t *testing.T, n *harness.Node, many int, line func(i int) string) {
	t.Helper()
	var jobs strings.Builder
	for i := range many {
		jobs.WriteString(line(i) + "\n")
	}
	must(t, n.Client.BulkCreate(context.Background(), strings.NewReader(jobs.String()), func(r client.BulkResult) error {
		if r.Error != nil {
			return r.Error
		}
		return nil
	}))
}

// taker is a worker without hands.
type taker struct {
	*client.Leader
	session string
}

// take polls a queue until it has given so many runs.
func take(t *testing.T, n *harness.Node, queue string, many int, each func(*taker, []job.Assignment)) *taker {
	t.Helper()
	w := &taker{Leader: client.NewLeader([]string{n.Addr}, client.WithQueue("", queue))}
	t.Cleanup(w.Close)
	taken := map[job.RunKey]bool{}
	harness.Eventually(t, 2*patience, fmt.Sprint(many, " runs with a worker"), func() bool {
		reply, err := w.Poll(context.Background(), job.Poll{Worker: "takes", Session: w.session, Free: 1000})
		if err != nil {
			return false
		}
		w.session = reply.Session
		for _, r := range reply.Runs {
			taken[r.Run] = true
		}
		if len(reply.Runs) > 0 {
			each(w, reply.Runs)
		}
		return len(taken) >= many
	})
	return w
}

// heap is what the tab holds after its garbage is collected.
func (b *tab) heap() int64 {
	b.t.Helper()
	return eval[int64](b, `(() => { for (let i = 0; i < 3; i++) gc(); return performance.memory.usedJSHeapSize })()`)
}

// A tab that is left open for an hour beside thousands of runs, while others come and go, holds what it held before.
func TestAnHourOfRuns(t *testing.T) {
	if !harness.Longest() {
		t.Skip("it takes an hour: CARILLON_LONG=2")
	}
	n := node(t)
	const many = 10_000
	bulk(t, n, many, func(i int) string {
		return fmt.Sprintf(`{"name":"open-%05d","type":"queue","schedule":"2026-01-01T00:00:00Z","timeout":"2h",`+
			`"payload":{"queue":"all"}}`, i)
	})
	create(t, n, "tick", "@every 1s", "true")
	var held []job.Ref
	w := take(t, n, "all", many, func(_ *taker, runs []job.Assignment) {
		for _, r := range runs {
			held = append(held, job.Ref{Fence: r.Fence})
		}
	})
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/runs")
	var first, last int64
	beats := time.NewTicker(10 * time.Second)
	defer beats.Stop()
	for i, end := 0, time.Now().Add(time.Hour); time.Now().Before(end); i++ {
		for some := range slices.Chunk(held, 1000) {
			_, err := w.Heartbeat(context.Background(), job.Heartbeat{Session: w.session, Runs: some})
			must(t, err)
		}
		if i%30 == 6 {
			if last = b.heap(); first == 0 {
				first = last
			}
			t.Logf("%s: a heap of %d KiB, %d rows, %d nodes", time.Now().Format(time.TimeOnly), last>>10,
				eval[int](b, `document.querySelectorAll('[data-row]').length`),
				eval[int](b, `document.getElementsByTagName('*').length`))
		}
		<-beats.C
	}
	if rows := eval[int](b, `document.querySelectorAll('[data-row]').length`); rows < 100 || rows > 200 {
		t.Errorf("%d rows", rows)
	}
	if last > first+first/2+(2<<20) {
		t.Errorf("the heap grew from %d to %d bytes", first, last)
	}
}

// Thousands of runs at once: the list has its two hundred rows, and what the browser holds stays what it was.
func TestManyRunning(t *testing.T) {
	n := node(t)
	const many = 10_000
	bulk(t, n, many, func(i int) string {
		return fmt.Sprintf(`{"name":"open-%05d","type":"queue","schedule":"@every 1s","payload":{"queue":"all"}}`, i)
	})
	take(t, n, "all", many, func(*taker, []job.Assignment) {})
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/runs")
	b.until("rows", `document.querySelectorAll('[data-row]').length > 50`)
	around := func(rounds int) {
		for range rounds {
			b.click("a.item", "Jobs")
			b.until("the jobs", `document.querySelector('[aria-label=Jobs] [data-row]') !== null`)
			b.click("a.item", "Runs")
			b.until("the runs", `document.querySelectorAll('[aria-label=Runs] [data-row]').length > 50`)
		}
	}
	around(2)
	before := b.heap()
	around(8)
	if rows := eval[int](b, `document.querySelectorAll('[data-row]').length`); rows > 200 {
		t.Errorf("%d rows", rows)
	}
	if after := b.heap(); after > before+before/2+(2<<20) {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

// Thousands of dead letters have three causes: ten of one are tried, then the rest of it.
func TestDeadLettersInGroups(t *testing.T) {
	t.Parallel()
	n := node(t)
	each := 3333
	if harness.Long() {
		each = 9999 // more than one answer counts
	}
	many, number := 3*each, func(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
	bulk(t, n, many, func(i int) string {
		return fmt.Sprintf(`{"name":"dies-%05d","type":"queue","schedule":"2026-01-01T00:00:00Z","payload":{"queue":"all"}}`, i)
	})
	causes := []string{"connect to 10.0.0.%d port 5432: refused", `user "u%d" is not known`, "order %d has no items"}
	take(t, n, "all", many, func(w *taker, runs []job.Assignment) {
		report := job.Report{Session: w.session}
		for i, r := range runs {
			report.Results = append(report.Results, job.Result{Ref: job.Ref{Fence: r.Fence}, Outcome: job.OutcomeFailed,
				Permanent: true, Error: fmt.Sprintf(causes[int(r.Run.Job)%3], i)})
		}
		_, err := w.Report(context.Background(), report)
		must(t, err)
	})
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/dead")
	b.until("three groups", `document.querySelectorAll('details.group').length === 3`)
	b.sees(number(each))
	const group = `[...document.querySelectorAll('details.group')].find((e) => e.textContent.includes('order'))`
	eval[bool](b, group+`.querySelector('summary').click() === undefined`)
	b.click("details[open] button", "Redrive the first ten")
	b.click("dialog button", "Redrive 10")
	b.sees("10 dead letters redriven")
	b.until("ten fewer", group+`.querySelector('.num').textContent === `+quote(number(each-10)))
	b.click("details[open] button", "Redrive these "+number(each-10))
	b.sees("Those with the error “order <n> has no items”.")
	b.click("dialog button", "Redrive "+number(each-10))
	b.sees(number(each-10) + " dead letters redriven")
	b.until("two groups", `document.querySelectorAll('details.group').length === 2`)
	if rows := eval[int](b, `document.querySelectorAll('[data-row]').length`); rows > 200 {
		t.Errorf("%d rows", rows)
	}
}

// Everything that matches a filter is paused; the page is loaded again in the middle, and it goes on where it was.
func TestAllThatMatch(t *testing.T) {
	t.Parallel()
	n := node(t)
	many := 10_000
	if harness.Long() {
		many = 100_000
	}
	bulk(t, n, many+1, func(i int) string {
		return fmt.Sprintf(`{"name":"match-%06d","type":"queue","schedule":"@yearly","payload":{"queue":"q"}}`, i)
	})
	call(t, n, "PATCH", fmt.Sprintf("/jobs/match-%06d", many), `{"name":"other"}`)
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/ui/jobs?q=ATCH-")
	b.until("a page of them", `document.querySelectorAll('[data-row]').length === 100`)
	b.click("[aria-label='Select all of this page']", "Select")
	b.click("button", "Select all that match")
	b.click(".bulk button", "Pause")
	number := fmt.Sprintf("%d,%03d", many/1000, many%1000)
	b.click("dialog button", "Pause "+number)
	b.until("some that are done", `/^[1-9]/.test(document.querySelector('dialog [role=status]')?.textContent ?? '')`)
	must(t, chromedp.Do(b.ctx, chromedp.Reload()))
	b.sees("Pause stopped")
	paused := func() (done int) {
		s := call(t, n, "GET", "/jobs?status=paused&limit=1", "")
		return strings.Count(string(s), `"job_id"`)
	}
	if paused() == 0 {
		t.Error("nothing was paused before the page was loaded again")
	}
	b.click("button", "Continue")
	b.within(5*patience, "all of them", `document.body.innerText.includes(`+quote("Pause: "+number+" done.")+`)`)
	var left []string
	for q := (client.JobQuery{Status: job.StatusScheduled, Limit: 1000}); ; { // it is looked for in pieces
		page, err := n.Client.ListJobs(context.Background(), q)
		must(t, err)
		for _, j := range page.Jobs {
			left = append(left, j.Name)
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	if !slices.Equal(left, []string{"other"}) {
		t.Errorf("not paused: %q", left)
	}
}
