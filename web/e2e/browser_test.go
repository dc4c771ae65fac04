//go:build carillon_browser

package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"iter"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

func TestMain(m *testing.M) {
	inOwnNetwork()
	// Most of their time the tests wait for jobs. The command line is read later and may say otherwise.
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+2)); err != nil {
		panic(err)
	}
	code := harness.Main(m)
	closeBrowser()
	os.Exit(code)
}

// patience is how long something may take to be seen, on a machine that does other things as well.
const patience = 60 * time.Second

// chromium is the browser. Without one the tests are left out, except where it was said that there is one.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CARILLON_BROWSER") != "" {
		t.Fatal("CARILLON_BROWSER is set, and there is no Chromium: apt-get install chromium")
	}
	t.Skip("there is no Chromium: apt-get install chromium")
	return ""
}

// browser is one process for all tests; each of them has a profile of its own in it, as a private window has.
var browser struct {
	sync.Once
	ctx context.Context
	end []context.CancelFunc
	err error
}

func sharedBrowser(t *testing.T) context.Context {
	t.Helper()
	path := chromium(t)
	browser.Do(func() {
		opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
			chromedp.DisableGPU, chromedp.IgnoreCertErrors, // of the CA of a secure cluster
			chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
			chromedp.Flag("disable-sync", true), chromedp.Flag("disable-background-networking", true),
			chromedp.Flag("js-flags", "--expose-gc"))
		ctx, end := chromedp.NewExecAllocator(context.Background(), opts...)
		browser.end = append(browser.end, end)
		browser.ctx, end = chromedp.NewContext(ctx)
		browser.end = append(browser.end, end)
		browser.err = chromedp.Do(browser.ctx)
	})
	must(t, browser.err)
	return browser.ctx
}

func closeBrowser() {
	for i := len(browser.end) - 1; i >= 0; i-- {
		browser.end[i]()
	}
}

// look is how a tab sees the world.
type look struct {
	theme, zone string
	width       int64
}

var usual = look{"light", "UTC", 1280}

// tab is one tab of a profile of its own.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	stays atomic.Bool   // whether it stays when the browser asks before it leaves a page
	asked chan struct{} // takes that the browser asked
}

