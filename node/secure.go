package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// KeysConfig is about the keys of a secure cluster.
type KeysConfig struct {
	On bool // the cluster is secure: TLS, and certificates between nodes
	// From is a directory with the keys that `carillon cluster init` made. They are copied into the data directory.
	From string
	// Token is what a new node joins with.
	Token keys.Token
}

// openKeys opens the keys of a secure cluster, and makes those of one that begins. It comes before the directory is
// claimed: keys that a crash leaves behind are found by the next start. A plain node has none.
func (n *Node) openKeys() error {
	c, d := &n.cfg, n.dir
	if !c.Keys.On {
		if d.CA != "" {
			return errIsSecure(d.Path)
		}
		return nil
	}
	ring, err := keys.OpenRing(d.File(keys.Dir), c.Machine.KeyStep)
	if err != nil {
		return err
	}
	n.keys = ring
	if err := n.takeAuthority(); err != nil {
		return err
	}
	switch id, has := ring.Identity(); {
	case has && d.CA != "" && ring.CAHash().String() != d.CA:
		return fmt.Errorf("the keys in %s are those of another cluster: put back the ones that belong here, or empty "+
			"the data directory and let the node join again", d.File(keys.Dir))
	case has && id.Node == d.NodeID && id.Instance == d.Instance:
	case ring.Authority() != nil: // it begins a cluster, or makes a plain one secure
		return n.certifySelf()
	case has:
		return fmt.Errorf("the certificate in %s is that of node %s with another data directory: remove the directory "+
			"%s, and let the node join", d.File(keys.Dir), id.Node, keys.Dir)
	case d.CA != "":
		return errLostKey(d)
	case !d.Fresh && !ring.HasKey():
		return errNotSecure(d)
	}
	if _, has := ring.Identity(); !has {
		if c.Keys.Token.ID == "" {
			return job.Invalid("--token", "get one from a node of the cluster: carillon cluster token create",
				"a node joins a secure cluster with a join token")
		}
		ring.Pin(c.Keys.Token.CA)
		_, err = ring.Key()
	}
	return err
}

// takeAuthority finds or makes the keys of the cluster, on a node that begins it or was given them.
func (n *Node) takeAuthority() error {
	c, d, ring := &n.cfg, n.dir, n.keys
	begins := len(c.Join) == 0 || d.ClusterID != "" && d.CA == "" // others get them when they vote
	if ring.Authority() == nil && c.Keys.From != "" && begins {
		a, err := keys.ReadAuthority(c.Keys.From)
		if err != nil {
			return job.Invalid("--keys-from", "give a directory that `carillon cluster init` wrote", "%v", err)
		}
		if err := ring.Keep(a); err != nil {
			return err
		}
	}
	if ring.Authority() == nil && d.Fresh && c.Bootstrap {
		a, err := keys.NewAuthority(strings.ToLower(rand.Text()), c.Clock.Now())
		if err != nil {
			return err
		}
		if err := ring.Keep(a); err != nil {
			return err
		}
	}
	if a := ring.Authority(); a != nil && c.Bootstrap && d.CA == "" {
		var err error
		if n.first, err = firstToken(a, c.Keys.From, d.Path); err != nil {
			return err
		}
	}
	return nil
}

// firstToken is the join token that a cluster begins with: the one that was made with the keys, or a new one. It is in
// the data directory before the cluster knows it, so that a crash leaves none that nobody knows.
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
func (n *Node) certifySelf() error {
	a := n.keys.Authority()
	if id := n.dir.ClusterID; id != "" && id != a.Cluster() {
		return errOtherCluster(n.dir, a, id)
	}
	host, _, err := net.SplitHostPort(n.advertise)
	if err != nil {
		return err
	}
	return n.keys.Certify(keys.Identity{Cluster: a.Cluster(), Node: n.dir.NodeID, Instance: n.dir.Instance}, host,
		n.cfg.Clock.Now())
}

func errIsSecure(path string) error {
	return fmt.Errorf("the cluster of data directory %s is secure: start the node with --secure", path)
}

func errOtherCluster(d *datadir.Dir, a *keys.Authority, id string) error {
	return fmt.Errorf("the keys in %s are those of cluster %s, and the data directory belongs to cluster %s: make "+
		"keys for it with `carillon cluster init --data-dir %s`", d.File(keys.Dir), a.Cluster(), id, d.Path)
}

