package transport

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// HubOptions are the settings of a Hub. The zero value works.
type HubOptions struct {
	// Timeout bounds the handshake of an arriving connection; 0 means 5 s.
	Timeout time.Duration

	// MaxPending bounds the arriving connections that have not said hello, and
	// for each group those that have and are not let in yet; 0 means 64.
	MaxPending int

	// OnError is told why a connection was dropped before it reached a group,
	// or refused because the node has no replica of it: a *RefusedError then.
	// It is called from several goroutines and must not call Close.
	OnError func(remote net.Addr, err error)
}

// Hub brings the Raft connections of one port to the groups that they are for.
// It reads the hello of each; everything after that is the layer's of that
// group, in goroutines and within bounds of its own, so that no group waits for
// another.
type Hub struct {
	ln        net.Listener
	opts      HubOptions
	gate      *gate         // of connections that have not said hello
	accepting chan struct{} // closed when accept has returned

	mu     sync.Mutex
	closed bool
	layers map[uint32]*StreamLayer
}

// NewHub starts to accept on ln, which is Mux.Raft(), and owns it from now on.
func NewHub(ln net.Listener, opts HubOptions) *Hub {
	if opts.Timeout <= 0 {
		opts.Timeout = 5 * time.Second
	}
	if opts.MaxPending <= 0 {
		opts.MaxPending = 64
	}
	if opts.OnError == nil {
		opts.OnError = func(net.Addr, error) {}
	}
	h := &Hub{
		ln:        ln,
		opts:      opts,
		gate:      newGate(opts.MaxPending, opts.OnError),
		accepting: make(chan struct{}),
		layers:    make(map[uint32]*StreamLayer),
	}
	go h.accept()
	return h
}

// Layer returns the way of a group's Raft messages, over which connections for
// that group arrive from now on. There is one for a group at a time: its Close
// makes room for another.
func (h *Hub) Layer(group uint32, opts StreamOptions) (*StreamLayer, error) {
	if opts.Advertise == "" {
		opts.Advertise = h.ln.Addr().String()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, net.ErrClosed
	}
	if h.layers[group] != nil {
		return nil, fmt.Errorf("transport: group %d has a layer already", group)
	}
	s, err := newStreamLayer(opts, h.opts.MaxPending, func(s *StreamLayer) { h.drop(group, s) })
	if err != nil {
		return nil, err
	}
	h.layers[group] = s
	return s, nil
}

func (h *Hub) drop(group uint32, s *StreamLayer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.layers[group] == s {
		delete(h.layers, group)
	}
}

func (h *Hub) layer(group uint32) *StreamLayer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.layers[group]
}

// local is how the node introduces itself where no layer of the group does: as
// in its lowest group, which every node has a replica of.
func (h *Hub) local(group uint32) Hello {
	var lowest *StreamLayer
	h.mu.Lock()
	first := uint32(0)
	for g, s := range h.layers {
		if lowest == nil || g < first {
			lowest, first = s, g
		}
	}
	h.mu.Unlock()
	if lowest == nil {
		return Hello{Group: group}
	}
	l := lowest.opts.Handshake.Local()
	return Hello{ClusterID: l.ClusterID, Group: group, NodeID: l.NodeID, InstanceID: l.InstanceID, Address: l.Address}
}

// accept reads hellos, each in its own goroutine: a peer that says nothing holds
// up no other.
func (h *Hub) accept() {
	defer close(h.accepting)
	// When the mux was closed below us, the layers' Accept must end as well.
	defer h.end()
	for h.gate.wait() {
		conn, err := h.ln.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				h.opts.OnError(nil, err)
			}
			return
		}
		h.gate.admit(conn, func(t *ticket) {
			conn.SetDeadline(time.Now().Add(h.opts.Timeout)) // of the layer's part as well
			peer, to, err := h.route(conn)
			if !h.gate.leave(t) {
				return // the gate has closed it, and said so
			}
			if err == nil {
				err = to.arriving.put(&arrival{conn, peer})
			} else {
				conn.Close()
			}
			if err != nil && err != net.ErrClosed {
				h.opts.OnError(conn.RemoteAddr(), err)
			}
		})
	}
}

// route reads the hello of a connection and finds the layer that it is for, or
// refuses it.
func (h *Hub) route(conn net.Conn) (Hello, *StreamLayer, error) {
	peer, err := readHello(conn)
	switch {
	case errors.Is(err, errVersion):
		return peer, nil, reply(conn, h.local(0), peer, err)
	case err != nil:
		return peer, nil, err // not one of ours: no answer
	}
	to := h.layer(peer.Group)
	if to != nil {
		return peer, to, nil
	}
	local := h.local(peer.Group)
	shown, _ := PeerOf(conn)
	if err = peer.certified(shown); err == nil {
		err = fmt.Errorf("node %s has no replica of group %d: %s", local.NodeID, peer.Group, NoReplica)
	}
	return peer, nil, reply(conn, local, peer, err)
}

// NoReplica ends the reason why a node refuses connections of a group that it has no replica of. The leader of a group
// is often faster than a node that begins its replica.
const NoReplica = "it has none yet, or no longer"

// end lets nothing more arrive.
func (h *Hub) end() []*StreamLayer {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	var layers []*StreamLayer
	for _, s := range h.layers {
		s.arriving.Close()
		layers = append(layers, s)
	}
	return layers
}

// Close stops accepting and closes the layers, with every connection of them.
// It does not close the mux.
func (h *Hub) Close() error {
	layers := h.end()
	err := h.ln.Close()
	h.gate.close()
	for _, s := range layers {
		s.Close()
	}
	<-h.accepting
	h.gate.serving.Wait()
	return err
}

// arrival is a connection that has said hello.
type arrival struct {
	net.Conn
	peer Hello
}
