package executor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/mask"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	maxRedirects   = 5
	errorBodyBytes = 512

	// After what is kept, a response is read on so that its connection can be used again, but not far and not long.
	drainBytes = 64 << 10
	drainTime  = 100 * time.Millisecond

	// idleTimeout is below the keep-alive timeout of common servers (5 s in Node). A request that meets the server's
	// closing of an idle connection is a failed attempt here, because it cannot be known whether the target saw it; so
	// do not go near.
	idleTimeout = 2 * time.Second
	// idlePerHost is high because a hot second sends everything to one host; net/http's 2 would use up the ports.
	idlePerHost       = 512
	maxResponseHeader = 256 << 10
	dialTimeout       = 10 * time.Second
)

// HTTPOptions describe an HTTP runner; the zero value works.
type HTTPOptions struct {
	Version string         // for the User-Agent
	RootCAs *x509.CertPool // nil: the system's
	Egress  *egress.Policy // what may be called; nil: egress.Default
}

// HTTP runs http jobs. It sends a request at most once per attempt.
//
// It speaks HTTP/1.1 only: on a shared HTTP/2 connection one target's connection error would fail every attempt on it,
// each of them with an unknown outcome.
type HTTP struct {
	agent            string
	verify, insecure *http.Transport
}

// NewHTTP makes an HTTP runner.
func NewHTTP(o HTTPOptions) *HTTP {
	if o.Version == "" {
		o.Version = "dev"
	}
	transport := func(insecure bool) *http.Transport {
		t := &http.Transport{
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs,
				InsecureSkipVerify: insecure}, TLSHandshakeTimeout: dialTimeout,
			MaxIdleConns:           2 * idlePerHost,
			MaxIdleConnsPerHost:    idlePerHost,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: maxResponseHeader,
			ExpectContinueTimeout:  time.Second,
			// A body that expands a thousandfold is not asked for.
			DisableCompression: true,
			Protocols:          new(http.Protocols),
		}
		t.Protocols.SetHTTP1(true)
		cmp.Or(o.Egress, egress.Default).Transport(t, dialTimeout)
		return t
	}
	return &HTTP{agent: "carillon/" + o.Version, verify: transport(false), insecure: transport(true)}
}

// Close closes idle connections.
func (h *HTTP) Close() {
	h.verify.CloseIdleConnections()
	h.insecure.CloseIdleConnections()
}

func failure(format string, args ...any) job.Result {
	return job.Result{Outcome: job.OutcomeFailed, Error: fmt.Sprintf(format, args...)}
}

func permanent(format string, args ...any) job.Result {
	r := failure(format, args...)
	r.Permanent = true
	return r
}

// unanswered is the result of an attempt that has no answer. One whose target the rules of this worker deny fails at
// every attempt.
func unanswered(err error) job.Result {
	if d, ok := errors.AsType[*egress.Denied](err); ok {
		r := permanent("%v", d)
		r.EgressDenied = true
		return r
	}
	if _, ok := errors.AsType[*elsewhere](err); ok {
		return permanent("%v", err)
	}
	return failure("%v", err)
}

// Run sends the request and judges the answer.
func (h *HTTP) Run(ctx context.Context, a job.Assignment) job.Result {
	var p job.HTTPPayload
	if err := job.DecodeStrict(a.Payload, &p); err != nil {
		return permanent("payload: %v", err)
	}
	// The request's own context: ending it is the only way to give up a response that trickles.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	req, err := h.request(ctx, p, a)
	if err != nil {
		return permanent("%v", err)
	}
	transport := h.verify
	if p.InsecureSkipVerify {
		transport = h.insecure
	}
	resp, err := exchange(transport, req, p.ExpectStatus, a.Hosts)
	if err != nil {
		return unanswered(err)
	}
	defer resp.Body.Close()
	return judge(resp, p, mask.New(a.Secrets...), stop)
}

