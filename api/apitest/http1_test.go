package apitest_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/apitest"
)

// A node speaks HTTP/1.1 only, so that a connection has one request at a time and the limit on connections bounds
// requests too. Clients that prefer HTTP/2 are answered, those that speak nothing else are refused.
func TestHTTP1Only(t *testing.T) {
	plain, secure := apitest.Start(t), apitest.Start(t, apitest.Secure, apitest.Keys)
	handshake := func(protos ...string) (*tls.Conn, error) {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: protos}}
		c, err := d.DialContext(t.Context(), "tcp", secure.Addr())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { c.Close() })
		return c.(*tls.Conn), nil
	}
	if c, err := handshake("h2", "http/1.1"); err != nil {
		t.Error(err)
	} else if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
		t.Errorf("a client that prefers HTTP/2 gets %q", p)
	}
	if _, err := handshake("h2"); err == nil || !strings.Contains(err.Error(), "no application protocol") {
		t.Errorf("a client of HTTP/2 alone: %v", err)
	}

	// Without TLS and with no ALPN, a client may begin with HTTP/2 or ask to go on with it.
	open := map[string]func() (net.Conn, error){
		"plain":   func() (net.Conn, error) { return net.Dial("tcp", plain.Addr()) },
		"no ALPN": func() (net.Conn, error) { return handshake() },
	}
	for name, dial := range open {
		for what, text := range map[string]string{
			"begins": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
			"asks": "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" +
				"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
		} {
			c, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("%s, who %s with HTTP/2: %v", name, what, err)
				continue
			}
			res.Body.Close()
			if res.ProtoMajor != 1 || res.StatusCode == http.StatusSwitchingProtocols {
				t.Errorf("%s, who %s with HTTP/2: %s %s", name, what, res.Proto, res.Status)
			}
		}
	}

	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	for _, url := range []string{"http://" + plain.Addr(), "https://" + secure.Addr()} {
		cmd := exec.CommandContext(t.Context(), curl, "-sSk", "--http2", "-o", "/dev/null",
			"-w", "%{http_version} %{http_code}", url+"/healthz")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "1.1 200" {
			t.Errorf("%s: %s, %v", fmt.Sprint(cmd.Args), out, err)
		}
	}
}
