package keys

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// VerifyNode says whose certificate a peer has shown, if the CA signed it for a node of its cluster.
//
// Dates do not count between nodes: a cluster that was off for a year, or whose clocks are wrong, must form again, and
// who may not take part is said by the rows of the members. So the chain, which has a link for every CA that followed
// the one that is trusted, is checked here and not by x509.Verify.
func VerifyNode(certs []*x509.Certificate, ca *x509.Certificate) (Identity, error) {
	if len(certs) == 0 {
		return Identity{}, errors.New("no certificate was shown")
	}
	leaf := certs[0]
	cluster, err := ClusterOf(ca)
	if err != nil {
		return Identity{}, err
	}
	by, err := vouched(leaf, certs[1:], ca)
	if err != nil {
		return Identity{}, fmt.Errorf("the certificate is not signed by the CA of cluster %s: %w", cluster, err)
	}
	if cluster, err = clusterCA(by); err != nil {
		return Identity{}, err
	}
	return nodeOf(leaf, cluster)
}

// vouched is the CA that signed a certificate: one that is trusted, or one that it vouches for, as certificates say
// that were shown. That may be the CA of another cluster: of one that was restored from a backup of the first.
func vouched(cert *x509.Certificate, shown []*x509.Certificate, ca *x509.Certificate) (*x509.Certificate, error) {
	if _, err := ClusterOf(ca); err != nil {
		return nil, err
	}
	if len(shown) > maxShown {
		return nil, fmt.Errorf("%d certificates were shown, and %d at most are looked at", len(shown), maxShown)
	}
	trusted := []*x509.Certificate{ca}
	for i := 0; i < len(trusted); i++ {
		by := trusted[i]
		if err := cert.CheckSignatureFrom(by); err == nil {
			return by, nil
		}
		for _, c := range shown {
			if !bytes.Equal(c.RawIssuer, by.RawSubject) || slices.ContainsFunc(trusted, c.Equal) {
				continue
			}
			if _, err := clusterCA(c); err == nil && c.CheckSignatureFrom(by) == nil {
				trusted = append(trusted, c)
			}
		}
	}
	return nil, cert.CheckSignatureFrom(ca)
}

// nodeOf is the node of a cluster that a certificate is for. Its signature was looked at before.
func nodeOf(leaf *x509.Certificate, cluster string) (Identity, error) {
	switch {
	case leaf.IsCA || !leaf.BasicConstraintsValid || len(leaf.UnhandledCriticalExtensions) > 0 ||
		!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) ||
		!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth):
		return Identity{}, errors.New("the certificate is not that of a node")
	case len(leaf.URIs) != 1:
		return Identity{}, errors.New("the certificate names no node")
	}
	if err := checkPublic(leaf.PublicKey); err != nil {
		return Identity{}, err
	}
	id, err := ParseURI(leaf.URIs[0].String())
	switch {
	case err != nil:
		return Identity{}, fmt.Errorf("the certificate names no node: %w", err)
	case id.Cluster != cluster:
		return Identity{}, fmt.Errorf("the certificate is for a node of cluster %s, not of %s", id.Cluster, cluster)
	case !slices.Contains(leaf.DNSNames, id.DNSName()):
		return Identity{}, errors.New("the certificate lacks the name of its node")
	}
	return id, nil
}

// OtherCAError says that a node showed CAs, and not the one that the cluster is known by.
type OtherCAError struct{}

func (OtherCAError) Error() string {
	return "its certificate is not from the CA that the token names: another cluster answers there, or something in " +
		"between, or the cluster has replaced its CA and no longer remembers that one"
}

// FindCA is the certificate with a hash among those that a peer has shown.
func FindCA(certs []*x509.Certificate, pin Hash) (*x509.Certificate, error) {
	member := false
	for _, c := range certs {
		if pin != (Hash{}) && HashOf(c) == pin {
			_, err := ClusterOf(c)
			return c, err
		}
		if _, err := clusterCA(c); err == nil {
			member = true
		}
	}
	if !member { // such a node shows a key that no CA has signed
		return nil, errors.New("it has no certificate of a cluster: it has not joined one yet, or is not a Carillon " +
			"node")
	}
	return nil, OtherCAError{}
}

// WholeRecords says that TLS uses records as large as they may be. By default a connection that was quiet for a second
// begins with records of one packet, each with a system call at both ends, so that a browser sees the first bytes
// early. Here what is sent is read as a whole, and much of it comes after a quiet second: what is due then.
const WholeRecords = true

// ClientConfig is how clients that are no nodes talk to a secure cluster whose CA is known by its hash: what answers is
// a node of that cluster. The host does not count, because nodes move; the dates do, by the client's clock.
func ClientConfig(pin Hash) *tls.Config {
	return &tls.Config{
		DynamicRecordSizingDisabled: WholeRecords, MinVersion: tls.VersionTLS13, ServerName: ServerName,
		InsecureSkipVerify: true, // VerifyConnection looks at more than a name
		VerifyConnection: func(cs tls.ConnectionState) error {
			ca, err := FindCA(cs.PeerCertificates, pin)
			if err != nil {
				return err
			}
			if _, err := VerifyNode(cs.PeerCertificates, ca); err != nil {
				return err
			}
			return checkDates(cs.PeerCertificates[0], time.Now())
		},
	}
}

func checkDates(leaf *x509.Certificate, now time.Time) error {
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the node's certificate expired at %s: nodes renew theirs while there is a leader; "+
			"compare this machine's clock with the node's", leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the node's certificate is not valid before %s: compare this machine's clock with the node's",
			leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// ReadCAFile is the hash of the CA whose certificate a file holds.
func ReadCAFile(flag, path string) (Hash, error) {
	data, err := readLimited(path)
	if err != nil {
		return Hash{}, job.Invalid(flag, "give the ca.pem of a node's keys directory", "%v", err)
	}
	ca, err := parseCA(data)
	if err != nil {
		return Hash{}, job.Invalid(flag, "give the ca.pem of a node's keys directory", "%s: %v", path, err)
	}
	return HashOf(ca), nil
}

type peerContext struct{}

// Peer is a node as it showed itself on a connection.
type Peer struct {
	Identity
	Key Hash // of the key that it proved to have
	CA  Hash // of the CA that vouches for it; zero: it is known by its key
}

// WithPeer is a context of what a node asks for.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerContext{}, p)
}

// WithoutPeer is a context of what a node passes on for another caller: its certificate does not stand behind it.
func WithoutPeer(ctx context.Context) context.Context {
	return context.WithValue(ctx, peerContext{}, nil)
}

// PeerOf is the node whose verified certificate stands behind a request; false: there is none, as with any request to
// a cluster without TLS.
func PeerOf(ctx context.Context) (Peer, bool) {
	p, ok := ctx.Value(peerContext{}).(Peer)
	return p, ok
}

// Explain turns the error of a TLS handshake into what a user can do about it.
func Explain(err error) error {
	var rec tls.RecordHeaderError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rec):
		return fmt.Errorf("it does not speak TLS: the cluster there is not secure: %w", err)
	case strings.Contains(err.Error(), "tls: no application protocol"):
		return fmt.Errorf("it speaks TLS, but is not a Carillon node: %w", err)
	}
	return err
}
