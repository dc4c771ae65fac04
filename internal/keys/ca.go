package keys

import (
	"crypto"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	nodeLife = 14 * 24 * time.Hour
	// early is how far before its signer's clock a certificate begins: clients' clocks differ.
	early = time.Hour

	clusterKeyBytes = 32
)

// Authority is what makes a node able to lead a secure cluster: the CA with its key, and the cluster key. Voters have
// it, and no other node.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey // nil: of a former CA, which signs nothing any more
	// secret is the cluster key. What is derived from it is the same on every voter, and is never stored.
	secret []byte

	sealOnce sync.Once
	aead     cipher.AEAD // seals with a key that is derived from secret
	sealID   []byte
	// distrusted: it may be known to others, and only opens what was sealed with it.
	distrusted bool
}

// NewAuthority makes the CA and the key of a cluster.
func NewAuthority(cluster string, now time.Time) (*Authority, error) {
	if err := checkCluster(cluster); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: newSerial(),
		// A name of its own: verifiers that go by names must not take one CA of a cluster for another.
		Subject:   pkix.Name{CommonName: "carillon cluster " + cluster + " CA " + rand.Text()[:8]},
		NotBefore: now.Add(-early), NotAfter: now.Add(caLife),
		// As many links as there may be CAs that followed each other: see Cross.
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLen: MaxFormer + 1,
		URIs: []*url.URL{{Scheme: scheme, Host: cluster}},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &Authority{Cert: cert, key: key, secret: make([]byte, clusterKeyBytes)}
	rand.Read(a.secret) //nolint:errcheck // crypto/rand ends the process rather than fail
	return a, nil
}

func newSerial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand ends the process rather than fail
	}
	return n.Add(n, big.NewInt(1))
}

// HashOf is by which a CA is known.
func HashOf(ca *x509.Certificate) Hash { return sha256.Sum256(ca.Raw) }

// ClusterOf is the id of the cluster that a certificate is the CA of.
func ClusterOf(ca *x509.Certificate) (string, error) {
	id, err := clusterCA(ca)
	if err != nil {
		return "", err
	}
	return id, ca.CheckSignatureFrom(ca)
}

// clusterCA is ClusterOf for a certificate that another CA may have signed.
func clusterCA(ca *x509.Certificate) (string, error) {
	if !ca.IsCA || !ca.BasicConstraintsValid || len(ca.URIs) != 1 || ca.URIs[0].Scheme != scheme ||
		ca.URIs[0].Path != "" {
		return "", errors.New("the certificate is not that of a cluster's CA")
	}
	id := ca.URIs[0].Host
	return id, checkCluster(id)
}

// Cluster is the id of the authority's cluster.
func (a *Authority) Cluster() string {
	id, _ := ClusterOf(a.Cert) //nolint:errcheck // it was checked when it was made or read
	return id
}

