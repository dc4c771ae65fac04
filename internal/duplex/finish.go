package duplex

import (
	"net/http"
	"time"
)

// Finish is around everything that a port serves. What a handler left of a request's body is read by net/http before
// the connection is used again, and for as long as its client takes to send it. Anybody could hold a connection like
// that for ever, without a token.
func Finish(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if r.ContentLength != 0 {
				rc, end := http.NewResponseController(w), time.Now().Add(finishTimeout)
				_ = rc.SetReadDeadline(end) //nolint:errcheck // a test's connection has no deadlines
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// finishTimeout is how long a client may take for the rest of a request that was answered.
const finishTimeout = 10 * time.Second
