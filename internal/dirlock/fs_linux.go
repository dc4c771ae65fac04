package dirlock

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func magicOf(path string) (magic uint32, known bool, err error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(path, &st)
		if err == unix.EINTR {
			continue
		}
		// the width of the field differs between architectures, the numbers have 32 bits
		return uint32(st.Type), true, err
	}
}

// bootID changes with every boot.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
