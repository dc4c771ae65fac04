package forward

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/job"
)

// forwardWithRetry has a request answered by the node that leads, and repeats it while leaders come and go. Everything
// may be repeated: a read changes nothing, and what changes something has a key under which it is done once. Only a
// poll may not: runs that were claimed for the first one would have no worker until their lease ends.
func (f *Forwarder) forwardWithRetry(w http.ResponseWriter, r *http.Request, poll bool) {
	c := &request{f: f, w: w, r: r, poll: poll}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.key = rand.Text()
		switch err := c.buffer(); {
		case job.CodeOf(err) == job.CodeUnavailable: // there is no room for it
			w.Header().Set("Connection", "close")
			api.WriteError(w, err)
			return
		case err != nil:
			f.o.Local.ServeHTTP(w, r) // too large, or broken off: the API knows how to say it
			return
		}
	}
	ctx := r.Context()
	for a := f.t.NewAttempts(); ; {
		l, ok := a.Leader(ctx)
		if !ok {
			c.err = nil
			break
		}
		if l.Epoch != nil && c.serveLocal() || l.Epoch == nil && c.sendToLeader(l) {
			return
		}
		if c.poll && c.sent || !a.Again(ctx, l) {
			break
		}
	}
	c.fail()
}

// request is one forwarded request.
type request struct {
	f    *Forwarder
	w    http.ResponseWriter
	r    *http.Request
	body []byte
	key  string     // empty for reads
	poll bool       // it waits at the leader, and is sent once
	sent bool       // an earlier attempt may have been carried out
	err  *job.Error // why the last attempt failed
}

// freshKey does nothing: every try has the key of the first one, or a repetition would be another request.
func (c *request) freshKey() {
	if mutant.On(mutant.FreshKey) && c.key != "" {
		c.key = rand.Text()
	}
}

// buffer reads the body so that it can be sent more than once. If that does not work it gives back what was read.
func (c *request) buffer() error {
	if c.r.Body == nil || c.r.Body == http.NoBody {
		return nil
	}
	rc := http.NewResponseController(c.w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) //nolint:errcheck // unsupported is fine
	if err := api.Revoked(c.r.Context()); err != nil {
		c.r.Body = membudget.Refused(err, c.r.Body) // this deadline may have taken the place of the one that ends it
		return err
	}
	data, err := membudget.ReadBody(c.r, maxBuffered)
	if err == nil {
		_ = rc.SetReadDeadline(time.Time{}) //nolint:errcheck // as above
	}
	c.body = data
	return err
}

// fail answers a request that no leader took, with the voters that are missing if that is why.
func (c *request) fail() {
	if err := api.Revoked(c.r.Context()); err != nil && (!c.sent || c.poll) {
		api.WriteError(c.w, err)
		return
	}
	if err := c.f.t.outside(); err != nil && !c.sent {
		c.f.writeError(c.w, err)
		return
	}
	why := c.f.t.why(c.r.Context())
	switch {
	case c.sent && c.poll:
		c.f.writeError(c.w, job.Errorf(job.CodeOutcomeUnknown,
			"poll again, with the same session if you have one: it delivers what was on its way",
			"the leader was lost while this poll waited"))
	case c.sent:
		text := "the leader was lost during the request: it may or may not have been done"
		remedy := "repeat it with the same Idempotency-Key"
		if what, way, ok := strings.Cut(why, "; "); ok {
			text, remedy = text+"; there is no leader now: "+what, way+", then "+remedy
		}
		c.f.writeError(c.w, job.Errorf(job.CodeOutcomeUnknown, remedy, "%s", text))
	case c.f.t.left():
		api.WriteError(c.w, errStopping())
	case why == "" && c.err != nil && c.err.Code != job.CodeNotLeader:
		c.f.writeError(c.w, c.err)
	default:
		c.f.writeError(c.w, ErrNoQuorum(why))
	}
}

