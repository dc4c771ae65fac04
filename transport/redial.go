package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// redialConn is a connection to a peer that replaces itself between two
// requests when it has gone stale.
//
// raft.NetworkTransport pools connections and finds out that one is dead by
// failing a request on it. When a peer restarts, all its pooled connections are
// dead, so that many requests in a row fail, each with a growing pause after
// it; and if the peer's machine vanished instead, each fails only after the full
// timeout. The pool is private and cannot be emptied for one peer. So the
// connections in it heal themselves, in two ways:
//
//   - Before a request, an idle connection is looked at. If the peer has closed
//     it, which the kernel knows, it is dialled anew; no request fails.
//   - When a request does fail, every other connection to that address made in
//     the same round is dialled anew before its next request: at most the
//     requests under way fail, not one for each connection in the pool.
//
// A connection may be replaced only when no answer is outstanding, or a later
// answer would be taken for it. There are two such moments that can be seen from
// here in raft v1.7: SetDeadline, which begins a plain request, and the first
// SetWriteDeadline, which begins a pipeline (after which answers overlap, and a
// pipeline's connection never returns to the pool). If a later version of raft
// did otherwise, connections would go stale as they do without this; the tests
// of stale connections would show it.
type redialConn struct {
	layer   *StreamLayer
	address string
	timeout time.Duration
	ctx     context.Context // ends with Close, also in the middle of a dial
	cancel  context.CancelFunc

	mu       sync.Mutex // held while dialling: nothing else can go on then
	conn     net.Conn
	round    uint64
	unread   bool // something was written since the last read
	pipeline bool
	err      error // of the last redial
}

// dial replaces the connection. The deadline is the request's, if it has one.
func (c *redialConn) dial(deadline time.Time) error {
	if limit := time.Now().Add(c.timeout); deadline.IsZero() || limit.Before(deadline) {
		deadline = limit
	}
	// The round is read before dialling: should others fail meanwhile, it is
	// not known whether this connection was made before or after the failure.
	round := c.layer.round(c.address)
	conn, err := c.layer.dial(c.ctx, c.address, deadline)
	if err != nil {
		return err
	}
	c.conn, c.round = conn, round
	return nil
}

// begin is called before a request, when no answer is outstanding.
func (c *redialConn) begin(deadline time.Time) {
	if c.unread || c.ctx.Err() != nil {
		return
	}
	if c.err == nil && c.round == c.layer.round(c.address) && alive(c.conn) {
		return
	}
	// Closed after the next one is made: a peer that sees this process without
	// any connection takes it for dead.
	old := c.conn
	c.err = c.dial(deadline)
	old.Close()
}

func (c *redialConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(t)
	return c.conn.SetDeadline(t)
}

func (c *redialConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.pipeline {
		c.pipeline = true
		c.begin(t)
	}
	return c.conn.SetWriteDeadline(t)
}

func (c *redialConn) SetReadDeadline(t time.Time) error {
	return c.current().SetReadDeadline(t)
}

func (c *redialConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	conn, err := c.conn, c.err
	c.unread = true
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := conn.Write(p)
	if err != nil {
		c.failed()
	}
	return n, err
}

func (c *redialConn) Read(p []byte) (int, error) {
	n, err := c.current().Read(p)
	if n > 0 {
		c.mu.Lock()
		c.unread = false
		c.mu.Unlock()
	}
	if err != nil {
		c.failed()
	}
	return n, err
}

// failed makes the other connections of this round suspect, unless we were
// closed on purpose.
func (c *redialConn) failed() {
	if c.ctx.Err() == nil {
		c.mu.Lock()
		c.layer.endRound(c.address, c.round)
		c.mu.Unlock()
	}
}

func (c *redialConn) Close() error {
	c.cancel()
	c.layer.untrack(c)
	err := c.current().Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // a failed redial left it closed
	}
	return err
}

func (c *redialConn) current() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

func (c *redialConn) LocalAddr() net.Addr  { return c.current().LocalAddr() }
func (c *redialConn) RemoteAddr() net.Addr { return c.current().RemoteAddr() }

// round counts the failures of connections to address. The map grows with
// every address ever dialled, which are few.
func (s *StreamLayer) round(address string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.rounds[address]
	s.rounds[address] = n // Recheck ends the rounds of all that were dialled
	return n
}

// endRound begins a new round unless another connection's failure already has.
func (s *StreamLayer) endRound(address string, round uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rounds[address] == round {
		s.rounds[address]++
	}
}
