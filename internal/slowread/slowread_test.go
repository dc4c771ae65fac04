package slowread

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/slowread/slowreadtest"
)

// serve answers with as many bytes as the path has letters, times a thousand.
func serve(t *testing.T, o Options) (b *Bound, addr string, ask func(path string) (string, error)) {
	t.Helper()
	b = New(o)
	srv := httptest.NewUnstartedServer(b.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range len(r.URL.Path) - 1 {
			if _, err := io.WriteString(w, strings.Repeat("x", 1000)); err != nil {
				return
			}
		}
	})))
	srv.EnableHTTP2, srv.Config.ConnContext = true, ConnContext
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return b, srv.Listener.Addr().String(), func(path string) (string, error) {
		res, err := srv.Client().Get(srv.URL + path)
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

func dial(t *testing.T, addr, from string) *slowreadtest.Client {
	t.Helper()
	c, err := slowreadtest.Dial(addr, from)
	if err != nil {
		t.Skipf("cannot dial from %q: %v", from, err)
	}
	t.Cleanup(c.Close)
	return c
}

func get(t *testing.T, c *slowreadtest.Client, path string, times int) {
	t.Helper()
	for range times {
		if err := c.Get(path, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// Attack: a client takes none of its answers, be they large or so small that net/http writes them after the handler.
// So many of them wait and no more; its connection is closed when it asks for another. Others are answered, and a member
// in any case.
func TestAnswersNotTaken(t *testing.T) {
	for _, path := range []string{"/x", "/" + strings.Repeat("x", 100)} {
		refused := make(chan netip.Addr, 100)
		b, addr, ask := serve(t, Options{Limits: Limits{Each: 4, All: 6, Time: time.Hour},
			Member:  func(a netip.Addr) bool { return a.String() == "127.0.0.3" },
			Refused: func(from netip.Addr) { refused <- from }})
		c := dial(t, addr, "127.0.0.2")
		get(t, c, path, 4)
		until(t, "four wait", func() bool { return b.Waiting() == 4 })
		if text, err := ask(path); err != nil || len(text) != 1000*(len(path)-1) {
			t.Errorf("another client gets %d bytes, %v", len(text), err)
		}
		d := dial(t, addr, "127.0.0.4")
		get(t, d, path, 2)
		until(t, "six wait", func() bool { return b.Waiting() == 6 })
		m := dial(t, addr, "127.0.0.3")
		get(t, m, path, 2)
		until(t, "a member is not counted out", func() bool { return b.Waiting() == 8 })
		get(t, d, path, 1)
		if from := <-refused; from.String() != "127.0.0.4" {
			t.Errorf("%s is refused, which has fewer than its share when all have too many", from)
		}
		until(t, "the connection of the one too many is closed", func() bool { return d.Closed() && b.Waiting() == 6 })
		m.Close()
		until(t, "four wait again", func() bool { return b.Waiting() == 4 })
		get(t, c, path, 1)
		if from := <-refused; from.String() != "127.0.0.2" {
			t.Errorf("%s is refused, which has none", from)
		}
		until(t, "that connection is closed, and nothing waits", func() bool { return c.Closed() && b.Waiting() == 0 })
		if len(b.from) != 0 {
			t.Errorf("%v are still counted", b.from)
		}
	}
}

// Who does not read has a time for it.
func TestTimeToRead(t *testing.T) {
	for _, path := range []string{"/x", "/" + strings.Repeat("x", 100)} {
		b, addr, _ := serve(t, Options{Limits: Limits{Time: time.Millisecond}})
		c := dial(t, addr, "")
		get(t, c, path, 3)
		until(t, "all are broken off", func() bool { return c.Open() == 0 && b.Waiting() == 0 })
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
