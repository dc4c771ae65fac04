package port

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"testing"
)

// A reserved port refuses while it has no listener, can be listened on again and again, and is given to no one who lets the
// kernel choose: not to a listener, nor to a connection.
func TestReserve(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ports cannot be kept here")
	}
	addr := Reserve(t)
	for range 3 {
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("%v, %v", c, err)
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		ln.Close()
	}
	other := Listen(t)
	defer other.Close()
	for range 200 {
		for _, host := range []string{"127.0.0.1:0", ":0"} {
			ln, err := net.Listen("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			if ln.Addr().(*net.TCPAddr).Port == portOf(t, addr) {
				t.Fatalf("%s got the port of %s", host, addr)
			}
		}
		c, err := net.Dial("tcp", other.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if c.LocalAddr().String() == addr {
			t.Fatalf("a connection got the port of %s", addr)
		}
	}
}

// None of a row is anybody else's, not even a port that another test has reserved and does not listen on.
func TestReserveRow(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ports cannot be kept here")
	}
	taken := map[int]bool{}
	for range 100 {
		first := portOf(t, ReserveRow(t, 3))
		for port := first; port < first+3; port++ {
			if taken[port] {
				t.Fatalf("%d was given twice", port)
			}
			taken[port] = true
			for range 2 {
				ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
				if err != nil {
					t.Fatal(err)
				}
				ln.Close()
			}
		}
	}
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return a.Port
}
