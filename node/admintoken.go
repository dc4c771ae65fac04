package node

import (
	"crypto/sha256"
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

// sessionKey is what the sessions of workers are sealed with. It is made of the cluster's key, which every voter has:
// the next leader has it too. A cluster without keys has no secret that all of its voters share; only tests have that.
func (n *Node) sessionKey() ([]byte, error) {
	if n.keys != nil {
		a := n.keys.Authority()
		if a == nil {
			return nil, job.Errorf(job.CodeNotReady, "wait until it has fetched them, or ask another node",
				"this node does not have the cluster's keys")
		}
		return a.Derive("worker sessions"), nil
	}
	sum := sha256.Sum256([]byte("carillon worker sessions\x00" + n.group.store.Info().ClusterID))
	return sum[:], nil
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
