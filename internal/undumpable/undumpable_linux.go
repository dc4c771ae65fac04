package undumpable

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Set makes this process undumpable. Programs that it starts are not.
func Set() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep the memory of the process to itself: %w", err)
	}
	return nil
}
