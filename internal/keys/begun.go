package keys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// BegunFile is where a directory that carillon cluster init wrote says which data directory began the cluster. A
// first node whose disk is gone and which is started again with the same flags would otherwise begin a second cluster
// under the same keys, beside the one that its fellow members still are.
const BegunFile = "begun"

// Begins says whether the data directory with an instance may begin the cluster whose keys are in dir.
func Begins(dir, instance string) error {
	data, err := os.ReadFile(filepath.Join(dir, BegunFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return job.Invalid("--keys-from", "let the node read it", "%v", err)
	}
	if strings.TrimSpace(string(data)) != instance {
		return job.Invalid("--bootstrap", "start the node with --join and a token from `carillon cluster token "+
			"create` (after `carillon cluster remove`, if it was a member); if that cluster is gone, make new keys "+
			"with `carillon cluster init`", "a node with another data directory has already founded a cluster with "+
			"the keys in %s", dir)
	}
	return nil
}

// Begun writes down which data directory begins the cluster whose keys are in dir. Of several that try only one may go
// on. In a directory that cannot be written, a copy that was given to one node, there is nothing to compare with.
func Begun(dir, instance string) error {
	path := filepath.Join(dir, BegunFile)
	if _, err := os.Lstat(path); err == nil {
		return Begins(dir, instance)
	}
	whole := path + "." + instance
	if err := WriteFile(whole, []byte(instance+"\n"), nil); err != nil {
		return nil //nolint:nilerr // read-only: see above
	}
	defer os.Remove(whole)
	// A link is made by one of them only, and never to half a file.
	if err := os.Link(whole, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil //nolint:nilerr // a file system without links
	}
	return Begins(dir, instance)
}
