package keys

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
)

// The files of a keys directory. Each is replaced as a whole, and none has to fit to another: a node's key, its
// certificate and the CA that signed it are one file, so that a crash leaves the old or the new ones.
const (
	Dir         = "keys"        // in the data directory
	NodeFile    = "node.pem"    // the node's key, certificate and CAs; the key alone before it has joined
	ClusterFile = "cluster.pem" // CA, its key and the cluster key, and former and next ones: on voters
	CAFile      = "ca.pem"      // the CA's certificate, for clients; nothing reads it here

	// JoinTokenFile is where a cluster that begins leaves its first join token, in the data directory.
	JoinTokenFile = "join.token"
)

const (
	blockCert    = "CERTIFICATE"
	blockKey     = "PRIVATE KEY"
	blockCluster = "CARILLON CLUSTER KEY"

	maxFile = 64 << 10
)

// WriteFile puts a small file in place whole or not at all, readable by its owner only. step, if set, is called between
// the steps that a crash may cut off.
func WriteFile(path string, data []byte, step faultpoint.Step) (err error) {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && !errors.Is(err, faultpoint.ErrCutOff) {
			os.Remove(tmp) //nolint:errcheck // the first error counts
		}
	}()
	write := func() error {
		if err := f.Chmod(0o600); err != nil { // a file that was left behind keeps its mode
			return err
		}
		if _, err := f.Write(data[:len(data)/2]); err != nil {
			return err
		}
		if err := step.At("half of " + filepath.Base(path)); err != nil {
			return err
		}
		if _, err := f.Write(data[len(data)/2:]); err != nil {
			return err
		}
		return f.Sync()
	}
	err = write()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := step.At("before the rename of " + filepath.Base(path)); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	if err := step.At("after the rename of " + filepath.Base(path)); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

// makeDir makes the directory and its name safe.
func makeDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	return syncDir(filepath.Dir(path))
}

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than a file of keys", path)
	}
	return data, err
}

// blocks are the bytes of a file's PEM blocks by type, in order.
func blocks(data []byte) (map[string][][]byte, error) {
	all, err := pemBlocks(data)
	out := map[string][][]byte{}
	for _, b := range all {
		out[b.Type] = append(out[b.Type], b.Bytes)
	}
	return out, err
}

func encode(kind string, data []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return encode(blockKey, der), nil
}

func parseKey(der []byte) (*ecdsa.PrivateKey, error) {
	k, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	key, ok := k.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key is not ECDSA P-256")
	}
	return key, checkPublic(key.Public())
}

func parseCA(data []byte) (*x509.Certificate, error) {
	b, err := blocks(data)
	if err != nil {
		return nil, err
	}
	if len(b[blockCert]) != 1 {
		return nil, fmt.Errorf("it holds %d certificates instead of one", len(b[blockCert]))
	}
	ca, err := x509.ParseCertificate(b[blockCert][0])
	if err != nil {
		return nil, err
	}
	_, err = ClusterOf(ca)
	return ca, err
}

// Encode is the authority as the file of a voter, and as it is handed to one.
func (a *Authority) Encode() ([]byte, error) {
	key, err := encodeKey(a.key)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{encode(blockCert, a.Cert.Raw), key, encode(blockCluster, a.secret)}, nil), nil
}

// ReadAuthority reads the authority that is in use from a keys directory.
func ReadAuthority(dir string) (*Authority, error) {
	s, err := ReadAuthorities(dir)
	return s.Current, err
}

// Write puts the authority into a keys directory, with the CA's certificate for clients.
func (a *Authority) Write(dir string, step faultpoint.Step) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	data, err := a.Encode()
	if err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(dir, ClusterFile), data, step); err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, CAFile), encode(blockCert, a.Cert.Raw), step)
}
