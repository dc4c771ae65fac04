package transport

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// errQueueFull means that the listener does not accept its connections.
var errQueueFull = errors.New("transport: too many connections not accepted")

// queueLen is far more than a server that accepts at all ever leaves waiting.
const queueLen = 1024

// queue is a net.Listener fed by put.
type queue struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}

	mu     sync.Mutex // orders put and Close: nothing is put after the last drain
	closed bool
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn, queueLen), done: make(chan struct{})}
}

// put hands over a connection, or closes it and says why it could not.
func (q *queue) put(conn net.Conn) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		conn.Close()
		return net.ErrClosed
	}
	select {
	case q.conns <- conn:
		return nil
	default:
		conn.Close()
		return errQueueFull
	}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case <-q.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Close closes the connections that were not accepted, too.
func (q *queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	close(q.done)
	for {
		select {
		case conn := <-q.conns:
			conn.Close()
		default:
			return nil
		}
	}
}

func (q *queue) Addr() net.Addr { return q.addr }

// unreadConn is a connection with its first byte put back.
type unreadConn struct {
	net.Conn
	first atomic.Int32 // the byte, or -1 when it has been read
}

func newUnreadConn(conn net.Conn, first byte) net.Conn {
	c := &unreadConn{Conn: conn}
	c.first.Store(int32(first))
	return c
}

func (c *unreadConn) Read(p []byte) (int, error) {
	if len(p) > 0 && c.first.Load() >= 0 {
		if b := c.first.Swap(-1); b >= 0 {
			p[0] = byte(b)
			return 1, nil
		}
	}
	return c.Conn.Read(p)
}

// CloseWrite is what net/http looks for to end a connection whose client is
// still sending; with Close alone the client may see a reset, not the answer.
func (c *unreadConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return errors.ErrUnsupported
}

// ReadFrom keeps sendfile working for net/http.
func (c *unreadConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(c.Conn, r)
}
