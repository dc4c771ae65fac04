package node

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/transport"
)

// defaultMaxConnections is for the port of a node whose process may open more than twice as many files.
const defaultMaxConnections = 16384

// connections bounds what is open on the node's port, and says so when it refuses a connection: at most once a minute,
// because a flood must not fill the log as well.
type connections struct {
	n       *Node
	limited *transport.Limited
	refused atomic.Uint64
	said    atomic.Int64
}

func newConnections(n *Node, ln net.Listener) *connections {
	c := &connections{n: n}
	most := n.cfg.MaxConnections
	if most == 0 {
		most = defaultMaxConnections
		if files := openFilesLimit(); files > 0 {
			most = min(most, files/2) // the rest is for files, for workers of its own and for calls to other nodes
		}
	}
	c.limited = transport.Limit(ln, transport.Limits{Max: most, Member: c.member, Refused: c.refuse})
	return c
}

// member says whether a member advertises an address. One that advertises a name has no place of its own.
func (c *connections) member(a netip.Addr) bool {
	for _, s := range c.n.members.Servers() {
		if at, err := netip.ParseAddrPort(string(s.Address)); err == nil && at.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

func (c *connections) refuse(remote net.Addr, err error) {
	c.refused.Add(1)
	now, last := time.Now().UnixNano(), c.said.Load()
	if now-last < int64(time.Minute) || !c.said.CompareAndSwap(last, now) {
		return
	}
	c.n.cfg.Logger.Warn("connections are refused", "remote", remote, "error", err, "open", c.limited.Open(),
		"refused", c.refused.Load(), "remedy", "find out who opens so many; or raise --max-connections")
}
