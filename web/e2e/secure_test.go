//go:build carillon_browser

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// A secure cluster asks for a token, and with one the page does what that may: nothing is kept of it but in the tab.
func TestSignIn(t *testing.T) {
	t.Parallel()
	chromium(t)
	binary, dir, addr := harness.Build(t), t.TempDir(), harness.FreeAddr(t)
	server := exec.Command(binary, "server", "--node-id", "n1", "--listen", addr, "--data-dir", filepath.Join(dir, "n1"),
		"--secure", "--bootstrap", "--min-free-disk", "0")
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	defer log.Close()
	server.Stdout, server.Stderr = log, log
	must(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	admin := filepath.Join(dir, "n1", "admin.token")
	cli := func(args ...string) (string, error) {
		cmd := exec.Command(binary, append([]string{"--addr", addr, "--token-file", admin}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME=")
		out, err := cmd.Output()
		return string(out), err
	}
	token := func(name string, flags ...string) string {
		t.Helper()
		file := filepath.Join(dir, name+".token")
		harness.Eventually(t, patience, "the token "+name, func() bool {
			_, err := cli(append([]string{"token", "create", name, "--out", file}, flags...)...)
			return err == nil
		})
		text, err := os.ReadFile(file)
		must(t, err)
		return strings.TrimSpace(string(text))
	}
	viewer := token("looks", "--role", "viewer")
	if _, err := cli("submit", "--name", "guarded", "--schedule", "@hourly", "--http", "http://127.0.0.1:1/"); err != nil {
		t.Fatal(err)
	}
	b := open(t, "https://"+addr, usual)
	b.visit("/ui/jobs/guarded")
	b.sees("needs an API token")
	b.fill("#token", "ct1.wrong")
	b.click("button", "Sign in")
	b.until("what is wrong with it", `document.querySelector('#token-wrong').innerText.length > 10`)
	b.fill("#token", viewer)
	b.click("button", "Sign in")
	b.until("the view that was asked for", `document.querySelector('#main h1')?.textContent === 'guarded'`)
	b.until("what it may not do", `[...document.querySelectorAll('button')].find((e) => e.textContent.includes('Pause'))
		?.title.includes('operator')`)
	b.sees("looks (viewer)")
	// Nor does a link or a key lead to a form that it could not send.
	b.until("an edit that is off", `[...document.querySelectorAll('button')].find((e) => e.textContent.trim() === 'Edit')
		?.title.includes('operator')`)
	b.press("e")
	b.press("n")
	b.click("a.item", "Jobs")
	b.until("a new job that is off", `[...document.querySelectorAll('button')].find((e) => e.textContent.trim() === 'New job')
		?.title.includes('operator')`)
	if got := eval[string](b, `location.pathname + [...document.querySelectorAll('a[href*="/edit"], a[href$="/new"]')].join()`); got != "/ui/jobs" {
		t.Errorf("what a viewer may not do is offered: %s", got)
	}
	if got := eval[string](b, `document.cookie + Object.values(localStorage).join()`); strings.Contains(got, "ct1.") {
		t.Errorf("the token is kept: %s", got)
	}
	// One that is for a namespace sees that, and asks for nothing that it may not have.
	team := open(t, "https://"+addr, usual)
	team.visit("/ui/")
	team.fill("#token", token("team", "--role", "operator", "--namespace", "team-a"))
	team.click("button", "Sign in")
	team.until("the overview", `document.querySelector('#main h1')?.textContent === 'Overview'`)
	wrongs := team.wrongs()
	for _, path := range []string{"/ui/", "/ui/jobs", "/ui/runs", "/ui/dead", "/ui/upcoming", "/ui/queues", "/ui/calendars"} {
		team.visit(path)
		team.settled()
	}
	for _, w := range wrongs() {
		t.Errorf("the console says: %s", w)
	}
	// Another tab knows nothing of it.
	other := b.another()
	other.visit("/ui/")
	other.sees("needs an API token")
	if _, err := cli("token", "revoke", "looks"); err != nil {
		t.Fatal(err)
	}
	b.sees("needs an API token")
}
