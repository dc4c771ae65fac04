package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// The headers between nodes. They count only together with headerForwarded.
const (
	headerForwarded = "Carillon-Forwarded"      // the node that a request comes from; it is never forwarded again
	headerKey       = "Carillon-Request-Key"    // the identity of a mutating request, stamped by the node that received it
	headerRepeat    = "Carillon-Request-Repeat" // it was sent before, and nobody knows how that ended
	headerStale     = "Carillon-Stale-Ms"       // how old the answer to a stale read may be
)

const (
	apiPrefix = "/api/v1/"
	// maxBuffered is what is kept of a body, and of an answer, so that a request can be repeated. The API reads no more of a body.
	maxBuffered = 1 << 20
	// answerTimeout is how long a leader may take to begin its answer to anything but a stream.
	answerTimeout = 15 * time.Second
	dialTimeout   = time.Second
	bodyTimeout   = 30 * time.Second
	// maxTries bounds how often one request is sent. Each but the first follows a failure that may pass.
	maxTries = 50
)

// forwarder makes any node answer any request: what only the leader can answer is carried there and back.
type forwarder struct {
	n     *Node
	local http.Handler
	short *http.Transport // for requests whose answer begins soon
	long  *http.Transport // for streams
}

func newForwarder(n *Node, local http.Handler) *forwarder {
	transport := func(limit time.Duration) *http.Transport {
		http1 := new(http.Protocols)
		http1.SetHTTP1(true)    // over HTTP/2 all requests would share one connection, and hang with it
		return &http.Transport{ // no proxy: what the environment names is for the targets of jobs
			DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, // below that of a node
			ResponseHeaderTimeout: limit, Protocols: http1, DisableCompression: true,
		}
	}
	return &forwarder{n: n, local: local, short: transport(answerTimeout), long: transport(0)}
}

// close gives up idle connections.
func (f *forwarder) close() {
	f.short.CloseIdleConnections()
	f.long.CloseIdleConnections()
}

// kind is what is done with a request.
type kind uint8

const (
	answerHere kind = iota
	answerStale
	proxyOnce  // a stream, in either direction: carried through, not repeated
	proxyAgain // small: repeated until somebody has answered it
)

func kindOf(r *http.Request) kind {
	path, ok := strings.CutPrefix(r.URL.Path, apiPrefix)
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case !ok, path == "openapi.json", path == "node", strings.HasPrefix(path, "workers:"), r.Method == http.MethodOptions:
		return answerHere
	case reads && isTrue(r.URL.Query().Get("stale")):
		return answerStale
	case path == "status":
		return answerHere // it asks the leader itself, for what only that knows
	case path == "jobs:bulk", path == "runs:export":
		return proxyOnce
	}
	return proxyAgain
}

func isTrue(s string) bool {
	b, err := strconv.ParseBool(s)
	return err == nil && b
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := r.Header.Get(headerForwarded)
	if from == "" {
		r.Header.Del(headerKey)
		r.Header.Del(headerRepeat)
	}
	if r.URL.Path == peerPath {
		f.n.servePeer(w)
		return
	}
	switch k := kindOf(r); {
	case k == answerHere:
		f.local.ServeHTTP(w, r)
	case k == answerStale:
		w.Header().Set(headerStale, strconv.FormatInt(f.n.staleFor().Milliseconds(), 10))
		f.local.ServeHTTP(w, r)
	case from != "":
		f.forwarded(w, r)
	case k == proxyOnce:
		f.stream(w, r)
	default:
		f.carry(w, r)
	}
}

// staleFor is how long ago this node's state was that of the leader, as far as it knows.
func (n *Node) staleFor() time.Duration {
	if n.group.lead.current() != nil {
		return 0
	}
	last := n.group.raft.LastContact()
	if last.IsZero() {
		last = n.started
	}
	return max(0, time.Since(last))
}

