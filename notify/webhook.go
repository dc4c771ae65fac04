package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/internal/mask"
)

// payload is what Slack, Mattermost, Rocket.Chat and Discord's /slack understand, with the message's own fields beside
// it for all others. Slack ignores fields that it does not know.
type payload struct {
	Text        string       `json:"text"`
	Attachments []attachment `json:"attachments,omitempty"`
	Message
}

type attachment struct {
	Color    string  `json:"color"`
	Fallback string  `json:"fallback"`
	Text     string  `json:"text,omitempty"`
	Fields   []field `json:"fields,omitempty"`
	TS       int64   `json:"ts,omitempty"`
}

type field struct {
	Title string `json:"title"`
	Value string `json:"value"`
	Short bool   `json:"short"`
}

// escape is what Slack wants of text that is not markup.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func (m *Message) body() ([]byte, error) {
	p := payload{Text: escape.Replace(m.Title()), Message: *m}
	a := attachment{Color: "danger", Fallback: p.Text, Text: escape.Replace(m.Error), TS: int64(m.At) / 1000}
	if m.Kind == "recovery" {
		a.Color = "good"
	}
	for _, l := range m.lines() {
		a.Fields = append(a.Fields, field{l[0], escape.Replace(l[1]), true})
	}
	p.Attachments = []attachment{a}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(p)
	return b.Bytes(), err
}

// maxAnswer is how much of an answer is read.
const maxAnswer = 4 << 10

// dialTimeout bounds a connection to a receiver.
const dialTimeout = 10 * time.Second

// Poster sends webhooks.
type Poster struct {
	jobs    *http.Client            // to URLs that jobs have, by the rules of egress
	named   map[string]*http.Client // to those of the operator, by their URL
	timeout time.Duration
}

// NewPoster makes one. Connections are not kept: notifications are rare, and a stale connection makes the outcome of a
// try unknown.
func NewPoster(s *Settings) *Poster {
	client := func(trusted ...string) *http.Client {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DisableKeepAlives = true
		if s.Dial != nil {
			t.Proxy, t.DialContext = nil, s.Dial
		} else {
			cmp.Or(s.Egress, egress.Default).Transport(t, dialTimeout, trusted...)
		}
		t.MaxResponseHeaderBytes = 64 << 10
		// HTTP/2 replays requests by itself
		t.ForceAttemptHTTP2, t.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
		return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
	}
	p := &Poster{timeout: s.timeout(), jobs: client(), named: map[string]*http.Client{}}
	for _, to := range s.Webhooks {
		if u, err := url.Parse(to); err == nil {
			p.named[to] = client(egress.HostPort(u))
		}
	}
	return p
}

// Post sends a message to a URL; named says that it is the operator's.
func (p *Poster) Post(ctx context.Context, to string, named bool, m *Message) Result {
	return p.post(ctx, to, named, m, nil)
}

// post is Post with what may not show in the result.
func (p *Poster) post(ctx context.Context, to string, named bool, m *Message, hide *mask.Masker) (r Result) {
	defer func() {
		if r.Err != nil && hide != nil {
			r.Err = errors.New(hide.String(r.Err.Error()))
		}
	}()
	body, err := m.body()
	if err != nil {
		return refused(err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	// Once the first byte of the request may have left, it may have arrived.
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { wrote.Store(true) }})
	rq, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return refused(errors.New("the webhook is not a URL"))
	}
	rq.GetBody = nil // net/http would resend a request that has a key
	rq.Header.Set("Content-Type", "application/json; charset=utf-8")
	rq.Header.Set("User-Agent", "carillon")
	rq.Header.Set("Idempotency-Key", m.Key)
	rq.Header.Set(egress.Header, egress.HeaderValue)
	client := p.jobs
	if c := p.named[to]; named && c != nil {
		client = c
	}
	res, err := client.Do(rq)
	if err != nil {
		err = bare(err)
		if d, ok := errors.AsType[*egress.Denied](err); ok {
			return refused(d)
		}
		if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", p.timeout)
		}
		if wrote.Load() {
			return unknown(err)
		}
		return again(err)
	}
	defer res.Body.Close()
	// what it says beside its status is only of interest to people
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return judge(res, hide.Head(string(text))) // before any of it is cut
}

func judge(res *http.Response, text string) Result {
	if res.StatusCode/100 == 2 {
		return sent()
	}
	err := fmt.Errorf("the receiver answered %d", res.StatusCode)
	if text = oneLine(text, 200); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	switch c := res.StatusCode; {
	case c == http.StatusRequestTimeout, c == http.StatusTooEarly, c == http.StatusTooManyRequests, c >= 500:
		r := again(err)
		r.After = retryAfter(res.Header.Get("Retry-After"))
		return r
	}
	return refused(err)
}

// maxRetryAfter bounds what a receiver can ask for.
const maxRetryAfter = 6 * time.Hour

func retryAfter(s string) time.Duration {
	var d time.Duration
	if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32); err == nil {
		d = time.Duration(n) * time.Second
	} else if t, err := http.ParseTime(s); err == nil {
		d = time.Until(t)
	}
	return min(max(d, 0), maxRetryAfter)
}

// oneLine is the beginning of a text without what would break a log line or a terminal.
func oneLine(s string, n int) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "�"), func(r rune) bool {
		return r <= ' ' ||
			r == 0x7f
	}), " ")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// bare takes the URL out of an error: it is often a secret, and the error is shown with the job.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func hostOf(s string) string {
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		return u.Host
	}
	return "webhook"
}
