package datadir

import (
	"os"

	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/store"
)

// Rejoin is how a node whose directory was emptied gets back into its cluster at its next start, whatever it is started
// with: --bootstrap would begin another cluster.
type Rejoin struct {
	Addresses []string `json:"addresses"`
	Token     string   `json:"token,omitempty"` // the join token of a secure cluster
}

// Rebuild is the directory of a stopped node that is to be emptied. Nobody else can have it meanwhile.
type Rebuild struct {
	*Dir
	lock *dirlock.Lock
}

// OpenRebuild takes a directory. It is not looked at what else than node.json is in it: that may be damaged.
func OpenRebuild(dir string) (*Rebuild, error) {
	d, lock, err := openStopped(dir, offlineWait, func(*Dir) error { return nil })
	if err != nil {
		return nil, err
	}
	return &Rebuild{d, lock}, nil
}

// Close lets go of the directory.
func (r *Rebuild) Close() { r.lock.Close() }

// Empty deletes everything but the lock and the record of process groups, which the next start ends, and makes the
// directory that of a new instance of the node, which joins the cluster. The node is no member any more. If this is cut
// off, the node does not start until it is repeated.
func (r *Rebuild) Empty(cluster, version string, how Rejoin) error {
	r.ClusterID, r.Rebuilding = cluster, true
	if err := r.Save(); err != nil {
		return err
	}
	entries, err := os.ReadDir(r.Path)
	if err != nil {
		return dirError(r.Path, err)
	}
	for _, e := range entries {
		switch e.Name() {
		case NodeFile, LockFile, ProcsDir:
		default:
			if err := os.RemoveAll(r.File(e.Name())); err != nil {
				return dirError(r.Path, err)
			}
		}
	}
	if err := store.SyncDir(r.Path); err != nil {
		return err
	}
	r.Identity = newIdentity(r.NodeID, version)
	r.Rejoin = &how
	return r.Save()
}
