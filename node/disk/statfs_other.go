//go:build !(linux || darwin || freebsd)

package disk

import "errors"

// Statfs is not known on this system.
func Statfs(string) (free, total uint64, err error) {
	return 0, 0, errors.New("not known on this system")
}
