package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
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
	})}
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

// certs makes a certificate for localhost that is its own authority, good for
// servers and clients.
func certs(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "carillon test"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven},
		&tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool}
}
