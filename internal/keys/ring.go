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
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"path/filepath"
	"slices"
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

	mu     sync.Mutex
	key    *ecdsa.PrivateKey // nil: none was made yet
	leaf   *x509.Certificate // nil: it has not joined
	cas    []knownCA         // the one that signed leaf first
	id     Identity          // that of leaf
	shown  *tls.Certificate  // what it shows to others
	pin    Hash              // of the CA, before there is one
	wanted Hash              // of the CA that leaf should be from; zero: any
	held   Authorities       // none: it does not vote, or lost them
	// recognise says whether a node of the cluster joined with a key; nil: it does not know any.
	recognise func(id Identity, key Hash) bool
	// derived are secrets that were asked for: each call of a worker does. Other authorities, other entries.
	derived map[derivedKey][]byte
}

type derivedKey struct {
	from *Authority
	use  string
}

// maxDerived bounds what is kept of authorities that were replaced since.
const maxDerived = 64

// knownCA is a certificate of a CA that a node has, and what it is for.
type knownCA struct {
	cert  *x509.Certificate
	trust bool // who it vouches for is a node of the cluster
	show  bool // clients that know the cluster by a former CA need it
}

// ca is the CA that signed the node's certificate; nil: it has not joined.
func (r *Ring) ca() *x509.Certificate {
	if len(r.cas) == 0 {
		return nil
	}
	return r.cas[0].cert
}

func (r *Ring) knows(h Hash) bool {
	return slices.ContainsFunc(r.cas, func(c knownCA) bool { return HashOf(c.cert) == h })
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
	switch held, err := ReadAuthorities(dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case r.leaf != nil && !r.knows(HashOf(held.Current.Cert)):
		return nil, fmt.Errorf("%s belongs to cluster %s, and the certificate in %s is from another CA: put the "+
			"right file back, or remove it and let the node fetch it again", r.file(ClusterFile),
			held.Current.Cluster(), NodeFile)
	default:
		r.held = held
	}
	return r, nil
}

func (r *Ring) file(name string) string { return filepath.Join(r.dir, name) }

// The uses of a CA's certificate in the file of a node. Without a header it is trusted and shown.
const (
	useTrust = "trust" // but not shown
	useShow  = "show"  // but not trusted
	useKnown = "known" // neither
)

// adopt reads the file of a node.
func (r *Ring) adopt(data []byte) error {
	all, err := pemBlocks(data)
	if err != nil {
		return err
	}
	wrong := errors.New("it must hold a private key, and the certificates of node and CA or none")
	if len(all) == 0 || len(all) == 2 || all[0].Type != blockKey {
		return wrong
	}
	key, err := parseKey(all[0].Bytes)
	if err != nil {
		return err
	}
	var leaf *x509.Certificate
	var cas []knownCA
	for i, b := range all[1:] {
		if b.Type != blockCert {
			return wrong
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return err
		}
		if i == 0 {
			leaf = c
			continue
		}
		use := b.Headers[useHeader]
		cas = append(cas, knownCA{c, use == "" || use == useTrust, use == "" || use == useShow})
	}
	return r.take(key, leaf, cas)
}

