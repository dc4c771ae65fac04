package node

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/carillon-scheduler/carillon/store"
)

// dirFormat is the layout of the data directory. A higher one was written by a newer binary and is refused.
const dirFormat = 1

// The files of a data directory.
const (
	fileNode    = "node.json"
	fileRaft    = "raft.db"
	fileState   = "state.db"
	fileLock    = "lock"
	dirSnapshot = "snapshots"
	dirProcs    = "procs" // process groups of shell attempts
)

// identity is node.json: who lives in this directory. The instance is random, so that a wiped or copied directory is not taken for
// the one that voted before (design §7).
type identity struct {
	Format   int    `json:"format"`
	NodeID   string `json:"node_id"`
	Instance string `json:"instance"`
	Created  string `json:"created"` // by which version
	home
}

// dataDir is an opened data directory.
type dataDir struct {
	path string
	identity
	fresh bool // nothing was in it
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// openDir makes sure that the directory is there, can be written, and belongs to this node. It says what to do if not.
func openDir(path, nodeID, version string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, dirError(path, err)
	}
	d := &dataDir{path: path}
	data, err := os.ReadFile(d.file(fileNode))
	switch {
	case err == nil:
		return d, d.adopt(data, nodeID)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, dirError(path, err)
	}
	for _, name := range []string{fileRaft, fileState} {
		if _, err := os.Stat(d.file(name)); err == nil {
			return nil, fmt.Errorf("data directory %s holds %s but no %s, so it cannot be told whose it is: restore that file from a copy of the directory, or use another --data-dir", path, name, fileNode)
		}
	}
	d.fresh = true
	d.identity = identity{Format: dirFormat, NodeID: nodeID, Instance: strings.ToLower(rand.Text()), Created: version}
	return d, nil
}

// claim writes node.json. It comes after everything that may refuse, so that a refused start leaves an empty directory empty.
func (d *dataDir) claim() error {
	if !d.fresh {
		return nil
	}
	if err := d.write(d.identity); err != nil {
		return err
	}
	d.fresh = false
	return nil
}

func (d *dataDir) write(id identity) error {
	data, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(d.file(fileNode), append(data, '\n')); err != nil {
		return dirError(d.path, err)
	}
	return nil
}

// saveHome replaces what node.json says about the cluster. What was read at open stays as it is in memory.
func (d *dataDir) saveHome(h home) error {
	id := d.identity
	id.home = h
	return d.write(id)
}

func (d *dataDir) adopt(data []byte, nodeID string) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&d.identity); err != nil {
		return fmt.Errorf("%s is damaged (%w): restore it from a copy of the directory, or remove the data directory and let the node rejoin", d.file(fileNode), err)
	}
	if d.Format > dirFormat {
		return fmt.Errorf("data directory %s has format %d and this binary knows formats up to %d: start it with a newer carillon, which wrote it", d.path, d.Format, dirFormat)
	}
	if d.Format < 1 || d.NodeID == "" || d.Instance == "" {
		return fmt.Errorf("%s is damaged (fields are missing): restore it from a copy of the directory, or remove the data directory and let the node rejoin", d.file(fileNode))
	}
	if nodeID != "" && d.NodeID != nodeID {
		return fmt.Errorf("data directory %s belongs to node %q and not to %q: start with --node-id %s, or use another --data-dir", d.path, d.NodeID, nodeID, d.NodeID)
	}
	return nil
}

// dirError explains why a directory cannot be used.
func dirError(path string, err error) error {
	if fi, serr := os.Stat(path); serr == nil && !fi.IsDir() {
		return fmt.Errorf("%s is not a directory: choose another --data-dir", path)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("no permission to use data directory %s (%w): give it to the user that runs carillon, or choose another --data-dir", path, err)
	}
	return fmt.Errorf("data directory %s: %w", path, err)
}

// writeFile puts a small file in place whole or not at all.
func writeFile(path string, data []byte) (err error) {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return err
	}
	return store.SyncDir(filepath.Dir(path))
}

// checkLogLost refuses a state without a log before an empty log is put beside it. The log is made first, so that no crash leaves this
// behind: somebody removed the file.
func (d *dataDir) checkLogLost() error {
	if _, err := os.Stat(d.file(fileRaft)); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(d.file(fileState)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("data directory %s has lost its %s: put the file back, restore a backup, or remove the directory and let the node rejoin", d.path, fileRaft)
}
