package api

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// Caller is who makes a request, for the record of what it changes.
type Caller struct {
	Token   string `json:"token,omitempty"`   // its id; empty: none was asked for, or the connection says who it is
	Name    string `json:"name,omitempty"`    // of the token, or the node's admin socket
	Address string `json:"address,omitempty"` // without a port; empty: not over the network
	Request string `json:"request,omitempty"` // the key of the request, once it has been read
}

type callerKey struct{}

// CallerOf is who makes a request; false for what no request asks for.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// WithCaller says who makes a request.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// Headers are those with which a node asks the leader for something on behalf of a caller. Of a token it needs the
// caller's credential besides.
func (c Caller) Headers(self string) map[string]string {
	h := map[string]string{wire.ForwardedHeader: self, wire.AddressHeader: c.Address}
	if node, ok := strings.CutPrefix(c.Name, localAdmin); ok && c.Token == "" {
		h[wire.ForwardedHeader], h[wire.LocalHeader] = node, "true"
	}
	return h
}

// IsLocal says that a request came in by this node's admin socket.
func IsLocal(ctx context.Context) bool {
	local, _ := ctx.Value(localKey{}).(bool)
	return local
}

// AddressOf is where a request came from: for one that a node passes on, where that node had it from. The header counts
// as all headers between nodes do: where connections are authenticated, on that of a node only.
func AddressOf(r *http.Request) string {
	text := r.Header.Get(wire.AddressHeader)
	if r.Header.Get(wire.ForwardedHeader) == "" {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			return "" // a socket has none
		}
		text = host
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return ""
	}
	return a.Unmap().String()
}

// caller is who makes a request, by the connection and its headers.
func (h *handler) caller(r *http.Request) Caller {
	ctx := r.Context()
	c := Caller{Address: AddressOf(r)}
	from := r.Header.Get(wire.ForwardedHeader)
	switch id := IdentityOf(ctx); {
	case id != nil:
		c.Token, c.Name = id.Token, id.Name
	case IsLocal(ctx):
		c.Name = LocalAdmin(h.opts.NodeID).Name
	case from != "" && r.Header.Get(wire.LocalHeader) != "":
		c.Name = LocalAdmin(from).Name
	}
	return c
}
