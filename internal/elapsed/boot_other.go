//go:build !linux

package elapsed

import "time"

// bootTime is not known here: the lease is measured on monotonic time alone.
func bootTime() time.Duration { return 0 }
