package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/job"
)

// stateDir is where a worker remembers who it is. Its lock keeps a second worker from ending the commands of the first.
type stateDir struct {
	path string
	lock *dirlock.Lock
}

// identity is who a worker is. What proves that it is this one, and not one with a copy of the directory, is
// executor.SealedSecret.
type identity struct {
	Name string `json:"name"`
}

// stateDirWait is how long the process before may take to let go of the directory. One that was killed is outlived, for
// a moment, by a child that it had forked and that has not become another program yet: until then the child has all its
// files open, and so the lock.
const stateDirWait = 2 * time.Second

// openStateDir takes the directory. taken is called if another process takes it while this one is frozen, which only a
// network file system allows.
func openStateDir(path string, allowNetworkFS bool, taken func(error)) (*stateDir, error) {
	kind, name, err := inspectDir(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--state-dir: %w", err)
	case kind == dirlock.Shared && !allowNetworkFS:
		return nil, dirlock.Refuse("state directory", path, name, "--state-dir")
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	lock, err := dirlock.Open(filepath.Join(path, "lock"),
		dirlock.Options{Wait: stateDirWait, Create: true, Kind: kind, Taken: func(e *dirlock.HeldError) {
			taken(fmt.Errorf("--state-dir: %s was taken while this process did not write to its lock file: it is %w",
				path, e))
		}})
	switch held := new(dirlock.HeldError); {
	case errors.As(err, &held):
		return nil, job.Errorf(job.CodeState, "give each worker a directory of its own",
			"another worker uses %s: it is %v", path, held)
	case err != nil:
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	return &stateDir{path, lock}, nil
}

// inspectDir is how tests put a directory on another file system.
var inspectDir = dirlock.Inspect

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
