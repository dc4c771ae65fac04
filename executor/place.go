package executor

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Place is where a worker's directory is and whose processes may be in it: the directory itself, by what a copy does
// not have, and the boot and the PID namespace in which process numbers have a meaning. Of two processes in one place,
// each with the lock of the directory, the first has ended when the second begins.
type Place struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Birth  int64  `json:"birth"` // of the directory, in nanoseconds: an inode's number is given out again
	Boot   string `json:"boot"`
	PIDs   string `json:"pid_namespace"`
}

// sameDir says that both are the same directory, and not one a copy of the other, in one run of the machine.
func (p Place) sameDir(o Place) bool {
	return p.Device == o.Device && p.Inode == o.Inode && p.Birth == o.Birth && p.Boot == o.Boot
}

const fileSecret = "worker.secret"

type sealedSecret struct {
	Secret string `json:"secret"`
	Place  Place  `json:"place"`
}

// SealedSecret is the secret of the worker that lives in a directory, whose lock the caller holds. Processes that
// follow each other in one place share it: a leader sees by it that the one before has ended. In a copy of the
// directory, after a reboot, in another container, or where the system cannot tell these apart, it is a new one, and
// the leader waits for the old one's lease.
func SealedSecret(dir string) (string, error) {
	fresh := rand.Text()
	here, known := PlaceOf(dir)
	if !known {
		return fresh, nil
	}
	path := filepath.Join(dir, fileSecret)
	data, err := os.ReadFile(path)
	var s sealedSecret
	switch {
	case err == nil:
		if json.Unmarshal(data, &s) == nil && s.Secret != "" && s.Place == here {
			return s.Secret, nil
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the worker's secret: %w", err)
	}
	data, err = json.Marshal(sealedSecret{fresh, here})
	if err == nil { // not synced: it must survive the process, and belongs to this boot
		err = os.WriteFile(path+".tmp", append(data, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return "", fmt.Errorf("the worker's secret: %w", err)
	}
	return fresh, nil
}

// Whereabouts is what a worker tells about itself at its registration: those who are refused because of it learn where
// to look.
func Whereabouts(dir string) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	where := fmt.Sprintf("host %s, pid %d", host, os.Getpid())
	if dir == "" {
		return where
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return where + ", directory " + dir[:min(len(dir), 512)]
}
