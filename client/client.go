package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// DefaultAddr is where a node listens unless told otherwise.
const DefaultAddr = "127.0.0.1:7400"

const prefix = "/api/v1"

// Client talks to one node, which forwards what it must. It is safe for concurrent use.
type Client struct {
	base     string
	baseErr  error
	http     *http.Client
	attempts int
	pause    time.Duration // before the first retry; it doubles
	patience time.Duration // in which all tries should have ended
	agent    string
	stale    bool
}

// Option changes a Client.
type Option func(*Client)

// WithHTTPClient replaces the HTTP client, for TLS or a proxy.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithAttempts says how often a request is tried before its error is returned; default 4.
func WithAttempts(n int) Option { return func(c *Client) { c.attempts = max(1, n) } }

// WithBackoff sets the pause before the first retry; default 100 ms.
func WithBackoff(d time.Duration) Option { return func(c *Client) { c.pause = d } }

// WithPatience says for how long a request is tried, all tries together; default 10 s. A node waits up to 5 s for a leader before it says
// that there is none: no try begins that would, by the longest one so far, end later than this.
func WithPatience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// WithUserAgent sets the User-Agent header.
func WithUserAgent(s string) Option { return func(c *Client) { c.agent = s } }

// WithStale makes reads answer from the node's own state, whoever leads.
func WithStale() Option { return func(c *Client) { c.stale = true } }

// New makes a client of the node at addr, "host:port" or a URL. An address that is neither is reported by the first request.
func New(addr string, opts ...Option) *Client {
	c := &Client{attempts: 4, pause: 100 * time.Millisecond, patience: 10 * time.Second, agent: "carillon-client"}
	c.base, c.baseErr = baseURL(addr)
	for _, o := range opts {
		o(c)
	}
	if c.http == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
		c.http = &http.Client{Transport: t, Timeout: 0}
	}
	return c
}

