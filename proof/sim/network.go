package sim

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

// network connects hosts in memory, in the bubble's time. A connection is as TCP makes it: bytes arrive in order or not
// at all. While a way is cut, what is on it waits, as retransmissions do; new connections need both ways.
type network struct {
	mu      sync.Mutex
	rng     *rand.Rand
	latency time.Duration // of a connection, at most; each has its own
	hosts   map[string]*host
	cuts    map[[2]string]int           // from, to: how many faults cut it
	slow    map[[2]string]time.Duration // from, to: how late a message may be
	changed chan struct{}               // closed and replaced when a way opens or a host comes or goes
	conns   map[*conn]struct{}          // both ends
}

// host is a place on the network. A process that dies and comes back is the same host.
type host struct {
	name, addr string
	net        *network
	ln         *listener // under net.mu
	paused     bool      // under net.mu
}

func newNetwork(rng *rand.Rand, latency time.Duration) *network {
	return &network{rng: rng, latency: latency, hosts: map[string]*host{}, cuts: map[[2]string]int{},
		slow:    map[[2]string]time.Duration{},
		changed: make(chan struct{}), conns: map[*conn]struct{}{}}
}

func (n *network) host(name string) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &host{name: name, addr: name + ":7400", net: n}
	n.hosts[h.addr] = h
	return h
}

func (n *network) openLocked(from, to *host) bool {
	return from == to || n.cuts[[2]string{from.name, to.name}] == 0 && !from.paused && !to.paused
}

func (n *network) open(from, to *host) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.openLocked(from, to)
}

// delayOf is how long a message takes.
func (n *network) delayOf(s *stream) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := time.Duration(s.delay * float64(n.latency))
	if extra := n.slow[[2]string{s.from.name, s.to.name}]; extra > 0 && n.rng.IntN(4) == 0 {
		d += time.Duration(n.rng.Int64N(int64(extra)))
	}
	return d
}

// update changes something about the ways, and tells everybody who waits.
func (n *network) update(fn func()) {
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

func (n *network) cut(from, to string)  { n.update(func() { n.cuts[[2]string{from, to}]++ }) }
func (n *network) heal(from, to string) { n.update(func() { n.cuts[[2]string{from, to}]-- }) }

func (n *network) delay(a, b string, d time.Duration) {
	n.update(func() { n.slow[[2]string{a, b}], n.slow[[2]string{b, a}] = d, d })
}

func (n *network) pause(h *host, on bool) { n.update(func() { h.paused = on }) }

// breakOff resets connections of a host that pick chooses by their other end.
func (n *network) breakOff(h *host, pick func(peer *host) bool) {
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

func (n *network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// vanish is what the network sees of a process that dies: its port is closed, its connections are reset.
func (n *network) vanish(h *host) {
	n.mu.Lock()
	ln := h.ln
	h.ln = nil
	n.mu.Unlock()
	if ln != nil {
		ln.shut()
	}
	n.breakOff(h, func(*host) bool { return true })
	n.update(func() {})
}

// listen opens the host's port.
func (h *host) listen(string) (net.Listener, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.ln != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: addr(h.addr), Err: syscall.EADDRINUSE}
	}
	h.ln = &listener{h: h, queue: make(chan *conn, 256), done: make(chan struct{}), gone: make(chan struct{})}
	return h.ln, nil
}

// dial connects from this host. It ends with ctx, or a little after TCP would have given up; gone, if not nil, is the
// death of the process that dials.
func (h *host) dial(gone <-chan struct{}) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		c, err := h.net.connect(ctx, h, address, gone)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: addr(address), Err: err}
		}
		return c, nil
	}
}

var errHostDead = errors.New("the process is gone")

func (n *network) connect(ctx context.Context, from *host, address string, gone <-chan struct{}) (net.Conn, error) {
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

func (n *network) joinLocked(from, to *host) (*conn, bool) {
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
	h     *host
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

func (l *listener) Addr() net.Addr { return addr(l.h.addr) }
