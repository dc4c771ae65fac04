package membership

import (
	"context"
	"crypto"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// This file is how a secure cluster lets nodes in: by join tokens, and members by their certificates.

// Paths of what nodes with certificates ask each other.
const (
	KeysPath        = "/internal/v1/keys"        // GET: for a voter that lost them; POST: for one that is to vote
	CertificatePath = "/internal/v1/certificate" // POST: a node's certificate is renewed
	SelfPath        = "/internal/v1/self"        // POST: a leader has the next one remove or demote it
	AnnouncePath    = "/internal/v1/announce"    // POST: a member says what it is; of plain clusters too
)

const (
	// FirstUses and JoinTTL are of the token that a cluster begins with.
	FirstUses = 100
	JoinTTL   = time.Hour

	tendEvery = 5 * time.Second
	// completeTimeout bounds for how long a new leader asks for keys before it does anything else.
	completeTimeout = 3 * time.Second
	// MaxMessage is what is read of a message between members.
	MaxMessage = 64 << 10
)

// admission is why a secure cluster lets a new node in.
type admission struct {
	pub   crypto.PublicKey
	key   keys.Hash // of pub
	token string    // the id of its join token
	votes bool      // the token gives it a vote
	id    keys.Identity
	host  string
}

// ownKey is the hash of this node's key as rows have it.
func (m *Members) ownKey() string {
	if m.o.Keys == nil {
		return ""
	}
	key, err := m.o.Keys.Key()
	if err != nil {
		return ""
	}
	h, err := keys.KeyHash(key.Public())
	if err != nil {
		return ""
	}
	return h.String()
}

// authenticate says how a secure cluster knows a node that asks to be a member; nil: the cluster is plain. It comes
// before anything that the request could bring about, a call back included.
func (m *Members) authenticate(rq wire.JoinRequest) (*admission, error) {
	if m.o.Keys == nil {
		return nil, nil
	}
	if len(rq.CSR) == 0 || rq.JoinToken == "" {
		return nil, job.Errorf(job.CodeForbidden, "start it with --secure and --token; `carillon cluster token "+
			"create` makes a token", "the cluster is secure, and node %s has no join token", rq.NodeID)
	}
	by := &admission{token: rq.JoinToken}
	var err error
	if by.pub, err = keys.ParseRequest(rq.CSR); err == nil {
		by.key, err = keys.KeyHash(by.pub)
	}
	if err != nil {
		return nil, job.Invalid("csr", "", "%v", err)
	}
	made := m.o.Keys.JoinTokens(rq.JoinToken)
	if len(made) == 0 {
		return nil, errNoKeys
	}
	if m.rotation().Distrust {
		return nil, job.Errorf(job.CodeUnavailable, "try again when it is finished; `carillon status` shows it",
			"the CA of the cluster is being replaced because others may know its key, and no node can join meanwhile")
	}
	row, known := m.o.Store.Info().Security.Join(rq.JoinToken)
	remedy := "`carillon cluster token create` makes a new one"
	switch {
	case !known:
		return nil, job.Errorf(job.CodeForbidden, remedy, "this cluster has no join token %q", rq.JoinToken)
	case !slices.ContainsFunc(made, func(t keys.Token) bool {
		return t.Proves(rq.Proof, by.key, rq.NodeID, rq.InstanceID)
	}):
		return nil, job.Errorf(job.CodeForbidden, remedy, "the secret of the join token %s is wrong", rq.JoinToken)
	}
	if old, ok := m.Row(rq.NodeID); !ok || old.Removed || old.Instance != rq.InstanceID || old.Key != by.key.String() {
		if why := row.Ended(m.now()); why != "" {
			return nil, job.Errorf(job.CodeForbidden, remedy, "the join token %s %s", rq.JoinToken, why)
		}
	}
	by.votes = row.Voter
	id := m.Cluster().ID
	by.id = keys.Identity{Cluster: id, Node: rq.NodeID, Instance: rq.InstanceID}
	by.host = hostOf(rq.Address)
	return by, nil
}

var errNoKeys = job.Errorf(job.CodeUnavailable, "try again; put "+keys.ClusterFile+
	" back on one voter if all have lost it",
	"the leader has lost the keys of the cluster and asks the other voters for them")

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	return host
}

