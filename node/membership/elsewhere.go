package membership

import (
	"context"
	"crypto/tls"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// CheckJoin refuses the start of a node with --join whose data directory is all that there is of a cluster of its own:
// it would go on with that one, and be taken for a member of the other.
//
// Only what answers there counts. A node of a cluster with further members is not refused: that cluster must not stop
// because an address in a unit file has become that of another one.
func (m *Members) CheckJoin(ctx context.Context) error {
	own := m.Cluster().ID
	rows, err := m.Rows()
	if err != nil || own == "" || len(rows) != 1 || rows[m.id()].Instance != m.o.Instance {
		return err
	}
	for _, addr := range m.o.Join {
		if addr == m.o.Listen || addr == m.address() {
			continue
		}
		other := ""
		switch seen, err := m.Probe(ctx, addr); {
		case err == nil && seen.ClusterID != "" && seen.ClusterID != own:
			other = "cluster " + seen.ClusterID
		case err != nil && m.ofTheToken(ctx, addr):
			other = "the cluster that the join token is for"
		default:
			continue
		}
		return job.Invalid("--join", "empty the data directory, which discards what is in it, and let the node "+
			"join; or leave out --join to continue with the cluster in it",
			"the node at %s belongs to %s, but the data directory has a cluster of its own, %s", addr, other, own)
	}
	return nil
}

// ofTheToken says that a node answers at an address which is of the cluster that this node's join token is for, and
// that this is not the one it belongs to.
func (m *Members) ofTheToken(ctx context.Context, addr string) bool {
	ca := m.o.Token.CA
	if m.o.Keys == nil || ca == (keys.Hash{}) || m.o.Keys.Trusts(ca) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, whoTimeout)
	defer cancel()
	c, err := m.o.Raw(whoTimeout, 0)(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	cfg := keys.ClientConfig(ca)
	cfg.NextProtos = []string{"http/1.1"}
	return tls.Client(c, cfg).HandshakeContext(ctx) == nil
}
