package transport

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long bounds what a test waits for; reaching it is a failure.
const long = 20 * time.Second

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	// A port just released can be held by another process's dial for a moment.
	for end := time.Now().Add(long); ; time.Sleep(20 * time.Millisecond) {
		ln, err := net.Listen("tcp", addr)
		if err == nil {
			return ln
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// startMux serves a mux until the test ends, or until the mux is closed.
func startMux(t *testing.T, addr string, opts Options) *Mux {
	t.Helper()
	m := NewMux(listen(t, addr), opts)
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()
	t.Cleanup(func() {
		m.Close()
		if err := receiveErr(t, served); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return m
}

func receiveErr(t *testing.T, ch <-chan error) error {
	t.Helper()
	select {
	case err := <-ch:
		return err
	case <-time.After(long):
		t.Fatal("nothing happened")
		return nil
	}
}

// serveHTTP answers "hello PROTO" on the mux's HTTP side.
func serveHTTP(t *testing.T, m *Mux) {
	t.Helper()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello "+r.Proto)
		if id, ok := keys.PeerOf(r.Context()); ok {
			io.WriteString(w, " from "+id.Node)
		}
	}), ConnContext: ConnContext}
	var wg sync.WaitGroup
	wg.Go(func() { srv.Serve(m.HTTP()) })
	t.Cleanup(func() {
		srv.Close()
		wg.Wait()
	})
}

// serveEcho echoes on the mux's Raft side.
func serveEcho(t *testing.T, m *Mux) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := m.Raft().Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		m.Close()
		wg.Wait()
	})
}

// get asks for / and returns the body. The connection is not kept.
func get(t *testing.T, url string, cfg *tls.Config) string {
	t.Helper()
	body, err := tryGet(url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func tryGet(url string, cfg *tls.Config) (string, error) {
	tr := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: cfg != nil}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr, Timeout: long}).Get(url)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

func dialTCP(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(long))
	return c
}

// wantClosed checks that the other side closes c.
func wantClosed(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(long))
	_, err := io.Copy(io.Discard, c)
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		t.Error("connection was not closed")
	}
}

// errorLog collects what OnError was told.
type errorLog struct {
	mu   sync.Mutex
	errs []error
}

func (l *errorLog) add(_ net.Addr, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// wait returns the first collected error that match accepts.
func (l *errorLog) wait(t *testing.T, match func(error) bool) error {
	t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		for _, err := range l.errs {
			if match(err) {
				l.mu.Unlock()
				return err
			}
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Fatalf("no such error among %v", l.errs)
	return nil
}

// newAuthority is the CA of cluster "c".
func newAuthority(t *testing.T) *keys.Authority {
	t.Helper()
	a, err := keys.NewAuthority("c", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ringOf has the keys of a node, with the instance that startNode gives it.
func ringOf(t *testing.T, a *keys.Authority, id string) *keys.Ring {
	t.Helper()
	r, err := keys.OpenRing(filepath.Join(t.TempDir(), "keys"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Keep(a); err != nil {
		t.Fatal(err)
	}
	if err := r.Certify(keys.Identity{Cluster: "c", Node: id, Instance: "i-" + id, Joined: 3}, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	return r
}

// secured gives a node its keys; nil gives it none.
func secured(t *testing.T, a *keys.Authority, id string) func(*Options, *StreamOptions) {
	t.Helper()
	return func(mo *Options, so *StreamOptions) {
		if a != nil {
			mo.Keys = ringOf(t, a, id)
			so.Keys = mo.Keys
		}
	}
}
