package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	mrand "math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/job"
)

// carry has a request answered by whoever leads, and keeps at it while leaders come and go. Everything may be repeated: a read changes
// nothing, and what changes something has a key under which it is done once. Only a poll may not: runs that were claimed for the first
// one would be nobody's until their lease ends.
func (f *forwarder) carry(w http.ResponseWriter, r *http.Request, poll bool) {
	c := &carriage{f: f, w: w, r: r, poll: poll}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.key = rand.Text()
		if !c.buffer() {
			f.local.ServeHTTP(w, r) // too large, or broken off: the API knows how to say it
			return
		}
	}
	c.until = time.Now().Add(leaderWait*3/4 + mrand.N(leaderWait/4)) // spread, so that those who waited do not come back together
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
		if c.poll && c.sent {
			break
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
	poll  bool       // it waits at the leader, and is sent once
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

// fail answers a request that nobody took, with who is missing if that is why.
func (c *carriage) fail() {
	f := c.f.n
	why := ""
	if !f.leadsHere() && f.compass.leader().id == "" && !isClosed(f.leaving) {
		why = f.members.whyNoLeader(c.r.Context())
	}
	switch {
	case c.sent && c.poll:
		api.WriteError(c.w, job.Errorf(job.CodeOutcomeUnknown, "poll again, with the same session if you have one: what was on its way is delivered then",
			"the leader was lost while this poll waited"))
	case c.sent:
		text, remedy := "the leader was lost while this was on its way: it may or may not have been done", "repeat it with the same Idempotency-Key"
		if what, way, ok := strings.Cut(why, "; "); ok {
			text, remedy = text+"; nobody leads now: "+what, way+", then "+remedy
		}
		api.WriteError(c.w, job.Errorf(job.CodeOutcomeUnknown, remedy, "%s", text))
	case isClosed(f.leaving):
		api.WriteError(c.w, errStopping())
	case why == "" && c.err != nil && c.err.Code != job.CodeNotLeader:
		api.WriteError(c.w, c.err)
	default:
		api.WriteError(c.w, noLeaderError(why))
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
	transport := c.f.short
	if c.poll {
		transport = c.f.long
		ended := make(chan struct{})
		defer close(ended)
		go func() { // a node that stops does not wait for work that may never come
			select {
			case <-c.f.n.leaving:
				cancel()
			case <-ended:
			}
		}()
	}
	out := c.f.outgoing(ctx, c.r, p)
	out.Body, out.ContentLength = http.NoBody, 0
	if c.key != "" {
		// net/http must not repeat it by itself: it would not say that it is a repetition, and if it then finds nobody, its error is that of
		// the second try, as if nothing had been sent.
		body := c.body
		if len(body) == 0 {
			body = nil
		}
		executor.Unreplayable(out, body)
		out.Header.Set(headerKey, c.key)
		if c.sent {
			out.Header.Set(headerRepeat, "true")
		}
	}
	resp, err := transport.RoundTrip(out)
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
	dialing := neverConnected(err)
	c.sent = c.sent || c.key != "" && !dialing
	c.err = job.Errorf(job.CodeNoLeader, "try again in a moment", "the leader %s (%s) does not answer; nothing was changed", p.id, p.addr)
	if !errors.Is(err, context.Canceled) {
		c.f.n.cfg.Logger.Debug("forwarding failed", "leader", p.id, "address", p.addr, "error", err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || !dialing {
		c.f.short.CloseIdleConnections() // they lead to the same place
	}
}
