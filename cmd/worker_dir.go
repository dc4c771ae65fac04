package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/carillon-scheduler/carillon/job"
)

// stateDir is where a worker remembers who it is. Its lock keeps a second worker from ending the commands of the first.
type stateDir struct {
	path string
	lock *os.File
}

// identity is who a worker is. What proves that it is this one, and not one with a copy of the directory, is executor.SealedSecret.
type identity struct {
	Name string `json:"name"`
}

func openStateDir(path string) (*stateDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, job.Errorf(job.CodeState, "give each worker a directory of its own", "another worker uses %s", path)
		}
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	return &stateDir{path, f}, nil
}

func (d *stateDir) close() { d.lock.Close() }

// identity is what the directory remembers. A name that is given counts for more.
func (d *stateDir) identity(name string) (identity, error) {
	var me identity
	path := filepath.Join(d.path, "worker.json")
	data, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, &me); err != nil {
			return me, fmt.Errorf("--state-dir: %s cannot be read (remove it to begin anew): %w", path, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return me, fmt.Errorf("--state-dir: %w", err)
	}
	before := me
	if name != "" {
		me.Name = name
	} else if me.Name == "" {
		me.Name = randomName()
	}
	if me == before {
		return me, nil
	}
	data, err = json.Marshal(me)
	if err == nil {
		err = os.WriteFile(path+".tmp", data, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return me, fmt.Errorf("--state-dir: %w", err)
	}
	return me, nil
}
