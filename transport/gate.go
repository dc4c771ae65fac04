package transport

import (
	"container/list"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// errCrowded is why a connection was dropped that had not said what it wants.
var errCrowded = errors.New("transport: too many connections waiting, dropped the oldest")

// crowdedAfter is how long a connection may be silent when there is no room
// left. Well-behaved clients speak within a round trip.
const crowdedAfter = 250 * time.Millisecond

// gate bounds the connections that are not yet known to be good for anything.
//
// Merely to stop accepting when there are too many would let a few silent
// clients lock out everyone for a whole timeout; to drop at once would fail
// honest clients when hundreds of them come back together after a restart. So a
// full gate waits, and drops one only once it has been silent for a while: the
// oldest of the address that has the most. So one address, of a fleet behind NAT,
// may have all places while no other address wants them, and no more than others have
// when they do.
type gate struct {
	max     int
	onError func(net.Addr, error)

	mu      sync.Mutex
	waiting list.List // of *ticket, oldest first
	from    map[netip.Prefix]*source
	closed  bool
	serving sync.WaitGroup

	room chan struct{} // told when a connection leaves
	done chan struct{}
}

type ticket struct {
	conn  net.Conn
	since time.Time
	elem  *list.Element // nil once it left
	from  *source
	gone  chan struct{} // closed when the gate closes the connection
}

// source is where connections come from, an address or what is counted as one.
type source struct {
	at      netip.Prefix
	waiting int
}

func newGate(max int, onError func(net.Addr, error)) *gate {
	return &gate{max: max, onError: onError, from: map[netip.Prefix]*source{}, room: make(chan struct{}, 1),
		done: make(chan struct{})}
}

// wait returns when there is room for one more, or false when the gate closed.
// Only one goroutine may wait and admit.
func (g *gate) wait() bool {
	for {
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			return false
		}
		if g.waiting.Len() < g.max {
			g.mu.Unlock()
			return true
		}
		oldest := g.mostCrowding()
		patience := crowdedAfter - time.Since(oldest.since)
		if patience <= 0 {
			g.drop(oldest)
			g.mu.Unlock()
			g.onError(oldest.conn.RemoteAddr(), errCrowded)
			return true
		}
		g.mu.Unlock()

		timer := time.NewTimer(patience)
		select {
		case <-g.room:
		case <-timer.C:
		case <-g.done:
		}
		timer.Stop()
	}
}

// mostCrowding is the oldest of those from where the most come.
func (g *gate) mostCrowding() *ticket {
	first := g.waiting.Front()
	most := first.Value.(*ticket)
	for e := first.Next(); e != nil; e = e.Next() {
		if t := e.Value.(*ticket); t.from.waiting > most.from.waiting {
			most = t
		}
	}
	return most
}

// admit takes a connection in and calls serve in a goroutine of its own, which
// must leave when it knows what the connection is good for. A closed gate closes
// the connection instead.
func (g *gate) admit(conn net.Conn, serve func(t *ticket)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		conn.Close()
		return
	}
	_, at := sourceOf(conn.RemoteAddr())
	from := g.from[at]
	if from == nil {
		from = &source{at: at}
		g.from[at] = from
	}
	from.waiting++
	t := &ticket{conn: conn, since: time.Now(), from: from, gone: make(chan struct{})}
	t.elem = g.waiting.PushBack(t)
	g.serving.Add(1) // under the lock: none is added once close has returned
	go func() {
		defer g.serving.Done()
		serve(t)
	}()
}

// leave lets a connection out. It returns false if the gate has closed it.
func (g *gate) leave(t *ticket) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.elem == nil {
		return false
	}
	g.remove(t)
	return true
}

func (g *gate) remove(t *ticket) {
	g.waiting.Remove(t.elem)
	t.elem = nil
	if t.from.waiting--; t.from.waiting == 0 {
		delete(g.from, t.from.at)
	}
	select {
	case g.room <- struct{}{}:
	default:
	}
}

// drop closes the connection of one that waits. Who serves it may wait for something else than the connection.
func (g *gate) drop(t *ticket) {
	g.remove(t)
	close(t.gone)
	t.conn.Close()
}

// close closes all who wait. The goroutines that serve them end soon after;
// who needs to know waits for serving.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	close(g.done)
	for e := g.waiting.Front(); e != nil; e = g.waiting.Front() {
		g.drop(e.Value.(*ticket))
	}
}
