package web

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func ask(t *testing.T, method, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if !Serves(r) {
		t.Fatalf("%s %s is not served", method, target)
	}
	w := httptest.NewRecorder()
	Serve(w, r)
	return w.Result()
}

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestTheRootLeadsToThePage(t *testing.T) {
	for _, target := range []string{"/", "/ui"} {
		for _, accept := range []string{"text/html,application/xhtml+xml,*/*;q=0.8", "*/*", ""} {
			res := ask(t, "GET", target, "Accept", accept)
			if res.StatusCode != http.StatusFound || res.Header.Get("Location") != "/ui/" {
				t.Errorf("GET %s: %s, Location %q", target, res.Status, res.Header.Get("Location"))
			}
		}
	}
	for _, r := range []*http.Request{
		httptest.NewRequest("POST", "/", nil), httptest.NewRequest("GET", "/api/v1/jobs", nil),
		httptest.NewRequest("GET", "/uix", nil),
	} {
		if Serves(r) {
			t.Errorf("%s %s is taken for the page", r.Method, r.URL.Path)
		}
	}
}

// A link to a view is opened from outside: every path below /ui/ is the page, with the same headers.
func TestEveryViewIsThePage(t *testing.T) {
	for _, target := range []string{"/ui/", "/ui/jobs", "/ui/jobs/a%2Fb/edit?ns=x", "/ui/nothing/of/the/kind"} {
		res := ask(t, "GET", target)
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %s, %s", target, res.Status, res.Header.Get("Content-Type"))
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cache-Control": "no-cache",
		} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", target, name, got, want)
			}
		}
		if text := body(t, res); strings.Contains(text, "{{") || !strings.Contains(text, "/app/main.js") {
			t.Errorf("%s: %s", target, text)
		}
	}
	if res := ask(t, "HEAD", "/ui/"); body(t, res) != "" || res.Header.Get("Content-Length") == "" {
		t.Error("HEAD has a body, or no length")
	}
	if res := ask(t, "POST", "/ui/jobs"); res.StatusCode != 405 || res.Header.Get("Allow") == "" {
		t.Errorf("POST: %s", res.Status)
	}
}

// A view that was loaded is asked for again with its tag, and not sent again.
func TestTheSameIsNotSentTwice(t *testing.T) {
	tag := ask(t, "GET", "/ui/").Header.Get("ETag")
	res := ask(t, "GET", "/ui/jobs", "If-None-Match", tag)
	if res.StatusCode != http.StatusNotModified || body(t, res) != "" {
		t.Errorf("with %s: %s", tag, res.Status)
	}
}

var attr = regexp.MustCompile(`(?:src|href)="([^"]+)"`)

// Whatever index.html names is there, is kept for ever, and comes compressed to those who can read that.
func TestFilesAreKeptByTheirVersion(t *testing.T) {
	found := 0
	for _, m := range attr.FindAllStringSubmatch(body(t, ask(t, "GET", "/ui/")), -1) {
		found++
		plain := ask(t, "GET", m[1])
		if plain.StatusCode != 200 || !strings.Contains(plain.Header.Get("Cache-Control"), "immutable") ||
			plain.Header.Get("Content-Security-Policy") != policy || plain.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %s %v", m[1], plain.Status, plain.Header)
		}
		zipped := ask(t, "GET", m[1], "Accept-Encoding", "br, gzip;q=0.8")
		if zipped.Header.Get("Content-Encoding") != "gzip" || zipped.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s is not compressed", m[1])
			continue
		}
		r, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil || string(data) != body(t, plain) {
			t.Errorf("%s differs when it is compressed: %v", m[1], err)
		}
		other := strings.Replace(m[1], load().version, "0123456789abcdef", 1)
		if res := ask(t, "GET", other); res.StatusCode != 404 || res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s of another version: %s, %s", m[1], res.Status, res.Header.Get("Cache-Control"))
		}
	}
	if found < 10 {
		t.Errorf("index.html names %d files", found)
	}
	if res := ask(t, "GET", "/ui/app/main.js", "Accept-Encoding", "gzip;q=0"); res.Header.Get("Content-Encoding") != "" {
		t.Error("compressed for one who does not want that")
	}
}

