package network

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// sendBuffer is how much one side may write before the other has read it.
const sendBuffer = 1 << 20

// stream is one direction of a connection: what is written arrives after a delay, in order, and not while the way is
// cut.
type stream struct {
	net      *Network
	from, to *Host
	delay    float64 // how far from the other end: a share of the network's latency

	mu     sync.Mutex
	chunks []chunk
	size   int
	last   time.Time // when the last chunk arrives: a later one does not overtake it
	eof    bool      // the writer has closed
	closed bool      // the reader has closed
	broken error
	wake   chan struct{} // closed and replaced when something changed

	readEnd, writeEnd time.Time // deadlines
}

type chunk struct {
	at   time.Time
	data []byte
}

func newStream(n *Network, from, to *Host, delay float64) *stream {
	return &stream{net: n, from: from, to: to, delay: delay, wake: make(chan struct{})}
}

func (s *stream) kickLocked() {
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *stream) kick() {
	s.mu.Lock()
	s.kickLocked()
	s.mu.Unlock()
}

func (s *stream) reset(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = err
		s.chunks, s.size = nil, 0
		s.kickLocked()
	}
}

// wait waits for a change, or until at if that is a time. It is called with the lock held and returns with it.
func (s *stream) wait(at time.Time) {
	wake := s.wake
	s.mu.Unlock()
	if at.IsZero() {
		<-wake
	} else if d := time.Until(at); d > 0 {
		t := time.NewTimer(d)
		select {
		case <-wake:
		case <-t.C:
		}
		t.Stop()
	}
	s.mu.Lock()
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var next time.Time
		switch {
		case s.broken != nil:
			return 0, s.broken
		case s.closed:
			return 0, net.ErrClosed
		case passed(s.readEnd):
			return 0, os.ErrDeadlineExceeded
		case len(s.chunks) > 0 && !s.net.open(s.from, s.to):
		case len(s.chunks) > 0 && passed(s.chunks[0].at):
			n := 0
			for n < len(p) && len(s.chunks) > 0 && passed(s.chunks[0].at) {
				c := &s.chunks[0]
				k := copy(p[n:], c.data)
				n += k
				if c.data = c.data[k:]; len(c.data) == 0 {
					s.chunks[0] = chunk{}
					s.chunks = s.chunks[1:]
				}
			}
			if s.size >= sendBuffer {
				s.kickLocked()
			}
			s.size -= n
			return n, nil
		case len(s.chunks) > 0:
			next = s.chunks[0].at
		case s.eof && s.net.open(s.from, s.to):
			return 0, io.EOF
		}
		if len(p) == 0 {
			return 0, nil
		}
		s.wait(earlier(next, s.readEnd))
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.broken != nil:
			return 0, s.broken
		case s.eof:
			return 0, net.ErrClosed
		case s.closed:
			return 0, syscall.EPIPE
		case passed(s.writeEnd):
			return 0, os.ErrDeadlineExceeded
		case s.size < sendBuffer:
			at := time.Now().Add(s.net.delayOf(s))
			if at.Before(s.last) {
				at = s.last
			}
			s.last = at
			s.chunks = append(s.chunks, chunk{at, append([]byte(nil), p...)})
			s.size += len(p)
			s.kickLocked()
			return len(p), nil
		}
		s.wait(s.writeEnd)
	}
}

func (s *stream) setRead(t time.Time) {
	s.mu.Lock()
	s.readEnd = t
	s.kickLocked()
	s.mu.Unlock()
}

func (s *stream) setWrite(t time.Time) {
	s.mu.Lock()
	s.writeEnd = t
	s.kickLocked()
	s.mu.Unlock()
}

// conn is one end of a connection.
type conn struct {
	net           *Network
	local, remote *Host
	in, out       *stream
	once          sync.Once
	peer          *conn
}

func (c *conn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }

func (c *conn) Close() error {
	c.once.Do(func() {
		c.out.mu.Lock()
		c.out.eof = true
		c.out.kickLocked()
		c.out.mu.Unlock()
		c.in.mu.Lock()
		c.in.closed = true
		c.in.kickLocked()
		c.in.mu.Unlock()
		c.net.forget(c)
	})
	return nil
}

// BreakOff is a reset: both ends notice.
func (c *conn) breakOff() {
	c.in.reset(syscall.ECONNRESET)
	c.out.reset(syscall.ECONNRESET)
}

func (c *conn) LocalAddr() net.Addr  { return addr(c.local.Addr) }
func (c *conn) RemoteAddr() net.Addr { return addr(c.remote.Addr) }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.setRead(t)
	c.out.setWrite(t)
	return nil
}
func (c *conn) SetReadDeadline(t time.Time) error  { c.in.setRead(t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.setWrite(t); return nil }

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }
