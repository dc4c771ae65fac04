//go:build unix

package dirlock

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the advisory lock of an open file, or says that another process has it. The system drops it with the
// process, whichever way that ends.
func lockFile(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
