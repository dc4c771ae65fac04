package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// Leader is the worker protocol over HTTP, with whichever node leads the group, or any one that carries the messages
// about a queue there. It is safe for concurrent use; the four calls do not wait for each other. When to try again is
// for the worker's loop to say.
type Leader struct {
	http     *http.Client
	tls      *tls.Config
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	scheme   string        // of addresses that name none
	patience time.Duration // with one node: for a heartbeat, and for a poll beyond its wait
	token    string        // none: empty
	query    string        // of every message: the group, or the queue, that it is about
	addrsErr error

	mu      sync.Mutex
	current string   // the node that answered last; it need not be one of nodes
	nodes   []string // base URLs; those that last could not be reached are at the end
}

const (
	connectTimeout = time.Second
	// maxHints is how often one call lets nodes send it elsewhere. Nodes whose news is of different age may form a
	// chain; one that is longer than this is a mistake.
	maxHints = 3
)

// LeaderOption changes a Leader.
type LeaderOption func(*Leader)

// WithTLS makes the calls over TLS. A nil config trusts what the machine trusts.
func WithTLS(cfg *tls.Config) LeaderOption {
	return func(l *Leader) {
		l.scheme, l.tls = "https", &tls.Config{}
		if cfg != nil {
			l.tls = cfg.Clone()
		}
		// The port is shared: under another name of the same config it would speak Raft.
		l.tls.NextProtos = []string{"http/1.1"}
	}
}

// WithDial makes connections in place of TCP: through a tunnel, or in memory. nil is TCP.
func WithDial(dial func(ctx context.Context, network, addr string) (net.Conn, error)) LeaderOption {
	return func(l *Leader) { l.dial = dial }
}

// WithGroup means the leader of one of several Raft groups. 0 is that of a cluster which has one.
func WithGroup(group uint32) LeaderOption {
	return func(l *Leader) { l.query = "?group=" + strconv.FormatUint(uint64(group), 10) }
}

// WithQueue means the leader of the group that a queue is in. Any node carries the messages there.
func WithQueue(namespace, queue string) LeaderOption {
	return func(l *Leader) {
		q := url.Values{"queue": {queue}}
		if namespace != "" {
			q.Set("namespace", namespace)
		}
		l.query = "?" + q.Encode()
	}
}

// WithLeaderHTTPClient replaces the HTTP client, unless it is nil. It must not limit the time of a request.
func WithLeaderHTTPClient(h *http.Client) LeaderOption { return func(l *Leader) { l.http = h } }

// NewLeader finds the leader through any of the nodes at addrs, "host:port" or URLs; none: DefaultAddr. An address that
// is neither is reported by every call.
func NewLeader(addrs []string, opts ...LeaderOption) *Leader {
	l := &Leader{scheme: "http", query: "?group=0", patience: 5 * time.Second}
	for _, o := range opts {
		o(l)
	}
	given, err := parseNodes(strings.Join(addrs, ","), l.scheme)
	l.nodes, l.addrsErr = given.bases, cmp.Or(l.addrsErr, err)
	for _, base := range l.nodes {
		if addr := shown(base); addr != base {
			err = job.Invalid("addr", "use host:port", "%q: a worker cannot use a node's admin socket", addr)
		} else if l.token != "" && l.tls != nil {
			err = readable(base)
		}
		l.addrsErr = cmp.Or(l.addrsErr, err)
	}
	if l.dial == nil {
		l.dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	if l.http == nil {
		l.http = &http.Client{Transport: l.transport(), CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
	}
	return l
}

// transport uses no proxy: what the environment names is for the targets of jobs.
func (l *Leader) transport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			return l.dial(ctx, network, addr)
		},
		TLSClientConfig: l.tls, TLSHandshakeTimeout: 5 * time.Second, DisableCompression: true,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, // below that of a node
	}
}

// Close gives up idle connections. Calls may go on.
func (l *Leader) Close() { l.http.CloseIdleConnections() }

// Poll asks for work.
func (l *Leader) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	return carry[job.PollReply](ctx, l, "poll", &p, max(time.Duration(p.Wait), 0)+l.patience)
}

// Heartbeat extends the leases of what it names.
func (l *Leader) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	return carry[job.HeartbeatReply](ctx, l, "heartbeat", &h, l.patience)
}

// Report hands in results.
func (l *Leader) Report(ctx context.Context, r job.Report) (job.ReportReply, error) {
	return carry[job.ReportReply](ctx, l, "report", &r, 6*l.patience) // a slow disk must not make it start over
}

// Output passes on what a running attempt writes.
func (l *Leader) Output(ctx context.Context, o job.Output) (job.OutputReply, error) {
	return carry[job.OutputReply](ctx, l, "output", &o, l.patience)
}

// Groups are the Raft groups whose leaders have work; none: the cluster has one. Any node says so.
func (l *Leader) Groups(ctx context.Context) ([]uint32, error) {
	who, err := carry[wire.Whoami](ctx, l, "whoami", nil, l.patience)
	return who.Groups, err
}

// answer is what a node says besides its reply.
type answer struct {
	err       error
	silent    bool   // it says nothing, or nothing that makes sense
	elsewhere bool   // it does not lead, or not yet
	hint      string // who does, as it sees it
}

