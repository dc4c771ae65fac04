package client

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// secureServer shows the certificate of a node of a cluster of its own.
func secureServer(t *testing.T, handler http.Handler) (addr string, ca keys.Hash, dials *atomic.Int64) {
	t.Helper()
	a, err := keys.NewAuthority("c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keys.OpenRing(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Keep(a); err != nil {
		t.Fatal(err)
	}
	if err := ring.Certify(keys.Identity{Cluster: "c1", Node: "n1", Instance: "i1"}, "127.0.0.1", time.Now()); err != nil {
		t.Fatal(err)
	}
	dials = new(atomic.Int64)
	srv := httptest.NewUnstartedServer(handler)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			dials.Add(1)
		}
	}
	srv.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return ring.Shown() }}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String(), keys.HashOf(a.Cert), dials
}

// Who knows a cluster by a CA that it does not show any more is told how to get in again, at once, and never shows the
// token; and so is a worker.
func TestOtherCA(t *testing.T) {
	asked := atomic.Bool{}
	addr, ca, dials := secureServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Store(true)
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"name":"ci","role":"viewer","secure":true}`))
	}))
	old := keys.NewToken(keys.APIToken, keys.Hash{1}).Text()
	_, err := New(addr, WithToken(old)).Whoami(context.Background())
	says := func(err error, parts ...string) {
		t.Helper()
		e, ok := err.(*job.Error) //nolint:errorlint // it is not wrapped
		if !ok || e.Code != job.CodeUnauthenticated {
			t.Fatalf("%v", err)
		}
		for _, want := range parts {
			if !strings.Contains(e.Message+"; "+e.Remedy, want) {
				t.Errorf("no %q in %v", want, err)
			}
		}
	}
	says(err, "no longer remembers", "admin.sock", "token create", "carillon login")
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	l := NewLeader([]string{addr}, WithLeaderToken(old))
	defer l.Close()
	_, err = l.Poll(context.Background(), job.Poll{Worker: "w"})
	says(err, "no longer remembers", "token create")
	if asked.Load() {
		t.Error("the token was shown")
	}
	if _, err := New(addr, WithToken(keys.NewToken(keys.APIToken, ca).Text())).Whoami(context.Background()); err != nil {
		t.Error(err)
	}
}
