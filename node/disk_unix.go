//go:build linux || darwin || freebsd

package node

import "syscall"

// openFilesLimit is how many files the process may have open, 0 if that is not known.
func openFilesLimit() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int(min(uint64(l.Cur), 1<<30))
}

// statfs is how much room a process without privileges has on the file system of a path, and how large that is.
func statfs(path string) (free, total uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, 0, err
	}
	size := uint64(s.Bsize)
	return uint64(max(0, int64(s.Bavail))) * size, s.Blocks * size, nil
}