// carry asks nodes until one answers that leads, each at most once: the one that answered last, then the one that is
// named as the leader, then the others. limit is for each.
func carry[A any](ctx context.Context, l *Leader, verb string, message any, limit time.Duration) (none A, err error) {
	var body []byte // none: it is a question to any node
	if err = l.addrsErr; err == nil && message != nil {
		body, err = wire.MarshalMsgpack(message)
	}
	if err != nil {
		return none, err
	}
	var first answer // of one that says something
	asked, named, hints := map[string]error{}, "", 0
	for todo := l.order(); len(todo) > 0 && ctx.Err() == nil; {
		node := todo[0]
		todo = todo[1:]
		if _, again := asked[node]; again {
			continue
		}
		reply, a := ask[A](ctx, l, node, verb, body, limit)
		if a.silent && errors.Is(ctx.Err(), context.Canceled) { // the worker gave up, which says nothing about the node
			break
		}
		l.note(node, a)
		if !a.silent && !a.elsewhere {
			return reply, a.err
		}
		asked[node] = a.err
		if first.err == nil || first.silent && !a.silent {
			first = a
		}
		if base := hinted(node, a.hint); base != "" {
			named = base
			if hints++; hints <= maxHints {
				todo = append([]string{base}, todo...)
			}
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return none, ctx.Err()
	}
	// If the others agree on a leader, what happened there is the answer: a worker whose leader cannot be reached for a
	// moment must not think that it has none.
	return none, cmp.Or(asked[named], first.err, ctx.Err())
}

// hinted is the URL of the node that another one names as the leader, if that is host:port and nothing else.
func hinted(by, hint string) string {
	scheme, _, _ := strings.Cut(by, "://")
	base, err := baseURL(hint, scheme)
	if hint == "" || strings.ContainsAny(hint, "/@?#") || err != nil {
		return ""
	}
	return base
}

// order is that in which a call asks.
func (l *Leader) order() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == "" {
		return slices.Clone(l.nodes)
	}
	return append([]string{l.current}, l.nodes...)
}

// note remembers a node that answered, and forgets one that does not lead. One that does not even answer is asked last
// from now on.
func (l *Leader) note(node string, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !a.silent && !a.elsewhere:
		l.current = node
	case l.current == node:
		l.current = ""
	}
	if i := slices.Index(l.nodes, node); i >= 0 && a.silent {
		l.nodes = append(slices.Delete(l.nodes, i, i+1), node)
	}
}

// ask tries a message on one node.
func ask[A any](ctx context.Context, l *Leader, node, verb string, body []byte,
	limit time.Duration) (reply A, a answer) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	method, path := http.MethodPost, "/workers:"+verb+l.query
	if body == nil {
		method, path = http.MethodGet, "/"+verb
	}
	rq, err := http.NewRequestWithContext(ctx, method, node+prefix+path, bytes.NewReader(body))
	if err != nil {
		return reply, unknown(node, err.Error())
	}
	rq.Header.Set("User-Agent", "carillon-worker")
	if l.token != "" {
		rq.Header.Set("Authorization", "Bearer "+l.token)
	}
	rq.Header.Set("Content-Type", MediaMsgpack)
	// To net/http this says that the request may be sent again, as every message of a worker may; it is not sent
	// itself. Without it, a node that closes an idle connection just as a call begins to use it would look like one
	// that is gone.
	rq.Header["Idempotency-Key"] = []string{}
	resp, err := l.http.Do(rq)
	switch {
	case err == nil:
	case errors.As(err, new(keys.OtherCAError)):
		return reply, answer{silent: true, err: job.Errorf(job.CodeUnauthenticated,
			"if the address is right, give the worker a new token: `carillon token create`", "%s: %v", node,
			keys.OtherCAError{})}
	case neverConnected(err):
		return reply, answer{silent: true,
			err: job.Errorf(job.CodeUnavailable, "", "cannot reach carillon at %s: %s", node, cause(err))}
	default:
		if errors.Is(err, context.DeadlineExceeded) {
			l.http.CloseIdleConnections() // they may hang as well
		}
		return reply, unknown(node, cause(err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply, unknown(node, cause(err))
	}
	if resp.StatusCode == http.StatusOK {
		read := wire.UnmarshalMsgpack
		if resp.Header.Get("Content-Type") != MediaMsgpack { // of a question to any node
			read = json.Unmarshal
		}
		if err := read(data, &reply); err != nil {
			return reply, unknown(node, "the answer cannot be read: "+err.Error())
		}
		return reply, a
	}
	var p Problem
	if json.Unmarshal(data, &p) != nil || p.Code == "" {
		return reply, unknown(node, resp.Status+", without saying why")
	}
	a.err = &p.Error
	switch p.Code {
	case job.CodeNotLeader, job.CodeNoLeader, job.CodeNotReady, job.CodeStopped,
		job.CodeUnavailable: // it may have no replica of the group
		a.elsewhere, a.hint = true, resp.Header.Get(LeaderHeader)
	case job.CodeTooManyRequests:
		wait.For(ctx, retryAfter(resp.Header))
	}
	return reply, a
}

func unknown(node, why string) answer {
	return answer{silent: true,
		err: job.Errorf(job.CodeOutcomeUnknown, "send it again", "no answer from carillon at %s: %s", node, why)}
}
