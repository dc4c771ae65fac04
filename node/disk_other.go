//go:build !(linux || darwin || freebsd)

package node

import "errors"

func statfs(string) (free, total uint64, err error) {
	return 0, 0, errors.New("not known on this system")
}
