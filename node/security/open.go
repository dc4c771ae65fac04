// Package security opens the keys that a node of a secure cluster begins, joins or goes on with, holds how it was
// started against what the cluster committed, and makes the first tokens of a cluster.
package security

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// Config is about the keys of a secure cluster.
type Config struct {
	On bool // the cluster is secure: TLS, and certificates between nodes
	// From is a directory with the keys that `carillon cluster init` made. They are copied into the data directory.
	From string
	// Token is what a new node joins with.
	Token keys.Token
	// TLSCert and TLSKey are files with a certificate for browsers and its key; empty: there is none.
	TLSCert, TLSKey string
}

// Options say how a node is started, and with which directory.
type Options struct {
	Config
	Dir       *datadir.Dir
	Bootstrap bool   // it begins a cluster
	Joins     bool   // it was given nodes of a cluster to join
	Forms     bool   // it was given all nodes of a cluster, which it forms with them, or joins
	Advertise string // how others reach it
	Now       func() time.Time
	KeyStep   faultpoint.Step
	Logger    *slog.Logger
}

// Keys are the keys of a node. Those of a plain one are none.
type Keys struct {
	o      Options
	ring   *keys.Ring
	public *keys.Operator
	first  keys.Token
}

// Open opens the keys of a secure cluster, and makes those of one that begins. It comes before the directory is
// claimed: keys that a crash leaves behind are found by the next start. A plain node has none.
func Open(o Options) (*Keys, error) {
	k := &Keys{o: o}
	if err := k.openPublic(); err != nil {
		return nil, err
	}
	if !o.On {
		if o.Dir.CA != "" {
			return nil, errIsSecure(o.Dir.Path)
		}
		return k, nil
	}
	ring, err := keys.OpenRing(o.Dir.File(keys.Dir), o.KeyStep)
	if err != nil {
		return nil, err
	}
	k.ring = ring
	if err := k.takeAuthority(); err != nil {
		return nil, err
	}
	return k, k.fitIdentity()
}

// Public is the certificate that the operator has for browsers; nil: there is none.
func (k *Keys) Public() *keys.Operator { return k.public }

func (k *Keys) openPublic() (err error) {
	switch o := &k.o; {
	case o.TLSCert == "" && o.TLSKey == "":
		return nil
	case !o.On:
		return job.Invalid("--tls-cert", "add --secure (and not --insecure), or leave it out",
			"a node that is not secure does not speak TLS")
	case o.TLSCert == "" || o.TLSKey == "":
		return job.Invalid("--tls-cert", "give --tls-cert and --tls-key",
			"a certificate needs its key")
	default:
		k.public, err = keys.OpenOperator(o.TLSCert, o.TLSKey, o.Logger, o.Now)
		return err
	}
}

// Ring is where the keys are; nil: the cluster is plain.
func (k *Keys) Ring() *keys.Ring { return k.ring }

// First is the join token that the cluster begins with, if this node begins it.
func (k *Keys) First() keys.Token { return k.first }

// fitIdentity holds the certificate against the directory, and signs it or prepares to ask for it where there is none.
func (k *Keys) fitIdentity() error {
	d, ring := k.o.Dir, k.ring
	switch id, has := ring.Identity(); {
	case has && d.CA != "" && !k.knows(d.CA):
		return fmt.Errorf("the keys in %s belong to another cluster: put the right ones back, or empty the data "+
			"directory and let the node rejoin", d.File(keys.Dir))
	case has && id.Node == d.NodeID && id.Instance == d.Instance:
	case d.CA != "" && !ring.HasKey():
		// A voter could sign itself another certificate. Its members know it by the key that is lost: it would look
		// healthy, and none of them would talk to it.
		return errLostKey(d)
	case ring.Authority() != nil: // it begins a cluster, or makes a plain one secure
		return k.certifySelf()
	case has:
		return fmt.Errorf("the certificate in %s belongs to node %s with another data directory: remove the "+
			"directory %s, and let the node join", d.File(keys.Dir), id.Node, keys.Dir)
	case d.CA != "":
		return errLostKey(d)
	case !d.Fresh && d.Rejoin == nil && !ring.HasKey():
		return errNotSecure(d)
	}
	if _, has := ring.Identity(); !has {
		if k.o.Token.ID == "" && k.o.Forms {
			return job.Invalid("--keys-from", "for a new cluster, make keys once with `carillon cluster init --out "+
				"DIR`, copy DIR to every machine, and give each node --keys-from DIR; if this node was a member and "+
				"lost its data directory, run `carillon cluster remove "+k.o.Dir.NodeID+
				"` and `carillon cluster token create` on another node, and give it that token with "+
				"--token-file; if the cluster should not be "+
				"secure, give --insecure instead", "nodes that form a secure cluster need its keys")
		}
		if k.o.Token.ID == "" {
			return job.Invalid("--token", "get one from a node of the cluster with `carillon cluster token "+
				"create`; if the cluster is not secure, give --insecure instead",
				"a node needs a join token to join a secure cluster")
		}
		ring.Pin(k.o.Token.CA)
		if _, err := ring.Key(); err != nil {
			return err
		}
	}
	return nil
}

