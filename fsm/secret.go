package fsm

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// MaxSecrets bounds how many secrets there are: all of them are kept in memory, sealed.
const MaxSecrets = 4096

// maxSealed is how long a sealed value may be.
const maxSealed = job.MaxSecretBytes + 256

// PutSecret makes a secret or gives it a new value. It was sealed by the proposer, together with the version that it
// will be: apply has no keys, and no randomness.
type PutSecret struct {
	Head      `codec:"h"`
	Request   Request  `codec:"q"`
	Namespace string   `codec:"ns,omitempty"` // empty: the usual one
	Name      string   `codec:"n"`
	Version   uint64   `codec:"v"`
	Sealed    []byte   `codec:"s"`
	Hosts     []string `codec:"o,omitempty"`
	SetBy     string   `codec:"sb,omitempty"`
}

func (c *PutSecret) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *PutSecret) key() store.SecretKey {
	return store.SecretKey{Namespace: cmp.Or(c.Namespace, job.DefaultNamespace), Name: c.Name}
}

// do answers with the version.
func (c *PutSecret) do(a *applier) (Outcome, error) {
	refuse := func(format string, args ...any) (Outcome, error) {
		return Outcome{Code: CodeRefused, Text: fmt.Sprintf(format, args...)}, nil
	}
	k := c.key()
	switch {
	case !job.NamespaceName(k.Namespace):
		return refuse("%q is not a namespace", c.Namespace)
	case !job.SecretName(c.Name):
		return refuse("%q is not the name of a secret", c.Name)
	case keys.SealedBy(c.Sealed) == "" || len(c.Sealed) > maxSealed:
		return refuse("the value is not a sealed one")
	case len(c.SetBy) > job.MaxName:
		return refuse("a name is too long")
	case len(c.Hosts) > job.MaxSecretHosts:
		return refuse("a secret has at most %d hosts", job.MaxSecretHosts)
	}
	for _, h := range c.Hosts {
		if !job.CheckSecretHost(h) {
			return refuse("%q is not a host", h)
		}
	}
	old, ok := a.b.Secret(k)
	if c.Version != old.Version+1 {
		return Outcome{Code: CodeMoved}, nil
	}
	if !ok && a.b.SecretCount() >= MaxSecrets {
		return refuse("there are %d secrets already: delete some", MaxSecrets)
	}
	row := &store.Secret{Version: c.Version, Sealed: c.Sealed, Previous: old.Sealed, Hosts: c.Hosts, SetAt: a.now,
		SetBy: c.SetBy}
	return Outcome{Code: CodeOK, Version: c.Version, Count: 1}, a.b.PutSecret(k, row)
}

// DeleteSecret removes a secret.
type DeleteSecret struct {
	Head      `codec:"h"`
	Request   Request `codec:"q"`
	Namespace string  `codec:"ns,omitempty"` // empty: the usual one
	Name      string  `codec:"n"`
}

func (c *DeleteSecret) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *DeleteSecret) do(a *applier) (Outcome, error) {
	k := store.SecretKey{Namespace: cmp.Or(c.Namespace, job.DefaultNamespace), Name: c.Name}
	if _, ok := a.b.Secret(k); !ok {
		return Outcome{Code: CodeNotFound}, nil
	}
	return Outcome{Code: CodeOK, Count: 1}, a.b.PutSecret(k, nil)
}

// ResealSecrets replaces the sealed forms of secrets by ones of a new cluster key. Values and versions stay what they
// are. The leader proposes it after a rotation; it leaves one record for all of its items.
type ResealSecrets struct {
	Head  `codec:"h"`
	Items []ResealedSecret `codec:"i"`
}

// ResealedSecret is one secret of a ResealSecrets.
type ResealedSecret struct {
	Namespace string `codec:"ns,omitempty"` // empty: the usual one
	Name      string `codec:"n"`
	// Was is the mark of the sealed form that is replaced. The version does not tell: a secret that was deleted and
	// set again begins anew, and must not get its former value back.
	Was      []byte `codec:"w"`
	Sealed   []byte `codec:"s"`
	Previous []byte `codec:"p,omitempty"` // nil: it could not be opened, and is let go
}

func (c *ResealSecrets) items() int { return len(c.Items) }

func (c *ResealSecrets) apply(a *applier) error {
	for i := range c.Items {
		it := &c.Items[i]
		k := store.SecretKey{Namespace: cmp.Or(it.Namespace, job.DefaultNamespace), Name: it.Name}
		old, ok := a.b.Secret(k)
		switch {
		case !ok:
			a.outcome(Outcome{Code: CodeNotFound})
			continue
		case len(it.Was) == 0 || !bytes.Equal(keys.SealMark(old.Sealed), it.Was):
			a.outcome(Outcome{Code: CodeMoved}) // set or sealed anew since
			continue
		case keys.SealedBy(it.Sealed) == "" || len(it.Sealed) > maxSealed || len(it.Previous) > maxSealed:
			a.outcome(Outcome{Code: CodeRefused, Text: "the value is not a sealed one"})
			continue
		}
		old.Sealed, old.Previous = it.Sealed, it.Previous
		if err := a.b.PutSecret(k, &old); err != nil {
			return err
		}
		a.outcome(Outcome{Code: CodeOK, Count: 1})
	}
	return nil
}
