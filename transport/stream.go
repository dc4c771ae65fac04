package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// StreamOptions are the settings of a StreamLayer.
type StreamOptions struct {
	// Advertise is the host:port peers reach this node at, usually a name. If
	// empty it is that of the hub's listener, which must then be a real one.
	Advertise string

	// Handshake is required, with Local and Check.
	Handshake Handshake

	// Keys, if set, makes the connections over TLS, as Options.Keys.
	Keys *keys.Ring

	// Timeout bounds a Dial that was given no timeout; 0 means 5 s.
	Timeout time.Duration

	// AddressOf, if set, says where a server is that the Raft configuration may
	// have at an outdated address; "" if it does not know better.
	AddressOf func(raft.ServerID) raft.ServerAddress

	// Dial, if set, is used in place of a TCP dialler.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// OnRefused, if set, is told of every handshake that failed because one of
	// two nodes would not talk to the other, whichever dialled. Otherwise like
	// OnError, which is told as well.
	OnRefused func(*RefusedError)

	// OnLost, if set, is told of a peer whose last arriving connection ended,
	// and not by the layer's Close. It must not block.
	OnLost func(Hello)

	// OnError is told why an arriving connection was refused or dropped. A
	// *RefusedError names the peer. It is called from several goroutines and
	// must not call Close.
	// Errors of dialling are returned to Raft, which logs them.
	OnError func(remote net.Addr, err error)
}

// StreamLayer is a raft.StreamLayer of one group over a Hub. Every connection it
// returns, from Accept or Dial, is to a node that passed the handshake.
type StreamLayer struct {
	opts      StreamOptions
	advertise net.Addr
	arriving  *queue // of *arrival, from the hub
	gate      *gate  // of those in the handshake
	ready     *queue
	dropped   func(*StreamLayer) // tells the hub that it is closed

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	accepting chan struct{} // closed when accept has returned

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{} // what Close must close: raft does not
	rounds map[string]uint64     // by address, see redialConn
}

func newStreamLayer(opts StreamOptions, maxPending int, dropped func(*StreamLayer)) (*StreamLayer, error) {
	if opts.Handshake.Local == nil || opts.Handshake.Check == nil {
		return nil, errors.New("transport: handshake without Local or Check")
	}
	if err := checkAdvertise(opts.Advertise); err != nil {
		return nil, err
	}
	if opts.Timeout <= 0 {
		opts.Timeout = 5 * time.Second
	}
	if opts.OnError == nil {
		opts.OnError = func(net.Addr, error) {}
	}
	s := &StreamLayer{
		opts:      opts,
		advertise: namedAddr(opts.Advertise),
		arriving:  newQueue(namedAddr(opts.Advertise)),
		gate:      newGate(maxPending, opts.OnError),
		ready:     newQueue(namedAddr(opts.Advertise)),
		dropped:   dropped,
		conns:     make(map[net.Conn]struct{}),
		rounds:    make(map[string]uint64),
		accepting: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.accept()
	return s, nil
}

// checkAdvertise refuses what no peer could dial. Raft would take it, hand it
// to every member, and lose the node with its next restart.
func checkAdvertise(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("transport: advertised address: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() || port == "" || port == "0" {
		return fmt.Errorf("transport: %q cannot be advertised: peers need a host and a port to dial", addr)
	}
	return nil
}

// Addr returns the advertised address, not the one listened on.
func (s *StreamLayer) Addr() net.Addr { return s.advertise }

// Accept returns the next connection of a peer that passed the handshake.
func (s *StreamLayer) Accept() (net.Conn, error) { return s.ready.Accept() }

// accept runs the handshakes, each in its own goroutine, so that Accept never
// waits for a slow peer.
func (s *StreamLayer) accept() {
	defer close(s.accepting)
	// When the hub was closed below us, Accept must end as well.
	defer s.ready.Close()
	for s.gate.wait() {
		c, err := s.arriving.Accept()
		if err != nil {
			return
		}
		conn, peer := c.(*arrival).Conn, c.(*arrival).peer
		s.gate.admit(conn, func(t *ticket) {
			ac, hs := &acceptedConn{Conn: conn, layer: s}, s.opts.Handshake
			hs.Check = func(h Hello) error {
				err := s.opts.Handshake.Check(h)
				if err == nil { // before the answer: only then the peer closes the connection that this one replaces
					ac.arrived(h)
				}
				return err
			}
			shown, _ := PeerOf(conn)
			err := s.refused(receive(conn, peer, shown, hs))
			if !s.gate.leave(t) {
				ac.Close() // the gate has closed conn, and said so
				return
			}
			if err != nil {
				ac.Close()
				s.opts.OnError(conn.RemoteAddr(), err)
				return
			}
			conn.SetDeadline(time.Time{})
			if err := s.ready.put(ac); err != nil && err != net.ErrClosed {
				s.opts.OnError(conn.RemoteAddr(), err)
			}
		})
	}
}

// Close stops accepting, ends handshakes and dials, and closes every connection
// the layer has made or accepted: raft keeps idle ones in a pool and leaves
// their other ends waiting in a read. It leaves the hub and its other layers
// alone.
func (s *StreamLayer) Close() error {
	s.mu.Lock()
	s.closed = true
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()

	s.cancel()
	s.arriving.Close()
	s.gate.close()
	s.ready.Close()
	for c := range conns {
		c.Close()
	}
	<-s.accepting
	s.gate.serving.Wait()
	s.dropped(s)
	return nil
}

// track notes a connection for Close; after Close it closes it at once.
func (s *StreamLayer) track(c net.Conn) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		c.Close()
		return false
	}
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	return true
}

