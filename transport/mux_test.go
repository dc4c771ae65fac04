package transport

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

func TestHTTPAndRaftOnOnePort(t *testing.T) {
	m := startMux(t, "127.0.0.1:0", Options{})
	serveHTTP(t, m)
	serveEcho(t, m)

	if got := get(t, "http://"+m.Addr().String(), nil); got != "hello HTTP/1.1" {
		t.Errorf("got %q", got)
	}
	c := dialTCP(t, m.Addr())
	if _, err := c.Write([]byte{RaftByte, 'h', 'i'}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hi" {
		t.Errorf("echoed %q, %v", buf, err)
	}
}

// What is not Raft is HTTP's to answer, and it answers so that one sees it.
func TestGarbageFirstByte(t *testing.T) {
	m := startMux(t, "127.0.0.1:0", Options{})
	serveHTTP(t, m)
	for name, garbage := range map[string]string{
		"zero":             "\x00\r\n\r\n",
		"high":             "\xff\xff\r\n\r\n",
		"TLS client hello": "\x16\x03\x01\x00\x05hello\r\n\r\n",
		"text":             "what?\r\n\r\n",
	} {
		c := dialTCP(t, m.Addr())
		io.WriteString(c, garbage)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", name, res.Status)
		}
	}
}

func TestSilentClientIsClosed(t *testing.T) {
	var log errorLog
	m := startMux(t, "127.0.0.1:0", Options{Timeout: 200 * time.Millisecond, OnError: log.add})
	serveHTTP(t, m)

	silent := dialTCP(t, m.Addr())
	get(t, "http://"+m.Addr().String(), nil) // not held up by it
	wantClosed(t, silent)
	log.wait(t, func(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) })

	// The deadline was for the first byte only.
	c := dialTCP(t, m.Addr())
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n")
	time.Sleep(300 * time.Millisecond)
	io.WriteString(c, "\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("slow request: %v, %v", res, err)
	}
	res.Body.Close()
}

// However many clients say nothing, others are served long before the silent
// ones time out.
func TestSilentClientsCannotLockOutOthers(t *testing.T) {
	var log errorLog
	m := startMux(t, "127.0.0.1:0", Options{MaxPending: 3, Timeout: time.Hour, OnError: log.add})
	serveHTTP(t, m)
	var silent []net.Conn
	for range 3 {
		silent = append(silent, dialTCP(t, m.Addr()))
	}
	for range 2 {
		get(t, "http://"+m.Addr().String(), nil)
	}
	wantClosed(t, silent[0]) // the oldest made room
	log.wait(t, func(err error) bool { return errors.Is(err, errCrowded) })
	m.gate.mu.Lock()
	defer m.gate.mu.Unlock()
	if n := m.gate.waiting.Len(); n > 3 {
		t.Errorf("%d connections wait, the limit is 3", n)
	}
}