// Certify signs a node's certificate, in DER. host is where clients reach it.
func (a *Authority) Certify(pub crypto.PublicKey, id Identity, host string, now time.Time) ([]byte, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	if own := a.Cluster(); id.Cluster != own {
		return nil, fmt.Errorf("the CA is that of cluster %s and cannot sign for cluster %s", own, id.Cluster)
	}
	if a.key == nil {
		return nil, errors.New("the CA was replaced and signs nothing any more")
	}
	if err := checkPublic(pub); err != nil {
		return nil, err
	}
	uri, err := url.Parse(id.URI())
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: newSerial(),
		Subject:      pkix.Name{CommonName: "carillon node"},
		NotBefore:    now.Add(-early), NotAfter: now.Add(nodeLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{uri},
		DNSNames:              []string{id.DNSName(), "localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback},
	}
	if ip := net.ParseIP(host); ip != nil {
		tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
	} else if host != "" && !slices.Contains(tmpl.DNSNames, host) && isName(host) {
		tmpl.DNSNames = append(tmpl.DNSNames, host)
	}
	return x509.CreateCertificate(rand.Reader, tmpl, a.Cert, pub, a.key)
}

// Cross is the certificate of another CA of the same cluster, signed by this one, in DER: who trusts this CA finds by
// it that the other one followed it.
func (a *Authority) Cross(next *x509.Certificate) ([]byte, error) {
	cluster, err := ClusterOf(next)
	switch {
	case err != nil:
		return nil, err
	case a.key == nil || cluster != a.Cluster():
		return nil, errors.New("the CA is that of another cluster, or was replaced")
	}
	return a.cross(next)
}

func (a *Authority) cross(next *x509.Certificate) ([]byte, error) {
	if a.key == nil {
		return nil, errors.New("the CA was replaced and signs nothing any more")
	}
	tmpl := &x509.Certificate{
		SerialNumber: newSerial(), Subject: next.Subject, NotBefore: next.NotBefore, NotAfter: next.NotAfter,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLen: MaxFormer,
		URIs: next.URIs, SubjectKeyId: next.SubjectKeyId,
	}
	return x509.CreateCertificate(rand.Reader, tmpl, a.Cert, next.PublicKey, a.key)
}

// isName says whether x509 takes a text for the name of a host.
func isName(s string) bool {
	for _, r := range s {
		if !(r == '-' || r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return false
		}
	}
	return len(s) <= 253
}

// checkPublic: one kind of key, so that a peer cannot choose one that costs a lot to verify.
func checkPublic(pub crypto.PublicKey) error {
	if k, ok := pub.(*ecdsa.PublicKey); !ok || k.Curve != elliptic.P256() {
		return errors.New("the key of a node must be ECDSA P-256")
	}
	return nil
}

// KeyHash is by which a node's key is known in its row.
func KeyHash(pub crypto.PublicKey) (Hash, error) {
	if err := checkPublic(pub); err != nil {
		return Hash{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(pub)
	return sha256.Sum256(der), err
}

// NewRequest is a request for a certificate, in DER: it proves that the sender has the key.
func NewRequest(key crypto.Signer) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

// maxRequest bounds a request for a certificate: those of nodes have about 200 bytes.
const maxRequest = 2048

// ParseRequest reads a request. Only its key counts: who its owner is, the signer knows better.
// Strangers send them: what is not a key of ours is not verified, which takes minutes for an RSA key of their choice.
func ParseRequest(der []byte) (crypto.PublicKey, error) {
	if len(der) > maxRequest {
		return nil, fmt.Errorf("the certificate request has %d bytes, and one of a node has %d at most", len(der),
			maxRequest)
	}
	rq, err := x509.ParseCertificateRequest(der)
	if err == nil {
		err = checkPublic(rq.PublicKey)
	}
	if err == nil {
		err = rq.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("the certificate request is damaged: %w", err)
	}
	return rq.PublicKey, nil
}

// Derive is a secret of 32 bytes for one use, the same on every voter.
func (a *Authority) Derive(use string) []byte {
	b, err := hkdf.Key(sha256.New, a.secret, nil, "carillon "+use, sha256.Size)
	if err != nil {
		panic(err) // the length is a constant
	}
	return b
}

// JoinToken is the join token of an id. Its secret is derived and stored nowhere: a state or a backup that is read by a
// stranger lets him prove nothing.
func (a *Authority) JoinToken(id string) Token {
	return Token{Kind: JoinToken, CA: HashOf(a.Cert), ID: id, secret: [secretBytes]byte(a.Derive("join token " + id))}
}

// Proof shows that a node that asks to join has the token, and says for which node: what is overheard or passed on lets
// no other one in.
func (t Token) Proof(key Hash, node, instance string) []byte {
	m := hmac.New(sha256.New, t.secret[:])
	m.Write([]byte("carillon join\x00"))
	m.Write(t.CA[:])
	m.Write(key[:])
	for _, s := range []string{t.ID, node, instance} {
		m.Write([]byte{byte(len(s) >> 8), byte(len(s))})
		m.Write([]byte(s))
	}
	return m.Sum(nil)
}

// Proves says whether a proof was made with the token.
func (t Token) Proves(proof []byte, key Hash, node, instance string) bool {
	return hmac.Equal(proof, t.Proof(key, node, instance))
}

// Shows is the proof that a node has the cluster key, for one question.
func (a *Authority) Shows(nonce []byte, node, instance string) []byte {
	m := hmac.New(sha256.New, a.Derive("possession"))
	ca := HashOf(a.Cert)
	m.Write(ca[:])
	for _, s := range [][]byte{nonce, []byte(node), []byte(instance)} {
		m.Write([]byte{byte(len(s) >> 8), byte(len(s))})
		m.Write(s)
	}
	return m.Sum(nil)
}