// open opens one. Its theme and zone are not those of the machine.
func open(t *testing.T, base string, l look, opts ...chromedp.ContextOption) *tab {
	t.Helper()
	if len(opts) == 0 {
		opts = append(opts, chromedp.WithNewBrowserContext())
	}
	ctx, end := chromedp.NewContext(sharedBrowser(t), opts...)
	t.Cleanup(end)
	b := &tab{t: t, ctx: ctx, base: base, asked: make(chan struct{}, 1)}
	go b.answer(chromedp.Events(ctx, page.JavascriptDialogOpening))
	b.resize(l.width, 900)
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.theme}}})
	must(t, err)
	_, err = chromedp.Call(ctx, emulation.SetTimezoneOverride,
		emulation.SetTimezoneOverrideParams{TimezoneID: l.zone})
	must(t, err)
	// What the policy refuses is heard by every document from its beginning.
	_, err = chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.refused = []; addEventListener('securitypolicyviolation', (e) =>
			refused.push(e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sourceFile))`})
	must(t, err)
	return b
}

// answer answers the browser's own question whether to leave a page.
func (b *tab) answer(opening iter.Seq2[page.EventJavascriptDialogOpening, error]) {
	for e, err := range opening {
		if err != nil {
			return
		}
		stay := b.stays.Load() && e.Type == page.DialogTypeBeforeunload
		select {
		case b.asked <- struct{}{}:
		default:
		}
		// It fails when the tab is closed.
		_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: !stay})
	}
}

// another opens a tab of the same profile.
func (b *tab) another() *tab {
	b.t.Helper()
	id := chromedp.FromContext(b.ctx).BrowserContextID
	return open(b.t, b.base, usual, chromedp.WithExistingBrowserContext(id))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *tab) resize(width, height int64) {
	b.t.Helper()
	must(b.t, chromedp.Do(b.ctx, chromedp.EmulateViewport(width, height)))
}

// visit opens a view and waits until it has its heading.
func (b *tab) visit(path string) {
	b.t.Helper()
	must(b.t, chromedp.Do(b.ctx, chromedp.Navigate(b.base+path)))
	b.until("the heading of "+path, `document.querySelector('#main h1, .login form, #main .state') !== null`)
}

// settled waits until nothing of the view is being loaded.
func (b *tab) settled() {
	b.t.Helper()
	b.until("a view that has everything", `document.querySelector('.bone, [aria-busy=true]') === null`)
}

// until waits for an expression to hold.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	b.within(patience, what, expression)
}

func (b *tab) within(limit time.Duration, what, expression string) {
	b.t.Helper()
	end := time.Now().Add(limit)
	poll := chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(limit),
		chromedp.WithPollingInterval(50*time.Millisecond))
	_, err := chromedp.Run(b.ctx, poll)
	for gone(err) && time.Now().Before(end) {
		_, err = chromedp.Run(b.ctx, poll)
	}
	if err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`location.href + '\n' + document.body.innerText`))
		b.t.Fatalf("%s: %v; the page says:\n%s", what, err, text)
	}
}

// gone says whether a document was asked that is replaced meanwhile: the next one may be asked again.
func gone(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "Cannot find context") ||
		strings.Contains(err.Error(), "Inspected target navigated or closed"))
}

// sees waits until the page has a text.
func (b *tab) sees(text string) {
	b.t.Helper()
	b.until("to see "+text, `document.body.innerText.includes(`+quote(text)+`)`)
}

// click clicks on what a person would: the first that can be clicked and begins with the text.
func (b *tab) click(selector, text string) {
	b.t.Helper()
	b.until("to find "+text, find(selector, text)+` !== undefined`)
	eval[bool](b, find(selector, text)+`.click() === undefined`)
}

func find(selector, text string) string {
	return `[...document.querySelectorAll(` + quote(selector) + `)].find((e) => !e.disabled && ` +
		`(e.textContent.trim() || e.ariaLabel || '').startsWith(` + quote(text) + `))`
}

// fill puts a text into a field, as typing it does.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.until("to find "+selector, `document.querySelector(`+quote(selector)+`) !== null`)
	eval[bool](b, `(() => { const e = document.querySelector(`+quote(selector)+`);
		e.focus(); e.value = `+quote(text)+`;
		for (const type of ['input', 'change']) e.dispatchEvent(new Event(type, { bubbles: true })); return true })()`)
}

// press sends keys to what has the focus.
func (b *tab) press(keys string) {
	b.t.Helper()
	must(b.t, chromedp.Do(b.ctx, chromedp.KeyEvent(keys)))
}

// chip waits for a status in the main part.
func (b *tab) chip(status string) {
	b.t.Helper()
	b.until("the status "+status, `[...document.querySelectorAll('#main .chip')].some((e) => `+
		`e.textContent.trim().startsWith(`+quote(status)+`))`)
}

func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	must(b.t, err)
	return v
}

func quote(s string) string {
	data, _ := json.Marshal(s) // a string can be
	return string(data)
}

// wrongs collects what the console says. What the network says is left out where a view is meant to get an error.
func (b *tab) wrongs() (stop func() []string) {
	ctx, end := context.WithCancel(b.ctx)
	messages := chromedp.Console(ctx)
	got := make(chan []string, 1)
	go func() {
		var all []string
		for m, err := range messages {
			if err != nil {
				break
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException() {
				all = append(all, m.String()+" "+m.URL)
			}
		}
		got <- all
	}()
	return func() []string {
		end()
		return <-got
	}
}

// foreign are requests to anything but the page's own node.
func (b *tab) foreign() []string {
	all := eval[[]string](b, `performance.getEntriesByType('resource').map((e) => e.name)`)
	var out []string
	for _, name := range all {
		if !strings.HasPrefix(name, b.base+"/") && !strings.HasPrefix(name, "data:") {
			out = append(out, name)
		}
	}
	return out
}
