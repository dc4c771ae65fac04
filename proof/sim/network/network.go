// Package network connects simulated machines in memory and in virtual time.
package network

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Network connects hosts in memory, in the bubble's time. A connection is as TCP makes it: bytes arrive in order or not
// at all. While a way is cut, what is on it waits, as retransmissions do; new connections need both ways.
type Network struct {
	mu      sync.Mutex
	rng     *rand.Rand
	latency time.Duration // of a connection, at most; each has its own
	hosts   map[string]*Host
	cuts    map[[2]string]int           // from, to: how many faults cut it
	slow    map[[2]string]time.Duration // from, to: how late a message may be
	changed chan struct{}               // closed and replaced when a way opens or a host comes or goes
	conns   map[*conn]struct{}          // both ends
}

// Host is a place on the network. A process that dies and comes back is the same host.
type Host struct {
	Name, Addr string
	net        *Network
	ln         *listener // under net.mu
	paused     bool      // under net.mu
}

// New makes a network without hosts.
func New(rng *rand.Rand, latency time.Duration) *Network {
	return &Network{rng: rng, latency: latency, hosts: map[string]*Host{}, cuts: map[[2]string]int{},
		slow:    map[[2]string]time.Duration{},
		changed: make(chan struct{}), conns: map[*conn]struct{}{}}
}

// Host adds a host.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &Host{Name: name, Addr: name + ":7400", net: n}
	n.hosts[h.Addr] = h
	return h
}

func (n *Network) openLocked(from, to *Host) bool {
	return from == to || n.cuts[[2]string{from.Name, to.Name}] == 0 && !from.paused && !to.paused
}

func (n *Network) open(from, to *Host) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.openLocked(from, to)
}

// delayOf is how long a message takes.
func (n *Network) delayOf(s *stream) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := time.Duration(s.delay * float64(n.latency))
	if extra := n.slow[[2]string{s.from.Name, s.to.Name}]; extra > 0 && n.rng.IntN(4) == 0 {
		d += time.Duration(n.rng.Int64N(int64(extra)))
	}
	return d
}

// update changes something about the ways, and tells everybody who waits.
func (n *Network) update(fn func()) {
	n.mu.Lock()
	fn()
	close(n.changed)
	n.changed = make(chan struct{})
	conns := make([]*conn, 0, len(n.conns))
	for c := range n.conns {
		conns = append(conns, c)
	}
	n.mu.Unlock()
	for _, c := range conns {
		c.in.kick()
	}
}

// Cut cuts the way from one host to another.
func (n *Network) Cut(from, to string) { n.update(func() { n.cuts[[2]string{from, to}]++ }) }

// Heal mends it, once for each cut.
func (n *Network) Heal(from, to string) { n.update(func() { n.cuts[[2]string{from, to}]-- }) }

// Delay is how late messages between two hosts may be from now on.
func (n *Network) Delay(a, b string, d time.Duration) {
	n.update(func() { n.slow[[2]string{a, b}], n.slow[[2]string{b, a}] = d, d })
}

// Pause has a host stand still, or go on.
func (n *Network) Pause(h *Host, on bool) { n.update(func() { h.paused = on }) }

// BreakOff resets connections of a host that pick chooses by their other end.
func (n *Network) BreakOff(h *Host, pick func(peer *Host) bool) {
	n.mu.Lock()
	var hit []*conn
	for c := range n.conns {
		if c.local == h && pick(c.remote) {
			hit = append(hit, c)
		}
	}
	n.mu.Unlock()
	for _, c := range hit {
		c.breakOff()
	}
}

func (n *Network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// Vanish is what the network sees of a process that dies: its port is closed, its connections are reset.
func (n *Network) Vanish(h *Host) {
	n.mu.Lock()
	ln := h.ln
	h.ln = nil
	n.mu.Unlock()
	if ln != nil {
		ln.shut()
	}
	n.BreakOff(h, func(*Host) bool { return true })
	n.update(func() {})
}

// Listen opens the host's port.
func (h *Host) Listen(string) (net.Listener, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.ln != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: addr(h.Addr), Err: syscall.EADDRINUSE}
	}
	h.ln = &listener{h: h, queue: make(chan *conn, 256), done: make(chan struct{}), gone: make(chan struct{})}
	return h.ln, nil
}

// Dial connects from this host. It ends with ctx, or a little after TCP would have given up; gone, if not nil, is the
// death of the process that dials.
func (h *Host) Dial(gone <-chan struct{}) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		c, err := h.net.connect(ctx, h, address, gone)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: addr(address), Err: err}
		}
		return c, nil
	}
}

var errHostDead = errors.New("the process is gone")

func (n *Network) connect(ctx context.Context, from *Host, address string, gone <-chan struct{}) (net.Conn, error) {
	giveUp := time.NewTimer(2 * time.Minute)
	defer giveUp.Stop()
	for {
		n.mu.Lock()
		select {
		case <-gone:
			n.mu.Unlock()
			return nil, errHostDead
		default:
		}
		to := n.hosts[address]
		if to == nil {
			n.mu.Unlock()
			return nil, syscall.EHOSTUNREACH
		}
		if n.openLocked(from, to) && n.openLocked(to, from) {
			if to.ln == nil {
				n.mu.Unlock()
				return nil, syscall.ECONNREFUSED
			}
			c, ok := n.joinLocked(from, to)
			n.mu.Unlock()
			if !ok {
				return nil, syscall.ECONNREFUSED
			}
			return c, nil
		}
		changed := n.changed
		n.mu.Unlock()
		select {
		case <-changed:
		case <-gone:
			return nil, errHostDead
		case <-giveUp.C:
			return nil, syscall.ETIMEDOUT
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, os.ErrDeadlineExceeded
			}
			return nil, ctx.Err()
		}
	}
}

func (n *Network) joinLocked(from, to *Host) (*conn, bool) {
	delay := n.rng.Float64()
	there, back := newStream(n, from, to, delay), newStream(n, to, from, delay)
	near := &conn{net: n, local: from, remote: to, in: back, out: there}
	far := &conn{net: n, local: to, remote: from, in: there, out: back}
	near.peer, far.peer = far, near
	select {
	case to.ln.queue <- far:
	default:
		return nil, false
	}
	n.conns[near], n.conns[far] = struct{}{}, struct{}{}
	return near, true
}

// listener is a host's port.
type listener struct {
	h     *Host
	queue chan *conn
	once  sync.Once
	done  chan struct{} // closed by its owner
	dead  sync.Once
	gone  chan struct{} // closed when the process died: it does not notice that its port is
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	case <-l.gone:
		<-l.done
		return nil, net.ErrClosed
	case c := <-l.queue:
		return c, nil
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.h.net.mu.Lock()
		if l.h.ln == l {
			l.h.ln = nil
		}
		l.h.net.mu.Unlock()
		close(l.done)
		l.drain()
	})
	return nil
}

// shut is the end of the process.
func (l *listener) shut() {
	l.dead.Do(func() { close(l.gone) })
	l.drain()
}

func (l *listener) drain() {
	for {
		select {
		case c := <-l.queue:
			c.breakOff()
			c.Close()
		default:
			return
		}
	}
}

func (l *listener) Addr() net.Addr { return addr(l.h.Addr) }

// SetLatency changes how late messages of new connections may be.
func (n *Network) SetLatency(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency = d
}