func baseURL(addr string) (string, error) {
	if addr == "" {
		addr = DefaultAddr
	}
	text := addr
	if !strings.Contains(text, "://") {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is6() {
			text = "[" + text + "]"
		}
		text = "http://" + text
		if u, err := url.Parse(text); err == nil && u.Port() == "" && u.Path == "" && !strings.HasSuffix(text, ":") {
			_, port, _ := net.SplitHostPort(DefaultAddr)
			text += ":" + port
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" || u.Fragment != "" {
		return "", job.Invalid("addr", "use host:port or http://host:port", "%q is not an address", addr)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// Addr is the URL that the client talks to.
func (c *Client) Addr() string { return c.base }

type (
	keyContext    struct{}
	rawContext    struct{}
	replayContext struct{}
)

// WithIdempotencyKey makes the mutating request that is given the context carry a key of the caller's, so that a later repeat (of
// another process, even) is answered with the first outcome. Without it every call has a key of its own.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyContext{}, key)
}

// WithRaw calls fn with the body of a successful answer, exactly as it came.
func WithRaw(ctx context.Context, fn func([]byte)) context.Context {
	return context.WithValue(ctx, rawContext{}, fn)
}

// WithReplay sets *replayed when the answer is the stored outcome of an earlier request with the same key.
func WithReplay(ctx context.Context, replayed *bool) context.Context {
	return context.WithValue(ctx, replayContext{}, replayed)
}

// request is one call of a route.
type request struct {
	method string
	path   string
	query  url.Values
	body   any    // encoded as JSON; nil: none
	raw    []byte // sent as it is, with media
	media  string
	match  uint64 // If-Match
	out    any    // decoded into; nil: the answer's body is ignored
	need   string // a member that every such answer of a node has
	stream func(io.Reader) error
	lines  bool // the stream is of JSON lines
	noKey  bool // carries the caller's key or none
}

// do sends a request, repeats it where that is safe, and decodes the answer. Every request may be repeated: a read changes
// nothing, and what changes something has a key under which the node does it once.
func (c *Client) do(ctx context.Context, rq request) error {
	if c.baseErr != nil {
		return c.baseErr
	}
	if rq.body != nil {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false) // a payload is stored as it is sent: a URL's & should stay one
		if err := enc.Encode(rq.body); err != nil {
			return job.Errorf(job.CodeMalformed, "", "cannot encode the request: %v", err)
		}
		rq.raw, rq.media = buf.Bytes(), "application/json"
	}
	key := ""
	if rq.method != http.MethodGet {
		key, _ = ctx.Value(keyContext{}).(string)
		if key == "" && !rq.noKey {
			key = rand.Text()
		}
	}
	pause := c.pause
	began, longest := time.Now(), time.Duration(0)
	var unknown error // a try ended without anybody knowing how: a later one that certainly did nothing does not change that
	for attempt := 1; ; attempt++ {
		try := time.Now()
		again, err := c.once(ctx, rq, key)
		switch job.CodeOf(err) {
		case job.CodeOutcomeUnknown:
			unknown = err
		case job.CodeNoLeader, job.CodeNotLeader, job.CodeNotReady, job.CodeUnavailable:
			err = cmp.Or(unknown, err)
		}
		if err == nil || !again || attempt >= c.attempts {
			return err
		}
		// Full jitter: clients that lost one leader at the same moment should not come back at the same moment.
		wait := time.Duration(mrand.Int64N(int64(pause) + 1))
		longest = max(longest, time.Since(try))
		if spent := time.Since(began); spent+wait+longest > c.patience {
			return gaveUp(err, attempt, spent)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// gaveUp adds to an error that it was not only met once.
func gaveUp(err error, tries int, spent time.Duration) error {
	known, ok := err.(*job.Error)
	if !ok || tries == 1 {
		return err
	}
	e := *known
	e.Message += fmt.Sprintf(" (given up after %d tries in %s)", tries, spent.Round(100*time.Millisecond))
	return &e
}

// once is one try. again says that it failed in a way that may pass.
func (c *Client) once(ctx context.Context, rq request, key string) (again bool, err error) {
	target := c.base + rq.path
	if c.stale && rq.method == http.MethodGet && strings.HasPrefix(rq.path, prefix) && !strings.HasSuffix(rq.path, "/openapi.json") {
		if rq.query == nil {
			rq.query = url.Values{}
		}
		rq.query.Set("stale", "true")
	}
	if len(rq.query) > 0 {
		target += "?" + rq.query.Encode()
	}
	var body io.Reader
	if rq.raw != nil {
		body = bytes.NewReader(rq.raw)
	}
	watched, sent := watchSent(ctx)
	hr, err := http.NewRequestWithContext(watched, rq.method, target, body)
	if err != nil {
		return false, job.Errorf(job.CodeMalformed, "", "cannot make the request: %v", err)
	}
	hr.Header.Set("User-Agent", c.agent)
	if rq.media != "" {
		hr.Header.Set("Content-Type", rq.media)
	}
	if key != "" {
		hr.Header.Set("Idempotency-Key", key)
	}
	if rq.match != 0 {
		hr.Header.Set("If-Match", fmt.Sprintf(`"%d"`, rq.match))
	}
	resp, err := c.http.Do(hr)
	if err != nil {
		return c.unreachable(ctx, rq.method, sent, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		e := readProblem(resp)
		switch e.Code {
		case job.CodeNoLeader, job.CodeNotLeader, job.CodeOutcomeUnknown, job.CodeNotReady:
			return true, e
		}
		return false, e
	}
	if p, ok := ctx.Value(replayContext{}).(*bool); ok {
		*p = resp.Header.Get("Idempotent-Replay") == "true"
	}
	if !rq.ours(resp) {
		return false, c.notOurs(resp)
	}
	if rq.stream != nil {
		return false, c.broken(ctx, rq.stream(resp.Body))
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return true, c.broken(ctx, readError{err})
	}
	if rq.out != nil {
		// Not strict: a newer node may say more than this client knows.
		if json.Unmarshal(data, rq.out) != nil || rq.need != "" && !bytes.Contains(data, []byte(`"`+rq.need+`"`)) {
			return false, c.notOurs(resp)
		}
	}
	if fn, ok := ctx.Value(rawContext{}).(func([]byte)); ok {
		fn(data)
	}
	return false, nil
}

// ours says whether an answer can be that of a node, as far as its beginning tells.
func (rq request) ours(resp *http.Response) bool {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case rq.lines:
		return media == "application/x-ndjson"
	case rq.stream != nil:
		return true
	case rq.out != nil:
		return media == "application/json"
	}
	return rq.method == http.MethodGet || resp.StatusCode == http.StatusNoContent
}

func (c *Client) notOurs(resp *http.Response) *job.Error { return notOurs(c.base, resp) }

func notOurs(base string, resp *http.Response) *job.Error {
	what := resp.Status
	if media := resp.Header.Get("Content-Type"); media != "" {
		what += ", " + media
	}
	return job.Errorf(job.CodeInternal, "check --addr or CARILLON_ADDR", "%s: this is not a Carillon server (it answered %s)", base, what)
}

// readError marks an error of the connection in the middle of an answer, as opposed to one of whoever takes the answer.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

func (c *Client) broken(ctx context.Context, err error) error {
	var re readError
	if !errors.As(err, &re) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return job.Errorf(job.CodeOutcomeUnknown, "try again", "the connection to %s broke off in the middle of its answer: %v", c.base, re.error)
}

// unreachable explains a request that got no answer. Only if the connection could not be made is it certain that nothing was done;
// but with a key it may be repeated in any case.
func (c *Client) unreachable(ctx context.Context, method string, sent *atomic.Bool, err error) (again bool, _ error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if method == http.MethodGet || neverSent(sent, err) {
		return true, job.Errorf(job.CodeUnavailable, "start one with `carillon dev`, or set --addr or CARILLON_ADDR", "cannot reach carillon at %s: %s", c.base, cause(err))
	}
	return true, job.Errorf(job.CodeOutcomeUnknown, "repeat it with the same idempotency key, or look whether it was done", "the connection to %s broke off before the answer: %s", c.base, cause(err))
}

// watchSent notes whether a request was written to any connection. What RoundTrip fails with does not tell: net/http sends a request
// that has a key again by itself when a connection that it used before breaks, and then the error is that of the second try.
func watchSent(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}), sent
}

// neverSent says that a request certainly reached nobody.
func neverSent(sent *atomic.Bool, err error) bool { return neverConnected(err) && !sent.Load() }

// neverConnected says that the last try of a request found nobody to send it to.
func neverConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// cause is the short reason at the bottom of a network error.
func cause(err error) string {
	var dns *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.As(err, &dns):
		return "no such host " + dns.Name
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed"
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err.Error()
	}
	return err.Error()
}

// readProblem restores the error that the node meant.
func readProblem(resp *http.Response) *job.Error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var p Problem
	if json.Unmarshal(data, &p) == nil && p.Code != "" {
		return &job.Error{Code: p.Code, Field: p.Field, Message: p.Message, Remedy: p.Remedy}
	}
	code := job.CodeInternal
	switch resp.StatusCode {
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		code = job.CodeUnavailable
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusTooManyRequests, http.StatusInternalServerError:
		// Something between here and a node may say so.
	default:
		u := resp.Request.URL
		return notOurs(u.Scheme+"://"+u.Host, resp)
	}
	return job.Errorf(code, "is this the address of a carillon node?", "%s answered %s without saying why", resp.Request.URL, resp.Status)
}