// again says whether an answer means that the request should be tried on. The codes are those of a node that lost its
// leadership; only the last leaves open whether something was done.
func (c *request) again(problem []byte) bool {
	var p wire.Problem
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

// serveLocal has the request answered by this node. It says false if that lost its leadership over it.
func (c *request) serveLocal() bool {
	ctx := c.r.Context()
	c.freshKey()
	if c.key != "" {
		ctx = api.WithRequestKey(ctx, c.key, c.sent)
	}
	r := c.r.WithContext(ctx)
	if c.body != nil {
		r.Body = membudget.Kept(c.body)
	}
	w := &holdingWriter{to: c.w, header: http.Header{}}
	c.f.o.Local.ServeHTTP(w, r)
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

// sendToLeader has the request answered by another node. It says false if there is no answer that counts.
func (c *request) sendToLeader(l Leader) bool {
	ctx, cancel := c.f.t.Replaced(c.r.Context(), l, nil)
	defer cancel()
	transport := c.f.short
	if c.poll {
		transport = c.f.long
		ended := make(chan struct{})
		defer close(ended)
		go func() { // a node that stops does not wait for work that may never come
			select {
			case <-c.f.t.leaving:
				cancel()
			case <-ended:
			}
		}()
	}
	c.freshKey()
	out := c.f.outgoing(ctx, c.r, l)
	out.Body, out.ContentLength = http.NoBody, 0
	if c.key != "" {
		// net/http must not repeat it by itself: it would not say that it is a repetition, and if it then finds no
		// node, its error is that of the second try, as if nothing had been sent.
		body := c.body
		if len(body) == 0 {
			body = nil
		}
		executor.Unreplayable(out, body)
		out.Header.Set(HeaderKey, c.key)
		if c.sent {
			out.Header.Set(HeaderRepeat, "true")
		}
	}
	resp, err := transport.RoundTrip(out)
	if err != nil {
		c.broken(l, err)
		return false
	}
	defer resp.Body.Close()
	held := membudget.Forwarded(ctx)
	defer held.Release()
	head, whole, err := readHead(resp.Body, held)
	if err != nil {
		c.broken(l, err)
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
	if !whole {
		if _, err := io.Copy(c.w, resp.Body); err != nil {
			panic(http.ErrAbortHandler) // half an answer must not look like a whole one
		}
	}
	return true
}

// freeAnswer is what is kept of every answer. Most are smaller.
const freeAnswer = 32 << 10

// readHead reads an answer up to what is kept of one, if there is room for it in the budget. It does not wait for that:
// what it asks for has been done by then. An answer that is not kept as a whole is passed through; if it breaks off, so
// does that of the client, who has to ask again.
func readHead(body io.Reader, held *membudget.Held) (head []byte, whole bool, err error) {
	var buf bytes.Buffer
	for room := int64(freeAnswer); ; room *= 2 {
		_, err := io.CopyN(&buf, body, room-int64(buf.Len()))
		switch {
		case errors.Is(err, io.EOF):
			return buf.Bytes(), true, nil
		case err != nil:
			return nil, false, err
		case room >= maxBuffered || !held.Grow(room):
			return buf.Bytes(), false, nil
		}
	}
}

// broken notes a try without an answer. Only if no connection could be made is it certain that nothing was done.
func (c *request) broken(l Leader, err error) {
	dialing := neverConnected(err)
	c.sent = c.sent || c.key != "" && !dialing
	c.err = job.Errorf(job.CodeNoLeader, "try again in a moment",
		"the leader %s (%s) does not answer; nothing was changed", l.ID, l.Addr)
	if !errors.Is(err, context.Canceled) {
		c.f.o.Logger.Debug("forwarding failed", "leader", l.ID, "address", l.Addr, "error", err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || !dialing {
		c.f.short.CloseIdleConnections() // they lead to the same place
	}
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

// deadlineWriter gives a client that does not read a limited time: a handler must not wait for it for ever.
type deadlineWriter struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func (w *deadlineWriter) Write(b []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(bodyTimeout)) //nolint:errcheck // unsupported is fine
	defer w.rc.SetWriteDeadline(time.Time{})               //nolint:errcheck // or it stays on the connection
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
