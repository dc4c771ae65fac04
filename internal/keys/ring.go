package keys

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
)

// Ring holds a node's keys, in its data directory and in memory. It is safe for concurrent use; what is changed in it
// counts for the connections that are made afterwards.
type Ring struct {
	dir  string
	step faultpoint.Step

	writing sync.Mutex // one change of the files at a time

	mu        sync.Mutex
	key       *ecdsa.PrivateKey // nil: none was made yet
	leaf, ca  *x509.Certificate // nil: it has not joined
	id        Identity          // that of leaf
	shown     *tls.Certificate  // what it shows to others
	pin       Hash              // of the CA, before there is one
	authority *Authority        // nil: it does not vote, or lost it
}

// OpenRing reads the keys directory dir, which need not exist.
func OpenRing(dir string, step faultpoint.Step) (*Ring, error) {
	r := &Ring{dir: dir, step: step}
	data, err := readLimited(r.file(NodeFile))
	switch {
	case err == nil:
		if err := r.adopt(data); err != nil {
			return nil, fmt.Errorf("%s is damaged (%w): put the file back from a copy of the directory, or remove the "+
				"node from the cluster, empty its data directory and let it join again", r.file(NodeFile), err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	switch a, err := ReadAuthority(dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case r.ca != nil && HashOf(r.ca) != HashOf(a.Cert):
		return nil, fmt.Errorf("%s is of cluster %s, and the certificate in %s is from another CA: put back the one "+
			"that belongs here, or remove it and let the node fetch it again", r.file(ClusterFile), a.Cluster(),
			NodeFile)
	default:
		r.authority = a
	}
	return r, nil
}

func (r *Ring) file(name string) string { return filepath.Join(r.dir, name) }

// adopt reads the file of a node.
func (r *Ring) adopt(data []byte) error {
	b, err := blocks(data)
	if err != nil {
		return err
	}
	if len(b[blockKey]) != 1 || len(b[blockCert]) != 0 && len(b[blockCert]) != 2 {
		return errors.New("it must hold a private key, and the certificates of node and CA or none")
	}
	key, err := parseKey(b[blockKey][0])
	if err != nil {
		return err
	}
	var leaf, ca *x509.Certificate
	if len(b[blockCert]) == 2 {
		if leaf, err = x509.ParseCertificate(b[blockCert][0]); err != nil {
			return err
		}
		if ca, err = x509.ParseCertificate(b[blockCert][1]); err != nil {
			return err
		}
	}
	return r.take(key, leaf, ca)
}

// take makes keys the ones that count, if they fit together.
func (r *Ring) take(key *ecdsa.PrivateKey, leaf, ca *x509.Certificate) error {
	shown := &tls.Certificate{PrivateKey: key}
	var id Identity
	if leaf == nil {
		der, err := selfSigned(key)
		if err != nil {
			return err
		}
		shown.Certificate = [][]byte{der}
	} else {
		var err error
		if id, err = VerifyNode([]*x509.Certificate{leaf}, ca); err != nil {
			return err
		}
		if !key.PublicKey.Equal(leaf.PublicKey) {
			return errors.New("the certificate is for another key")
		}
		// With the CA: who knows only its hash finds it here.
		shown.Certificate, shown.Leaf = [][]byte{leaf.Raw, ca.Raw}, leaf
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.key, r.leaf, r.ca, r.id, r.shown = key, leaf, ca, id, shown
	return nil
}

// selfSigned is what a node shows before it has a certificate: the leader that it asks to join calls back and
// recognises the key.
func selfSigned(key *ecdsa.PrivateKey) ([]byte, error) {
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "carillon joining"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
	return x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
}

// write puts the node's file in place.
func (r *Ring) write(key *ecdsa.PrivateKey, leaf, ca *x509.Certificate) error {
	if err := makeDir(r.dir); err != nil {
		return err
	}
	data, err := encodeKey(key)
	if err != nil {
		return err
	}
	if leaf != nil {
		data = bytes.Join([][]byte{data, encode(blockCert, leaf.Raw), encode(blockCert, ca.Raw)}, nil)
	}
	if err := WriteFile(r.file(NodeFile), data, r.step); err != nil {
		return err
	}
	if ca == nil {
		return nil
	}
	text := encode(blockCert, ca.Raw)
	if have, err := readLimited(r.file(CAFile)); err == nil && bytes.Equal(have, text) {
		return nil
	}
	return WriteFile(r.file(CAFile), text, r.step)
}

// Key is the node's key, which is made and written down if there is none: a join that is repeated after a crash is
// recognised by it.
func (r *Ring) Key() (crypto.Signer, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	key := r.key
	r.mu.Unlock()
	if key != nil {
		return key, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if err := r.write(key, nil, nil); err != nil {
		return nil, err
	}
	return key, r.take(key, nil, nil)
}

// HasKey says whether the node has a key already.
func (r *Ring) HasKey() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.key != nil
}

// Install replaces the node's certificate, in DER, by one for the same key.
func (r *Ring) Install(leafDER, caDER []byte) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	leaf, err := x509.ParseCertificate(leafDER)
	if err != nil {
		return err
	}
	ca, err := x509.ParseCertificate(caDER)
	if err != nil {
		return err
	}
	r.mu.Lock()
	key, have, pin := r.key, r.ca, r.pin
	r.mu.Unlock()
	switch {
	case key == nil:
		return errors.New("there is no key that the certificate could be for")
	case have != nil && HashOf(have) != HashOf(ca), have == nil && HashOf(ca) != pin:
		return errors.New("the certificate is from another CA than that of the cluster")
	case !key.PublicKey.Equal(leaf.PublicKey):
		return errors.New("the certificate is for another key")
	}
	if _, err := VerifyNode([]*x509.Certificate{leaf}, ca); err != nil {
		return err
	}
	if err := r.write(key, leaf, ca); err != nil {
		return err
	}
	return r.take(key, leaf, ca)
}

// Certify has the ring's own authority sign its certificate: that of the node which begins a cluster, or leads it.
func (r *Ring) Certify(id Identity, host string, now time.Time) error {
	a := r.Authority()
	if a == nil {
		return errors.New("this node has no CA")
	}
	key, err := r.Key()
	if err != nil {
		return err
	}
	der, err := a.Certify(key.Public(), id, host, now)
	if err != nil {
		return err
	}
	r.Pin(HashOf(a.Cert))
	return r.Install(der, a.Cert.Raw)
}

// Keep writes the authority down that was handed to this node.
func (r *Ring) Keep(a *Authority) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	if ca := r.CA(); ca != nil && HashOf(ca) != HashOf(a.Cert) {
		return errors.New("the keys are those of another cluster")
	}
	if err := a.Write(r.dir, r.step); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.authority = a
	return nil
}

// Pin says which CA to trust before there is its certificate.
func (r *Ring) Pin(h Hash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pin = h
}

// CA is the CA's certificate, nil before the node has joined.
func (r *Ring) CA() *x509.Certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ca
}

// CAHash is the hash of the CA that is trusted, before and after the node has joined.
func (r *Ring) CAHash() Hash {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ca != nil {
		return HashOf(r.ca)
	}
	return r.pin
}

// Authority is nil on a node that does not vote, or lost it.
func (r *Ring) Authority() *Authority {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.authority
}

// Identity is what this node's certificate says; false before it has one.
func (r *Ring) Identity() (Identity, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.id, r.leaf != nil
}

// Due says whether the certificate should be renewed: half of its time is over, or the clock is before it.
func (r *Ring) Due(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaf == nil {
		return false
	}
	return now.Before(r.leaf.NotBefore) || now.After(r.leaf.NotBefore.Add(r.leaf.NotAfter.Sub(r.leaf.NotBefore)/2))
}

// Covers says whether clients that go by the host find it in the certificate.
func (r *Ring) Covers(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaf == nil || net.ParseIP(host) == nil && !isName(host) {
		return true
	}
	return host == "" || r.leaf.VerifyHostname(host) == nil
}

// NotAfter is when the certificate ends for clients; zero: there is none.
func (r *Ring) NotAfter() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaf == nil {
		return time.Time{}
	}
	return r.leaf.NotAfter
}

// Shown is the certificate that this node shows to others.
func (r *Ring) Shown() (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shown == nil {
		return nil, errors.New("this node has no certificate yet")
	}
	return r.shown, nil
}

// Verify says which node of the cluster a peer is.
func (r *Ring) Verify(certs []*x509.Certificate) (Identity, error) {
	r.mu.Lock()
	ca, pin := r.ca, r.pin
	r.mu.Unlock()
	if ca == nil {
		var err error
		if ca, err = FindCA(certs, pin); err != nil {
			return Identity{}, err
		}
	}
	return VerifyNode(certs, ca)
}
