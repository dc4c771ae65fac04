package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
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
// about a queue there. It is safe for concurrent use; the four calls do not wait for each other.
//
// Each call asks every address at most once, beginning with the node that answered last; a node that does not lead
// names the one that does. When to try again is for the worker's loop to say.
type Leader struct {
	http     *http.Client
	tls      *tls.Config
	dial     func(ctx context.Context, network, addr string) (net.Conn, error) // nil: TCP
	scheme   string                                                            // of addresses that name none
	limits   leaderLimits
	token    string // none: empty
	query    string // of every message: the group, or the queue, that it is about
	addrsErr error

	mu      sync.Mutex
	current string   // the node that answered last; it need not be one of nodes
	nodes   []string // base URLs; those that last could not be reached are at the end
}

// leaderLimits are how long one try on one node may take.
type leaderLimits struct {
	dial, heartbeat, report time.Duration
	poll                    time.Duration // beyond its wait
}

const (
	maxPollWait   = time.Hour // a node answers earlier
	maxReplyBytes = 64 << 20
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

// WithLeaderHTTPClient replaces the HTTP client. It must not limit the time of a request.
func WithLeaderHTTPClient(h *http.Client) LeaderOption { return func(l *Leader) { l.http = h } }

// NewLeader finds the leader through any of the nodes at addrs, "host:port" or URLs. An address that is neither is
// reported by every call.
func NewLeader(addrs []string, opts ...LeaderOption) *Leader {
	l := &Leader{scheme: "http", query: "?group=0", limits: leaderLimits{dial: time.Second, heartbeat: 5 * time.Second,
		report: 30 * time.Second, poll: 5 * time.Second}}
	for _, o := range opts {
		o(l)
	}
	if len(addrs) == 0 {
		l.addrsErr = job.Invalid("addr", "name at least one node", "no address of a node is given")
	}
	for _, addr := range addrs {
		if strings.HasPrefix(addr, "unix:") {
			l.addrsErr = job.Invalid("addr", "use host:port", "%q: a worker cannot use a node's admin socket", addr)
			continue
		}
		if addr = cmp.Or(addr, DefaultAddr); !strings.Contains(addr, "://") {
			addr = l.scheme + "://" + addr
		}
		base, err := baseURL(addr, l.scheme)
		if err == nil && l.token != "" && l.tls != nil {
			err = readable(base)
		}
		if err != nil {
			l.addrsErr = err
		} else if !slices.Contains(l.nodes, base) {
			l.nodes = append(l.nodes, base)
		}
	}
	if l.http != nil {
		return l
	}
	l.http = &http.Client{
		Transport: &http.Transport{ // no proxy: what the environment names is for the targets of jobs
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if l.dial != nil {
					ctx, cancel := context.WithTimeout(ctx, l.limits.dial)
					defer cancel()
					return l.dial(ctx, network, addr)
				}
				return (&net.Dialer{Timeout: l.limits.dial, KeepAlive: 15 * time.Second}).DialContext(ctx, network,
					addr)
			},
			TLSClientConfig: l.tls, TLSHandshakeTimeout: 5 * time.Second, DisableCompression: true,
			MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, // below that of a node
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return l
}

// Close gives up idle connections. Calls may go on.
func (l *Leader) Close() { l.http.CloseIdleConnections() }

// Poll asks for work.
func (l *Leader) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	wait := min(max(time.Duration(p.Wait), 0), maxPollWait)
	return carry[job.PollReply](ctx, l, message{verb: "poll", limit: wait + l.limits.poll}, &p)
}

// Heartbeat extends the leases of what it names.
func (l *Leader) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	return carry[job.HeartbeatReply](ctx, l, message{verb: "heartbeat", limit: l.limits.heartbeat}, &h)
}

// Report hands in results.
func (l *Leader) Report(ctx context.Context, r job.Report) (job.ReportReply, error) {
	return carry[job.ReportReply](ctx, l, message{verb: "report", limit: l.limits.report}, &r)
}

// Output passes on what a running attempt writes.
func (l *Leader) Output(ctx context.Context, o job.Output) (job.OutputReply, error) {
	return carry[job.OutputReply](ctx, l, message{verb: "output", limit: l.limits.heartbeat}, &o)
}

