package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// SecretKey names a secret.
type SecretKey struct{ Namespace, Name string }

func (k SecretKey) bytes() []byte { return []byte(k.Namespace + "\x00" + k.Name) }

// Secret is a secret's row. Its value is there only sealed by the cluster key, which is not in the state; there is no
// hash of it either, by which a short one could be guessed.
type Secret struct {
	Version uint64 `json:"version"` // of the value, from 1 on; the value is sealed with it
	Sealed  []byte `json:"sealed"`
	// Previous is the value of the version before, for as long as runs may have it: it is masked in what they leave.
	Previous []byte   `json:"previous,omitempty"`
	Hosts    []string `json:"hosts,omitempty"` // where it may be sent to; none: anywhere
	SetAt    int64    `json:"set_at"`          // ms
	SetBy    string   `json:"set_by,omitempty"`
}

// secretIndex has the rows of all secrets. It is not changed once it is published: dispatch looks into it with locks
// held, and must not wait for a commit.
type secretIndex map[SecretKey]*Secret

func readSecrets(tx *bolt.Tx) (secretIndex, error) {
	x := secretIndex{}
	err := tx.Bucket(bucketSecrets).ForEach(func(k, v []byte) error {
		space, name, ok := strings.Cut(string(k), "\x00")
		var s Secret
		if err := json.Unmarshal(v, &s); err != nil || !ok {
			return fmt.Errorf("%w: secret %q: %w", ErrCorrupt, k, err)
		}
		x[SecretKey{space, name}] = &s
		return nil
	})
	return x, err
}

// Secret is a row as of the newest commit. It does not wait for anything; the row must not be changed.
func (s *Store) Secret(k SecretKey) (*Secret, bool) {
	row, ok := (*s.secrets.Load())[k]
	return row, ok
}

// SecretsIn is how many secrets a namespace has as of the newest commit.
func (s *Store) SecretsIn(namespace string) (n int) {
	for k := range *s.secrets.Load() {
		if k.Namespace == namespace {
			n++
		}
	}
	return n
}

// EachSecret calls fn with all rows as of the newest commit, by namespace and name. They must not be changed.
func (s *Store) EachSecret(fn func(SecretKey, *Secret)) {
	x := *s.secrets.Load()
	for _, k := range slices.SortedFunc(maps.Keys(x), func(a, b SecretKey) int {
		return bytes.Compare(a.bytes(), b.bytes())
	}) {
		fn(k, x[k])
	}
}

func (b *Batch) seeSecrets() secretIndex {
	if b.secrets != nil {
		return b.secrets
	}
	return b.idx.secrets
}

// Secret is a row as the batch has it so far.
func (b *Batch) Secret(k SecretKey) (Secret, bool) {
	row, ok := b.seeSecrets()[k]
	if !ok {
		return Secret{}, false
	}
	return *row, true
}

// SecretCount is how many secrets there are.
func (b *Batch) SecretCount() int { return len(b.seeSecrets()) }

// PutSecret writes a secret's row; nil removes it.
func (b *Batch) PutSecret(k SecretKey, s *Secret) error {
	if b.secrets == nil {
		b.secrets = maps.Clone(b.idx.secrets)
	}
	if s == nil {
		delete(b.secrets, k)
		return b.tx.Bucket(bucketSecrets).Delete(k.bytes())
	}
	v, err := json.Marshal(s)
	if err != nil {
		return err
	}
	b.secrets[k] = s
	return b.tx.Bucket(bucketSecrets).Put(k.bytes(), v)
}

// publishSecrets is part of Commit.
func (b *Batch) publishSecrets() {
	if b.secrets != nil {
		b.idx.secrets = b.secrets
		b.s.showSecrets()
	}
}

// showSecrets lets others see the rows of the index. It is called with the lock held.
func (s *Store) showSecrets() {
	x := s.idx.secrets
	s.secrets.Store(&x)
}

// checkSecrets looks at the rows of the secrets, and holds the index against them.
func (c *checker) checkSecrets(have *index) {
	for k, s := range c.idx.secrets {
		if !job.NamespaceName(k.Namespace) || !job.SecretName(k.Name) || s.Version == 0 ||
			keys.SealedBy(s.Sealed) == "" {
			c.bad("the row of secret %q in namespace %q makes no sense", k.Name, k.Namespace)
		}
		if h := have.secrets[k]; h == nil || h.Version != s.Version || !bytes.Equal(h.Sealed, s.Sealed) {
			c.bad("the index has the secret %q of namespace %q otherwise than the file", k.Name, k.Namespace)
		}
	}
	if len(have.secrets) != len(c.idx.secrets) {
		c.bad("the index has %d secrets, the file %d", len(have.secrets), len(c.idx.secrets))
	}
}
