package executor

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// PlaceOf looks at a directory. It says false if the system does not tell enough to prove that a place is the same.
func PlaceOf(dir string) (Place, bool) {
	var st unix.Statx_t
	if dir == "" || unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_INO|unix.STATX_BTIME, &st) != nil {
		return Place{}, false
	}
	p := Place{Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino, Boot: bootID(), PIDs: pidNamespace()}
	if st.Mask&unix.STATX_BTIME != 0 {
		p.Birth = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return p, p.Boot != "" && p.PIDs != "" && p.Birth != 0
}

// bootTime is how long the machine has been up, also while it was suspended.
func bootTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// pidNamespace is the number of the namespace and when its first process began: numbers are given out again.
func pidNamespace() string {
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	first, err := readProcess(1)
	if err != nil {
		return ns
	}
	return fmt.Sprintf("%s since %d", ns, first.start)
}
