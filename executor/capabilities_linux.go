package executor

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"
)

// lacksCapabilities says which rights of root this process was not given, as in a container that drops them.
func lacksCapabilities() error {
	return cmp.Or(lacks(unix.CAP_SETUID, "CAP_SETUID"), lacks(unix.CAP_SETGID, "CAP_SETGID"),
		lacks(unix.CAP_KILL, "CAP_KILL"))
}

func lacks(bit int, name string) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return fmt.Errorf("its capabilities: %w", err)
	}
	if data[bit/32].Effective&(1<<(bit%32)) == 0 {
		return fmt.Errorf("the process has no %s", name)
	}
	return nil
}
