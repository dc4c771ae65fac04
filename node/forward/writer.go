package forward

import (
	"bytes"
	"net/http"
	"time"
)

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
	defer w.rc.SetWriteDeadline(time.Time{})               //nolint:errcheck // net/http would leave it on the connection
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
