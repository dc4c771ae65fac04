// Package statedir is the directory in which a worker process remembers who it is.
package statedir

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/job"
)

// Dir is where a worker remembers who it is. Its lock keeps a second worker from ending the commands of the first.
type Dir struct {
	path string
	lock *dirlock.Lock
}

// Identity is who a worker is. What proves that it is this one, and not one with a copy of the directory, is
// executor.SealedSecret.
type Identity struct {
	Name string `json:"name"`
}

// openWait is how long the process before may take to let go of the directory. One that was killed is outlived, for
// a moment, by a child that it had forked and that has not become another program yet: until then the child has all its
// files open, and so the lock.
const openWait = 2 * time.Second

// Open takes the directory. taken is called if another process takes it while this one is frozen, which only a
// network file system allows.
func Open(path string, allowNetworkFS bool, taken func(error)) (*Dir, error) {
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
		dirlock.Options{Wait: openWait, Create: true, Kind: kind, Taken: func(e *dirlock.HeldError) {
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
	return &Dir{path, lock}, nil
}

// inspectDir is how tests put a directory on another file system.
var inspectDir = dirlock.Inspect

// Close lets go of the directory.
func (d *Dir) Close() { d.lock.Close() }

// Identity is what the directory remembers. A name that is given counts for more; with none at all, one is made up.
func (d *Dir) Identity(name string) (Identity, error) {
	var me Identity
	path := filepath.Join(d.path, "worker.json")
	data, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(data, &me); err != nil {
			return me, fmt.Errorf("--state-dir: %s cannot be read (remove it to start over): %w", path, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return me, fmt.Errorf("--state-dir: %w", err)
	}
	before := me
	if name != "" {
		me.Name = name
	} else if me.Name == "" {
		me.Name = RandomName()
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

// RandomName is a name for a worker that was given none.
func RandomName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "worker"
	}
	return host + "-" + strings.ToLower(rand.Text()[:6])
}
