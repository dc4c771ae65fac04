package node

import (
	"errors"
	"io/fs"
	"os"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// AdminTokenFile is where a secure cluster that begins leaves its first API token, in the data directory.
const AdminTokenFile = "admin.token"

// tokenCA is the hash of the CA that tokens name.
func (n *Node) tokenCA() keys.Hash {
	if n.keys == nil {
		return keys.Hash{}
	}
	return n.keys.CAHash()
}

// firstAdmin is the row of the token that a secure cluster begins with. It is written down before the cluster begins,
// and gets into the state with the cluster's name: whenever the process dies, there is no file, or one whose token
// works after the next start.
func (n *Node) firstAdmin() (store.Token, error) {
	if !n.cfg.Secure || !n.cfg.Bootstrap || n.group.store.Info().ClusterID != "" {
		return store.Token{}, nil
	}
	path := n.dir.File(AdminTokenFile)
	t, err := keys.ReadTokenFile(keys.APIToken, path)
	if _, stat := os.Lstat(path); errors.Is(stat, fs.ErrNotExist) {
		t = keys.NewToken(keys.APIToken, n.tokenCA())
		err = keys.WriteFile(path, []byte(t.Text()+"\n"), n.cfg.Machine.TokenStep)
	}
	if err != nil {
		return store.Token{}, err
	}
	sum := t.Sum()
	return store.Token{ID: t.ID, Name: "admin", Sum: sum[:], Role: string(job.RoleAdmin), Shell: true,
		CreatedBy: "bootstrap"}, nil
}
