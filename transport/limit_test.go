package transport

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// limited is a listener on loopback and what it let in.
func limited(t *testing.T, limits Limits) (*Limited, chan error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 100)
	limits.Refused = func(_ net.Addr, err error) { refused <- err }
	l := Limit(ln, limits)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() { // until the other end leaves
				io.Copy(io.Discard, c)
				c.Close()
				c.Close() // a second one gives no second place back
			}()
		}
	}()
	return l, refused
}

// from connects from an address of loopback.
func from(t *testing.T, l *Limited, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}, Timeout: 10 * time.Second}
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Skipf("cannot dial from %s on this machine: %v", addr, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func open(t *testing.T, l *Limited, want int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for l.Open() != want {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open, want %d", l.Open(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

// ends says that the other end closed a connection.
func ends(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("a connection beyond the limit was kept: %v", err)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// One address cannot take every place, all strangers together cannot take those of members, and a place that is left is
// free again.
func TestLimit(t *testing.T) {
	member := netip.MustParseAddr("127.0.0.9")
	l, refused := limited(t, Limits{Max: 16, Member: func(a netip.Addr) bool { return a == member }})
	var first []net.Conn
	for range 4 {
		first = append(first, from(t, l, "127.0.0.2"))
	}
	open(t, l, 4)
	ends(t, from(t, l, "127.0.0.2"))
	if err := <-refused; !errors.Is(err, errTooManyOne) {
		t.Errorf("the fifth of one address is refused with %v", err)
	}
	first[0].Close()
	open(t, l, 3)
	from(t, l, "127.0.0.2")
	open(t, l, 4)

	for i, addr := range []string{"127.0.0.3", "127.0.0.4", "127.0.0.5"} {
		for range 4 {
			if i == 2 && l.Open() >= 14 {
				break
			}
			n := l.Open()
			from(t, l, addr)
			open(t, l, n+1)
		}
	}
	open(t, l, 14)
	ends(t, from(t, l, "127.0.0.6"))
	if err := <-refused; !errors.Is(err, errAllTaken) {
		t.Errorf("the fifteenth of sixteen is refused with %v", err)
	}
	from(t, l, "127.0.0.9")
	from(t, l, "127.0.0.9")
	open(t, l, 16)
	ends(t, from(t, l, "127.0.0.9"))
	if err := <-refused; !errors.Is(err, errAllTaken) {
		t.Errorf("a member beyond all places is refused with %v", err)
	}
}

func TestLimitSource(t *testing.T) {
	for addr, want := range map[string]string{
		"10.1.2.3":         "10.1.2.3/32",
		"::ffff:10.1.2.3":  "10.1.2.3/32",
		"fd00::1:2:3:4":    "fd00::/64",
		"fd00::1:ffff:3:4": "fd00::/64",
	} {
		if _, got := sourceOf(&net.TCPAddr{IP: net.ParseIP(addr)}); got.String() != want {
			t.Errorf("%s counts as %s, want %s", addr, got, want)
		}
	}
}
