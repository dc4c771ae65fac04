// Package duplex answers a request while its body is read.
//
// Net/http lets a handler do that (EnableFullDuplex), and then does not look at how the body ended: it takes what comes
// next on the connection for the next request, be it the rest of the body. Who writes a part of a body, a line of a
// bulk create for example, could have a request of its own carried out with the rights of the connection. So an answer
// that begins before the body has ended is the last one of its connection. A body that ended first, as all small ones
// do, costs nothing.
package duplex

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// restTimeout is how long the rest of a body is waited for that nothing will be done with. A client that sends
	// before it reads hears its answer if its rest is taken; one that sends nothing hears it when this has passed.
	restTimeout = time.Second
	// maxRest is how much of it is read, as net/http has it. Above that the connection is closed in two steps, so that
	// the answer is heard.
	maxRest = 256 << 10
)

// Exchange is a request that is answered while its body is read, with W and R in the place of the originals.
type Exchange struct {
	W http.ResponseWriter
	R *http.Request

	rc     *http.ResponseController
	answer *answer
	body   *body
}

// Begin lets a request be answered while its body is read. End must be called before the handler returns.
func Begin(w http.ResponseWriter, r *http.Request) *Exchange {
	x := &Exchange{rc: http.NewResponseController(w), body: &body{from: r.Body}}
	if r.Body == nil || r.Body == http.NoBody {
		x.body.from = http.NoBody
		x.body.state.Store(ended)
	}
	// Without it net/http would swallow or cut off the rest of the body before the answer.
	_ = x.rc.EnableFullDuplex() //nolint:errcheck // unsupported is fine
	x.answer = &answer{ResponseWriter: w, body: x.body}
	x.W = x.answer
	// The original keeps its body: net/http looks at that to see how it was closed.
	x.R = r.WithContext(r.Context())
	x.R.Body = x.body
	return x
}

// Hurry ends a read that waits for more of the body, soon. It is for a body that nothing more will be done with: the
// connection is not used again.
func (x *Exchange) Hurry() {
	// One that has ended is left alone: the connection is watched for the client's hanging up, by a read too.
	if x.body.state.Load() == open {
		x.readFor(restTimeout)
	}
}

func (x *Exchange) readFor(d time.Duration) {
	_ = x.rc.SetReadDeadline(time.Now().Add(d)) //nolint:errcheck // unsupported is fine
}

// End closes the body; a short rest is read. Net/http would do so after the handler: it then takes the end of the body
// for a time to watch the connection, beside its own wait for the next request, and panics (Go 1.26).
func (x *Exchange) End() {
	switch {
	case x.body.state.Load() == ended:
	case x.body.state.Load() == broken, x.R.Context().Err() != nil: // who is cut off is not waited for
		x.readFor(0)
	default:
		x.readFor(restTimeout)
		_, _ = io.CopyN(io.Discard, x.body, maxRest) //nolint:errcheck // the body's state tells
	}
	if !x.answer.began {
		x.answer.decide()
	}
	_ = x.body.Close() //nolint:errcheck // as above
}

// The states of a body.
const (
	open int32 = iota
	ended
	broken // a read failed: where the next request would begin is not known
)

// body knows whether it was read to its end.
type body struct {
	from  io.ReadCloser
	state atomic.Int32
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.state.CompareAndSwap(open, ended)
	default:
		b.state.CompareAndSwap(open, broken)
	}
	return n, err
}

func (b *body) Close() error { return b.from.Close() }

// answer ends the connection if it begins before the body has ended.
type answer struct {
	http.ResponseWriter
	body  *body
	began bool
}

func (w *answer) decide() {
	if w.body.state.Load() != ended {
		w.Header().Set("Connection", "close")
	}
}

func (w *answer) WriteHeader(status int) {
	if !w.began && status >= 200 {
		w.began = true
		w.decide()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answer) Write(b []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController, which would otherwise begin the answer past this.
func (w *answer) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *answer) begin() {
	if !w.began {
		w.WriteHeader(http.StatusOK)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Heard lets who asks for the end of a connection hear an answer that came before the end of its body. Net/http reads a
// short rest of a body before it goes on with a connection, and closes one with a long rest in two steps; where the
// client asked for the end it does neither, and the kernel resets the connection under a client that still sends: it
// sees a broken pipe in the place of the answer.
func Heard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.Close || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		b := &body{from: r.Body}
		own := r.WithContext(r.Context()) // the original keeps its body, as in Begin
		own.Body = b
		next.ServeHTTP(w, own)
		if b.state.Load() != ended {
			// There is no other way to say so: who reads too much of a body has its connection closed in two steps.
			tooMuch := http.MaxBytesReader(w, io.NopCloser(strings.NewReader("more")), 0)
			_, _ = tooMuch.Read(make([]byte, 1)) //nolint:errcheck // it always fails
		}
	})
}
