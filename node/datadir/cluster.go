package datadir

import (
	"errors"
	"fmt"
	"log/slog"
)

// ClusterOf is the id of the cluster that a node which is not running belongs to. That of a secure cluster is refused:
// it has keys.
func ClusterOf(dir string, log *slog.Logger) (id string, err error) {
	d, lock, err := openStopped(dir, offlineWait, (*Dir).recoverable)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	var failed error
	f, err := d.openOffline(0, log, func(err error) { failed = err })
	if err != nil {
		return "", errors.Join(err, failed)
	}
	defer func() { err = errors.Join(err, failed, f.Close()) }()
	switch info := f.State.Info(); {
	case info.Security.CA != "":
		return "", fmt.Errorf("the cluster of data directory %s is secure already", dir)
	case info.ClusterID == "":
		return "", fmt.Errorf("data directory %s belongs to no cluster yet", dir)
	default:
		return info.ClusterID, nil
	}
}
