package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
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
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// DefaultAddr is where a node listens unless told otherwise.
const DefaultAddr = "127.0.0.1:7400"

const prefix = "/api/v1"

// maxIdleConns is how many connections to one node are kept for the next requests.
const maxIdleConns = 16

// Client talks to one node of a cluster, which forwards what it must, and to the next one when that does not answer. It
// is safe for concurrent use.
type Client struct {
	nodes    *nodes
	baseErr  error
	http     *http.Client
	attempts int
	pause    time.Duration // before the first retry; it doubles
	timeout  time.Duration // of a call, all its tries together; 0: none
	gap      time.Duration // of silence in a stream; 0: none
	agent    string
	stale    bool
	header   http.Header // of every request
	// namespace that requests name; empty: none.
	namespace string
	tls       *tls.Config // of addresses that name no scheme; nil: they are plain
}

// Option changes a Client.
type Option func(*Client)

// WithHTTPClient replaces the HTTP client, for TLS or a proxy.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithAttempts says how often a request is tried, each time on every node, before its error is returned; default 4.
func WithAttempts(n int) Option { return func(c *Client) { c.attempts = max(1, n) } }

// WithBackoff sets the pause before the first retry; default 100 ms.
func WithBackoff(d time.Duration) Option { return func(c *Client) { c.pause = d } }

// WithUserAgent sets the User-Agent header.
func WithUserAgent(s string) Option { return func(c *Client) { c.agent = s } }

// WithStale makes reads answer from the node's own state, leader or not.
func WithStale() Option { return func(c *Client) { c.stale = true } }

// WithHeader has every request carry a header.
func WithHeader(name, value string) Option {
	return func(c *Client) {
		if c.header == nil {
			c.header = http.Header{}
		}
		c.header.Set(name, value)
	}
}

// WithNamespace makes requests about the jobs, queues and calendars of a namespace; empty leaves it to the node, which
// takes the usual one. With "*" lists are over all namespaces, and nothing else can be asked.
func WithNamespace(name string) Option { return func(c *Client) { c.namespace = name } }

// In is the same client for another namespace.
func (c *Client) In(namespace string) *Client {
	other := *c
	other.namespace = namespace
	return &other
}

// namespaced says that what is at a path lives in namespaces.
func namespaced(path string) bool {
	rest, ok := strings.CutPrefix(path, prefix+"/")
	part, _, _ := strings.Cut(rest, "/")
	part, _, _ = strings.Cut(part, ":")
	switch part {
	case "jobs", "runs", "dead", "schedule", "calendars", "queues", "secrets", "audit", "stats", "events", "upcoming":
		return ok
	}
	return path == "/metrics/jobs"
}

// WithTLSConfig makes connections by TLS: addresses without a scheme are https.
func WithTLSConfig(cfg *tls.Config) Option { return func(c *Client) { c.tls = cfg } }

// New makes a client of the nodes at addr, "host:port" or a URL, several separated by commas: they are tried in turn.
// An address that is neither is reported by the first request.
func New(addr string, opts ...Option) *Client {
	c := &Client{attempts: 4, pause: 100 * time.Millisecond, timeout: defaultTimeout, gap: defaultGap,
		agent: "carillon-client"}
	for _, o := range opts {
		o(c)
	}
	scheme := "http"
	if c.tls != nil {
		scheme = "https"
	}
	var err error
	c.nodes, err = parseNodes(addr, scheme)
	c.baseErr = cmp.Or(c.baseErr, err)
	for _, base := range c.nodes.bases {
		if c.tls != nil {
			c.baseErr = cmp.Or(c.baseErr, readable(base))
		}
	}
	if c.http == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = c.tls
		if c.tls != nil {
			// A proxy before the nodes may offer HTTP/2, as they do not: all requests would share one connection and
			// hang with it. A connection that is closed after use costs a handshake.
			t.Protocols = new(http.Protocols)
			t.Protocols.SetHTTP1(true)
			t.ForceAttemptHTTP2, t.MaxIdleConnsPerHost = false, maxIdleConns
		}
		dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
		t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if path, ok := socketPath(addr); ok {
				return dialer.DialContext(ctx, "unix", path)
			}
			return dialer.DialContext(ctx, network, addr)
		}
		proxy := t.Proxy
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if _, ok := socketPath(r.URL.Host); ok {
				return nil, nil
			}
			return proxy(r)
		}
		c.http = &http.Client{Transport: t, Timeout: 0}
	}
	return c
}

