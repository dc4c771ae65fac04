// Package listen is what a node listens on: its port, with bounds on what may be open there, and its admin socket.
package listen

import (
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/slowread"
	"github.com/carillon-scheduler/carillon/transport"
)

// defaultMaxConnections is for the port of a node whose process may open more than twice as many files.
const defaultMaxConnections = 16384

// Port is a listener with bounds on what is open, which says so when it refuses a connection: at most once a minute,
// because a flood must not fill the log as well.
type Port struct {
	*transport.Limited
	Unread  *slowread.Bound // of the answers that go out by it
	o       PortOptions
	refused atomic.Uint64
	said    atomic.Int64
}

// PortOptions say what a port is bounded by.
type PortOptions struct {
	Max     int // 0: 16,384, or half of the files that the process may open
	Servers func() []raft.Server
	Logger  *slog.Logger
	Unread  slowread.Limits
	NotRead func(by netip.Addr) // is told of each address with too many answers that it does not read
}

// Bound bounds what is open on a listener.
func Bound(ln net.Listener, o PortOptions) *Port {
	p := &Port{o: o}
	p.Unread = slowread.New(slowread.Options{Limits: o.Unread, Member: p.Member, Refused: o.NotRead})
	most := o.Max
	if most == 0 {
		most = defaultMaxConnections
		if files := openFilesLimit(); files > 0 {
			most = min(most, files/2) // the rest is for files, for workers of its own and for calls to other nodes
		}
	}
	p.Limited = transport.Limit(ln, transport.Limits{Max: most, Member: p.Member, Refused: p.refuse})
	return p
}

// Refused is how many connections were closed because too many were open.
func (p *Port) Refused() uint64 { return p.refused.Load() }

// Member says whether a member advertises an address. One that advertises a name has no place of its own.
func (p *Port) Member(a netip.Addr) bool {
	for _, s := range p.o.Servers() {
		if at, err := netip.ParseAddrPort(string(s.Address)); err == nil && at.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

func (p *Port) refuse(remote net.Addr, err error) {
	p.refused.Add(1)
	now, last := time.Now().UnixNano(), p.said.Load()
	if now-last < int64(time.Minute) || !p.said.CompareAndSwap(last, now) {
		return
	}
	p.o.Logger.Warn("connections are refused", "remote", remote, "error", err, "open", p.Open(),
		"refused", p.Refused(), "remedy", "find out who opens so many, or raise --max-connections")
}