// forwarded answers what another node sent here because it takes this one for the leader. If it is wrong, it is told: sending the
// request on could go round in circles while news of an election travels.
func (f *forwarder) forwarded(w http.ResponseWriter, r *http.Request) {
	if !f.n.leadsHere() {
		p, other := f.n.compass.elsewhere()
		if !other {
			api.WriteError(w, job.Errorf(job.CodeNotLeader, "ask another node", "this node does not lead, and knows nobody who does"))
			return
		}
		w.Header().Set(client.LeaderHeader, p.addr)
		api.WriteError(w, errNotLeader(p))
		return
	}
	if key := r.Header.Get(headerKey); key != "" {
		r = r.WithContext(api.WithRequestKey(r.Context(), key, r.Header.Get(headerRepeat) != ""))
	}
	f.local.ServeHTTP(w, r)
}

// carry has a request answered by whoever leads, and keeps at it while leaders come and go. Everything may be repeated: a read changes
// nothing, and what changes something has a key under which it is done once.
func (f *forwarder) carry(w http.ResponseWriter, r *http.Request) {
	c := &carriage{f: f, w: w, r: r, until: time.Now().Add(leaderWait*3/4 + mrand.N(leaderWait/4))}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.key = rand.Text()
		if !c.buffer() {
			f.local.ServeHTTP(w, r) // too large, or broken off: the API knows how to say it
			return
		}
	}
	for c.tries = 0; c.tries < maxTries; c.tries++ {
		p := f.n.compass.leader()
		switch {
		case f.n.leadsHere():
			if c.here() {
				return
			}
		case p.addr != "" && p.id != f.n.cfg.NodeID:
			if c.there(p) {
				return
			}
		default:
			c.err = nil
			if !c.pause(p.moved, leaderWait) {
				c.fail()
				return
			}
			continue
		}
		// The news of a new leader is on its way, or the one that there is has a hiccup.
		if !c.pause(p.moved, 20*time.Millisecond+mrand.N(60*time.Millisecond)) {
			break
		}
	}
	c.fail()
}

// carriage is one request on its way to a leader.
type carriage struct {
	f     *forwarder
	w     http.ResponseWriter
	r     *http.Request
	body  []byte
	key   string // empty for reads
	tries int
	sent  bool       // an earlier try may have been carried out
	until time.Time  // no try begins after this, so that tries and pauses together are bounded
	err   *job.Error // why the last try failed
}

// buffer reads the body so that it can be sent more than once. If that does not work it gives back what was read.
func (c *carriage) buffer() bool {
	if c.r.Body == nil || c.r.Body == http.NoBody {
		return true
	}
	if c.r.ContentLength > maxBuffered {
		return false
	}
	rc := http.NewResponseController(c.w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) //nolint:errcheck // unsupported is fine
	data, err := io.ReadAll(io.LimitReader(c.r.Body, maxBuffered+1))
	if err == nil && len(data) <= maxBuffered {
		_ = rc.SetReadDeadline(time.Time{}) //nolint:errcheck // as above
		c.body = data
		return true
	}
	rest := io.Reader(c.r.Body)
	if err != nil {
		rest = failingReader{err}
	}
	c.r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), rest), c.r.Body}
	return false
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// pause waits until something moved, for a while. It says false when there is no more time for that.
func (c *carriage) pause(moved <-chan struct{}, d time.Duration) bool {
	d = min(d, time.Until(c.until))
	if d <= 0 || c.r.Context().Err() != nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	_, changed := c.f.n.group.lead.watch()
	select {
	case <-t.C:
	case <-moved:
	case <-changed:
	case <-c.f.n.leaving: // who leads now, if anybody, is all that this node will ever know
		if _, other := c.f.n.compass.elsewhere(); !other {
			return false
		}
		c.until = c.until.Add(-d) // there may be nothing to wait for, and then this would not end
		return true
	case <-c.r.Context().Done():
		return false
	}
	return true
}

// fail answers a request that nobody took.
func (c *carriage) fail() {
	f := c.f.n
	switch {
	case c.sent:
		text, remedy := "the leader was lost while this was on its way: it may or may not have been done", "repeat it with the same Idempotency-Key"
		if !f.leadsHere() && f.compass.leader().id == "" {
			if why, way, ok := strings.Cut(f.members.whyNoLeader(c.r.Context()), "; "); ok {
				text, remedy = text+"; nobody leads now: "+why, way+", then "+remedy
			}
		}
		api.WriteError(c.w, job.Errorf(job.CodeOutcomeUnknown, remedy, "%s", text))
	case isClosed(f.leaving):
		api.WriteError(c.w, errStopping())
	case c.err != nil && c.err.Code != job.CodeNotLeader:
		api.WriteError(c.w, c.err)
	default:
		api.WriteError(c.w, f.noLeader(c.r.Context()))
	}
}