// A crowd of honest clients is served in full: they wait for room, none is
// dropped for arriving together.
func TestCrowdOfHonestClients(t *testing.T) {
	m := startMux(t, "127.0.0.1:0", Options{MaxPending: 2})
	serveHTTP(t, m)
	done := make(chan error, 50)
	for range cap(done) {
		go func() {
			_, err := tryGet("http://"+m.Addr().String(), nil)
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestCloseUnblocksAndClosesEverything(t *testing.T) {
	m := startMux(t, "127.0.0.1:0", Options{})

	// One waiting in each queue, one that has not said what it wants.
	queued := dialTCP(t, m.Addr())
	io.WriteString(queued, "GET / HTTP/1.1\r\n")
	queuedRaft := dialTCP(t, m.Addr())
	queuedRaft.Write([]byte{RaftByte})
	silent := dialTCP(t, m.Addr())
	for len(m.http.conns) == 0 || len(m.raft.conns) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range []net.Conn{queued, queuedRaft, silent} {
		wantClosed(t, c)
	}
	if err := m.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := net.DialTimeout("tcp", m.Addr().String(), time.Second); err == nil {
		t.Error("the port is still open")
	}
}

func TestCloseUnblocksAccept(t *testing.T) {
	m := startMux(t, "127.0.0.1:0", Options{})
	errs := make(chan error, 2)
	for _, ln := range []net.Listener{m.HTTP(), m.Raft()} {
		go func() {
			_, err := ln.Accept()
			errs <- err
		}()
	}
	time.Sleep(10 * time.Millisecond) // let them block; either way they must return
	m.Close()
	for range 2 {
		if err := receiveErr(t, errs); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v", err)
		}
	}
	if _, err := m.HTTP().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}

// A node stops HTTP before Raft: one side closed must not disturb the other.
func TestOneSideClosed(t *testing.T) {
	m := startMux(t, "127.0.0.1:0", Options{})
	serveEcho(t, m)
	m.HTTP().Close()
	c := dialTCP(t, m.Addr())
	io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
	wantClosed(t, c)

	c = dialTCP(t, m.Addr())
	c.Write([]byte{RaftByte, 'x'})
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// flakyListener fails before it works.
type flakyListener struct {
	net.Listener
	errs []error
}

func (l *flakyListener) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	return l.Listener.Accept()
}

func TestAcceptErrors(t *testing.T) {
	accept := func(err error) error { return &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)} }
	t.Run("survives running out of descriptors", func(t *testing.T) {
		var log errorLog
		ln := &flakyListener{listen(t, "127.0.0.1:0"), []error{accept(syscall.EMFILE), accept(syscall.ECONNABORTED)}}
		m := NewMux(ln, Options{OnError: log.add})
		served := make(chan error, 1)
		go func() { served <- m.Serve() }()
		serveHTTP(t, m)
		get(t, "http://"+m.Addr().String(), nil)
		log.wait(t, func(err error) bool { return errors.Is(err, syscall.EMFILE) })
		m.Close()
		if err := receiveErr(t, served); err != nil {
			t.Error(err)
		}
	})
	t.Run("ends with the listener", func(t *testing.T) {
		ln := &flakyListener{listen(t, "127.0.0.1:0"), []error{accept(syscall.EBADF)}}
		m := NewMux(ln, Options{})
		if err := m.Serve(); !errors.Is(err, syscall.EBADF) {
			t.Error(err)
		}
		if _, err := m.Raft().Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	m := startMux(t, "127.0.0.1:0", Options{Keys: ringOf(t, a, "n")})
	serveHTTP(t, m)
	serveEcho(t, m)
	client := keys.ClientConfig(keys.HashOf(a.Cert))
	as := func(ring *keys.Ring, protos ...string) *tls.Config {
		c := clientTLS(ring, ALPN, nil)
		c.NextProtos = protos
		return c
	}
	peer := ringOf(t, a, "peer")

	t.Run("HTTP/2 is not offered", func(t *testing.T) {
		if got := get(t, "https://"+m.Addr().String(), client.Clone()); got != "hello HTTP/1.1" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a client that knows the CA needs nothing else", func(t *testing.T) {
		pool := x509.NewCertPool()
		pool.AddCert(a.Cert)
		if got := get(t, "https://"+m.Addr().String(), &tls.Config{RootCAs: pool}); got != "hello HTTP/1.1" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a client with another CA's hash sends nothing", func(t *testing.T) {
		if got, err := tryGet("https://"+m.Addr().String(), keys.ClientConfig(keys.Hash{1})); err == nil {
			t.Errorf("got %q", got)
		}
	})
	t.Run("no ALPN is HTTP, and nobody is asked for a certificate", func(t *testing.T) {
		cfg, asked := client.Clone(), false
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			return &tls.Certificate{}, nil
		}
		c := tls.Client(dialTCP(t, m.Addr()), cfg)
		io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		body, err := io.ReadAll(c)
		if err != nil || !strings.HasSuffix(string(body), "hello HTTP/1.0") || asked {
			t.Errorf("got %q, %v, asked: %v", body, err, asked)
		}
	})
	t.Run("ALPN selects Raft", func(t *testing.T) {
		c := tls.Client(dialTCP(t, m.Addr()), as(peer, "h2", ALPN))
		io.WriteString(c, "hi")
		buf := make([]byte, 2)
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hi" {
			t.Errorf("echoed %q, %v", buf, err)
		}
	})
	t.Run("ALPN selects HTTP of nodes", func(t *testing.T) {
		dial := NodeDial(peer, (&net.Dialer{}).DialContext, func(string) string { return "n" })
		tr := &http.Transport{DialContext: dial}
		defer tr.CloseIdleConnections()
		res, err := (&http.Client{Transport: tr, Timeout: long}).Get("http://" + m.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "hello HTTP/1.1 from peer" {
			t.Errorf("got %q, %v", body, err)
		}
	})
	t.Run("a dial that reaches another node fails", func(t *testing.T) {
		dial := NodeDial(peer, (&net.Dialer{}).DialContext, func(string) string { return "other" })
		if c, err := dial(t.Context(), "tcp", m.Addr().String()); err == nil {
			c.Close()
			t.Error("it was made")
		}
	})
	joiner, err := keys.OpenRing(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := joiner.Key(); err != nil {
		t.Fatal(err)
	}
	joiner.Pin(keys.HashOf(a.Cert))
	for _, proto := range []string{ALPN, ALPNNode} {
		for name, cfg := range map[string]*tls.Config{
			"no certificate":                 client.Clone(),
			"that of another CA":             as(ringOf(t, newAuthority(t), "peer"), proto),
			"that of a node not yet joined":  as(joiner, proto),
			"no certificate, with HTTP also": client.Clone(),
		} {
			t.Run(proto+" with "+name, func(t *testing.T) {
				cfg.NextProtos = []string{proto}
				if strings.HasSuffix(name, "also") {
					cfg.NextProtos = []string{"http/1.1", proto}
				}
				cfg.InsecureSkipVerify, cfg.VerifyConnection = true, nil
				c := tls.Client(dialTCP(t, m.Addr()), cfg)
				io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
				if _, err := c.Read(make([]byte, 1)); err == nil {
					t.Error("a stranger was served")
				}
			})
		}
	}
	t.Run("sessions are not resumed", func(t *testing.T) {
		cfg := as(peer, ALPN)
		cfg.ClientSessionCache, cfg.ServerName = tls.NewLRUClientSessionCache(4), "n"
		for range 2 {
			c := tls.Client(dialTCP(t, m.Addr()), cfg)
			io.WriteString(c, "x")
			if _, err := c.Read(make([]byte, 1)); err != nil || c.ConnectionState().DidResume {
				t.Errorf("resumed: %v, %v", c.ConnectionState().DidResume, err)
			}
			c.Close()
		}
	})
	t.Run("plain HTTP is told", func(t *testing.T) {
		c := dialTCP(t, m.Addr())
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		if !strings.Contains(line, "400") {
			t.Errorf("got %q", line)
		}
	})
	t.Run("plain Raft is closed", func(t *testing.T) {
		c := dialTCP(t, m.Addr())
		c.Write([]byte{RaftByte, 1, 2, 3, 4, 5, 6})
		wantClosed(t, c)
	})
}

// A certificate that was renewed is shown to the next connection.
func TestRenewedCertificate(t *testing.T) {
	a := newAuthority(t)
	ring := ringOf(t, a, "n")
	m := startMux(t, "127.0.0.1:0", Options{Keys: ring})
	serveHTTP(t, m)
	serial := func() string {
		c := tls.Client(dialTCP(t, m.Addr()), keys.ClientConfig(keys.HashOf(a.Cert)))
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	id, _ := ring.Identity()
	if err := ring.Certify(id, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	if serial() == before {
		t.Error("the old one is shown")
	}
}

func TestSilentTLSClientIsClosed(t *testing.T) {
	m := startMux(t, "127.0.0.1:0", Options{Keys: ringOf(t, newAuthority(t), "n"), Timeout: 100 * time.Millisecond})
	wantClosed(t, dialTCP(t, m.Addr()))
}
