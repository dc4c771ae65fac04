package executor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// lacksCapabilities says which rights of root this process was not given, as in a container that drops them.
func lacksCapabilities() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return fmt.Errorf("its capabilities: %w", err)
	}
	for _, c := range []struct {
		bit  int
		name string
	}{{unix.CAP_SETUID, "CAP_SETUID"}, {unix.CAP_SETGID, "CAP_SETGID"}, {unix.CAP_KILL, "CAP_KILL"}} {
		if data[0].Effective&(1<<c.bit) == 0 {
			return fmt.Errorf("the process has no %s", c.name)
		}
	}
	return nil
}