// again says whether an answer means that the request should be tried on. The codes are those of a node that lost its leadership;
// only the last leaves open whether something was done.
func (c *carriage) again(problem []byte) bool {
	var p client.Problem
	if json.Unmarshal(problem, &p) != nil {
		return false
	}
	switch p.Code {
	case job.CodeNotLeader, job.CodeNoLeader:
	case job.CodeOutcomeUnknown:
		c.sent = c.sent || c.key != ""
	default:
		return false
	}
	c.err = &p.Error
	return true
}

func lostLeader(status int) bool {
	return status == http.StatusMisdirectedRequest || status == http.StatusServiceUnavailable
}

// here has the request answered by this node. It says false if that lost its leadership over it.
func (c *carriage) here() bool {
	ctx := c.r.Context()
	if c.key != "" {
		ctx = api.WithRequestKey(ctx, c.key, c.sent)
	}
	r := c.r.WithContext(ctx)
	if c.body != nil {
		r.Body = io.NopCloser(bytes.NewReader(c.body))
	}
	w := &holdingWriter{to: c.w, header: http.Header{}}
	c.f.local.ServeHTTP(w, r)
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.held {
		return true
	}
	if c.again(w.body.Bytes()) {
		return false
	}
	w.release()
	return true
}

// holdingWriter holds back the answers that a request may be repeated after. All others pass.
type holdingWriter struct {
	to     http.ResponseWriter
	header http.Header
	status int
	held   bool
	body   bytes.Buffer
}

func (w *holdingWriter) Header() http.Header { return w.header }

func (w *holdingWriter) WriteHeader(status int) {
	if w.status != 0 || status < 200 {
		return
	}
	w.status = status
	if w.held = lostLeader(status); !w.held {
		w.begin()
	}
}

func (w *holdingWriter) begin() {
	copyHeader(w.to.Header(), w.header)
	w.to.WriteHeader(w.status)
}

func (w *holdingWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.held {
		return w.body.Write(b)
	}
	return w.to.Write(b)
}

// release lets out what was held back.
func (w *holdingWriter) release() {
	w.begin()
	w.to.Write(w.body.Bytes()) //nolint:errcheck // the client hung up
}

// Unwrap lets http.ResponseController reach the connection.
func (w *holdingWriter) Unwrap() http.ResponseWriter { return w.to }

// there has the request answered by another node. It says false if there is no answer that counts.
func (c *carriage) there(p place) bool {
	ctx, cancel := c.f.n.compass.replaced(c.r.Context(), p)
	defer cancel()
	out := c.f.outgoing(ctx, c.r, p)
	out.Body, out.ContentLength = http.NoBody, 0
	if len(c.body) > 0 {
		// Without GetBody: net/http must not repeat it by itself, because it would not say that it is a repetition.
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body))
	}
	if c.key != "" {
		out.Header.Set(headerKey, c.key)
		if c.sent {
			out.Header.Set(headerRepeat, "true")
		}
	}
	resp, err := c.f.short.RoundTrip(out)
	if err != nil {
		c.broken(p, err)
		return false
	}
	defer resp.Body.Close()
	head, err := io.ReadAll(io.LimitReader(resp.Body, maxBuffered))
	if err != nil {
		c.broken(p, err)
		return false
	}
	if lostLeader(resp.StatusCode) && c.again(head) {
		return false
	}
	header := c.w.Header()
	dropHops(resp.Header)
	copyHeader(header, resp.Header)
	c.w.WriteHeader(resp.StatusCode)
	if _, err := c.w.Write(head); err != nil {
		return true
	}
	if len(head) == maxBuffered {
		if _, err := io.Copy(c.w, resp.Body); err != nil {
			panic(http.ErrAbortHandler) // half an answer must not look like a whole one
		}
	}
	return true
}

