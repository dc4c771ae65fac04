//go:build carillon_browser

package e2e

import (
	"context"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// A person who has read nothing makes a job, breaks it, is told, finds what is wrong, mends it and has the failed runs
// run again, by clicks.
func TestTheFirstHour(t *testing.T) {
	chromium(t)
	n := harness.NewNode(t, harness.Build(t), t.TempDir(), "--executors", "http,shell", "--log-level", "error")
	n.ID = "dev" // as carillon dev calls it, and a version that was built by hand
	n.Start()
	b := open(t, "http://"+n.Addr, usual)
	b.visit("/")
	b.until("the page", `location.pathname === '/ui/'`)
	b.until("the node", `document.querySelector('.nav .foot').innerText.includes('dev')`)
	if got := eval[[]string](b, misprints); len(got) > 0 {
		t.Errorf("said twice: %q", got)
	}
	b.click("a", "New job")
	b.fill("#f-name", "report")
	b.fill("#f-schedule", "@every 1s")
	b.click("button", "Shell")
	b.fill("#p-command", "echo all is well")
	b.click("summary", "Limits, retries, overlap")
	b.fill("#f-retry-max_retries", "0")
	b.click("button", "Create")
	b.until("the job", `location.pathname === '/ui/jobs/report'`)
	b.chip("succeeded")

	edit := func(command string) {
		t.Helper()
		b.click("a", "Edit")
		b.fill("#p-command", command)
		b.click("button", "Review and save")
		b.until("what changes", `document.querySelector('dialog .diff') !== null`)
		b.click("dialog button", "Save")
		b.until("the job", `location.pathname === '/ui/jobs/report'`)
	}
	edit("echo 'the disk of printer 7 is full' >&2; exit 3")
	ran(t, n, "report", job.RunDead)

	b.click("a.item", "Overview")
	b.until("that something is dead", `document.querySelector('.tile.hot') !== null`)
	b.click(".tile.hot", "Dead letters")
	b.click("[aria-label='Dead letters'] a:not(.main)", "")
	b.until("the run", `location.pathname.startsWith('/ui/runs/')`)
	b.sees("the disk of printer 7 is full")
	b.click(".crumbs a", "report")
	b.until("the job", `location.pathname === '/ui/jobs/report'`)
	edit("echo all is well again")

	b.click("a.item", "Dead letters")
	b.click("button", "Redrive all")
	b.click("dialog button", "Redrive")
	b.sees("No dead letters")
	harness.Eventually(t, patience, "the runs that were dead to succeed", func() bool {
		page, err := n.Client.DeadLetters(context.Background(), client.DeadQuery{})
		return err == nil && len(page.Dead) == 0
	})
	b.click("a.item", "Jobs")
	b.click("[data-row] a.main", "report")
	b.until("a strip without a hole", `/(^|\n)0\s*unaccounted/.test(document.querySelector('.sum')?.innerText)`)
}
