package slowread

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/slowread/slowreadtest"
)

const large = 1 << 20

// serve gives large answers. ended is told how each of them ended.
func serve(t *testing.T, o Options, ended chan<- error) (b *Bound, addr string, ask func() (string, error)) {
	t.Helper()
	b = New(o)
	srv := httptest.NewUnstartedServer(b.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.WriteString(w, strings.Repeat("x", large)) // in one, or it would wait now and then
		ended <- err
	})))
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return b, srv.Listener.Addr().String(), func() (string, error) {
		res, err := srv.Client().Get(srv.URL)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return string(body), err
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// get asks over a connection of its own, from an address, and takes no answer.
func get(t *testing.T, addr, from string) *slowreadtest.Client {
	t.Helper()
	c, err := slowreadtest.Dial(addr, from)
	if err != nil {
		t.Skipf("cannot dial from %q: %v", from, err)
	}
	t.Cleanup(c.Close)
	if err := c.Get("/", ""); err != nil {
		t.Fatal(err)
	}
	return c
}

// Attack: a client takes none of its answers. So many of them wait and no more; the next connection is closed. Others are
// answered, and a member in any case.
func TestAnswersNotTaken(t *testing.T) {
	refused := make(chan netip.Addr, 100)
	b, addr, ask := serve(t, Options{Limits: Limits{Each: 4, All: 6, Time: time.Hour},
		Member:  func(a netip.Addr) bool { return a.String() == "127.0.0.3" },
		Refused: func(from netip.Addr) { refused <- from }}, make(chan error, 100))
	waiting := 0
	leave := func(from string, n int) (out []*slowreadtest.Client) {
		for range n {
			out = append(out, get(t, addr, from))
			waiting++
			until(t, "it waits", func() bool { return b.Waiting() == waiting })
		}
		return out
	}
	closed := func(from string) {
		t.Helper()
		c := get(t, addr, from)
		if by := <-refused; by.String() != from {
			t.Errorf("%s is refused, and %s has too many", by, from)
		}
		if n := c.Rest(); n >= large { // returns when the connection is closed
			t.Errorf("the one too many gets %d bytes", n)
		}
	}
	first := leave("127.0.0.2", 4)
	if text, err := ask(); err != nil || len(text) != large {
		t.Errorf("another client gets %d bytes, %v", len(text), err)
	}
	closed("127.0.0.2")
	second := leave("127.0.0.4", 2)
	members := leave("127.0.0.3", 2)
	closed("127.0.0.4")
	for _, c := range append(append(first, second...), members...) {
		c.Close()
	}
	until(t, "nothing waits", func() bool { return b.Waiting() == 0 })
	if len(b.from) != 0 {
		t.Errorf("%v are still counted", b.from)
	}
}

// Who does not read has a time for it.
func TestTimeToRead(t *testing.T) {
	ended := make(chan error, 1)
	b, addr, _ := serve(t, Options{Limits: Limits{Time: time.Millisecond}}, ended)
	c := get(t, addr, "")
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the answer ended with %v", err)
	}
	if n := c.Rest(); n >= large || b.Waiting() != 0 {
		t.Errorf("%d bytes came, %d wait", n, b.Waiting())
	}
}

// unwraps is around an answer, as what measures it.
type unwraps struct{ http.ResponseWriter }

func (u unwraps) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// A reader that may take its time has it; the handler's own counts as before.
func TestPatient(t *testing.T) {
	f := &fake{ResponseWriter: httptest.NewRecorder()}
	soon := time.Now().Add(time.Minute)
	New(Options{Limits: Limits{Time: time.Nanosecond}}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Patient(httptest.NewRecorder()) // which is nobody's
		Patient(unwraps{unwraps{w}})
		for _, own := range []time.Time{{}, soon} {
			if err := http.NewResponseController(w).SetWriteDeadline(own); err != nil {
				t.Error(err)
			}
			if _, err := w.Write(make([]byte, 2*piece)); err != nil {
				t.Error(err)
			}
		}
	})).ServeHTTP(f, httptest.NewRequest(http.MethodGet, "/", nil))
	half := len(f.deadlines) / 2
	for i, d := range f.deadlines {
		if want := map[bool]time.Time{true: soon}[i >= half]; !d.Equal(want) || half == 0 {
			t.Errorf("deadline %d of %d is %s, not %s", i, 2*half, d, want)
		}
	}
}

// fake is an answer that keeps its deadlines.
type fake struct {
	http.ResponseWriter
	deadlines []time.Time
	wrote     []int
	err       error
}

func (f *fake) SetWriteDeadline(t time.Time) error { f.deadlines = append(f.deadlines, t); return nil }
func (f *fake) FlushError() error                  { return nil }
func (f *fake) Write(p []byte) (int, error) {
	f.wrote = append(f.wrote, len(p))
	return len(p), f.err
}

// A stream may have nothing to say for as long as it likes: the time is for each piece, and is taken back after it. The
// handler's own time counts where it is shorter, and stays.
func TestTimeIsForEachPiece(t *testing.T) {
	f := &fake{ResponseWriter: httptest.NewRecorder()}
	b := New(Options{Limits: Limits{Time: time.Hour}})
	soon := time.Now().Add(time.Minute)
	b.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if n, err := w.Write(make([]byte, 2*piece+1)); n != 2*piece+1 || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		if len(f.deadlines) != 4 || !f.deadlines[3].IsZero() || f.deadlines[0].Before(soon) {
			t.Errorf("deadlines %v", f.deadlines)
		}
		f.deadlines = nil
		rc.SetWriteDeadline(soon)
		w.Write([]byte("x"))
		if err := rc.Flush(); err != nil {
			t.Error(err)
		}
		for _, d := range f.deadlines {
			if !d.Equal(soon) {
				t.Errorf("deadlines %v", f.deadlines)
			}
		}
		rc.SetWriteDeadline(time.Time{})
		f.err = errors.New("gone")
		if n, err := w.Write(make([]byte, 2*piece)); n != piece || err == nil {
			t.Errorf("wrote %d, %v after the reader has gone", n, err)
		}
	})).ServeHTTP(f, httptest.NewRequest("GET", "/", nil))
	if last := f.deadlines[len(f.deadlines)-1]; last.IsZero() { // net/http writes the rest over HTTP/1
		t.Error("the rest of an answer has no time")
	}
	if got := f.wrote; len(got) != 5 || got[0] != piece || got[2] != 1 {
		t.Errorf("pieces %v", got)
	}
	if b.Waiting() != 0 {
		t.Errorf("%d wait", b.Waiting())
	}
}