// broken notes a try without an answer. Only if no connection could be made is it certain that nothing was done.
func (c *carriage) broken(p place, err error) {
	var op *net.OpError
	dialing := errors.As(err, &op) && op.Op == "dial"
	c.sent = c.sent || c.key != "" && !dialing
	c.err = job.Errorf(job.CodeNoLeader, "try again in a moment", "the leader %s (%s) does not answer; nothing was changed", p.id, p.addr)
	if !errors.Is(err, context.Canceled) {
		c.f.n.cfg.Logger.Debug("forwarding failed", "leader", p.id, "address", p.addr, "error", err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || !dialing {
		c.f.short.CloseIdleConnections() // they lead to the same place
	}
}

// outgoing is a request as it is sent to the leader, under the leader's own name: this node's name and the origin of the request were
// looked at here, and mean nothing there.
func (f *forwarder) outgoing(ctx context.Context, r *http.Request, p place) *http.Request {
	out := r.Clone(ctx)
	out.RequestURI = ""
	out.URL = &url.URL{Scheme: "http", Host: p.addr, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	out.Close, out.GetBody, out.TransferEncoding, out.Trailer = false, nil, nil, nil
	out.Host = p.addr
	dropHops(out.Header)
	dropOrigin(out.Header)
	out.Header.Set(headerForwarded, f.n.cfg.NodeID)
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "") // none of net/http's
	}
	return out
}

// hops are the headers that are about one connection only.
var hops = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect"}

func dropOrigin(h http.Header) {
	h.Del("Origin")
	h.Del("Sec-Fetch-Site")
}

func dropHops(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hops {
		h.Del(name)
	}
}

func copyHeader(to, from http.Header) {
	for k, v := range from {
		to[k] = v
	}
}

// stream carries a request through that is too large to keep, or whose answer is. It is not repeated: whoever reads a stream goes on
// where it ended, and the lines of a bulk create are safe to send again.
func (f *forwarder) stream(w http.ResponseWriter, r *http.Request) {
	c := &carriage{f: f, w: w, r: r, until: time.Now().Add(leaderWait*3/4 + mrand.N(leaderWait/4))}
	for {
		p := f.n.compass.leader()
		switch {
		case f.n.leadsHere():
			f.local.ServeHTTP(w, r)
			return
		case p.addr != "" && p.id != f.n.cfg.NodeID:
			f.proxy(w, r, p)
			return
		}
		if !c.pause(p.moved, leaderWait) {
			c.fail()
			return
		}
	}
}

func (f *forwarder) proxy(w http.ResponseWriter, r *http.Request, p place) {
	ctx, cancel := f.n.compass.replaced(r.Context(), p)
	defer cancel()
	// Answers begin before the last line was read; without this net/http would first swallow or cut off the rest of the body.
	_ = http.NewResponseController(w).EnableFullDuplex() //nolint:errcheck // unsupported is fine: HTTP/2 always is
	rp := &httputil.ReverseProxy{
		Transport: f.long, FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = "http", p.addr, p.addr
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			dropOrigin(pr.Out.Header)
			pr.Out.Header.Set(headerForwarded, f.n.cfg.NodeID)
			pr.Out.GetBody = nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			var op *net.OpError
			if errors.As(err, &op) && op.Op == "dial" || r.Method == http.MethodGet {
				api.WriteError(w, job.Errorf(job.CodeNoLeader, "try again in a moment", "the leader %s (%s) does not answer; nothing was changed", p.id, p.addr))
				return
			}
			w.Header().Set("Connection", "close")
			api.WriteError(w, job.Errorf(job.CodeOutcomeUnknown, "send it again", "the leader was lost while this was on its way: it may or may not have been done"))
		},
		ErrorLog: newRaftLogger(f.n.cfg.Logger).StandardLogger(nil),
	}
	rp.ServeHTTP(&patientWriter{w, http.NewResponseController(w)}, r.WithContext(ctx))
}

// patientWriter gives a client that does not read a limited time: a handler must not wait for it for ever.
type patientWriter struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func (w *patientWriter) Write(b []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(bodyTimeout)) //nolint:errcheck // unsupported is fine
	defer w.rc.SetWriteDeadline(time.Time{})               //nolint:errcheck // net/http would leave it on the connection
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
