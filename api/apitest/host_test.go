package apitest_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/node"
)

func TestHostOnLoopback(t *testing.T) {
	srv := httptest.NewServer(api.New(empty(t).Backend, api.Options{Hosts: []string{"sched.internal:7400"}}))
	t.Cleanup(srv.Close)
	for host, want := range map[string]int{
		"":                     200, // what the URL says, 127.0.0.1
		"localhost":            200,
		"LocalHost.:7400":      200,
		"127.8.9.1:7400":       200,
		"[::1]:7400":           200,
		"[::1]":                200,
		"0.0.0.0:7400":         200,
		"Sched.Internal":       200,
		"evil.example:7555":    403,
		"evil.example":         403,
		"127.0.0.1.evil.com":   403,
		"localhost.evil.com":   403,
		"10.0.0.1:7400":        403,
		"[fe80::1%25lo0]:7400": 403,
	} {
		for _, header := range []string{"X-Nothing", "Carillon-Forwarded"} { // a page can send either
			rq, err := http.NewRequest("GET", srv.URL+"/api/v1/jobs", nil)
			if err != nil {
				t.Fatal(err)
			}
			rq.Host = host
			rq.Header.Set(header, "n1")
			resp, err := http.DefaultClient.Do(rq)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s, %s: %d, want %d", host, header, resp.StatusCode, want)
			}
		}
	}
	// What came over no interface, by the admin socket, was sent by no browser.
	w := httptest.NewRecorder()
	rq := httptest.NewRequest("GET", "http://evil.example/api/v1/jobs", strings.NewReader(""))
	api.New(empty(t).Backend, api.Options{}).ServeHTTP(w, rq)
	if w.Code != 200 {
		t.Error(w.Code, w.Body)
	}
}

// lanListener is a listener whose connections seem to have come to an address of a network.
type lanListener struct{ net.Listener }

type lanConn struct{ net.Conn }

func (l lanListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return lanConn{c}, err
}

func (lanConn) LocalAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 7400}
}

// A page makes its own name mean the address of a node in the network, or of a published port of a container, and calls
// the API under it: to the browser that is the page's own origin. Under whatever name it calls, it used to read
// everything and create shell jobs; now a plain node answers to its own names only. A secure one asks for a token, which
// the page does not have.
func TestRebindingFromElsewhere(t *testing.T) {
	for mode, change := range modes {
		secure := mode == "secure"
		srv := httptest.NewUnstartedServer(nil)
		srv.Config.Handler = apitest.Start(t, change, func(c *node.Config) {
			c.AllowedHosts = []string{"n1.sched.internal:7400", "sched.example"}
		}).Node.Handler()
		srv.Listener = lanListener{srv.Listener}
		srv.Start()
		t.Cleanup(srv.Close)
		resolved := &http.Client{Transport: &http.Transport{ // every name means the node
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, srv.Listener.Addr().String())
			}}}
		t.Cleanup(resolved.CloseIdleConnections)
		call := func(method, host, body string, header ...string) int {
			t.Helper()
			rq, err := http.NewRequest(method, "http://"+host+"/api/v1/jobs", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			rq.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(header); i += 2 {
				rq.Header.Set(header[i], header[i+1])
			}
			resp, err := resolved.Do(rq)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		const attack = `{"name":"attack","type":"shell","schedule":"@manual","payload":{"command":"id"}}`
		for host, good := range map[string]bool{
			"192.0.2.7:7400": true, "[2001:db8::1]:7400": true, "127.0.0.1:7401": true, "localhost:7401": true,
			"n1.sched.internal:7400": true, "N1.Sched.Internal": true, "sched.example:80": true,
			"evil.example:7400": false, "evil.example": false, "192.0.2.7.evil.example:7400": false,
			"n1.sched.internal.evil.example": false, "sched.internal": false,
		} {
			read, write := 200, 201
			switch {
			case secure: // no names are asked for, and nothing is answered without a token
				read, write = 401, 401
			case !good:
				read, write = 403, 403
			}
			if got := call("GET", host, ""); got != read {
				t.Errorf("secure %v, GET under %s: %d, want %d", secure, host, got, read)
			}
			same := []string{"Origin", "http://" + host, "Sec-Fetch-Site", "same-origin"}
			if got := call("POST", host, strings.Replace(attack, `"attack"`, `"`+strings.Map(plainName, host)+`"`, 1),
				same...); got != write {
				t.Errorf("secure %v, POST under %s: %d, want %d", secure, host, got, write)
			}
		}
		// Under the node's own name, from the page of another site.
		if got := call("POST", "192.0.2.7:7400", attack, "Origin", "http://evil.example"); got != 403 {
			t.Errorf("secure %v, across origins: %d", secure, got)
		}
	}
}

// plainName makes a job's name of a host.
func plainName(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}