// Groups are the Raft groups whose leaders have work; none: the cluster has one. Any node says so.
func (l *Leader) Groups(ctx context.Context) ([]uint32, error) {
	var who wire.Whoami
	if l.addrsErr != nil {
		return nil, l.addrsErr
	}
	err := l.find(ctx, message{verb: "whoami", limit: l.limits.heartbeat}, func(data []byte, media string) error {
		return unmarshal(data, media, &who)
	})
	return who.Groups, err
}

// message is one call on its way.
type message struct {
	verb  string
	limit time.Duration // of one try
	body  []byte        // nil: it is a question to any node
}

// carry brings a message to the leader and its answer back.
func carry[A any](ctx context.Context, l *Leader, m message, in any) (A, error) {
	var out A
	err := l.addrsErr
	if err == nil {
		if m.body, err = wire.MarshalMsgpack(in); err != nil {
			err = job.Errorf(job.CodeMalformed, "", "cannot encode the request: %v", err)
		}
	}
	if err == nil {
		err = l.find(ctx, m, func(data []byte, media string) error {
			var a A // a fresh one: what could be read of another node's answer must not stay in it
			err := unmarshal(data, media, &a)
			if err == nil {
				out = a
			}
			return err
		})
	}
	return out, err
}

func unmarshal(data []byte, media string, v any) error {
	switch media, _, _ := mime.ParseMediaType(media); media {
	case MediaMsgpack:
		return wire.UnmarshalMsgpack(data, v)
	case MediaJSON:
		if err := job.CheckSize(data, v); err != nil {
			return err
		}
		return json.Unmarshal(data, v)
	}
	return fmt.Errorf("its content type is %q", media)
}

// ask tries a message on one node.
func (l *Leader) ask(ctx context.Context, m message, node string, take func(data []byte, media string) error) answer {
	ctx, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	method, path, body := http.MethodPost, "/workers:"+m.verb+l.query, io.Reader(bytes.NewReader(m.body))
	if m.body == nil {
		method, path, body = http.MethodGet, "/"+m.verb, http.NoBody
	}
	rq, err := http.NewRequestWithContext(ctx, method, node+prefix+path, body)
	if err != nil {
		return answer{kind: silent, err: job.Errorf(job.CodeMalformed, "", "cannot make the request: %v", err)}
	}
	rq.Header.Set("User-Agent", "carillon-worker")
	if l.token != "" {
		rq.Header.Set("Authorization", "Bearer "+l.token)
	}
	rq.Header.Set("Content-Type", MediaMsgpack)
	rq.Header.Set("Accept", MediaMsgpack)
	// To net/http this says that the request may be sent again, as every message of a worker may; it is not sent
	// itself. Without it, a node that closes an idle connection just as a call begins to use it would look like one
	// that is gone.
	rq.Header["Idempotency-Key"] = []string{}
	resp, err := l.http.Do(rq)
	if err != nil {
		if errors.As(err, new(keys.OtherCAError)) {
			return answer{kind: silent, err: job.Errorf(job.CodeUnauthenticated,
				"if the address is right, give the worker a new token: `carillon token create`", "%s: %v", node,
				keys.OtherCAError{})}
		}
		if neverConnected(err) {
			return answer{kind: silent,
				err: job.Errorf(job.CodeUnavailable, "", "cannot reach carillon at %s: %s", node, cause(err))}
		}
		if errors.Is(err, context.DeadlineExceeded) {
			l.http.CloseIdleConnections() // they may hang as well
		}
		return unknown(node, cause(err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReplyBytes+1))
	switch {
	case err != nil:
		return unknown(node, cause(err))
	case len(data) > maxReplyBytes:
		return unknown(node, fmt.Sprintf("the answer is larger than %d bytes", maxReplyBytes))
	case resp.StatusCode == http.StatusOK:
		if err := take(data, resp.Header.Get("Content-Type")); err != nil {
			return unknown(node, fmt.Sprintf("the answer cannot be read: %v", err))
		}
		return answer{kind: given, leads: true}
	}
	var p Problem
	if json.Unmarshal(data, &p) != nil || p.Code == "" {
		return unknown(node, resp.Status+", without saying why")
	}
	a := answer{kind: given, err: &p.Error}
	if resp.StatusCode == http.StatusTooManyRequests {
		wait.For(ctx, retryAfter(resp.Header))
	}
	switch p.Code {
	case job.CodeNotLeader:
		a.kind, a.hint = elsewhere, resp.Header.Get(LeaderHeader)
	case job.CodeNoLeader, job.CodeStopped:
		a.kind = elsewhere
	case job.CodeUnavailable:
		a.kind = elsewhere // it may have no replica of the group
	case job.CodeNotReady:
		a.kind = notReady
	case job.CodeSessionUnknown, job.CodeWorkerNameInUse, job.CodeWorkerForked: // only a leader can know
		a.leads = true
	}
	return a
}

func unknown(node, why string) answer {
	return answer{kind: silent,
		err: job.Errorf(job.CodeOutcomeUnknown, "send it again", "no answer from carillon at %s: %s", node, why)}
}

// maxHints is how often one call lets nodes send it elsewhere. Nodes whose news is of different age may form a chain;
// one that is longer than this is a mistake.
const maxHints = 3

// answerKind is what a node's answer means for the search. Of those who do not lead, the later ones here have more to
// say.
type answerKind uint8

const (
	silent    answerKind = iota // no answer, or none that makes sense
	elsewhere                   // it does not lead
	notReady                    // it will lead, or serve, in a moment
	given                       // the search is over
)

type answer struct {
	kind  answerKind
	err   error
	hint  string // the leader, as a node that does not lead sees it
	leads bool   // only a leader can have said this
}

// find asks nodes until one leads, each at most once: the one that answered last, then the one that is named as the
// leader, then the others. The worker's loop spaces out the searches.
func (l *Leader) find(ctx context.Context, m message, take func(data []byte, media string) error) error {
	s := search{todo: l.route(), tried: map[string]answer{}}
	for node := s.next(); node != ""; node = s.next() {
		a := l.ask(ctx, m, node, take)
		if a.kind == given {
			if a.leads {
				l.remember(node)
			}
			return a.err
		}
		err := ctx.Err()
		if errors.Is(err, context.Canceled) { // the worker gave it up: that says nothing about the node
			return err
		}
		l.forget(node, a.kind)
		if err != nil {
			return fmt.Errorf("no answer from carillon at %s: %w", node, err)
		}
		s.note(node, a)
	}
	return s.verdict()
}

// route is the order in which a call asks.
func (l *Leader) route() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	todo := make([]string, 0, len(l.nodes)+1)
	if l.current != "" {
		todo = append(todo, l.current)
	}
	return append(todo, l.nodes...)
}

