package node

import (
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
)

// Everybody gets the page from every node, leader or not, without a token; the API behind it goes on asking for one.
func TestPage(t *testing.T) {
	t.Parallel()
	withKeys, _ := securely(t)
	for mode, change := range map[string]func(*Config){
		"plain":  func(*Config) {},
		"secure": func(c *Config) { withKeys(c); secure(c) },
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := start(t, t.TempDir(), change)
			n.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			ask := func(method, path, host string) (*http.Response, string) {
				t.Helper()
				// the client of the test makes the TLS connection itself
				rq, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.Addr()+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if host != "" {
					rq.Host = host
				}
				rq.Header.Set("Accept", "*/*") // as curl says
				res, err := n.client.Do(rq)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatal(err)
				}
				return res, string(text)
			}
			get := func(path, host string) (*http.Response, string) {
				t.Helper()
				return ask("GET", path, host)
			}
			root, text := get("/", "")
			if root.StatusCode != 302 || root.Header.Get("Location") != "/ui/" || !strings.Contains(text, "/api/v1") {
				t.Errorf("the root: %s, Location %q, %s", root.Status, root.Header.Get("Location"), text)
			}
			head, _ := ask("HEAD", "/", "")
			for _, h := range []http.Header{root.Header, head.Header} {
				h.Del("Date")
			}
			if head.StatusCode != root.StatusCode || !reflect.DeepEqual(head.Header, root.Header) {
				t.Errorf("HEAD of the root: %s %v, GET has %s %v", head.Status, head.Header, root.Status, root.Header)
			}
			res, text := get("/ui/jobs/hello", "")
			if res.StatusCode != 200 || !strings.Contains(text, "<!doctype html>") ||
				!strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'") {
				t.Errorf("a view: %s %v", res.Status, res.Header)
			}
			// A name that was made to mean this machine must not get a page that has the API for its own origin.
			if res, _ := get("/ui/", "evil.example"); res.StatusCode != http.StatusForbidden {
				t.Errorf("under another name: %s", res.Status)
			}
			want := http.StatusOK
			if n.keys != nil {
				want = http.StatusUnauthorized
			}
			for _, path := range []string{"/api/v1/jobs", "/api/v1/whoami"} {
				if res, _ := get(path, ""); res.StatusCode != want {
					t.Errorf("%s: %s, want %d", path, res.Status, want)
				}
			}
		})
	}
}

// docs/api.md says where the page is, and for whom.
func TestPageIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range pageEndpoints() {
		name := strings.TrimSuffix(e.Path, "{$}")
		if row := "| `" + name + "` | " + e.Role.String() + " |"; !strings.Contains(string(text), row) {
			t.Errorf("docs/api.md has no row %s", row)
		}
	}
}
