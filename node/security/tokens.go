package security

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// AdminTokenFile is where a secure cluster that begins leaves its first API token, in the data directory.
const AdminTokenFile = "admin.token"

// CAHash is the hash of the CA that tokens name.
func (k *Keys) CAHash() keys.Hash {
	if k.ring == nil {
		return keys.Hash{}
	}
	return k.ring.CAHash()
}

// SessionKeys are what the sessions of workers are sealed with. They are made of the cluster's key, which every voter
// has: the next leader has it too. The first is to seal with; what was sealed with another, before the cluster's key
// was replaced, is known again. A cluster without keys has no secret that all of its voters share; only tests have
// that.
func (k *Keys) SessionKeys(cluster string) ([][]byte, error) {
	if k.ring != nil {
		all := k.ring.Secrets("worker sessions")
		if len(all) == 0 {
			return nil, job.Errorf(job.CodeNotReady, "wait until it has fetched them, or ask another node",
				"this node does not have the cluster's keys")
		}
		return all, nil
	}
	sum := sha256.Sum256([]byte("carillon worker sessions\x00" + cluster))
	return [][]byte{sum[:]}, nil
}

// FirstAdmin is the row of the token that a secure cluster begins with. It is written down before the cluster begins,
// and gets into the state with the cluster's name: whenever the process dies, there is no file, or one whose token
// works after the next start.
func (k *Keys) FirstAdmin(step faultpoint.Step) (store.Token, error) {
	path := k.o.Dir.File(AdminTokenFile)
	t, err := keys.ReadTokenFile(keys.APIToken, path)
	if _, stat := os.Lstat(path); errors.Is(stat, fs.ErrNotExist) {
		t = keys.NewToken(keys.APIToken, k.CAHash())
		err = keys.WriteFile(path, []byte(t.Text()+"\n"), step)
	}
	if err != nil {
		return store.Token{}, err
	}
	sum := t.Sum()
	return store.Token{ID: t.ID, Name: "admin", Sum: sum[:], Role: string(job.RoleAdmin), Shell: true,
		CA: t.CA.String(), CreatedBy: "bootstrap"}, nil
}

// NewCluster is the id of a cluster that the nodes of a list found, and, if it asks for tokens, the first of those.
func (k *Keys) NewCluster(tokens bool, step faultpoint.Step) (id string, admin store.Token, err error) {
	id = strings.ToLower(rand.Text())
	if k.ring != nil {
		own, _ := k.ring.Identity()
		id = own.Cluster
	}
	if tokens {
		admin, err = k.FirstAdmin(step)
	}
	return id, admin, err
}

// JoinToken is the join token that the cluster began with, if this node began it and the file is still there.
func (k *Keys) JoinToken() (keys.Token, bool) {
	t, err := keys.ReadTokenFile(keys.JoinToken, k.o.Dir.File(keys.JoinTokenFile))
	if err != nil {
		return keys.Token{}, false
	}
	return t, k.ring != nil
}
