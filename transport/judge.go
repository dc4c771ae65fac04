package transport

import (
	"cmp"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/replica"
)

// RequestLimits are what a request may bring about. Zero values set none.
type RequestLimits struct {
	// Patience is how long a leader may send nothing of a snapshot that it has
	// begun to send; 0: snapshotPatience.
	Patience time.Duration
	// Term is the term that this server is in; fresh: it has no log, and takes any term that there can be. It is asked
	// seldom.
	Term func() (term uint64, fresh bool)
	// Room is how many bytes a snapshot may have.
	Room func() uint64
	// Follows says whether this server follows a leader in a term.
	Follows func(term uint64) bool
	// LeadsIn says whether this server leads in a term: no other server has a snapshot of that term for it.
	LeadsIn func(term uint64) bool
	// Ready, if set, holds all requests up, in either direction, until it is closed.
	Ready <-chan struct{}
	// Apart says why this server takes no part: it answers no request and makes none. nil: it does.
	Apart func() error
	// May refuses the requests of a node by its certificate, whatever they are. It is not asked without TLS.
	May func(keys.Peer) error
}

const (
	// maxTermLead is how far another server's term may be ahead: at an election a second, eleven days of elections
	// without this server. Raft writes a higher term down whatever it is, and after the highest there is none that
	// anybody could be elected in.
	maxTermLead = 1_000_000
	// maxTerm leaves room for all elections there will ever be.
	maxTerm = 1 << 62
)

// judge refuses a request that raft would believe. It looks at the header, which is what raft takes the sender's name
// from, at whether the sender votes, at the term and at the size of a snapshot.
func (t *RaftTransport) judge(peer Hello, rpc raft.RPC) error {
	if peer.Certificate != (keys.Peer{}) {
		if h, ok := rpc.Command.(raft.WithRPCHeader); ok {
			if id := replica.Node(raft.ServerID(h.GetRPCHeader().ID)); id != peer.Certificate.Node {
				return fmt.Errorf("a request in the name of node %q on a connection of node %q", id,
					peer.Certificate.Node)
			}
		}
		if may := t.limits.May; may != nil {
			if err := may(peer.Certificate); err != nil {
				return err
			}
		}
	}
	switch c := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		return t.judgeTerm(c.Term)
	case *raft.RequestVoteRequest:
		return t.judgeTerm(c.Term)
	case *raft.RequestPreVoteRequest:
		return t.judgeTerm(c.Term)
	case *raft.InstallSnapshotRequest:
		if room := t.limits.Room; room != nil {
			if free := room(); c.Size < 0 || uint64(c.Size) > free {
				return fmt.Errorf("a snapshot of %d bytes does not fit on the disk, which has room for %d: free "+
					"some space", c.Size, free)
			}
		}
		if leads := t.limits.LeadsIn; leads != nil && leads(c.Term) {
			return fmt.Errorf("a snapshot of term %d, in which this node leads", c.Term)
		}
		return t.judgeTerm(c.Term)
	}
	return nil
}

func (t *RaftTransport) judgeTerm(term uint64) error {
	if t.limits.Term == nil {
		return nil
	}
	if term > maxTerm {
		return fmt.Errorf("term %d is higher than any that elections lead to", term)
	}
	t.mu.Lock()
	known := t.term
	t.mu.Unlock()
	if term <= known+maxTermLead && known > 0 { // terms only grow
		return nil
	}
	now, fresh := t.limits.Term()
	t.mu.Lock()
	t.term = now
	t.mu.Unlock()
	if fresh || term <= now+maxTermLead {
		return nil
	}
	return fmt.Errorf("term %d is too far ahead of this node's term %d: if this node was away for very long, empty "+
		"its data directory and let it rejoin", term, now)
}

// serve answers the connections of other nodes. Raft's transport does not say which connection a request came from, so
// that each has a transport of its own.
func (t *RaftTransport) serve() {
	for {
		conn, err := t.layer.Accept()
		if err != nil {
			return
		}
		peer := conn.(*acceptedConn).peer
		one := &oneConn{StreamLayer: t.layer, conn: conn, done: make(chan struct{})}
		one.next = make(chan net.Conn, 1)
		nt := newRaftTransport(one, nil, t.logger, t.timeout)
		nt.SetHeartbeatHandler(func(rpc raft.RPC) { t.receive(peer, one, rpc, true) })
		one.ended = func() { _ = nt.Close() }
		t.serving.Go(func() {
			for {
				select {
				case rpc := <-nt.Consumer():
					t.receive(peer, one, rpc, false)
				case <-one.done:
					return
				case <-t.done:
					_ = nt.Close()
					return
				}
			}
		})
		one.next <- &endingConn{conn, one}
	}
}

// receive hands a request to raft, or refuses it.
func (t *RaftTransport) receive(peer Hello, one *oneConn, rpc raft.RPC, heartbeat bool) {
	if !t.ready(one.done) {
		return
	}
	err := t.apart()
	if err == nil {
		err = t.judge(peer, rpc)
	}
	if err != nil {
		err = fmt.Errorf("transport: refused a request of node %q: %w", peer.NodeID, err)
		t.layer.opts.OnError(one.conn.RemoteAddr(), err)
		t.layer.refused(&RefusedError{Peer: peer, Reason: err.Error(), Err: err})
		rpc.Respond(nil, err)
		if rpc.Reader != nil {
			one.conn.Close() // what follows is the snapshot, and would be read as requests
		}
		return
	}
	if heartbeat && t.heartbeat(rpc) {
		return
	}
	if rpc.Reader != nil {
		rpc.Reader = &arrivingSnapshot{rpc.Reader, one.conn, cmp.Or(t.limits.Patience, snapshotPatience)}
	}
	select {
	case t.rpcs <- rpc:
	case <-one.done:
	case <-t.done:
	}
}

// oneConn is the layer of a transport that serves one connection.
type oneConn struct {
	*StreamLayer
	conn  net.Conn
	next  chan net.Conn
	ended func() // closes the transport

	closing sync.Once
	done    chan struct{}
}

func (o *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-o.next:
		return c, nil
	case <-o.done:
		return nil, net.ErrClosed
	}
}

func (o *oneConn) Close() error {
	o.closing.Do(func() {
		close(o.done)
		o.conn.Close()
	})
	return nil
}

// endingConn ends its transport with itself: when the peer hangs up, and with the layer.
type endingConn struct {
	net.Conn
	one *oneConn
}

func (c *endingConn) Close() error {
	err := c.Conn.Close()
	c.one.ended()
	return err
}