func (s *StreamLayer) untrack(c net.Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// lost notes that an accepted connection ended, and tells OnLost if its peer has
// no other: a process that is gone has none.
func (s *StreamLayer) lost(c *acceptedConn) {
	s.mu.Lock()
	last := c.open && !s.closed
	c.open = false
	last = last && !s.connectedLocked(c.peer.NodeID)
	s.mu.Unlock()
	if last && s.opts.OnLost != nil {
		s.opts.OnLost(c.peer)
	}
}

// Recheck judges the peers with certificates again, after something changed that
// Check goes by: connections of one that is refused now are closed, and those to
// others introduce themselves again before their next request.
func (s *StreamLayer) Recheck() {
	if s.opts.Keys == nil {
		return
	}
	s.mu.Lock()
	var accepted []*acceptedConn
	for c := range s.conns {
		if c, ok := c.(*acceptedConn); ok && c.open {
			accepted = append(accepted, c)
		}
	}
	for address := range s.rounds {
		s.rounds[address]++
	}
	s.mu.Unlock()
	for _, c := range accepted {
		if err := s.opts.Handshake.Check(c.peer); err != nil {
			s.opts.OnError(c.RemoteAddr(), &RefusedError{Peer: c.peer, Reason: err.Error(), Err: err})
			c.Close()
		}
	}
}

// Connected says whether a connection that a node made is open.
func (s *StreamLayer) Connected(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connectedLocked(node)
}

func (s *StreamLayer) connectedLocked(node string) bool {
	for c := range s.conns {
		if c, ok := c.(*acceptedConn); ok && c.open && c.peer.NodeID == node {
			return true
		}
	}
	return false
}

// Dial connects to a peer. A name is resolved now, on every dial: a peer that
// comes back with another address is found again (dkron#1001). The timeout
// covers everything up to the end of the handshake.
func (s *StreamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if timeout <= 0 {
		timeout = s.opts.Timeout
	}
	c := &redialConn{layer: s, address: string(address), timeout: timeout}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	if err := c.dial(time.Time{}); err != nil {
		c.cancel()
		return nil, err
	}
	if !s.track(c) {
		return nil, net.ErrClosed
	}
	return c, nil
}

// dial makes one connection, handshake included.
func (s *StreamLayer) dial(ctx context.Context, address string, deadline time.Time) (net.Conn, error) {
	conn, err := s.connect(ctx, address, deadline)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	peer, err := s.introduce(ctx, conn, address)
	if !stop() {
		conn.Close()
		return nil, net.ErrClosed
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return peer, nil
}

func (s *StreamLayer) connect(ctx context.Context, address string, deadline time.Time) (net.Conn, error) {
	if s.opts.Dial == nil {
		return (&net.Dialer{Deadline: deadline}).DialContext(ctx, "tcp", address)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return s.opts.Dial(ctx, "tcp", address)
}

func (s *StreamLayer) introduce(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	if s.opts.Keys == nil {
		return conn, s.refused(greet(conn, []byte{RaftByte}, address, keys.Peer{}, s.opts.Handshake))
	}
	var shown keys.Peer
	tc, err := handshakeTLS(ctx, conn, address, clientTLS(s.opts.Keys, ALPN, func(id keys.Peer) error {
		shown = id
		return nil
	}))
	if err != nil {
		return nil, err
	}
	return tc, s.refused(greet(tc, nil, address, shown, s.opts.Handshake))
}

// refused passes on an error of a handshake.
func (s *StreamLayer) refused(err error) error {
	var r *RefusedError
	if s.opts.OnRefused != nil && errors.As(err, &r) {
		s.opts.OnRefused(r)
	}
	return err
}

// ServerAddr implements raft.ServerAddressProvider. An error makes raft use what
// its configuration says.
func (s *StreamLayer) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if s.opts.AddressOf != nil {
		if a := s.opts.AddressOf(id); a != "" {
			return a, nil
		}
	}
	return "", errNoBetterAddress
}

var errNoBetterAddress = errors.New("transport: the configuration's address stands")

// namedAddr is a net.Addr that need not be an IP address.
type namedAddr string

func (namedAddr) Network() string  { return "tcp" }
func (a namedAddr) String() string { return string(a) }

// acceptedConn is a connection that raft answers requests on.
type acceptedConn struct {
	net.Conn
	layer *StreamLayer
	peer  Hello
	open  bool // guarded by layer.mu
}

// arrived notes who made the connection.
func (c *acceptedConn) arrived(peer Hello) {
	c.layer.mu.Lock()
	c.peer, c.open = peer, true
	c.layer.mu.Unlock()
	c.layer.track(c)
}

// Read reports the layer's own Close as the end of the stream: raft logs every
// other error, and a node's orderly stop is none.
func (c *acceptedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case err == nil:
	case c.layer.ctx.Err() != nil:
		err = io.EOF
	default:
		c.layer.lost(c)
	}
	return n, err
}

// Close is also what raft does when it cannot write an answer.
func (c *acceptedConn) Close() error {
	c.layer.lost(c)
	c.layer.untrack(c)
	return c.Conn.Close()
}
