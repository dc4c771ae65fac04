package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// Dialer connects to what the policy allows. The check is made on the address that is about to be connected to, for
// every connection: a name that was harmless when it was looked up before may mean something else now (DNS rebinding).
type Dialer struct {
	p       *Policy
	net     net.Dialer
	trusted map[string]bool // host:port that the operator configured
}

// Dialer makes one. trusted are host:port that the operator configured for this very purpose: they are not judged,
// whatever they resolve to.
func (p *Policy) Dialer(timeout time.Duration, trusted ...string) *Dialer {
	d := &Dialer{p: p, trusted: map[string]bool{}}
	d.net = net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second, Resolver: p.o.Resolver, ControlContext: d.control}
	for _, t := range trusted {
		if host, port, err := splitPort(t); err == nil {
			d.trusted[hostPort(host, port)] = true
		}
	}
	return d
}

// target is what a connection was asked for, and what became of the check.
type target struct {
	name    string
	trusted bool        // its addresses are not judged
	passed  atomic.Bool // one of its addresses was allowed
}

type targetKey struct{}

// DialContext connects. The error is, or wraps, a *Denied if no address of the target is allowed.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, addr)
	var denied *Denied
	if errors.As(err, &denied) && d.p.o.OnDenied != nil {
		d.p.o.OnDenied(denied)
	}
	return conn, err
}

func (d *Dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	t := &target{name: addr}
	host, port, err := splitPort(addr)
	switch {
	case network != "tcp" && network != "tcp4" && network != "tcp6":
		return nil, &Denied{Target: addr, Class: Unknown, Rule: "TCP only"}
	case err != nil:
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if d.trusted[hostPort(host, port)] {
		t.trusted = true
	} else if r := d.p.matchName(host, port); r != nil {
		if !r.allow {
			return nil, &net.OpError{Op: "dial", Net: network, Err: &Denied{Target: addr, Class: r.class, Rule: r.text}}
		}
		t.trusted = true
	}
	conn, err := d.net.DialContext(context.WithValue(ctx, targetKey{}, t), network, addr)
	if err != nil && t.passed.Load() && errors.As(err, new(*Denied)) {
		// Of several addresses net reports the first one's error. Another one is allowed and did not answer: it may
		// later.
		err = &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%v; the other addresses of the host do not "+
			"answer", err)}
	}
	return conn, err
}

func splitPort(addr string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not a port", text)
	}
	return host, uint16(n), nil
}

func hostPort(host string, port uint16) string {
	return net.JoinHostPort(normal(host), strconv.Itoa(int(port)))
}

// control is called by net before each connect, with the address of the socket.
func (d *Dialer) control(ctx context.Context, network, address string, _ syscall.RawConn) error {
	t, _ := ctx.Value(targetKey{}).(*target)
	if t == nil {
		t = &target{name: address}
	}
	if !t.trusted {
		ap, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp4" && network != "tcp6" && network != "tcp" {
			return &Denied{Target: t.name, Class: Unknown, Rule: "TCP only"}
		}
		if denied := d.p.judge(t.name, ap.Addr(), ap.Port()); denied != nil {
			return denied
		}
	}
	t.passed.Store(true)
	if d.p.o.Control != nil {
		return d.p.o.Control(network, address)
	}
	return nil
}

// Transport has an HTTP transport connect by these rules, and through the proxy if there is one. What the environment
// says of proxies is ignored: it is meant for the commands of the operator, not for jobs. trusted are as for Dialer.
//
// Through a proxy, hosts are judged when a request is made and as far as they can be: where a name leads only the proxy
// knows. The only connections are then those to the proxy.
func (p *Policy) Transport(t *http.Transport, timeout time.Duration, trusted ...string) {
	if p.proxy == nil {
		t.Proxy, t.DialContext = nil, p.Dialer(timeout, trusted...).DialContext
		return
	}
	exempt := p.Dialer(timeout, trusted...).trusted
	t.DialContext = p.Dialer(timeout, HostPort(p.proxy)).DialContext
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		named := []string{HostPort(r.URL)}
		if r.URL.Scheme == "http" && r.Host != "" {
			// net/http asks the proxy for what the header Host says, and not for what the URL does.
			named = append(named, HostPort(&url.URL{Scheme: r.URL.Scheme, Host: r.Host}))
		}
		for _, addr := range named {
			host, port, err := splitPort(addr)
			if err != nil {
				return nil, err
			}
			if exempt[hostPort(host, port)] {
				continue
			}
			if d := p.judgeUnresolved(addr, host, port); d != nil {
				if p.o.OnDenied != nil {
					p.o.OnDenied(d)
				}
				return nil, d
			}
		}
		return p.proxy, nil
	}
}

// HostPort is where a URL leads, with the usual port of its scheme.
func HostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = proxyPorts[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