// request builds the request of an attempt.
func (h *HTTP) request(ctx context.Context, p job.HTTPPayload, a job.Assignment) (*http.Request, error) {
	u, err := url.Parse(p.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("the payload's url is not an http or https URL")
	}
	body, isJSON, err := requestBody(p.Body)
	if err != nil {
		return nil, err
	}
	method := p.Method
	switch {
	case method == http.MethodConnect:
		return nil, errors.New("a job cannot use the method CONNECT")
	case method == "" && body != nil:
		method = http.MethodPost
	case method == "":
		method = http.MethodGet
	}
	req := (&http.Request{Method: method, URL: u, Host: u.Host, Header: http.Header{}}).WithContext(ctx)
	req.Header.Set("User-Agent", h.agent)
	if isJSON {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range p.Headers {
		if http.CanonicalHeaderKey(name) == "Host" {
			req.Host = value // net/http ignores the header of that name
			continue
		}
		req.Header.Set(name, value)
	}
	if u.User != nil && req.Header.Get("Authorization") == "" {
		password, _ := u.User.Password()
		req.SetBasicAuth(u.User.Username(), password)
	}
	for _, h := range runHeaders(a) {
		req.Header.Set(h[0], h[1])
	}
	mark(req.Header)
	Unreplayable(req, body)
	return req, nil
}

// mark says that a request is made for a job. A job cannot take that away: a proxy on the way drops the headers that
// Connection names, so it must not name this one.
func mark(h http.Header) {
	h.Set(egress.Header, egress.HeaderValue)
	for _, name := range []string{"Connection", "Proxy-Connection"} {
		if h[name] == nil {
			continue
		}
		h.Set(name, strings.Join(slices.DeleteFunc(strings.Split(h.Get(name), ","), func(option string) bool {
			return strings.EqualFold(strings.TrimSpace(option), egress.Header)
		}), ","))
	}
}

// runHeaders is what a target is told about the run, in a header each.
func runHeaders(a job.Assignment) [][2]string {
	h := [][2]string{{"Idempotency-Key", a.Key}, {"Carillon-Job", a.Run.Job.String()},
		{"Carillon-Run", a.Run.String()},
		{"Carillon-Scheduled-At", scheduledAt(a)}, {"Carillon-Attempt", strconv.Itoa(a.Attempt)},
		{"Carillon-Fence", strconv.FormatUint(a.Fence, 10)}}
	if t := traceparent(a.Traceparent); t != "" {
		h = append(h, [2]string{"traceparent", t})
	}
	return h
}

func scheduledAt(a job.Assignment) string { return job.Instant(a.Run.At).String() }

// requestBody is what is sent, nil if there is nothing, and whether it is JSON.
func requestBody(raw json.RawMessage) (body []byte, isJSON bool, err error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, false, nil
	}
	if raw[0] != '"' {
		return raw, true, nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, false, fmt.Errorf("payload: body: %v", err)
	}
	if s == "" {
		return nil, false, nil
	}
	return []byte(s), false, nil
}

// Unreplayable gives a request its body in a form that net/http's Transport will not send twice. When a reused
// connection breaks before the first byte of the answer, the Transport sends the request again by itself if
// Request.isReplayable: there is no body (or GetBody can make it anew), and the method is GET, HEAD, OPTIONS or TRACE
// or the header map has "Idempotency-Key" or "X-Idempotency-Key". The target may well have acted on the first one, so:
//   - a body comes without GetBody;
//   - a safe method without a body gets an empty one that is neither nil nor NoBody. The identity encoding keeps it off
//     the wire:
//     no Content-Length, no chunks, not even a probe;
//   - another method without a body has none (so that "Content-Length: 0" is sent, which servers want to see), and its
//     keys are
//     spelled in the header map as isReplayable does not look for them. Header names have no case.
func Unreplayable(req *http.Request, body []byte) {
	req.GetBody = nil
	if body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(nil)), -1
		req.TransferEncoding = []string{"identity"}
		return
	}
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if v, ok := req.Header[name]; ok {
			delete(req.Header, name)
			req.Header[strings.ToLower(name)] = v
		}
	}
}

// exchange sends a request and follows redirects of a GET without a body. http.Client is not used because it would not
// follow a 307 of a request with our kind of body, and because it takes more headers along to another host than we
// want.
func exchange(t *http.Transport, req *http.Request, expect job.StatusSet, hosts []string) (*http.Response, error) {
	follow := req.Method == http.MethodGet && req.ContentLength < 0
	for hops := 0; ; hops++ {
		resp, err := t.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		where := resp.Header.Get("Location")
		if !follow || !isRedirect(resp.StatusCode) || where == "" ||
			(len(expect) > 0 && expect.Contains(resp.StatusCode)) {
			return resp, nil
		}
		resp.Body.Close()
		if hops == maxRedirects {
			return nil, fmt.Errorf("more than %d redirects", maxRedirects)
		}
		to, err := req.URL.Parse(where)
		if err != nil || to.Host == "" || (to.Scheme != "http" && to.Scheme != "https") {
			return nil, errors.New("redirected to something that is not an http or https URL")
		}
		if !job.SecretMayGoTo(hosts, job.HostPort(to)) && !mutant.On(mutant.SecretElsewhere) {
			return nil, &elsewhere{to.Host}
		}
		next := (&http.Request{Method: req.Method, URL: to, Host: to.Host,
			Header: req.Header.Clone()}).WithContext(req.Context())
		if sameHost(req.URL, to) {
			next.Host = hostFor(req, to)
		} else {
			keepHeaders(next.Header, "User-Agent", "Accept", "Accept-Language", egress.Header)
		}
		Unreplayable(next, nil)
		req = next
	}
}