// take makes keys the ones that count, if they fit together.
func (r *Ring) take(key *ecdsa.PrivateKey, leaf *x509.Certificate, cas []knownCA) error {
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
		if id, err = VerifyNode([]*x509.Certificate{leaf}, cas[0].cert); err != nil {
			return err
		}
		if !key.PublicKey.Equal(leaf.PublicKey) {
			return errors.New("the certificate is for another key")
		}
		// With the CA: who knows only its hash finds it here. What a former CA signed comes first: OpenSSL takes the
		// first issuer that fits, and would end at the CA's own certificate, which who trusts a former one does not
		// know. Who trusts the CA needs none of them.
		shown.Certificate, shown.Leaf = [][]byte{leaf.Raw}, leaf
		for _, own := range []bool{false, true} {
			for _, c := range cas {
				if c.show && own == bytes.Equal(c.cert.RawIssuer, c.cert.RawSubject) {
					shown.Certificate = append(shown.Certificate, c.cert.Raw)
				}
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.key, r.leaf, r.cas, r.id, r.shown = key, leaf, cas, id, shown
	return nil
}

// ErrJoining is about a node that has no certificate yet: it asked to join, and the answer is on its way.
var ErrJoining = errors.New("it has no certificate yet: it is about to join")

const joiningName = "carillon joining"

// selfSigned is what a node shows before it has a certificate: the leader that it asks to join calls back and
// recognises the key.
func selfSigned(key *ecdsa.PrivateKey) ([]byte, error) {
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: joiningName},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
	return x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
}

// write puts the node's file in place.
func (r *Ring) write(key *ecdsa.PrivateKey, leaf *x509.Certificate, cas []knownCA) error {
	if err := makeDir(r.dir); err != nil {
		return err
	}
	data, err := encodeKey(key)
	if err != nil {
		return err
	}
	if leaf != nil {
		data = append(data, encode(blockCert, leaf.Raw)...)
	}
	for _, c := range cas {
		b := &pem.Block{Type: blockCert, Bytes: c.cert.Raw}
		if use := c.use(); use != "" {
			b.Headers = map[string]string{useHeader: use}
		}
		data = append(data, pem.EncodeToMemory(b)...)
	}
	if err := WriteFile(r.file(NodeFile), data, r.step); err != nil {
		return err
	}
	if len(cas) == 0 {
		return nil
	}
	text := encode(blockCert, cas[0].cert.Raw)
	if have, err := readLimited(r.file(CAFile)); err == nil && bytes.Equal(have, text) {
		return nil
	}
	return WriteFile(r.file(CAFile), text, r.step)
}

func (c knownCA) use() string {
	switch {
	case c.trust && c.show:
		return ""
	case c.trust:
		return useTrust
	case c.show:
		return useShow
	}
	return useKnown
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

// Issued is a certificate of a node, in DER, with what a node needs to be understood and to understand the others.
type Issued struct {
	Leaf, CA []byte
	Chain    [][]byte // how former CAs vouch for the CA, with their certificates
	Trusted  [][]byte // other CAs whose nodes are of the cluster, while one takes the place of another
}

// Install replaces the node's certificate by one for the same key.
func (r *Ring) Install(is Issued) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	leaf, err := x509.ParseCertificate(is.Leaf)
	if err != nil {
		return err
	}
	ca, err := x509.ParseCertificate(is.CA)
	if err != nil {
		return err
	}
	chain, err := parseAll(is.Chain)
	if err != nil {
		return err
	}
	trusted, err := parseAll(is.Trusted)
	if err != nil {
		return err
	}
	r.mu.Lock()
	key, cas, pin, wanted, joined := r.key, slices.Clone(r.cas), r.pin, r.wanted, r.leaf != nil
	r.mu.Unlock()
	switch {
	case key == nil:
		return errors.New("there is no key that the certificate could be for")
	case joined && !isTrusted(cas, HashOf(ca)) && HashOf(ca) != wanted, !joined && !pinned(pin, ca, chain):
		return errors.New("the certificate is from another CA than that of the cluster")
	case !key.PublicKey.Equal(leaf.PublicKey):
		return errors.New("the certificate is for another key")
	}
	if _, err := VerifyNode([]*x509.Certificate{leaf}, ca); err != nil {
		return err
	}
	first := knownCA{ca, true, true}
	if !joined {
		for _, c := range trusted {
			if !c.Equal(ca) {
				cas = append(cas, knownCA{c, true, true})
			}
		}
		for _, c := range chain {
			if !slices.ContainsFunc(cas, func(k knownCA) bool { return k.cert.Equal(c) }) {
				cas = append(cas, knownCA{c, false, true})
			}
		}
	} else if i := slices.IndexFunc(cas, func(k knownCA) bool { return k.cert.Equal(ca) }); i >= 0 {
		first = cas[i]
		cas = slices.Delete(cas, i, i+1)
	}
	cas = append([]knownCA{first}, cas...)
	if err := r.write(key, leaf, cas); err != nil {
		return err
	}
	return r.take(key, leaf, cas)
}

func isTrusted(cas []knownCA, h Hash) bool {
	return slices.ContainsFunc(cas, func(c knownCA) bool { return c.trust && HashOf(c.cert) == h })
}

// pinned says whether a CA is the one with a hash, or that one vouches for it.
func pinned(pin Hash, ca *x509.Certificate, chain []*x509.Certificate) bool {
	if HashOf(ca) == pin {
		return true
	}
	for _, c := range chain { // a cross certificate has the CA's key
		root, err := FindCA(chain, pin)
		if err == nil && c.PublicKey.(*ecdsa.PublicKey).Equal(ca.PublicKey) {
			if _, err := vouched(c, chain, root); err == nil {
				return true
			}
		}
	}
	return false
}

// parseAll reads certificates of CAs.
func parseAll(ders [][]byte) (out []*x509.Certificate, err error) {
	if len(ders) > maxShown {
		return nil, fmt.Errorf("%d certificates are more than %d", len(ders), maxShown)
	}
	for _, der := range ders {
		c, err := x509.ParseCertificate(der)
		if err == nil {
			err = checkPublic(c.PublicKey)
		}
		if err == nil {
			_, err = clusterCA(c)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// Certify has the ring's own authority sign its certificate: that of the node which begins a cluster, or leads it.
func (r *Ring) Certify(id Identity, host string, now time.Time) error {
	a := r.Signer()
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
	return r.Install(Issued{Leaf: der, CA: a.Cert.Raw})
}

// Keep writes the authority down that was handed to this node, in place of all others.
func (r *Ring) Keep(a *Authority) error { return r.KeepAll(Authorities{Current: a}) }

// KeepAll is Keep for all that a voter has.
func (r *Ring) KeepAll(s Authorities) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.keepAll(s)
}

func (r *Ring) keepAll(s Authorities) error {
	r.mu.Lock()
	foreign := r.leaf != nil && !r.knows(HashOf(s.Current.Cert)) && HashOf(s.Current.Cert) != r.wanted
	joined := r.leaf != nil
	r.mu.Unlock()
	if foreign {
		return errors.New("the keys are those of another cluster")
	}
	if err := s.write(r.dir, r.step); err != nil {
		return err
	}
	if !joined { // otherwise it goes with the certificate
		if err := WriteFile(r.file(CAFile), encode(blockCert, s.Current.Cert.Raw), r.step); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = s
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
	return r.ca()
}

// CAHash is the hash of the CA that signed the node's certificate, or that it trusts before it has joined.
func (r *Ring) CAHash() Hash {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ca := r.ca(); ca != nil {
		return HashOf(ca)
	}
	return r.pin
}

// Knows says whether a CA is, was or is about to be that of the cluster.
func (r *Ring) Knows(ca Hash) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.knows(ca) || r.leaf == nil && r.pin == ca
}

// Authority is nil on a node that does not vote, or lost it.
func (r *Ring) Authority() *Authority {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held.Current
}

// Authorities are all keys of the cluster that this node has.
func (r *Ring) Authorities() Authorities {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.held
	s.Former = slices.Clone(s.Former)
	return s
}

// Identity is what this node's certificate says; false before it has one.
func (r *Ring) Identity() (Identity, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.id, r.leaf != nil
}

// Due says whether the certificate should be renewed: half of its time is over, the clock is before it, or another CA
// took the place of the one that signed it.
func (r *Ring) Due(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaf == nil {
		return false
	}
	if r.wanted != (Hash{}) && HashOf(r.ca()) != r.wanted {
		return true
	}
	return now.Before(r.leaf.NotBefore) || now.After(r.leaf.NotBefore.Add(r.leaf.NotAfter.Sub(r.leaf.NotBefore)/2))
}

// Superseded says whether the certificate is from another CA than it should be from.
func (r *Ring) Superseded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaf != nil && r.wanted != (Hash{}) && HashOf(r.ca()) != r.wanted
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

// Recognise has nodes be known by the keys that they joined with, whichever CA signed their certificates: what a member
// is called and which key it has is in the state, and outlives every CA.
func (r *Ring) Recognise(f func(id Identity, key Hash) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recognise = f
}

// Trusts says whether a CA vouches for nodes of the cluster.
func (r *Ring) Trusts(ca Hash) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return isTrusted(r.cas, ca) || r.leaf == nil && ca == r.pin
}

// Verify says which node of the cluster a peer is.
func (r *Ring) Verify(certs []*x509.Certificate) (Peer, error) {
	r.mu.Lock()
	cas, pin, known, joined := r.cas, r.pin, r.recognise, r.leaf != nil
	r.mu.Unlock()
	if len(certs) == 0 {
		return Peer{}, errors.New("no certificate was shown")
	}
	key, err := publicKey(certs[0])
	if err != nil {
		return Peer{}, err
	}
	if !joined {
		ca, err := FindCA(certs, pin)
		if err != nil {
			return Peer{}, err
		}
		id, err := VerifyNode(certs, ca)
		return Peer{id, key, pin}, err
	}
	cluster, err := ClusterOf(cas[0].cert)
	if err != nil {
		return Peer{}, err
	}
	err = errors.New("this node trusts no CA")
	for _, c := range cas {
		if !c.trust {
			continue
		}
		var id Identity
		switch id, err = VerifyNode(certs, c.cert); {
		case err != nil:
		case id.Cluster != cluster: // of one that was restored from a backup of this one
			err = fmt.Errorf("the certificate is for a node of cluster %s and not of %s", id.Cluster, cluster)
		default:
			return Peer{id, key, HashOf(c.cert)}, nil
		}
	}
	if id, perr := nodeOf(certs[0], cluster); perr == nil && known != nil && known(id, key) {
		id.Voter = 0 // no CA that is known here says so; the member may have written it itself
		return Peer{Identity: id, Key: key}, nil
	}
	if certs[0].Subject.CommonName == joiningName {
		err = ErrJoining
	}
	return Peer{}, err
}