func (l *Leader) remember(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = node
}

// forget notes that a node does not lead. One that does not even answer is asked last from now on.
func (l *Leader) forget(node string, kind answerKind) {
	if kind == notReady {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == node {
		l.current = ""
	}
	if i := slices.Index(l.nodes, node); i >= 0 && kind == silent {
		l.nodes = append(slices.Delete(l.nodes, i, i+1), node)
	}
}

// search is one call's way through the nodes.
type search struct {
	todo  []string
	tried map[string]answer
	best  answer // the first of those that say the most
	named string // the last node that was named as the leader
	hints int
}

// next is the node to ask, "" if there is none left.
func (s *search) next() string {
	for len(s.todo) > 0 {
		node := s.todo[0]
		s.todo = s.todo[1:]
		if _, again := s.tried[node]; !again {
			return node
		}
	}
	return ""
}

func (s *search) note(node string, a answer) {
	s.tried[node] = a
	if s.best.err == nil || a.kind > s.best.kind {
		s.best = a
	}
	if a.hint == "" || strings.ContainsAny(a.hint, "/@?#") { // host:port and nothing else
		return
	}
	scheme, _, _ := strings.Cut(node, "://")
	base, err := baseURL(scheme+"://"+a.hint, scheme)
	if err != nil {
		return
	}
	s.named = base
	if s.hints++; s.hints <= maxHints {
		s.todo = append([]string{base}, s.todo...)
	}
}

// verdict is the error of a search that found no leader. If the others agree on one, what happened there is the answer:
// a worker whose leader cannot be reached for a moment must not think that it has none.
func (s *search) verdict() error {
	if a, ok := s.tried[s.named]; ok && a.kind != elsewhere {
		return a.err
	}
	return s.best.err
}
