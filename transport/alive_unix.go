//go:build unix

package transport

import (
	"crypto/tls"
	"net"
	"syscall"
)

// alive reports whether an idle connection is still open, as far as the kernel
// knows. It takes one system call and does not wait.
//
// Something to read on a connection that owes no answer is as bad as its end:
// under TLS it is the notice of closing, otherwise the peer is out of step.
func alive(conn net.Conn) bool {
	if tc, ok := conn.(*tls.Conn); ok {
		conn = tc.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	// Control and not Read, which fails without looking when the deadline of
	// the previous request has passed, as it has on any connection idle for long.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		for {
			_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
			if err != syscall.EINTR {
				open = err == syscall.EAGAIN
				return
			}
		}
	})
	return err == nil && open
}
