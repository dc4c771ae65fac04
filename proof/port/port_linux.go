package port

import (
	"fmt"
	"os"
	"syscall"
)

// reserve binds a socket that never listens to a port, 0 for one that the kernel chooses. Sockets with SO_REUSEADDR,
// which net.Listen sets, may then listen on it; to those that leave the choice to the kernel it is taken. The option is
// set after it is bound: with it the port could be one that another test has reserved. It is bound to all addresses:
// some nodes listen on all of them, and a connection from another loopback address could have the port there.
func reserve(port int) (got int, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, os.NewSyscallError("socket", err)
	}
	release = func() { syscall.Close(fd) }
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port}); err != nil {
		release()
		return 0, nil, os.NewSyscallError("bind", err)
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		release()
		return 0, nil, os.NewSyscallError("setsockopt", err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		release()
		return 0, nil, os.NewSyscallError("getsockname", err)
	}
	in, ok := sa.(*syscall.SockaddrInet4)
	if !ok {
		release()
		return 0, nil, fmt.Errorf("bound to %T", sa)
	}
	return in.Port, release, nil
}
