//go:build carillon_browser

package e2e

import (
	"net"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/proof/harness"
	"github.com/carillon-scheduler/carillon/proof/port"
)

// Ten bells ring on three nodes, the leader is killed by a click, and the page says what that cost: nothing is lost and
// nothing ran twice.
func TestDemo(t *testing.T) {
	t.Parallel()
	chromium(t)
	first := port.ReserveRow(t, 3)
	dev := exec.Command(harness.Build(t), "dev", "--nodes", "3", "--listen", first, "--data-dir", t.TempDir())
	must(t, harness.Spawn(dev))
	t.Cleanup(func() { _ = dev.Process.Signal(syscall.SIGTERM); _ = dev.Wait() })
	leader := ""
	harness.Eventually(t, patience, "three nodes", func() bool {
		s, err := client.New(first, client.WithAttempts(1)).Status(t.Context())
		leader = s.Leader
		return err == nil && s.Ready && len(s.Members) == 3 && len(s.Workers) == 3
	})
	host, number, err := net.SplitHostPort(first)
	must(t, err)
	base, err := strconv.Atoi(number)
	must(t, err)
	k, err := strconv.Atoi(leader[1:])
	must(t, err)
	b := open(t, "http://"+net.JoinHostPort(host, strconv.Itoa(base+k%3)), usual) // one that does not lead
	b.visit("/ui/")
	b.click("a.item", "Demo")
	b.click("button", "Ring ten bells")
	b.until("ten bells that ring", `[...document.querySelectorAll('.bell')].filter((e) =>
		e.querySelectorAll('.ticks .s-succeeded').length > 2).length === 10`)
	b.click("button", "Kill the leader")
	b.until("what it cost", `/gap [\d.]+ m?s · 0 lost · 0 twice/.test(document.querySelector('.verdict')?.innerText)`)
	b.sees(leader + " was killed")
	// So does the page of the node that dies, when it is back; until then it shows that it is down.
	here := "n" + strconv.Itoa(k%3+1)
	harness.Eventually(t, patience, here+" to lead", func() bool {
		c := client.New(first)
		s, err := c.Status(t.Context())
		if err == nil && s.Leader != here {
			_ = c.TransferLeadership(t.Context(), here) // the member that died may have to catch up first
		}
		return err == nil && s.Leader == here
	})
	b.click("button", "Kill the leader ("+here+")")
	b.until("a node that is down", `document.querySelector('[aria-label="`+here+`"].gone:not(.leads)') !== null`)
	b.sees(here + " is down")
	b.until("what that cost", `/gap [\d.]+ m?s · 0 lost · 0 twice/.test(document.querySelector('.verdict')?.innerText)`)
	b.click("button", "Stop the bells")
	b.sees("No bells are ringing")
}
