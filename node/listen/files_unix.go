//go:build linux || darwin || freebsd

package listen

import "syscall"

// openFilesLimit is how many files the process may have open, 0 if that is not known.
func openFilesLimit() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int(min(uint64(l.Cur), 1<<30))
}