// takeAuthority finds or makes the keys of the cluster, on a node that begins it or was given them.
func (k *Keys) takeAuthority() error {
	o, d, ring := &k.o, k.o.Dir, k.ring
	if d.Fresh && k.givenKeys() {
		if err := keys.Begins(o.From, d.Instance); err != nil {
			return err
		}
	}
	begins := !o.Joins || d.ClusterID != "" && d.CA == "" // others get them when they vote
	if _, err := os.Stat(filepath.Join(o.From, keys.ClusterFile)); o.Forms && o.Token.ID != "" && err != nil {
		begins = false // it joins by the token, if there is a cluster
	}
	if ring.Authority() == nil && o.From != "" && begins {
		a, err := keys.ReadAuthority(o.From)
		if err != nil {
			return job.Invalid("--keys-from", "give a directory that `carillon cluster init` wrote", "%v", err)
		}
		if err := ring.Keep(a); err != nil {
			return err
		}
	}
	if ring.Authority() == nil && d.Fresh && o.Bootstrap {
		a, err := keys.NewAuthority(strings.ToLower(rand.Text()), o.Now())
		if err != nil {
			return err
		}
		if err := ring.Keep(a); err != nil {
			return err
		}
	}
	if a := ring.Authority(); a != nil && o.Bootstrap && d.CA == "" {
		var err error
		if k.first, err = firstToken(a, o.From, d.Path); err != nil {
			return err
		}
	}
	if a := ring.Authority(); a != nil && o.Forms && o.From != "" {
		// All nodes were given it, and whoever is the first to lead makes it known.
		if t, err := keys.ReadTokenFile(keys.JoinToken, filepath.Join(o.From, keys.JoinTokenFile)); err == nil &&
			t == a.JoinToken(t.ID) {
			k.first = t
		}
	}
	return nil
}

// givenKeys says whether the node was given keys to begin a cluster with.
func (k *Keys) givenKeys() bool { return k.ring != nil && k.o.Bootstrap && k.o.From != "" }

// Begun writes down that this directory begins a cluster, where its keys come from. It comes after the directory is
// claimed: what a crash leaves must name one that is there. A directory with a cluster is not held back.
func (k *Keys) Begun(info store.Info) error {
	if !k.givenKeys() {
		return nil
	}
	if err := keys.Begun(k.o.From, k.o.Dir.Instance); info.ClusterID == "" {
		return err
	}
	return nil
}

// firstToken is the join token that a cluster begins with: the one that was made with the keys, or a new one. It is in
// the data directory before the cluster knows it, so that a crash leaves none that is not known.
func firstToken(a *keys.Authority, from, dir string) (keys.Token, error) {
	own := filepath.Join(dir, keys.JoinTokenFile)
	for _, path := range []string{own, filepath.Join(from, keys.JoinTokenFile)} {
		if path == keys.JoinTokenFile { // no from
			continue
		}
		t, err := keys.ReadTokenFile(keys.JoinToken, path)
		if err == nil && t == a.JoinToken(t.ID) {
			return t, keys.WriteFile(own, []byte(t.Text()+"\n"), nil)
		}
	}
	t := a.JoinToken(keys.NewToken(keys.JoinToken, keys.Hash{}).ID)
	return t, keys.WriteFile(own, []byte(t.Text()+"\n"), nil)
}

// certifySelf signs this node's certificate with the cluster's own keys.
func (k *Keys) certifySelf() error {
	a := k.ring.Authority()
	if id := k.o.Dir.ClusterID; id != "" && id != a.Cluster() {
		return errOtherCluster(k.o.Dir, a, id)
	}
	host, _, err := net.SplitHostPort(k.o.Advertise)
	if err != nil {
		return err
	}
	return k.ring.Certify(keys.Identity{Cluster: a.Cluster(), Node: k.o.Dir.NodeID, Instance: k.o.Dir.Instance,
		Voter: keys.FirstVoter}, host, k.o.Now())
}

func errIsSecure(path string) error {
	return fmt.Errorf("the cluster of data directory %s is secure: start the node with --secure and without "+
		"--insecure", path)
}

func errOtherCluster(d *datadir.Dir, a *keys.Authority, id string) error {
	return fmt.Errorf("the keys in %s belong to cluster %s, and the data directory to cluster %s: make keys for it "+
		"with `carillon cluster init --data-dir %s`", d.File(keys.Dir), a.Cluster(), id, d.Path)
}

func errLostKey(d *datadir.Dir) error {
	return fmt.Errorf("data directory %s has lost its key (%s): put the file back, or remove the node from the "+
		"cluster, empty the directory and let it rejoin; if all nodes have lost theirs, restore a backup, or run "+
		"`carillon cluster recover --data-dir %s --peers %s=HOST:PORT` on one of them", d.Path,
		filepath.Join(keys.Dir, keys.NodeFile), d.Path, d.NodeID)
}

// CheckMode holds how the node was started against what the cluster committed.
func (k *Keys) CheckMode(info store.Info) error {
	ca := info.Security.CA
	switch {
	case k.ring == nil && ca != "":
		return errIsSecure(k.o.Dir.Path)
	case k.ring == nil || info.ClusterID == "":
		return nil
	case ca != "" && !k.knows(ca) && !info.Security.Knows(k.ring.CAHash().String()):
		return fmt.Errorf("the keys in %s belong to another cluster: put the right ones back, or empty the data "+
			"directory and let the node rejoin", k.o.Dir.File(keys.Dir))
	case ca != "":
		return nil
	}
	if a := k.ring.Authority(); a == nil {
		return errNotSecure(k.o.Dir)
	} else if a.Cluster() != info.ClusterID {
		return errOtherCluster(k.o.Dir, a, info.ClusterID)
	}
	return nil
}

// knows says whether the keys are those of the cluster that has, or had, a CA.
func (k *Keys) knows(ca string) bool {
	h, err := keys.ParseHash(ca)
	return err == nil && k.ring.Knows(h)
}

func errNotSecure(d *datadir.Dir) error {
	return fmt.Errorf("the cluster of data directory %s is not secure: start the node with --insecure (on a "+
		"loopback address it is enough to leave out --secure); or make the cluster secure: stop all nodes, run "+
		"`carillon cluster init --data-dir %s --out DIR`, and start every "+
		"node with --secure --keys-from DIR", d.Path, d.Path)
}
