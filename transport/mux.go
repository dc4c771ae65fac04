// Package transport gives a node its one port: it tells Raft from HTTP on
// arriving connections, and carries Raft between nodes that have first shown
// each other who they are.
package transport

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// RaftByte is the first byte of a Raft connection on a port without TLS. HTTP
// cannot begin with it: a method is made of visible characters, and what
// sloppy clients send before a request is CR or LF. Nor can TLS, whose
// ClientHello begins with 0x16 (0x80 in its oldest form), so a TLS client on a
// plain port gets HTTP's answer and not Raft's silence.
const RaftByte = 0x02

// Options are the settings of a Mux. The zero value works.
type Options struct {
	// Keys, if set, makes the mux terminate TLS, and the protocol negotiated by
	// ALPN decides instead of the first byte: ALPN is Raft and ALPNNode HTTP of
	// another node, both for the cluster's nodes only; all else is HTTP of
	// clients, which are not asked who they are.
	Keys *keys.Ring

	// Public, if set, is a certificate for clients that ask for its hosts:
	// browsers, which know nothing of the cluster's CA.
	Public *keys.Operator

	// Timeout is how long a client may take to send its first byte, or to
	// finish its TLS handshake; 0 means 10 s.
	Timeout time.Duration

	// Handshakes bounds the TLS handshakes of strangers.
	Handshakes HandshakeLimits

	// MaxPending bounds the connections that have not yet done so; 0 means
	// 1024.
	MaxPending int

	// OnError is told of accept errors the mux survives, with no address, and
	// of connections it drops. It is called from several goroutines and must
	// not call Close.
	OnError func(remote net.Addr, err error)
}

// Mux splits the connections of one listener into those for HTTP and those for
// Raft.
type Mux struct {
	ln   net.Listener
	opts Options
	tls  *tls.Config
	turn *handshakes
	gate *gate
	http *queue
	raft *queue

	closing  sync.Once
	closeErr error
	done     chan struct{}
}

// NewMux returns a mux over ln, which it owns from now on. Nothing happens
// before Serve.
func NewMux(ln net.Listener, opts Options) *Mux {
	if opts.Timeout <= 0 {
		opts.Timeout = 10 * time.Second
	}
	if opts.MaxPending <= 0 {
		opts.MaxPending = 1024
	}
	if opts.OnError == nil {
		opts.OnError = func(net.Addr, error) {}
	}
	m := &Mux{
		ln:   ln,
		opts: opts,
		gate: newGate(opts.MaxPending, opts.OnError),
		http: newQueue(ln.Addr()),
		raft: newQueue(ln.Addr()),
		done: make(chan struct{}),
	}
	if opts.Keys != nil {
		m.turn = newHandshakes(opts.Handshakes)
		m.tls = serverTLS(opts.Keys, opts.Public, m.awaitTurn)
	}
	return m
}

// HTTP returns the listener of HTTP connections. Closing it refuses further
// HTTP connections and leaves Raft alone, so that a node can stop one before
// the other.
func (m *Mux) HTTP() net.Listener { return m.http }

// Raft returns the listener of Raft connections, RaftByte already read from
// them. Closing it leaves HTTP alone.
func (m *Mux) Raft() net.Listener { return m.raft }

// Addr returns the address the mux listens on.
func (m *Mux) Addr() net.Addr { return m.ln.Addr() }

// Serve accepts connections until Close, and then returns nil. On an error of
// the listener that waiting does not mend it closes the mux and returns it.
func (m *Mux) Serve() error {
	var delay time.Duration
	for m.gate.wait() {
		conn, err := m.ln.Accept()
		if err == nil {
			delay = 0
			m.classify(conn)
			continue
		}
		select {
		case <-m.done:
			return nil
		default:
		}
		if !transient(err) {
			m.Close()
			return err
		}
		m.opts.OnError(nil, err)
		delay = min(max(2*delay, 5*time.Millisecond), time.Second)
		select {
		case <-m.done:
			return nil
		case <-time.After(delay):
		}
	}
	return nil
}

// Close closes the listener, both of the mux's own, and the connections that
// were not accepted from those yet; their Accepts return net.ErrClosed.
// Connections already accepted belong to their acceptors. Close returns
// when the mux's goroutines have ended.
func (m *Mux) Close() error {
	m.closing.Do(func() {
		close(m.done)
		m.closeErr = m.ln.Close()
		m.gate.close()
		m.http.Close()
		m.raft.Close()
	})
	m.gate.serving.Wait()
	return m.closeErr
}

// classify finds out what conn speaks, in a goroutine of its own: a client that
// says nothing holds up no other.
func (m *Mux) classify(conn net.Conn) {
	m.gate.admit(conn, func(t *ticket) {
		conn.SetDeadline(time.Now().Add(m.opts.Timeout))
		to, c, err := m.peek(t)
		if !m.gate.leave(t) {
			return // the gate has closed it, and said so
		}
		if err != nil {
			conn.Close()
			// A client that leaves without a word is a health check or a
			// browser's spare connection.
			if err != io.EOF {
				m.opts.OnError(conn.RemoteAddr(), err)
			}
			return
		}
		conn.SetDeadline(time.Time{})
		if err := to.put(c); err != nil && err != net.ErrClosed {
			m.opts.OnError(conn.RemoteAddr(), err)
		}
	})
}

// errNoTurn is why a handshake was given up that strangers made too many of.
var errNoTurn = errors.New("transport: too many TLS handshakes")

// awaitTurn holds a handshake up while strangers make too many, unless its connection is gone.
func (m *Mux) awaitTurn(conn net.Conn, gone <-chan struct{}) error {
	if m.turn.wait(conn.RemoteAddr(), time.Now().Add(m.opts.Timeout), gone) {
		return nil
	}
	return errNoTurn
}

// TokenFrom is told of each address from which a valid token came: its handshakes no longer wait among those of
// strangers, but have rates of their own.
func (m *Mux) TokenFrom(addr netip.Addr) {
	if m.turn != nil {
		m.turn.token(addr)
	}
}

// peek reads what it takes to tell where a connection belongs, and returns the
// one to hand on.
func (m *Mux) peek(t *ticket) (*queue, net.Conn, error) {
	conn := t.conn
	if m.tls != nil {
		tc, err := serveTLS(t, m.tls)
		if err != nil {
			return nil, nil, err
		}
		cs := tc.ConnectionState()
		if p := cs.NegotiatedProtocol; p == ALPN || p == ALPNNode {
			id, err := m.opts.Keys.Verify(cs.PeerCertificates)
			if err != nil {
				return nil, nil, err
			}
			m.turn.node(conn.RemoteAddr())
			if p == ALPN {
				return m.raft, &nodeConn{tc, id}, nil
			}
			return m.http, &nodeConn{tc, id}, nil
		}
		// As it is: net/http looks for a *tls.Conn to fill in Request.TLS.
		return m.http, tc, nil
	}
	var b [1]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return nil, nil, err
	}
	if b[0] == RaftByte {
		return m.raft, conn, nil
	}
	return m.http, newUnreadConn(conn, b[0]), nil
}

// transient reports whether an accept error may go away by itself: the client
// gave up, or the process is out of something it may get back. Ending the node
// for a moment without file descriptors would be the larger failure.
func transient(err error) bool {
	for _, e := range []syscall.Errno{
		syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EINTR,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
