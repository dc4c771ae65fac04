package elapsed

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time since boot including suspension, 0 if the kernel does not tell.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