var (
	imported = regexp.MustCompile(`(?:\bfrom\s*|\bimport\()['"]([\w@./-]+)['"]`)
	unsafe   = regexp.MustCompile(`\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|eval)\b`)
)

// Browsers resolve imports by their paths: each names a file that is there. The page makes text of what it shows, never
// markup, and reaches nothing but the API of its node.
func TestScriptsNameWhatIsThere(t *testing.T) {
	seen := 0
	for name, f := range load().files {
		if path.Ext(name) != ".js" || strings.HasPrefix(name, "vendor/uplot") {
			continue
		}
		for _, m := range imported.FindAllStringSubmatch(string(f.plain), -1) {
			seen++
			if to := path.Join(path.Dir(name), m[1]); !strings.HasPrefix(m[1], ".") || load().files[to].plain == nil {
				t.Errorf("%s imports %s, which is not there", name, m[1])
			}
		}
		if strings.HasPrefix(name, "app/") {
			if m := unsafe.Find(f.plain); m != nil {
				t.Errorf("%s uses %s", name, m)
			}
			if bytes.Contains(f.plain, []byte("http://")) || bytes.Contains(f.plain, []byte("https://")) {
				for line := range strings.SplitSeq(string(f.plain), "\n") {
					if strings.Contains(line, "://") && !strings.Contains(line, "placeholder") &&
						!strings.Contains(line, "location.protocol") {
						t.Errorf("%s names another place: %s", name, line)
					}
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d imports were looked at", seen)
	}
}

// What is written here is read side by side with something else, as the rest of the tree is.
func TestLinesAreShort(t *testing.T) {
	const most = 120
	for name, f := range load().files {
		if strings.HasPrefix(name, "vendor/") || path.Ext(name) == ".svg" {
			continue
		}
		for i, line := range strings.Split(string(f.plain), "\n") {
			if n := utf8.RuneCountInString(line); n > most {
				t.Errorf("%s:%d has %d columns, the most is %d", name, i+1, n, most)
			}
		}
	}
}

// The whole page is small: what a browser ever loads of it.
func TestThePageStaysSmall(t *testing.T) {
	const most = 120 << 10
	all := len(load().index.zipped)
	for name, f := range load().files {
		if path.Ext(name) != ".txt" {
			all += len(f.zipped)
		}
	}
	t.Logf("%d bytes compressed, in %d files", all, len(load().files))
	if all > most {
		t.Errorf("the page has %d bytes compressed, the most is %d", all, most)
	}
}

// What was taken from elsewhere is as it was taken.
func TestVendoredFilesAreUnchanged(t *testing.T) {
	readme, err := os.ReadFile("vendor/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"vendor", "e2e/testdata"} {
		unchanged(t, dir, string(readme))
	}
}

func unchanged(t *testing.T, dir, readme string) {
	t.Helper()
	sums, err := os.Open(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	defer sums.Close()
	known := map[string]string{}
	for s := bufio.NewScanner(sums); s.Scan(); {
		sum, name, _ := strings.Cut(s.Text(), "  ")
		known[name] = sum
	}
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		name := filepath.Base(p)
		if err != nil || d.IsDir() || name == "SHA256SUMS" || name == "README.md" {
			if err == nil && d.IsDir() && p != dir {
				t.Errorf("%s: a module's archive leaves out directories below vendor", p)
			}
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(data); known[name] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s is not what SHA256SUMS says", p)
		}
		if !strings.Contains(readme, "`"+name+"`") {
			t.Errorf("vendor/README.md does not say where %s is from", name)
		}
		delete(known, name)
		return nil
	})
	if err != nil || len(known) > 0 {
		t.Errorf("%v; not there: %v", err, known)
	}
}
