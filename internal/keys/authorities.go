package keys

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
)

// MaxFormer is how many CAs that were replaced are remembered.
const MaxFormer = 4

// maxShown is how many certificates a node shows besides its own: the CA's, and of each former one its own and the one
// by which it vouches for its successor. While a rotation is under way there are two more, and two on a node whose
// certificate is from a CA that was given up.
const maxShown = 2*MaxFormer + 5

// Authorities are all keys of a cluster that a voter has.
type Authorities struct {
	Current *Authority // nil: it does not vote, or lost them
	// Next takes the place of Current when the rotation that made it is finished. Before that rotation is committed it
	// is worth nothing.
	Next *Authority
	// Former are those that were replaced, newest first, without the keys of their CAs. What was derived from their
	// cluster keys goes on to be known, unless they are distrusted.
	Former []*Authority
}

const (
	useHeader     = "Use"
	useNext       = "next"
	useFormer     = "former"
	useDistrusted = "distrusted"
)

// Encode is the authorities as the file of a voter, and as they are handed to one.
func (s Authorities) Encode() ([]byte, error) {
	if s.Current == nil {
		return nil, errors.New("there are no keys")
	}
	data, err := s.Current.Encode()
	if err != nil {
		return nil, err
	}
	write := func(a *Authority, use string) error {
		parts := []*pem.Block{{Type: blockCert, Bytes: a.Cert.Raw}}
		if a.key != nil {
			der, err := x509.MarshalPKCS8PrivateKey(a.key)
			if err != nil {
				return err
			}
			parts = append(parts, &pem.Block{Type: blockKey, Bytes: der})
		}
		parts = append(parts, &pem.Block{Type: blockCluster, Bytes: a.secret})
		for _, b := range parts {
			b.Headers = map[string]string{useHeader: use}
			data = append(data, pem.EncodeToMemory(b)...)
		}
		return nil
	}
	if s.Next != nil {
		err = write(s.Next, useNext)
	}
	for _, a := range s.Former {
		use := useFormer
		if a.distrusted {
			use = useDistrusted
		}
		err = errors.Join(err, write(a, use))
	}
	return data, err
}

// DecodeAuthorities reads what Encode wrote.
func DecodeAuthorities(data []byte) (Authorities, error) {
	var s Authorities
	all, err := pemBlocks(data)
	if err != nil {
		return s, err
	}
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Type != blockCert {
			n++
		}
		use := all[0].Headers[useHeader]
		a, err := authorityOf(all[:n], use == useFormer || use == useDistrusted)
		if err != nil {
			return s, err
		}
		all = all[n:]
		switch {
		case use == "" && s.Current == nil:
			s.Current = a
		case use == useNext && s.Next == nil:
			s.Next = a
		case use == useFormer, use == useDistrusted:
			a.distrusted = use == useDistrusted
			s.Former = append(s.Former, a)
		default:
			return s, fmt.Errorf("it holds two CAs, or one for a use %q that is not known", use)
		}
		// Former ones may be of the cluster whose backup founded this one.
		if s.Current == nil || a.key != nil && a.Cluster() != s.Current.Cluster() {
			return s, errors.New("it holds keys of different clusters, or none that is in use")
		}
	}
	if s.Current == nil {
		return s, errors.New("it must hold a certificate, a private key and a cluster key")
	}
	return s, nil
}

// authorityOf is one authority out of its blocks; a former one has no private key.
func authorityOf(all []*pem.Block, former bool) (*Authority, error) {
	want := []string{blockCert, blockKey, blockCluster}
	if former {
		want = []string{blockCert, blockCluster}
	}
	if !slices.EqualFunc(all, want, func(b *pem.Block, t string) bool { return b.Type == t }) {
		return nil, errors.New("it must hold a certificate, a private key and a cluster key")
	}
	a := &Authority{secret: all[len(all)-1].Bytes}
	var err error
	if a.Cert, err = x509.ParseCertificate(all[0].Bytes); err != nil {
		return nil, err
	}
	if _, err := ClusterOf(a.Cert); err != nil {
		return nil, err
	}
	if !former {
		if a.key, err = parseKey(all[1].Bytes); err != nil {
			return nil, err
		}
		if !a.key.PublicKey.Equal(a.Cert.PublicKey) {
			return nil, errors.New("the private key is not that of the CA's certificate")
		}
	}
	if len(a.secret) != clusterKeyBytes {
		return nil, fmt.Errorf("the cluster key has %d bytes instead of %d", len(a.secret), clusterKeyBytes)
	}
	return a, nil
}

// pemBlocks splits a file into its PEM blocks. Anything else in it is refused: a file that was cut off is not half a
// file.
func pemBlocks(data []byte) (all []*pem.Block, err error) {
	for len(bytes.TrimSpace(data)) > 0 {
		b, rest := pem.Decode(data)
		if b == nil || !bytes.HasPrefix(bytes.TrimSpace(data), []byte("-----BEGIN ")) {
			return nil, errors.New("it holds something that is not a PEM block")
		}
		all, data = append(all, b), rest
	}
	return all, nil
}

// ReadAuthorities reads the authorities from a keys directory.
func ReadAuthorities(dir string) (Authorities, error) {
	path := filepath.Join(dir, ClusterFile)
	data, err := readLimited(path)
	if err != nil {
		return Authorities{}, err
	}
	s, err := DecodeAuthorities(data)
	if err != nil {
		return Authorities{}, fmt.Errorf("%s is damaged (%w): copy it from another voter, or remove it and let the "+
			"node fetch it again", path, err)
	}
	return s, nil
}

// write puts the authorities into a keys directory.
func (s Authorities) write(dir string, step faultpoint.Step) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	data, err := s.Encode()
	if err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, ClusterFile), data, step)
}

// Of is the authority with a CA; nil: there is none.
func (s Authorities) Of(ca Hash) *Authority {
	for _, a := range append([]*Authority{s.Current, s.Next}, s.Former...) {
		if a != nil && HashOf(a.Cert) == ca {
			return a
		}
	}
	return nil
}

// Opener is the authority whose cluster key has an id (KeyID): what was sealed before a rotation opens with a former
// one. Nil: there is none.
func (s Authorities) Opener(id string) *Authority {
	for _, a := range append([]*Authority{s.Current, s.Next}, s.Former...) {
		if a != nil && a.KeyID() == id {
			return a
		}
	}
	return nil
}

// Shows is the proof that a node has the keys, for one question.
func (s Authorities) Shows(nonce []byte, node, instance string) []byte {
	m := hmac.New(sha256.New, nonce)
	for _, a := range []*Authority{s.Current, s.Next} {
		if a != nil {
			m.Write(a.Shows(nonce, node, instance))
		}
	}
	return m.Sum(nil)
}

// retired is an authority that signs nothing any more.
func (a *Authority) retired(distrusted bool) *Authority {
	return &Authority{Cert: a.Cert, secret: a.secret, distrusted: a.distrusted || distrusted}
}

// publicKey is the key of a certificate as nodes have it.
func publicKey(c *x509.Certificate) (Hash, error) {
	k, ok := c.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return Hash{}, errors.New("the key of a node must be ECDSA P-256")
	}
	return KeyHash(k)
}