// socketHost is the end of the host that stands for a socket in a URL, whose name is its path in hexadecimal digits.
const socketHost = ".carillon.sock"

// socketPath is the path of the socket that a host stands for.
func socketPath(hostport string) (string, bool) {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	name, ok := strings.CutSuffix(host, socketHost)
	path, err := hex.DecodeString(name)
	return string(path), ok && err == nil
}

// shown is a base URL as the user gave it.
func shown(base string) string {
	if path, ok := socketPath(strings.TrimPrefix(base, "http://")); ok {
		return "unix:" + path
	}
	return base
}

func baseURL(addr, scheme string) (string, error) {
	if addr == "" {
		addr = DefaultAddr
	}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		if path == "" || strings.ContainsRune(path, 0) {
			return "", job.Invalid("addr", "use unix:PATH, such as unix:/var/lib/carillon/admin.sock",
				"%q does not name a socket", addr)
		}
		return "http://" + hex.EncodeToString([]byte(path)) + socketHost, nil
	}
	text := addr
	if !strings.Contains(text, "://") {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is6() {
			text = "[" + text + "]"
		}
		text = scheme + "://" + text
		if u, err := url.Parse(text); err == nil && u.Port() == "" && u.Path == "" && !strings.HasSuffix(text, ":") {
			_, port, _ := net.SplitHostPort(DefaultAddr)
			text += ":" + port
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" ||
		u.Fragment != "" {
		return "", job.Invalid("addr", "use host:port or http://host:port", "%q is not an address", addr)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// Addr is the URL that the client talks to: that of the node that answered last.
func (c *Client) Addr() string {
	if c.baseErr != nil {
		return ""
	}
	return shown(c.nodes.at(0))
}

type (
	keyContext    struct{}
	rawContext    struct{}
	replayContext struct{}
	warnContext   struct{}
)

// WithIdempotencyKey makes the mutating request that is given the context carry a key of the caller's, so that a later
// repeat (of another process, even) is answered with the first outcome. Without it every call has a key of its own.
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

// WithWarnings calls fn with what the node says of a request that it did and that is better made otherwise.
func WithWarnings(ctx context.Context, fn func(string)) context.Context {
	return context.WithValue(ctx, warnContext{}, fn)
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
	before int    // lines of the same input that went in requests before this one
	out    any    // decoded into; nil: the answer's body is ignored
	need   string // a member that every such answer of a node has
	stream func(io.Reader) error
	lines  bool           // the stream is of JSON lines
	noKey  bool           // carries the caller's key or none
	waits  time.Duration  // for so long the node may have nothing to say
	after  *time.Duration // told how long a node asks to wait before the next try; nil: it does not matter
	bare   bool           // the node keeps no outcome of it: once it was sent, it is not sent again
}

// do sends a request, repeats it where that is safe, and decodes the answer. Almost every request may be repeated, on
// another node too: a read changes nothing, and what changes something has a key under which the cluster does it once.
func (c *Client) do(ctx context.Context, rq request) error {
	if c.baseErr != nil {
		return c.baseErr
	}
	if err := plainName(rq.path); err != nil {
		return err
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
	t := tries{end: began.Add(c.timeout)}
	rq.after = &t.after
	for attempt := 1; ; attempt++ {
		try := time.Now()
		again, err := c.round(ctx, rq, key, &t)
		if err == nil || !again || attempt >= c.attempts {
			return err
		}
		// Full jitter: clients that lost one leader at the same moment should not come back at the same moment.
		wait := t.after + time.Duration(mrand.Int64N(int64(pause)+1))
		t.after = 0
		longest = max(longest, time.Since(try))
		if spent := time.Since(began); c.timeout > 0 && spent+wait+longest > c.timeout {
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

// tries is what the tries of one call have in common.
type tries struct {
	end     time.Time     // of the call, if it has a limit
	unknown error         // of a try whose outcome is unknown: a later one that did nothing does not change that
	after   time.Duration // how long the node asks to wait before the next
}

// round asks every node until one answers. again says that none did in a way that would last.
func (c *Client) round(ctx context.Context, rq request, key string, t *tries) (again bool, err error) {
	order := c.nodes.order()
	var failed []error
	strange := 0 // how many are not of the cluster that is asked for
	for i, base := range order {
		limit := c.gap
		if rq.stream == nil {
			limit = time.Until(t.end)
		}
		if c.timeout > 0 {
			limit = max(limit, time.Millisecond)/time.Duration(len(order)-i) + rq.waits
		} else {
			limit = 0
		}
		again, err = c.once(ctx, base, rq, key, limit)
		if code := job.CodeOf(err); code != job.CodeTooManyRequests && again || code == job.CodeOutcomeUnknown {
			c.nodes.passOver(base)
		} else {
			c.nodes.answered(base)
		}
		switch job.CodeOf(err) {
		case job.CodeOutcomeUnknown:
			t.unknown = err
		case job.CodeNoLeader, job.CodeNotLeader, job.CodeNotReady, job.CodeUnavailable:
			failed = append(failed, err)
			err = cmp.Or(t.unknown, err)
		case job.CodeStopped: // another may be of the cluster as it is now, but this one will not be
			failed, strange = append(failed, err), strange+1
		case job.CodeUnauthenticated:
			if again { // another may still be known by that CA, but this one will not be
				failed, strange = append(failed, err), strange+1
			}
		}
		if err == nil || !again || ctx.Err() != nil || job.CodeOf(err) == job.CodeTooManyRequests {
			return again, err // to ask the next node instead would be to go around its limit
		}
	}
	if t.unknown != nil {
		return true, t.unknown
	}
	return strange < len(order), mostTelling(failed)
}

// mostTelling is the error of a round in which no node answered as asked: that of a node that runs, or else all of
// them.
func mostTelling(failed []error) error {
	var messages []string
	for _, err := range failed {
		if job.CodeOf(err) != job.CodeUnavailable {
			return err
		}
		messages = append(messages, err.(*job.Error).Message) //nolint:errorlint // it has a code and is not wrapped
	}
	e := *failed[len(failed)-1].(*job.Error) //nolint:errorlint // as above
	e.Message = strings.Join(messages, "; ")
	return &e
}

// gaveUp adds to an error that it was not only met once.
func gaveUp(err error, tries int, spent time.Duration) error {
	known, ok := err.(*job.Error)
	if !ok || tries == 1 {
		return err
	}
	e := *known
	e.Message += fmt.Sprintf(" (gave up after %d tries in %s)", tries, spent.Round(100*time.Millisecond))
	return &e
}

// once is one try. again says that it failed in a way that may pass.
func (c *Client) once(ctx context.Context, base string, rq request, key string,
	limit time.Duration) (again bool, err error) {
	target := base + rq.path
	if c.stale && rq.method == http.MethodGet && strings.HasPrefix(rq.path, prefix) &&
		!strings.HasSuffix(rq.path, "/openapi.json") && !strings.HasPrefix(rq.path, prefix+"/schemas/") {
		if rq.query == nil {
			rq.query = url.Values{}
		}
		rq.query.Set("stale", "true")
	}
	if c.namespace != "" && namespaced(rq.path) {
		if rq.query == nil {
			rq.query = url.Values{}
		}
		rq.query.Set("namespace", c.namespace)
	}
	if len(rq.query) > 0 {
		target += "?" + rq.query.Encode()
	}
	gap := time.Duration(0)
	if rq.stream != nil && limit > 0 {
		gap = c.gap
	}
	limited, dog, stop := watch(ctx, limit, gap)
	defer stop()
	watched, sent := watchSent(limited)
	hr, err := rq.make(watched, target, dog)
	if err != nil {
		return false, job.Errorf(job.CodeMalformed, "", "cannot make the request: %v", err)
	}
	c.sign(hr)
	if rq.media != "" {
		hr.Header.Set("Content-Type", rq.media)
	}
	if key != "" {
		hr.Header.Set("Idempotency-Key", key)
	}
	if rq.before > 0 {
		hr.Header.Set(wire.LinesHeader, strconv.Itoa(rq.before))
	}
	if rq.match != 0 {
		hr.Header.Set("If-Match", fmt.Sprintf(`"%d"`, rq.match))
	}
	resp, err := c.http.Do(hr)
	if err != nil {
		again, err := unreachable(ctx, base, rq.method, key, sent, silencedOr(limited, err))
		if rq.bare && job.CodeOf(err) == job.CodeOutcomeUnknown {
			again = false
		}
		return again, err
	}
	dog.answers()
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		e := readProblem(resp)
		switch e.Code {
		case job.CodeNoLeader, job.CodeNotLeader, job.CodeOutcomeUnknown, job.CodeNotReady, job.CodeStopped:
			return true, e
		case job.CodeTooManyRequests:
			if rq.after != nil {
				*rq.after = retryAfter(resp.Header)
			}
			return true, e
		}
		return false, e
	}
	if p, ok := ctx.Value(replayContext{}).(*bool); ok {
		*p = resp.Header.Get("Idempotent-Replay") == "true"
	}
	if !rq.ours(resp) {
		return false, notOurs(base, resp)
	}
	if fn, ok := ctx.Value(warnContext{}).(func(string)); ok {
		for _, text := range resp.Header.Values(WarningHeader) {
			fn(text)
		}
	}
	if rq.stream != nil {
		return false, broken(ctx, limited, base, key, rq.stream(dog.reader(resp.Body)))
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return !rq.bare, broken(ctx, limited, base, key, readError{err})
	}
	if rq.out != nil && !rq.done(resp) {
		// Not strict: a newer node may say more than this client knows.
		if json.Unmarshal(data, rq.out) != nil || rq.need != "" && !bytes.Contains(data, []byte(`"`+rq.need+`"`)) {
			return false, notOurs(base, resp)
		}
	}
	if fn, ok := ctx.Value(rawContext{}).(func([]byte)); ok {
		fn(data)
	}
	return false, nil
}

// retryAfter is how long a node asks to wait.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil {
		n = 1
	}
	return time.Duration(min(max(n, 0), maxRetryAfter)) * time.Second
}

// maxRetryAfter is the longest that a node is believed to ask for, in seconds.
const maxRetryAfter = 60

// sign says who sends a request.
func (c *Client) sign(hr *http.Request) {
	hr.Header.Set("User-Agent", c.agent)
	for name, values := range c.header {
		hr.Header[name] = values
	}
}

// ours says whether an answer can be that of a node, as far as its beginning tells.
func (rq request) ours(resp *http.Response) bool {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case rq.lines:
		return media == "application/x-ndjson"
	case rq.stream != nil:
		return true
	case rq.out != nil && !rq.done(resp):
		return media == "application/json"
	}
	return rq.method == http.MethodGet || resp.StatusCode == http.StatusNoContent
}

// done says that an answer is that something was done, where there is more to be said only while it goes on.
func (rq request) done(resp *http.Response) bool {
	return rq.bare && resp.StatusCode == http.StatusNoContent
}

// make is the HTTP request of a call. What a stream sends counts as a sign of life.
func (rq request) make(ctx context.Context, target string, dog *watchdog) (*http.Request, error) {
	if rq.raw == nil {
		return http.NewRequestWithContext(ctx, rq.method, target, nil)
	}
	hr, err := http.NewRequestWithContext(ctx, rq.method, target, bytes.NewReader(rq.raw))
	if err == nil && rq.stream != nil {
		body := func() (io.ReadCloser, error) { return io.NopCloser(dog.reader(bytes.NewReader(rq.raw))), nil }
		hr.Body, _ = body()
		hr.GetBody = body
	}
	return hr, err
}

func notOurs(base string, resp *http.Response) *job.Error {
	what := resp.Status
	if media := resp.Header.Get("Content-Type"); media != "" {
		what += ", " + media
	}
	return job.Errorf(job.CodeInternal, "check --addr and CARILLON_ADDR",
		"%s: this is not a Carillon server (it answered %s)", shown(base), what)
}

// readError marks an error of the connection in the middle of an answer, as opposed to one of the reader of the answer.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

func broken(ctx, limited context.Context, base, key string, err error) error {
	var re readError
	if !errors.As(err, &re) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	remedy := "try again"
	if key != "" {
		remedy = repeatWith(key)
	}
	if s, ok := silenced(limited); ok {
		return job.Errorf(job.CodeOutcomeUnknown, remedy+"; --timeout allows more time",
			"incomplete answer from carillon at %s: it was silent for %s", shown(base), rounded(s.after))
	}
	return job.Errorf(job.CodeOutcomeUnknown, remedy, "the connection to %s broke in the middle of its answer: %v",
		shown(base), re.error)
}

// repeatWith is how to get out of not knowing whether a request was done.
func repeatWith(key string) string {
	return "repeat it with Idempotency-Key " + key + ": it is done once"
}

// silencedOr is the silence that a try was given up for, or else its error.
func silencedOr(limited context.Context, err error) error {
	if s, ok := silenced(limited); ok {
		return s
	}
	return err
}

// unreachable explains a request that got no answer. Only if the connection could not be made is it certain that
// nothing was done; but with a key it may be repeated in any case.
func unreachable(ctx context.Context, base, method, key string, sent *atomic.Bool, err error) (again bool, _ error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	base = shown(base)
	var s silence
	quiet := errors.As(err, &s)
	read := method == http.MethodGet
	switch {
	case errors.As(err, new(keys.OtherCAError)):
		return true, job.Errorf(job.CodeUnauthenticated, "if the address is right, create a new token through the "+
			"admin socket on a node's machine (`carillon --addr unix:DATA_DIR/admin.sock token create NAME --role "+
			"ROLE`) and `carillon login` with it; replace copies of ca.pem too", "%s: %v", base, keys.OtherCAError{})
	case quiet && (read || !sent.Load()):
		return true, job.Errorf(job.CodeUnavailable,
			"name other nodes too (--addr a,b,c), or allow more time with --timeout",
			"no answer from carillon at %s within %s", base, rounded(s.after))
	case errors.Is(err, http.ErrSchemeMismatch) && !sent.Load():
		return false, job.Errorf(job.CodeUnavailable, "leave out https://, or start the nodes with --secure",
			"the node at %s does not speak TLS; nothing was sent to it", base)
	case read || neverSent(sent, err):
		return true, job.Errorf(job.CodeUnavailable,
			"start one with `carillon dev`, log in to a cluster with `carillon login`, or set --addr or CARILLON_ADDR",
			"cannot reach carillon at %s: %s", base, cause(err))
	}
	remedy := "check whether it was done"
	if key != "" {
		remedy = repeatWith(key) + "; or " + remedy
	}
	if quiet {
		return true, job.Errorf(job.CodeOutcomeUnknown, remedy,
			"outcome unknown: no answer from carillon at %s within %s", base, rounded(s.after))
	}
	return true, job.Errorf(job.CodeOutcomeUnknown, remedy,
		"outcome unknown: the connection to %s broke before the answer: %s", base, cause(err))
}

// watchSent notes whether a request was written to any connection. What RoundTrip fails with does not tell: net/http
// sends a request that has a key again by itself when a connection that it used before breaks, and then the error is
// that of the second try.
func watchSent(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}), sent
}

// neverSent says that a request certainly reached no node.
func neverSent(sent *atomic.Bool, err error) bool { return neverConnected(err) && !sent.Load() }

// neverConnected says that the last try of a request found no node to send it to.
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
	if bytes.HasPrefix(data, []byte("This port speaks TLS")) { // what a secure node says to a request without it
		return job.Errorf(job.CodeUnauthenticated, "run `carillon login`, or set --token-file or CARILLON_TOKEN_FILE",
			"%s belongs to a secure cluster, and no token was given", resp.Request.URL.Host)
	}
	code := job.CodeInternal
	switch resp.StatusCode {
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		code = job.CodeUnavailable
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusTooManyRequests,
		http.StatusInternalServerError:
		// Something between here and a node may say so.
	default:
		u := resp.Request.URL
		return notOurs(u.Scheme+"://"+u.Host, resp)
	}
	return job.Errorf(code, "is this the address of a carillon node?", "%s answered %s and gave no reason",
		resp.Request.URL, resp.Status)
}
