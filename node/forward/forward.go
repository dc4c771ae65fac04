package forward

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// The headers between nodes. They count only together with HeaderForwarded.
const (
	HeaderForwarded = wire.ForwardedHeader
	HeaderKey       = wire.KeyHeader
	HeaderRepeat    = wire.RepeatHeader
)

// HeaderStale says how old the answer to a stale read may be.
const HeaderStale = "Carillon-Stale-Ms"

const (
	// maxBuffered is what is kept of a body, and of an answer, so that a request can be repeated. The API reads no more
	// of a body.
	maxBuffered = 1 << 20
	// answerTimeout is how long a leader may take to begin its answer to anything but a stream.
	answerTimeout = 15 * time.Second
	dialTimeout   = time.Second
	bodyTimeout   = 30 * time.Second
)

// Options describe a forwarder.
type Options struct {
	Self     string // this node's id
	Group    uint32 // whose leader is meant
	Tracker  *Tracker
	Local    http.Handler // answers what this node can answer
	Dial     func(timeout, keepAlive time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error)
	Logger   *slog.Logger
	ErrorLog *log.Logger // of net/http's proxy
	Began    time.Time   // when this node started
	// Having are the addresses of the nodes that have a replica of the group; nil: this node has one itself.
	Having func() []string
}

// Forwarder makes any node answer any request: what only the leader can answer is carried there and back.
type Forwarder struct {
	o     Options
	t     *Tracker
	short *http.Transport // for requests whose answer begins soon
	long  *http.Transport // for streams
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// New makes a forwarder.
func New(o Options) *Forwarder {
	transport := func(limit time.Duration, dial dialer) *http.Transport {
		return &http.Transport{ // no proxy: what the environment names is for the targets of jobs
			DialContext:         dial,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, // below that of a node
			ResponseHeaderTimeout: limit, DisableCompression: true,
		}
	}
	dial := o.Dial(dialTimeout, 15*time.Second)
	return &Forwarder{o: o, t: o.Tracker, short: transport(answerTimeout, dial), long: transport(0, watched(dial))}
}

// Client asks other nodes for what is answered soon.
func (f *Forwarder) Client() *http.Client { return &http.Client{Transport: f.short} }

// Close gives up idle connections.
func (f *Forwarder) Close() {
	f.short.CloseIdleConnections()
	f.long.CloseIdleConnections()
}

// kind is what is done with a request.
type kind uint8

const (
	answerHere kind = iota
	answerStale
	proxyOnce  // a stream, in either direction: carried through, not repeated
	proxyAgain // small: repeated until it was answered
	proxyPoll  // small, and answered late; not repeated once it may have been heard
)

func kindOf(r *http.Request) kind {
	way := api.WayOf(r.URL.Path)
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case way == api.Here, r.Method == http.MethodOptions, way == api.AsAsked && !r.URL.Query().Has("queue"):
		return answerHere
	case reads && isTrue(r.URL.Query().Get("stale")):
		return answerStale
	case way == api.Asking:
		return answerHere
	case way == api.Once:
		return proxyOnce
	case way == api.AsAsked && strings.HasSuffix(r.URL.Path, ":poll"):
		return proxyPoll
	}
	return proxyAgain
}

func isTrue(s string) bool {
	b, err := strconv.ParseBool(s)
	return err == nil && b
}

func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := r.Header.Get(HeaderForwarded)
	if from == "" {
		r.Header.Del(HeaderKey)
		r.Header.Del(HeaderRepeat)
	} else {
		// The connection is that of the node that passes it on, which is not the caller. The caller is the one whom
		// the token names; without a token it is a stranger.
		r = r.WithContext(keys.WithoutPeer(r.Context()))
	}
	switch k := kindOf(r); {
	case f.o.Having != nil && (k == answerHere || k == answerStale):
		f.elsewhere(w, r)
	case k == answerHere:
		f.o.Local.ServeHTTP(w, r)
	case k == answerStale:
		// A removed node hears neither of tokens that are revoked nor of jobs that are deleted. What each node tells of
		// itself it may tell.
		if err := f.t.removed(); err != nil && api.WayOf(r.URL.Path) != api.Asking {
			f.writeError(w, err)
			return
		}
		w.Header().Set(HeaderStale, strconv.FormatInt(f.t.StaleFor(f.o.Began).Milliseconds(), 10))
		f.o.Local.ServeHTTP(w, r)
	case from != "" && f.t.Halted() == nil:
		f.forwarded(w, r)
	default:
		if err := f.t.outside(); err != nil {
			f.writeError(w, err)
			return
		}
		defer f.t.Use()()
		if k == proxyOnce {
			f.stream(w, r)
			return
		}
		f.forwardWithRetry(w, r, k == proxyPoll)
	}
}

// forwarded answers what another node sent here because it takes this one for the leader. If it is wrong, it is told:
// sending the request on could go round in circles while news of an election travels.
func (f *Forwarder) forwarded(w http.ResponseWriter, r *http.Request) {
	l, _ := f.t.Wait(r.Context(), Deadline(), func(l Leader) bool { return l.Known() || !f.t.leadsSoon() })
	switch {
	case l.Epoch != nil:
	case l.Elsewhere():
		w.Header().Set(wire.LeaderHeader, l.Addr)
		api.WriteError(w, errNotLeader(l))
		return
	default:
		api.WriteError(w, job.Errorf(job.CodeNotLeader, "ask another node",
			"this node does not lead, and knows no leader"))
		return
	}
	if key := r.Header.Get(HeaderKey); key != "" {
		r = r.WithContext(api.WithRequestKey(r.Context(), key, r.Header.Get(HeaderRepeat) != ""))
	}
	f.o.Local.ServeHTTP(w, r)
}

// outgoing is a request as it is sent to the leader, under the leader's own name: this node's name and the origin of
// the request were looked at here, and mean nothing there.
func (f *Forwarder) outgoing(ctx context.Context, r *http.Request, l Leader) *http.Request {
	out := r.Clone(ctx)
	out.RequestURI = ""
	out.URL = &url.URL{Scheme: "http", Host: l.Addr, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	out.Close, out.GetBody, out.TransferEncoding, out.Trailer = false, nil, nil, nil
	out.Host = l.Addr
	dropHops(out.Header)
	dropOrigin(out.Header)
	f.passedOn(r, out.Header)
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "") // none of net/http's
	}
	return out
}

// passedOn says who passes a request on. It has its caller's own credential, and the leader asks for that again; who
// came in by this node's admin socket has none, and this node answers for them.
func (f *Forwarder) passedOn(r *http.Request, h http.Header) {
	h.Set(HeaderForwarded, f.o.Self)
	// Who knows of one group only means the whole cluster.
	if h.Del(wire.GroupHeader); f.o.Group != 0 || h.Get(wire.KnownHeader) != "" {
		h.Set(wire.GroupHeader, strconv.FormatUint(uint64(f.o.Group), 10))
	}
	h.Del(wire.LocalHeader)
	if id := api.IdentityOf(r.Context()); api.IsLocal(r.Context()) || id != nil && id.Local {
		h.Set(wire.LocalHeader, "true")
	}
	h.Set(wire.AddressHeader, api.AddressOf(r))
}

// hops are the headers that are about one connection only.
var hops = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade", "Expect"}

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

// neverConnected says that a request failed before there was anybody to send it to.
func neverConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
