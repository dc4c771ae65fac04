// Package port gives tests ports that stay theirs while nothing listens on them. A node that is stopped, and is to come
// back on the port it had, otherwise loses it to another process that asks the kernel for one in between: tests run
// beside each other, and each of their connections takes a port as well.
package port

import (
	"fmt"
	"net"
	"testing"
)

// Reserve is an address of the loopback interface, on a port that the kernel chose and gives to no one else until the
// test ends. Connections to it are refused until the test, or a process of it, listens there, which it may do as often
// as it likes.
func Reserve(tb testing.TB) string {
	tb.Helper()
	port, release, err := reserve(0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(release)
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// ReserveRow reserves so many ports in a row, and says where the first one is.
func ReserveRow(tb testing.TB, n int) string {
	tb.Helper()
	var err error
	for range 100 {
		var releases []func()
		next := 0 // of the kernel's choice
		for range n {
			var got int
			var release func()
			if got, release, err = reserve(next); err != nil {
				break
			}
			releases, next = append(releases, release), got+1
		}
		if err == nil {
			for _, release := range releases {
				tb.Cleanup(release)
			}
			return fmt.Sprintf("127.0.0.1:%d", next-n)
		}
		for _, release := range releases {
			release()
		}
	}
	tb.Fatalf("no %d free ports in a row: %v", n, err)
	return ""
}

// Listen listens on a port that is reserved: a listener that is closed can be opened there again.
func Listen(tb testing.TB) net.Listener {
	tb.Helper()
	ln, err := net.Listen("tcp", Reserve(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return ln
}
