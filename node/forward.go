package node

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
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
			DialContext:         n.cfg.Machine.dialer(dialTimeout, 15*time.Second),
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
	proxyPoll  // small, and answered late; not repeated once it may have been heard
)

func kindOf(r *http.Request) kind {
	path, ok := strings.CutPrefix(r.URL.Path, apiPrefix)
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case !ok, path == "openapi.json", path == "node", path == "backup", strings.HasPrefix(path, "workers:"), r.Method == http.MethodOptions:
		return answerHere
	case reads && isTrue(r.URL.Query().Get("stale")):
		return answerStale
	case path == "status":
		return answerHere // it asks the leader itself, for what only that knows
	case path == "jobs:bulk", path == "runs:export":
		return proxyOnce
	case strings.HasPrefix(path, "queues/") && strings.HasSuffix(path, ":poll"):
		return proxyPoll
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
		f.n.servePeer(w, r)
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
		f.carry(w, r, k == proxyPoll)
	}
}

// staleFor is how long ago this node's state was that of the leader, as far as it knows. A follower hears of a commit with the next
// entries or when the leader has been idle for a while, and may hold it back for a moment.
func (n *Node) staleFor() time.Duration {
	if n.group.lead.current() != nil {
		return 0
	}
	last := n.group.raft.LastContact()
	if last.IsZero() {
		last = n.started
	}
	return max(0, time.Since(last)) + 2*n.cfg.Raft.CommitTimeout + applyDelay
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
			h := &holdingWriter{to: w, header: http.Header{}}
			f.local.ServeHTTP(h, r)
			switch {
			case h.status == http.StatusMisdirectedRequest:
				api.WriteError(w, errLostStream)
			case h.held:
				h.release()
			}
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

// errLostStream answers a stream whose leader was none any more before it had answered anything. To a client that asked any node for it,
// "not the leader" would be about a node that it knows nothing of.
var errLostStream = job.Errorf(job.CodeNoLeader, "send it again in a moment", "the leadership changed before anything of this was answered")

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
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode == http.StatusMisdirectedRequest {
				return errLostStream
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, errLostStream) {
				w.Header().Set("Connection", "close") // of the body nobody knows how much was read
				api.WriteError(w, errLostStream)
				return
			}
			if neverConnected(err) || r.Method == http.MethodGet {
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

// neverConnected says that a request failed before there was anybody to send it to.
func neverConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
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