// elsewhere is why a redirect is not followed that leads away from the hosts of the job's secrets.
type elsewhere struct{ host string }

func (e *elsewhere) Error() string {
	return fmt.Sprintf("redirected to %s, which is not a host that the secrets of the job may be sent to", e.host)
}

func isRedirect(status int) bool {
	switch status {
	case 301, 302, 303, 307, 308:
		return true
	}
	return false
}

// sameHost says whether what was meant for one URL may be sent to another: the same host and port by the same scheme,
// or the step from http to https on their usual ports.
func sameHost(from, to *url.URL) bool {
	if !strings.EqualFold(from.Hostname(), to.Hostname()) {
		return false
	}
	if from.Scheme == to.Scheme {
		return portOf(from) == portOf(to)
	}
	return to.Scheme == "https" && portOf(from) == "80" && portOf(to) == "443"
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// hostFor keeps a Host header that the job chose.
func hostFor(req *http.Request, to *url.URL) string {
	if req.Host != req.URL.Host {
		return req.Host
	}
	return to.Host
}

func keepHeaders(h http.Header, names ...string) {
	kept := http.Header{}
	for _, n := range names {
		if v, ok := h[n]; ok {
			kept[n] = v
		}
	}
	clear(h)
	for n, v := range kept {
		h[n] = v
	}
}

// judge reads the beginning of a response and makes it a result.
func judge(resp *http.Response, p job.HTTPPayload, m *mask.Masker, stop func()) job.Result {
	// So much more than is kept that a secret at the end of that is there as a whole: it is masked, then it is cut.
	limit := job.MaxOutputBytes + m.Longest()
	read, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)))
	kept := m.String(string(read))
	if len(read) == limit {
		kept = m.Head(string(read))
	}
	r := job.Result{Output: job.Head(kept, job.MaxOutputBytes)}
	if p.ExpectStatus.Contains(resp.StatusCode) {
		if err != nil {
			r.Outcome, r.Error = job.OutcomeFailed, fmt.Sprintf("status %s, but the connection broke in the middle "+
				"of the response: %v",
				resp.Status, err)
			return r
		}
		r.Outcome = job.OutcomeSucceeded
	} else {
		r.Outcome, r.Error = job.OutcomeFailed, "status "+strings.TrimSpace(resp.Status)
		if len(p.ExpectStatus) > 0 {
			r.Error += ", expected " + expected(p.ExpectStatus)
		}
		if isRedirect(resp.StatusCode) && resp.Header.Get("Location") != "" {
			r.Error += ": redirects are not followed for " + requestKind(resp.Request)
		} else if text := strings.TrimSpace(job.Head(kept, errorBodyBytes)); text != "" {
			r.Error += ": " + text
		}
		r.RetryAfter = job.Duration(retryAfter(resp.Header.Get("Retry-After"), time.Now()))
		switch code := resp.StatusCode; {
		case code < 300 || code > 499 || p.RetryClientErrors:
		case code == http.StatusRequestTimeout || code == http.StatusTooEarly || code == http.StatusTooManyRequests:
		default: // the same request will be refused, or sent elsewhere, again
			r.Permanent = true
		}
	}
	if err == nil && len(read) == limit {
		t := time.AfterFunc(drainTime, stop)
		io.Copy(io.Discard, io.LimitReader(resp.Body, drainBytes))
		t.Stop()
	}
	return r
}

func requestKind(req *http.Request) string {
	if req.Method == http.MethodGet {
		return "a GET with a body"
	}
	return req.Method
}

// expected is a set of statuses as a job writes them.
func expected(s job.StatusSet) string {
	var list []string
	for _, e := range s {
		list = append(list, e.String())
	}
	return strings.Join(list, " or ")
}

// retryAfter reads a Retry-After header: seconds or a date. The leader bounds it by the job's rule.
func retryAfter(v string, now time.Time) time.Duration {
	var d time.Duration
	if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil {
		d = time.Duration(min(n, int64(math.MaxInt64/time.Second))) * time.Second
	} else if at, err := http.ParseTime(v); err == nil {
		d = at.Sub(now)
	}
	return max(d, 0)
}