// certified is the answer to a node that is a member now, with its certificate if it has none.
func (m *Members) certified(by *admission, row store.Node) (wire.JoinReply, error) {
	c := m.Cluster()
	r := wire.JoinReply{ClusterID: c.ID, Epoch: c.Epoch, Recovery: c.Recovery, Leader: m.id(), Index: row.Index}
	if by == nil {
		return r, nil
	}
	m.followCA()
	a := m.o.Keys.Signer()
	if a == nil {
		return r, errNoKeys
	}
	by.id.Joined = row.Index
	der, err := a.Certify(by.pub, by.id, by.host, m.o.Clock.Now())
	if err != nil {
		return r, job.Invalid("csr", "", "%v", err)
	}
	is := m.o.Keys.Issued(der, a)
	r.Certificate, r.CA, r.Chain, r.Trusted = is.Leaf, is.CA, is.Chain, is.Trusted
	return r, nil
}

// enrolled keeps the certificate that a leader signed for this node.
func (m *Members) enrolled(r wire.JoinReply) error {
	is := keys.Issued{Leaf: r.Certificate, CA: r.CA, Chain: r.Chain, Trusted: r.Trusted}
	if err := m.o.Keys.Install(is); err != nil {
		return fmt.Errorf("the certificate that the leader gave cannot be used: %w", err)
	}
	if id, _ := m.o.Keys.Identity(); id.Node != m.id() || id.Instance != m.o.Instance || id.Cluster != r.ClusterID {
		return fmt.Errorf("the leader gave a certificate for node %q of cluster %q", id.Node, id.Cluster)
	}
	return nil
}

// probeKey asks a node that has no certificate yet who it is. It must have the key that it asked to join with.
func (m *Members) probeKey(ctx context.Context, addr string, key keys.Hash) (probeReply, error) {
	t := httpClient(transport.KeyDial(m.o.Keys, m.o.Raw(whoTimeout, 0), key)).Transport.(*http.Transport)
	t.DisableKeepAlives = true
	return m.probeBy(ctx, t, addr+PeerPath+m.query(), 0, nil)
}

// probeInstance asks a member who it is. It must have the certificate of its data directory, and the key that it joined
// with; "": that is not known yet.
func (m *Members) probeInstance(ctx context.Context, addr, node, instance, key string) (probeReply, error) {
	dial := transport.InstanceDial(m.o.Keys, m.o.Raw(whoTimeout, 0), node, instance, key)
	t := httpClient(dial).Transport.(*http.Transport)
	t.DisableKeepAlives = true
	return m.probeBy(ctx, t, addr+PeerPath+m.query(), 0, nil)
}

// joinClient is how a node asks to be a member.
func (m *Members) joinClient(addr string) *client.Client {
	if m.o.Keys == nil {
		return m.client(addr)
	}
	return client.New(addr, client.WithHTTPClient(m.enroll), client.WithAttempts(1), client.WithStale(),
		client.WithUserAgent("carillon-node/"+m.o.Version))
}

// Belongs says whether the node behind a connection is a member, as far as this node knows, or was removed.
func (m *Members) Belongs(p keys.Peer) bool {
	r, ok := m.Row(p.Node)
	switch {
	case m.vouched(p) != nil:
		return false
	case !ok || r.Instance != p.Instance && p.Joined > r.Index:
		return true
	case r.Instance != p.Instance:
		return false
	}
	return !r.Removed
}

// makeSecure commits that the cluster is a secure one. The first leader with keys does it, once.
func (m *Members) makeSecure(prop forward.Proposer, term uint64) error {
	if m.o.Keys == nil || m.o.Store.Info().Security.CA != "" {
		return nil
	}
	cmd := &fsm.MakeSecure{Head: m.headBeforeStamp(term), CA: m.o.Keys.CAHash().String()}
	if t := m.o.First; t.ID != "" {
		sum := t.Sum()
		cmd.Join = store.JoinToken{ID: t.ID, Sum: sum[:], Uses: FirstUses, Voter: true,
			ExpiresAt: max(cmd.Now, m.now()) + JoinTTL.Milliseconds()}
	}
	reply, err := prop.Propose(cmd).Wait()
	if err != nil {
		return fmt.Errorf("make the cluster secure: %w", err)
	}
	if o := reply.Items[0]; o.Code != fsm.CodeOK {
		return fmt.Errorf("make the cluster secure: %s", o.Text)
	}
	return nil
}
