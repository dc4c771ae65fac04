package executor

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
)

// dials remembers which addresses passed the check, and lets none but loopback ones be connected to.
type dials struct {
	mu    sync.Mutex
	addrs []string
}

func (d *dials) policy(t *testing.T, o egress.Options) *egress.Policy {
	t.Helper()
	o.Control = func(_, address string) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.addrs = append(d.addrs, address)
		if a, err := netip.ParseAddrPort(address); err != nil || !a.Addr().IsLoopback() {
			return errors.New("recorded, not connected")
		}
		return nil
	}
	p, err := egress.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (d *dials) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.addrs)
}

// elsewhere are those that are not of this machine.
func (d *dials) elsewhere() (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.addrs {
		if a, err := netip.ParseAddrPort(s); err != nil || !a.Addr().IsLoopback() {
			out = append(out, s)
		}
	}
	return out
}

func wantDenied(t *testing.T, r job.Result, words ...string) {
	t.Helper()
	if r.Outcome != job.OutcomeFailed || !r.Permanent || !r.EgressDenied || !strings.Contains(r.Error, "egress denied: ") {
		t.Errorf("%+v", r)
	}
	for _, w := range words {
		if !strings.Contains(r.Error, w) {
			t.Errorf("the error does not say %q: %s", w, r.Error)
		}
	}
}

// TestHTTPDenied: what the rules deny is not called, and the failure is permanent and says which rule it was.
func TestHTTPDenied(t *testing.T) {
	here := newTarget(t, nil)
	var d dials
	h := newTestHTTP(t, HTTPOptions{Egress: d.policy(t, egress.Options{})})
	for url, rule := range map[string]string{
		here.URL: "rule 127.0.0.0/8", "http://169.254.169.254/latest/meta-data/": "rule 169.254.169.254/32",
		"https://[fd00:ec2::254]/": "rule fd00:ec2::/32", "http://[::ffff:127.0.0.1]/": "rule 127.0.0.0/8",
		"http://0.0.0.0:7400/": "rule 0.0.0.0/8",
	} {
		wantDenied(t, h.Run(t.Context(), httpJob(t, map[string]any{"url": url})), rule)
		wantDenied(t, h.Run(t.Context(), httpJob(t, map[string]any{"url": url, "insecure_skip_verify": true})), rule)
	}
	if len(here.requests()) != 0 || len(d.addrs) != 0 {
		t.Errorf("%d requests, dialled %v", len(here.requests()), d.addrs)
	}
	// without a policy of its own a runner has the default one
	bare := NewHTTP(HTTPOptions{})
	defer bare.Close()
	wantDenied(t, bare.Run(t.Context(), httpJob(t, map[string]any{"url": here.URL})))
}

// TestHTTPRedirectDenied: each step of a redirect is a dial, and judged as one.
func TestHTTPRedirectDenied(t *testing.T) {
	first := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
	})
	var d dials
	h := newTestHTTP(t, HTTPOptions{Egress: d.policy(t, egress.Options{Loopback: true})})
	wantDenied(t, h.Run(t.Context(), httpJob(t, map[string]any{"url": first.URL})), "169.254.169.254:80", "metadata")
	if n := len(first.requests()); n != 1 || len(d.elsewhere()) != 0 || len(d.addrs) != 1 {
		t.Errorf("%d requests, dialled %v", n, d.addrs)
	}
}

// TestHTTPMark: a request says that it is made for a job, at every host that it is sent on to, and a job cannot have a
// proxy on the way take that out again.
func TestHTTPMark(t *testing.T) {
	end := newTarget(t, nil)
	at, err := url.Parse(end.URL)
	if err != nil {
		t.Fatal(err)
	}
	balancer := httptest.NewServer(httputil.NewSingleHostReverseProxy(at))
	t.Cleanup(balancer.Close)
	first := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, end.URL+"/end", http.StatusFound)
	})
	h := newTestHTTP(t, HTTPOptions{})
	for _, c := range []struct {
		url     string
		headers map[string]string
	}{
		{end.URL, nil}, {first.URL, nil}, {balancer.URL, nil},
		{balancer.URL, map[string]string{"Connection": "close, carillon-JOB-request"}},
		{balancer.URL, map[string]string{"connection": "Carillon-Job-Request"}},
		{balancer.URL, map[string]string{"Proxy-Connection": "Carillon-Job-Request,x"}},
		{balancer.URL, map[string]string{"carillon-job-request": ""}},
		{first.URL, map[string]string{"Connection": "Carillon-Job-Request"}},
	} {
		before := len(end.requests())
		r := h.Run(t.Context(), httpJob(t, map[string]any{"url": c.url, "headers": c.headers}))
		if r.Outcome != job.OutcomeSucceeded || len(end.requests()) != before+1 {
			t.Fatalf("%+v: %+v", c, r)
		}
		if got := last(end.requests()).Header[egress.Header]; !slices.Equal(got, []string{egress.HeaderValue}) {
			t.Errorf("%+v: the target got %q", c, got)
		}
	}
}

// TestHTTPProxy: with a proxy requests go there, and those that can be known to be denied go nowhere.
func TestHTTPProxy(t *testing.T) {
	proxy := newTarget(t, nil)
	var d dials
	h := newTestHTTP(t, HTTPOptions{Egress: d.policy(t, egress.Options{Config: egress.Config{Proxy: proxy.URL}})})
	r := h.Run(t.Context(), httpJob(t, map[string]any{"url": "http://reports.example.com/daily"}))
	if r.Outcome != job.OutcomeSucceeded {
		t.Fatalf("%+v", r)
	}
	got := last(proxy.requests())
	if got.URL.String() != "http://reports.example.com/daily" || got.Header.Get(egress.Header) == "" {
		t.Errorf("%s %v", got.URL, got.Header)
	}
	wantDenied(t, h.Run(t.Context(), httpJob(t, map[string]any{"url": "http://localhost:9/"})), "rule 127.0.0.0/8")
	wantDenied(t, h.Run(t.Context(), httpJob(t, map[string]any{"url": proxy.URL})), "rule 127.0.0.0/8")
	if n := len(proxy.requests()); n != 1 || len(d.elsewhere()) != 0 {
		t.Errorf("%d requests at the proxy, dialled %v", n, d.addrs)
	}
}