func errLostKey(d *datadir.Dir) error {
	return fmt.Errorf("data directory %s has lost its key (%s): put the file back, or remove the node from the "+
		"cluster, empty the directory and let it join again", d.Path, filepath.Join(keys.Dir, keys.NodeFile))
}

// checkMode holds how the node was started against what the cluster committed.
func (n *Node) checkMode(info store.Info) error {
	ca := info.Security.CA
	switch {
	case n.keys == nil && ca != "":
		return errIsSecure(n.dir.Path)
	case n.keys == nil || info.ClusterID == "":
		return nil
	case ca != "" && n.keys.CAHash().String() != ca:
		return fmt.Errorf("the keys in %s are those of another cluster: put back the ones that belong here, or empty "+
			"the data directory and let the node join again", n.dir.File(keys.Dir))
	case ca != "":
		return nil
	}
	if a := n.keys.Authority(); a == nil {
		return errNotSecure(n.dir)
	} else if a.Cluster() != info.ClusterID {
		return errOtherCluster(n.dir, a, info.ClusterID)
	}
	return nil
}

func errNotSecure(d *datadir.Dir) error {
	return fmt.Errorf("the cluster of data directory %s is not secure: start the node without --secure; or make "+
		"the cluster secure: stop all nodes, run `carillon cluster init --data-dir %s --out DIR`, and start every "+
		"node with --secure --keys-from DIR", d.Path, d.Path)
}

// dialer is how HTTP gets to other nodes: with this node's certificate, if it has one.
func (n *Node) dialer(timeout, keepAlive time.Duration) func(context.Context, string, string) (net.Conn, error) {
	dial := n.cfg.Machine.Dialer(timeout, keepAlive)
	if n.keys == nil {
		return dial
	}
	return transport.NodeDial(n.keys, dial, nil)
}

// workerDial is how the local worker gets to the leader; nil: by TCP.
func (n *Node) workerDial() func(context.Context, string, string) (net.Conn, error) {
	if n.keys == nil {
		return n.cfg.Machine.Dial
	}
	return n.dialer(workerDialTimeout, workerKeepAlive)
}

const (
	workerDialTimeout = time.Second
	workerKeepAlive   = 15 * time.Second
)

// connContext says whose connection a request came in by.
func (n *Node) connContext(ctx context.Context, c net.Conn) context.Context {
	if f := n.cfg.Machine.Accepted; f != nil {
		ctx = f(ctx, c)
	}
	return transport.ConnContext(ctx, c)
}

// membersOnly refuses, on a secure cluster, what is not for strangers and not for nodes that were removed. Those may
// still hear that they were, and their workers hand in what they have.
func (n *Node) membersOnly(next http.Handler) http.Handler {
	if n.keys == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := keys.PeerOf(r.Context())
		switch {
		case !ok && strings.HasPrefix(r.URL.Path, "/internal/"):
			api.WriteError(w, job.Errorf(job.CodeForbidden, "",
				"this is for nodes of the cluster, which show a certificate"))
		case ok && !n.members.Belongs(p) && !leaving[r.URL.Path]:
			api.WriteError(w, job.Errorf(job.CodeForbidden,
				"stop it; to bring it back, empty its data directory and start it with --join",
				"node %s was removed from the cluster", p.Node))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// leaving is what a node that was removed may still ask for.
var leaving = map[string]bool{
	"/api/v1/cluster:join":      true,
	"/api/v1/workers:register":  true,
	"/api/v1/workers:heartbeat": true,
	"/api/v1/workers:report":    true,
	"/api/v1/workers:output":    true,
}

// recheck cuts off nodes that were removed, as soon as this node knows it.
func (n *Node) recheck(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.rowsChanged:
			n.layer.Recheck()
		}
	}
}

// rowsMayHaveChanged hears of each commit.
func (n *Node) rowsMayHaveChanged(c *store.Changes) {
	if c.Nodes || c.Reset {
		select {
		case n.rowsChanged <- struct{}{}:
		default:
		}
	}
}

// JoinToken is the join token that the cluster began with, if this node began it and the file is still there.
func (n *Node) JoinToken() (keys.Token, bool) {
	t, err := keys.ReadTokenFile(keys.JoinToken, n.dir.File(keys.JoinTokenFile))
	if errors.Is(err, fs.ErrNotExist) || err != nil {
		return keys.Token{}, false
	}
	return t, n.keys != nil
}
