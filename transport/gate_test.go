package transport

import (
	"net"
	"slices"
	"testing"
	"testing/synctest"
)

// fromConn is a connection that came from an address.
type fromConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fromConn) RemoteAddr() net.Addr { return remoteAt(c.from) }
func (c *fromConn) Close() error         { c.closed = true; return nil }

// A full gate drops the oldest of the address that has the most, and none of an address that has fewer. While no other
// wants them, one address may have all places.
func TestGateDropsOfWhoHasTheMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dropped []string
		g := newGate(6, func(a net.Addr, _ error) { dropped = append(dropped, a.String()) })
		var all []*fromConn
		enter := func(addrs ...string) {
			for _, from := range addrs {
				if !g.wait() {
					t.Fatal("the gate is closed")
				}
				all = append(all, &fromConn{from: from})
				g.admit(all[len(all)-1], func(*ticket) {})
			}
		}
		enter("10.0.0.1:1") // the oldest of all, and the only one from there
		enter("[2001:db8::1]:1", "[2001:db8::2]:2", "[2001:db8::3]:3", "10.0.0.2:1", "10.0.0.2:2")
		if len(dropped) != 0 {
			t.Errorf("%q were dropped, and there was room", dropped)
		}
		enter("10.0.0.2:3", "10.0.0.3:1", "10.0.0.3:2")
		if want := []string{"[2001:db8::1]:1", "10.0.0.2:1", "[2001:db8::2]:2"}; !slices.Equal(dropped, want) {
			t.Errorf("%q were dropped, and not %q", dropped, want)
		}
		g.close()
		g.serving.Wait()
		for _, c := range all {
			if !c.closed {
				t.Errorf("%s is open", c.from)
			}
		}
		if len(g.from) != 0 {
			t.Errorf("%d addresses are counted that have no connection", len(g.from))
		}

		g = newGate(6, func(net.Addr, error) { t.Error("dropped") })
		enter("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4", "10.0.0.1:5", "10.0.0.1:6")
		g.close()
		g.serving.Wait()
	})
}
