//go:build !linux

package port

import (
	"fmt"
	"net"
)

// reserve finds a port that is free now: elsewhere none can be kept without listening on it.
func reserve(port int) (got int, release func(), err error) {
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return 0, nil, err
	}
	return ln.Addr().(*net.TCPAddr).Port, func() {}, ln.Close()
}
