package egress

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func addrs(cidrs ...string) (out []net.Addr) {
	for _, s := range cidrs {
		ip, n, err := net.ParseCIDR(s)
		if err != nil {
			panic(err)
		}
		n.IP = ip
		out = append(out, n)
	}
	return out
}

// Attack: a service of the node's machine that listens on 0.0.0.0 is called at the machine's own address.
func TestOwnAddresses(t *testing.T) {
	own := func() ([]net.Addr, error) {
		return addrs("127.0.0.1/8", "::1/128", "10.1.2.3/24", "2001:db8::5/64"), nil
	}
	targets := []string{"10.1.2.3:80", "10.1.2.3:443", "[2001:db8::5]:80", "[::ffff:10.1.2.3]:80", "[64:ff9b::a01:203]:80", "10.1.2.4:80", "127.0.0.1:80"}
	for name, c := range map[string]struct {
		o    Options
		want [7]Class
	}{
		"by default":            {Options{}, [7]Class{Self, Self, Self, Self, Self, "", Loopback}},
		"a range around it":     {Options{Config: Config{Allow: []string{"10.0.0.0/8", "all", "127.0.0.0/8"}}}, [7]Class{Self, Self, Self, Self, Self, "", ""}},
		"the address":           {Options{Config: Config{Allow: []string{"10.1.2.3"}}}, [7]Class{"", "", Self, "", "", "", Loopback}},
		"one port of it":        {Options{Config: Config{Allow: []string{"10.1.2.3:80"}}}, [7]Class{"", Self, Self, "", "", "", Loopback}},
		"loopback allowed":      {Options{Config: Config{Allow: []string{" Loopback"}}}, [7]Class{}},
		"a node for itself":     {Options{Loopback: true}, [7]Class{}},
		"and loopback denied":   {Options{Loopback: true, Config: Config{Deny: []string{"loopback"}}}, [7]Class{Self, Self, Self, Self, Self, "", Operator}},
		"an operator's own one": {Options{Config: Config{Deny: []string{"10.1.2.3"}}}, [7]Class{Operator, Operator, Self, Operator, Operator, "", Loopback}},
	} {
		var r recorder
		c.o.Self, c.o.Control = own, r.control
		p := mustNew(t, c.o)
		for i, target := range targets {
			if got := dialled(t, p, &r, target); got != c.want[i] {
				t.Errorf("%s: %s: %q, want %q", name, target, got, c.want[i])
			}
		}
	}
}

// Addresses come and go while a node runs. If they cannot be read, what was known counts.
func TestOwnAddressesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, err := addrs("10.1.2.3/24"), error(nil)
		var r recorder
		p := mustNew(t, Options{Control: r.control, Self: func() ([]net.Addr, error) { return now, err }})
		check := func(old, fresh Class) {
			t.Helper()
			if a, b := dialled(t, p, &r, "10.1.2.3:80"), dialled(t, p, &r, "10.1.2.9:80"); a != old || b != fresh {
				t.Errorf("%q and %q, want %q and %q", a, b, old, fresh)
			}
		}
		check(Self, "")
		now = addrs("10.1.2.9/24")
		check(Self, "")
		time.Sleep(selfLasts + time.Millisecond)
		check("", Self)
		now, err = nil, errors.New("no")
		time.Sleep(selfLasts + time.Millisecond)
		check("", Self)
	})
}
