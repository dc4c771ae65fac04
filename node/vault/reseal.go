package vault

import (
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/store"
)

// resealBatch bounds how many bytes of sealed values are in one command.
const resealBatch = 256 << 10

// Outdated are secrets that were sealed with a cluster key which was replaced, sealed with the one to seal with now: a
// part of them if there are many, none if there is nothing left to do. What this node cannot open stays as it is.
func (v *Vault) Outdated() ([]fsm.ResealedSecret, error) {
	if v.ring == nil {
		return nil, nil
	}
	with := v.ring.Sealer()
	if with == nil {
		return nil, errNoKeys
	}
	id := with.KeyID()
	var out []fsm.ResealedSecret
	var failed error
	size := 0
	skip := mutant.On(mutant.ResealSkips)
	v.store.EachSecret(func(k store.SecretKey, row *store.Secret) {
		if keys.SealedBy(row.Sealed) == id && (row.Previous == nil || keys.SealedBy(row.Previous) == id) ||
			size >= resealBatch || failed != nil {
			return
		}
		it, ok, err := v.reseal(k, row, with)
		if ok && skip {
			skip = false
			return
		}
		if failed = err; ok && err == nil {
			size += len(it.Sealed) + len(it.Previous)
			out = append(out, it)
		}
	})
	return out, failed
}

// reseal seals the values of a secret anew. False: its value cannot be opened.
func (v *Vault) reseal(k store.SecretKey, row *store.Secret, with *keys.Authority) (fsm.ResealedSecret, bool, error) {
	it := fsm.ResealedSecret{Namespace: k.Namespace, Name: k.Name, Was: keys.SealMark(row.Sealed)}
	value, err := v.open(k, row.Version, row.Sealed)
	if err != nil {
		return it, false, nil
	}
	if it.Sealed, err = with.Seal([]byte(value), binding(k, row.Version)...); err != nil {
		return it, false, err
	}
	// The value before it is there to be masked only. One that cannot be opened masks nothing.
	if value, err := v.open(k, row.Version-1, row.Previous); err == nil {
		it.Previous, err = with.Seal([]byte(value), binding(k, row.Version-1)...)
		return it, true, err
	}
	return it, true, nil
}
