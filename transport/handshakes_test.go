package transport

import (
	"crypto/tls"
	"net"
	"net/netip"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/ratelimit"
)

// usedUp is a rate at which nothing comes back while a test runs.
const usedUp = 1e-9

func remoteAt(addr string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)) }

// usedUpAfter are rates that let so many pass, of one address and of all, and no more.
func usedUpAfter(each, all int) *rates {
	return &rates{ratelimit.New[netip.Prefix](usedUp, each, 16), ratelimit.New[struct{}](usedUp, all, 1)}
}

// Strangers wait above the rates, of one address and of all; members and who came as a node do not.
func TestTurnsOfHandshakes(t *testing.T) {
	h := newHandshakes(HandshakeLimits{Member: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.9") }})
	h.strangers, h.known = usedUpAfter(3, 8), usedUpAfter(2, 3)
	done := make(chan struct{})
	turns := func(addr string) (n int) {
		for n < 5 && h.wait(remoteAt(addr), time.Now().Add(time.Second), done) {
			n++
		}
		return n
	}
	for _, c := range []struct {
		addr string
		want int
	}{
		{"10.0.0.1:1000", 3}, {"10.0.0.1:1001", 0}, {"10.0.0.9:1000", 5},
		{"[2001:db8::1]:1000", 3}, {"[2001:db8::2]:1000", 0}, // who has one of them has the other
		{"10.0.0.2:1000", 2}, {"10.0.0.3:1000", 0}, // no more of anybody
	} {
		if got := turns(c.addr); got != c.want {
			t.Errorf("%s has %d turns, and not %d", c.addr, got, c.want)
		}
	}
	h.node(remoteAt("10.0.0.3:1002"))
	if got := turns("10.0.0.3:1000"); got != 5 {
		t.Errorf("a node has %d turns", got)
	}
	close(done)
	if h.wait(remoteAt("10.0.0.1:1000"), time.Now().Add(time.Hour), done) {
		t.Error("a turn on a port that was closed")
	}
}

// Where strangers have used up all turns, addresses from which a valid token came still have theirs, at rates of their
// own: who has a token cannot flood either.
func TestTurnsOfWhoShowedAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandshakes(HandshakeLimits{})
		h.strangers, h.known = usedUpAfter(1, 4), usedUpAfter(3, 8)
		turns := func(addr string) (n int) {
			for n < 5 && h.wait(remoteAt(addr), time.Now().Add(time.Second), nil) {
				n++
			}
			return n
		}
		for _, a := range []string{"10.9.0.1:1", "10.9.0.2:1", "10.9.0.3:1", "10.9.0.4:1"} {
			turns(a)
		}
		for _, a := range []string{"10.0.0.1", "10.0.0.2", "2001:db8::1"} {
			h.token(netip.MustParseAddr(a))
		}
		h.token(netip.Addr{}) // what came by the admin socket has none
		for _, c := range []struct {
			addr string
			want int
		}{
			{"10.0.0.1:1", 3}, {"10.0.0.1:2", 0}, {"[2001:db8::2]:1", 3}, // who has one of them has the other
			{"10.0.0.9:1", 0}, {"10.0.0.2:1", 2}, // no more of anybody who has a token
		} {
			if got := turns(c.addr); got != c.want {
				t.Errorf("%s has %d turns, and not %d", c.addr, got, c.want)
			}
		}

		h.known = usedUpAfter(5, 5)
		time.Sleep(shownFor)
		if got := turns("10.0.0.1:3"); got != 0 {
			t.Errorf("%d turns of an address whose token was shown long ago", got)
		}
		for i := range uint32(2 * maxShown) {
			h.token(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
		}
		if n := len(h.shown); n > maxShown {
			t.Errorf("%d addresses are remembered", n)
		}
	})
}

// A handshake that has no turn is not answered, and costs no other connection its turn.
func TestHandshakesAboveTheRate(t *testing.T) {
	a := newAuthority(t)
	m := NewMux(listen(t, "127.0.0.1:0"), Options{Keys: ringOf(t, a, "n1"), Timeout: time.Second,
		Handshakes: HandshakeLimits{Member: func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.3") }}})
	m.turn.strangers.each = ratelimit.New[netip.Prefix](usedUp, 1, 16)
	m.TokenFrom(netip.MustParseAddr("127.0.0.4"))
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	handshake := func(source string) error {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: time.Minute}
		conn, err := d.Dial("tcp", m.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return tls.Client(conn, keys.ClientConfig(keys.HashOf(a.Cert))).Handshake()
	}
	for i, c := range []struct {
		source string
		ok     bool
	}{{"127.0.0.1", true}, {"127.0.0.1", false}, {"127.0.0.2", true}, {"127.0.0.3", true}, {"127.0.0.3", true},
		{"127.0.0.4", true}, {"127.0.0.4", true}} {
		if err := handshake(c.source); (err == nil) != c.ok {
			t.Errorf("handshake %d, from %s: %v", i, c.source, err)
		}
	}
}

// Attack: a stranger opens connections without end and has each of them wait for its handshake. Those that are dropped
// for it wait no longer, with what they have in memory, and take no turn of others when theirs comes.
func TestDroppedHandshakesDoNotWait(t *testing.T) {
	a := newAuthority(t)
	const pending, dropped = 3, 9
	m := NewMux(listen(t, "127.0.0.1:0"), Options{Keys: ringOf(t, a, "n1"), MaxPending: pending, Timeout: time.Hour})
	m.turn.strangers.each = ratelimit.New[netip.Prefix](0.01, 1, 16) // the next one is in more than a minute
	m.turn.strangers.each.Take(ratelimit.Source(netip.MustParseAddr("127.0.0.1")))
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()
	var all sync.WaitGroup
	ended := make(chan error, pending+dropped)
	for range pending + dropped {
		conn := dialTCP(t, m.Addr())
		all.Go(func() { ended <- tls.Client(conn, keys.ClientConfig(keys.HashOf(a.Cert))).Handshake() })
	}
	for range dropped {
		if err := <-ended; err == nil {
			t.Error("a handshake above the rate")
		}
	}
	waiting := func() int {
		var stacks strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
			t.Fatal(err)
		}
		return strings.Count(stacks.String(), "(*handshakes).wait(")
	}
	for end := time.Now().Add(time.Minute); waiting() > pending; {
		if time.Now().After(end) {
			t.Fatalf("%d handshakes wait, of %d that are open", waiting(), pending)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := m.Close(); err != nil { // which waits for the rest
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	all.Wait()
}
