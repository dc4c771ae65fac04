package forward

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/membudget"
)

// A body and an answer that a node keeps are in its budget. A body for which there is no room is refused before anything
// of it was sent; an answer is passed through instead, as it is.
func TestKeptBytesAreInTheBudget(t *testing.T) {
	const size = 300 << 10
	asked := 0
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(bytes.Repeat([]byte("x"), size))
	}))
	defer leader.Close()
	f := newForwarder(t, fixedRaft{"n2", leader.Listener.Addr().String()}, nil)
	ask := func(b *membudget.Budget, method string, body io.Reader) (w *httptest.ResponseRecorder) {
		ctx, end := b.Begin(t.Context(), membudget.Who{})
		defer end()
		w = httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, "/api/v1/jobs/a", body))
		return w
	}
	roomy := membudget.New(membudget.Limits{})
	w := ask(roomy, "PUT", strings.NewReader(strings.Repeat("x", size)))
	uses := roomy.Uses()
	if w.Code != 200 || w.Body.Len() != size || uses["callers"].Most != size ||
		uses["forwarded"].Most < size-freeAnswer || uses["forwarded"].Most > 2*size {
		t.Errorf("%d, %d bytes; held were %+v", w.Code, w.Body.Len(), uses)
	}
	full := membudget.New(membudget.Limits{Callers: 1, Forwarded: 1, Wait: time.Nanosecond})
	if w := ask(full, "GET", nil); w.Code != 200 || w.Body.Len() != size || full.Uses()["forwarded"].Most != 0 {
		t.Errorf("without room for the answer: %d, %d bytes; held were %+v", w.Code, w.Body.Len(), full.Uses())
	}
	hold, end := full.Begin(t.Context(), membudget.Who{})
	defer end()
	if _, err := membudget.ReadBody(httptest.NewRequestWithContext(hold, "PUT", "/", strings.NewReader("x")), 1); err != nil {
		t.Fatal(err)
	}
	before := asked
	if w := ask(full, "PUT", strings.NewReader("x")); w.Code != 503 || w.Header().Get("Retry-After") == "" || asked != before {
		t.Errorf("without room for the body: %d, asked %d times more", w.Code, asked-before)
	}
	for _, b := range []*membudget.Budget{roomy, full} {
		if u := b.Uses(); u["forwarded"].Held != 0 || b == roomy && u["callers"].Held != 0 {
			t.Errorf("not given back: %+v", u)
		}
	}
}
