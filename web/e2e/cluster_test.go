//go:build carillon_browser

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// three starts a cluster.
func three(t *testing.T) *harness.Cluster {
	t.Helper()
	chromium(t)
	return harness.NewCluster(t, harness.Build(t), 3, "--executors", "shell", "--log-level", "error")
}

// The leader dies: the page of another node goes on, and of every occurrence it is known what became of it.
func TestTheLeaderDies(t *testing.T) {
	t.Parallel()
	c := three(t)
	lead := c.Leader()
	other := c.Others(lead)[0]
	create(t, other, "tick", "@every 1s", "true")
	ran(t, other, "tick", job.RunSucceeded)
	b := open(t, "http://"+other.Addr, usual)
	b.visit("/ui/jobs/tick?span=1h")
	b.until("the strip", `document.querySelector('.strip canvas') !== null`)
	lead.Kill("to see whether the page goes on")
	b.until("another leader", `fetch('/api/v1/status?stale=true').then((r) => r.json()).then((s) => s.leader !== '' && s.leader !== `+quote(lead.ID)+`)`)
	started := time.Now().UTC().Format(time.RFC3339)
	b.until("occurrences of the next leader", `fetch('/api/v1/jobs/tick/occurrences?from=`+started+`').then((r) => r.json())
		.then((o) => o.occurrences.filter((x) => x.fate === 'succeeded').length > 3)`)
	b.until("a strip without a hole", `/(^|\n)0\s*unaccounted/.test(document.querySelector('.sum').innerText)`)
	b.click("a.item", "Cluster")
	b.until("who is gone", `document.querySelector('.node.gone[aria-label=`+lead.ID+`]') !== null`)
}

// Without a majority the page says so, shows what its node has, and changes nothing.
func TestNoMajority(t *testing.T) {
	t.Parallel()
	c := three(t)
	create(t, c.Nodes[0], "still", "@hourly", "true")
	b := open(t, "http://"+c.Nodes[0].Addr, look{"dark", "UTC", 1280})
	b.visit("/ui/jobs/still")
	b.sees("still")
	c.Nodes[1].Kill("to have no majority")
	c.Nodes[2].Kill("to have no majority")
	b.sees("There is no leader")
	b.sees("still")
	b.until("actions that are off", `[...document.querySelectorAll('button')].find((e) => e.textContent.includes('Pause'))?.disabled === true`)
	// A view that is opened now has what the node itself has.
	b.click("a.item", "Jobs")
	b.until("the list", `document.querySelector('[data-row] a.main')?.textContent === 'still'`)
	c.Nodes[1].Start()
	b.until("actions that are on again", `document.querySelector('.banner.bad') === null`)
}

// The node that serves the page dies: it says so and leads to the same view elsewhere.
func TestItsOwnNodeDies(t *testing.T) {
	t.Parallel()
	c := three(t)
	create(t, c.Nodes[0], "here", "@hourly", "true")
	b := open(t, "http://"+c.Nodes[0].Addr, usual)
	b.visit("/ui/")
	b.settled()
	b.until("figures of the others", `document.querySelectorAll('.tile').length > 4 && document.querySelector('.tiles').innerText.includes('slots')`)
	b.until("who leads, and so the others", `document.querySelector('.top .pill')?.title.includes('leads')`)
	c.Nodes[0].Kill("to see where the page leads to")
	b.sees("does not answer")
	// That is said once, with the age of what is seen, which looks old.
	b.until("the age", `/What you see is [2-9] s old|What you see is [2-9]\.\d s old|What you see is \d\d s old/.test(document.querySelector('.banner').innerText)`)
	if got := eval[[]string](b, `document.body.innerText.match(/.*(answer|Not up to date|Retry).*/gi)`); len(got) != 1 {
		t.Errorf("the node that is gone is said %d times: %q", len(got), got)
	}
	if got := eval[float64](b, `Number(getComputedStyle(document.querySelector('.tiles')).opacity)`); got > .8 {
		t.Errorf("the figures do not look old: opacity %g", got)
	}
	if got := eval[[]string](b, `[...document.querySelectorAll('.s-missed')].map((e) => e.innerText)`); len(got) != 0 {
		t.Errorf("what is not known of is called late: %q", got)
	}
	b.picture("gone-light-1280", 1280)
	c.Nodes[0].Start()
	b.until("figures that are new", `document.querySelector('.banner') === null && getComputedStyle(document.querySelector('.tiles')).opacity === '1'`)

	b.visit("/ui/jobs/here?tab=definition")
	b.until("who leads, and so the others", `document.querySelector('.top .pill')?.title.includes('leads')`)
	c.Nodes[0].Kill("to see where the page leads to")
	b.sees("does not answer")
	b.until("what cannot be done", `[...document.querySelectorAll('button')].find((e) => e.textContent.includes('Pause'))?.disabled`)
	const links = `[...document.querySelectorAll('.banner a')].map((a) => a.href)`
	b.until("links", links+`.length === 2`)
	for i, link := range eval[[]string](b, links) {
		if want := fmt.Sprintf("http://%s/ui/jobs/here?tab=definition", c.Nodes[i+1].Addr); link != want {
			t.Errorf("it leads to %s, want %s", link, want)
		}
	}
	b.click(".banner a", "n2")
	b.until("the same view", `location.host === `+quote(c.Nodes[1].Addr)+` && document.querySelector('.codeblock') !== null`)
}

// Eight tabs of one browser: what a node says by itself takes a connection of the six that there are from none of them.
func TestEightTabs(t *testing.T) {
	n := node(t)
	create(t, n, "tick", "@every 1s", "true")
	ran(t, n, "tick", job.RunSucceeded)
	first := open(t, "http://"+n.Addr, usual)
	first.visit("/ui/jobs/tick?span=1h")
	tabs := []*tab{first}
	for range 7 {
		b := first.another()
		b.visit("/ui/jobs/tick?span=1h")
		tabs = append(tabs, b)
	}
	for i, b := range tabs {
		b.until(fmt.Sprint("the strip in tab ", i), `document.querySelector('.strip canvas') !== null`)
	}
	last := tabs[7]
	last.click("a.item", "Queues")
	last.sees("No queues")
}
