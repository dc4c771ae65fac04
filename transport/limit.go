package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/carillon-scheduler/carillon/internal/ratelimit"
)

// Limits bound the open connections of a listener. What a stranger holds open costs a file descriptor and memory for as
// long as it likes, and the node needs both for its members.
type Limits struct {
	// Max is how many may be open in all. An eighth of them are kept for members.
	Max int

	// Member says whether an address is that of a member. Members are counted but bounded by Max only: a node behind
	// the same address as a flood still reaches its peers.
	Member func(netip.Addr) bool

	// Refused is told of each that was closed at once. It must not block.
	Refused func(remote net.Addr, err error)
}

// Limited is a listener that closes connections beyond its limits.
type Limited struct {
	net.Listener
	limits Limits

	mu   sync.Mutex
	all  int
	from map[netip.Prefix]int
}

// Limit bounds the connections of a listener.
func Limit(ln net.Listener, limits Limits) *Limited {
	return &Limited{Listener: ln, limits: limits, from: map[netip.Prefix]int{}}
}

// Errors of connections that are refused.
var (
	errAllTaken   = errors.New("transport: too many connections are open")
	errTooManyOne = errors.New("transport: too many connections are open from one address")
)

// Accept waits for the next connection within the limits.
func (l *Limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source, err := l.enter(conn.RemoteAddr())
		if err == nil {
			return &countedConn{Conn: conn, leave: func() { l.leave(source) }}, nil
		}
		conn.Close()
		if l.limits.Refused != nil {
			l.limits.Refused(conn.RemoteAddr(), err)
		}
	}
}

// Open is how many connections are open.
func (l *Limited) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// enter counts a connection, or says why it may not be.
func (l *Limited) enter(remote net.Addr) (netip.Prefix, error) {
	addr, source := sourceOf(remote)
	member := addr.IsValid() && l.limits.Member != nil && l.limits.Member(addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !member {
		if limit := l.limits.Max / 4; source.IsValid() && l.from[source] >= limit {
			return source, fmt.Errorf("%w, %d", errTooManyOne, limit)
		}
		if limit := l.limits.Max - l.limits.Max/8; l.all >= limit {
			return source, fmt.Errorf("%w, %d", errAllTaken, limit)
		}
	}
	if l.all >= l.limits.Max {
		return source, fmt.Errorf("%w, %d", errAllTaken, l.limits.Max)
	}
	l.all++
	if source.IsValid() {
		l.from[source]++
	}
	return source, nil
}

func (l *Limited) leave(source netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if !source.IsValid() {
		return
	}
	if l.from[source]--; l.from[source] == 0 {
		delete(l.from, source)
	}
}

// sourceOf is the address at the other end, and what is counted as one with it.
func sourceOf(remote net.Addr) (netip.Addr, netip.Prefix) {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, netip.Prefix{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	return addr, ratelimit.Source(addr)
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	closed atomic.Bool
	leave  func()
}

func (c *countedConn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) {
		c.leave()
	}
	return err
}

// CloseWrite is what net/http looks for to end a connection whose client is still sending.
func (c *countedConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return errors.ErrUnsupported
}

// ReadFrom keeps sendfile working for net/http.
func (c *countedConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// SyscallConn is what alive looks for.
func (c *countedConn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
