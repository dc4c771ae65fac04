package node

import (
	"context"
	"net"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// dialer is how HTTP gets to other nodes: with this node's certificate, if it has one.
func (n *Node) dialer(timeout, keepAlive time.Duration) func(context.Context, string, string) (net.Conn, error) {
	dial := n.cfg.Machine.Dialer(timeout, keepAlive)
	if n.keys == nil {
		return dial
	}
	return transport.NodeDial(n.keys, dial, nil)
}

// workerDial is how the local worker gets to the leader; nil: by TCP.
func (n *Node) workerDial() func(context.Context, string, string) (net.Conn, error) {
	if n.keys == nil {
		return n.cfg.Machine.Dial
	}
	return n.dialer(workerDialTimeout, workerKeepAlive)
}

const (
	workerDialTimeout = time.Second
	workerKeepAlive   = 15 * time.Second
)

// connContext says whose connection a request came in by.
func (n *Node) connContext(ctx context.Context, c net.Conn) context.Context {
	if f := n.cfg.Machine.Accepted; f != nil {
		ctx = f(ctx, c)
	}
	return transport.ConnContext(ctx, c)
}

// recheck cuts off nodes that were removed, as soon as this node knows it.
func (n *Node) recheck(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.rowsChanged:
			for _, g := range n.groups() {
				g.layer.Recheck()
			}
		}
	}
}

// rowsMayHaveChanged hears of each commit.
func (n *Node) rowsMayHaveChanged(c *store.Changes) {
	if c.Nodes || c.Reset {
		n.recheckSoon()
	}
	if c.Groups || c.Reset {
		n.lookAtSplit()
		wait.Wake(n.hosted.wake)
	}
}

// recheckSoon has connections looked at again.
func (n *Node) recheckSoon() { wait.Wake(n.rowsChanged) }

// tokenCA is the hash of the CA that tokens name: the one in use. Every node can be known by it; by the one that is to
// follow only those that have a certificate of it. One that is distrusted is soon known by none.
func (n *Node) tokenCA() keys.Hash {
	s := n.group.store.Info().Security
	ca := s.CA
	if s.Rotation != nil && s.Rotation.Distrust {
		ca = s.Rotation.CA
	}
	if h, err := keys.ParseHash(ca); err == nil && n.keys != nil {
		return h
	}
	return n.security.CAHash()
}

// JoinToken is the join token that the cluster began with, if this node began it and the file is still there.
func (n *Node) JoinToken() (keys.Token, bool) { return n.security.JoinToken() }
