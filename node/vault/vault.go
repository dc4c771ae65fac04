// Package vault seals the values of secrets for the state, and opens them for what needs them: a run that is handed to
// its worker, a webhook that is about to be called. Only a node with the cluster's keys can do either.
package vault

import (
	"errors"
	"strconv"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Vault knows the secrets of a cluster, as this node's state has them.
type Vault struct {
	store *store.Store
	ring  *keys.Ring // nil: the cluster is plain
}

// New makes the vault of a node with its keys; nil: the cluster is plain, and has no secrets.
func New(st *store.Store, ring *keys.Ring) *Vault { return &Vault{st, ring} }

// Plain says that the cluster has no keys to seal anything with.
func (v *Vault) Plain() bool { return v.ring == nil }

// binding is what a value is sealed as: in the row of another secret, or of another version, it does not open.
func binding(k store.SecretKey, version uint64) []string {
	return []string{"secret", k.Namespace, k.Name, strconv.FormatUint(version, 10)}
}

// Seal seals the value of a secret's version.
func (v *Vault) Seal(k store.SecretKey, version uint64, value string) ([]byte, error) {
	a, err := v.sealer()
	if err != nil {
		return nil, err
	}
	return a.Seal([]byte(value), binding(k, version)...)
}

func (v *Vault) sealer() (*keys.Authority, error) {
	if v.ring == nil {
		return nil, ErrPlain()
	}
	if a := v.ring.Sealer(); a != nil {
		return a, nil
	}
	return nil, errNoKeys
}

var errNoKeys = job.Errorf(job.CodeNotReady, "wait until it has fetched them, or ask another node",
	"this node does not have the cluster's keys")

// ErrPlain is why a plain cluster has no secrets.
func ErrPlain() error {
	return job.Errorf(job.CodeState, "make the cluster secure: start the nodes with --secure",
		"this cluster has no keys to encrypt a secret with")
}

// Open is the value of a secret, and the hosts that it may be sent to. The error says what to do.
func (v *Vault) Open(namespace, name string) (value string, hosts []string, err error) {
	k := store.SecretKey{Namespace: namespace, Name: name}
	row, ok := v.store.Secret(k)
	if !ok {
		return "", nil, job.Errorf(job.CodeNotFound, "set it with `carillon secret set "+name+" -n "+namespace+"`",
			"there is no secret %q in namespace %q", name, namespace)
	}
	data, err := v.open(k, row.Version, row.Sealed)
	switch {
	case errors.Is(err, keys.ErrSealedByOther):
		err = job.Errorf(job.CodeState, "set it again with `carillon secret set "+name+" -n "+namespace+"`",
			"the secret %q was encrypted with a key that the cluster no longer has", name)
	case err != nil && job.CodeOf(err) == job.CodeInternal:
		err = job.Errorf(job.CodeState, "set it again with `carillon secret set "+name+" -n "+namespace+"`",
			"the secret %q cannot be decrypted: %v", name, err)
	}
	return data, row.Hosts, err
}

func (v *Vault) open(k store.SecretKey, version uint64, sealed []byte) (string, error) {
	if v.ring == nil {
		return "", ErrPlain()
	}
	a := v.ring.Opener(keys.SealedBy(sealed))
	switch {
	case a != nil:
	case !v.ring.Whole():
		return "", errNoKeys
	case keys.SealedBy(sealed) == "":
		return "", errors.New("it is damaged")
	default:
		return "", keys.ErrSealedByOther
	}
	data, err := a.Open(sealed, binding(k, version)...)
	return string(data), err
}

// Values are all values of secrets that a run may have been given, now or before they were set the last time: those
// that can be opened.
func (v *Vault) Values(namespace string, names []string) (out []string) {
	for _, name := range names {
		k := store.SecretKey{Namespace: namespace, Name: name}
		row, ok := v.store.Secret(k)
		if !ok {
			continue
		}
		if value, err := v.open(k, row.Version, row.Sealed); err == nil {
			out = append(out, value)
		}
		if value, err := v.open(k, row.Version-1, row.Previous); err == nil {
			out = append(out, value)
		}
	}
	return out
}

// Readable says whether the keys of this node open a secret; known is false where it has none to say so by.
func (v *Vault) Readable(row *store.Secret) (ok, known bool) {
	if v.ring == nil || !v.ring.Whole() {
		return false, false
	}
	return v.ring.Opener(keys.SealedBy(row.Sealed)) != nil, true
}
