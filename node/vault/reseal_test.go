package vault

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/store"
)

// put writes rows of secrets.
func put(t *testing.T, st *store.Store, rows map[store.SecretKey]*store.Secret) {
	t.Helper()
	b, err := st.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for k, row := range rows {
		if err := b.PutSecret(k, row); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
}

// When the cluster key is replaced every secret is sealed with the next one, with the value before it, a bounded part at a
// time. What cannot be opened stays as it is and holds nothing up.
func TestAllSecretsAreResealed(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	authority := func() *keys.Authority {
		a, err := keys.NewAuthority("c1", now)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	old, next, stranger := authority(), authority(), authority()
	ring, err := keys.OpenRing(filepath.Join(t.TempDir(), "keys"), nil)
	if err != nil {
		t.Fatal(err)
	}
	id := keys.Identity{Cluster: "c1", Node: "n1", Instance: "i1"}
	if err := errors.Join(ring.Keep(old), ring.Certify(id, "", now), ring.Prepare(next)); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	v := New(st, ring)
	rows, lost := map[store.SecretKey]*store.Secret{}, store.SecretKey{Namespace: "default", Name: "lost"}
	big := strings.Repeat("x", resealBatch/8)
	for i := range 12 {
		k := store.SecretKey{Namespace: []string{"default", "team"}[i%2], Name: fmt.Sprint("s", i)}
		row := &store.Secret{Version: 2}
		if row.Sealed, err = v.Seal(k, 2, fmt.Sprint("now ", i, big)); err != nil {
			t.Fatal(err)
		}
		if row.Previous, err = v.Seal(k, 1, fmt.Sprint("before ", i)); err != nil {
			t.Fatal(err)
		}
		rows[k] = row
	}
	sealed, err := stranger.Seal([]byte("x"), binding(lost, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	rows[lost] = &store.Secret{Version: 1, Sealed: sealed}
	put(t, st, rows)
	if items, err := v.Outdated(); err != nil || len(items) != 0 {
		t.Fatalf("before the rotation: %d, %v", len(items), err)
	}
	cross, err := old.Cross(next.Cert)
	if err != nil {
		t.Fatal(err)
	}
	c := keys.Committed{CA: keys.HashOf(next.Cert), Cert: next.Cert.Raw,
		Former: []keys.Succeeded{{Cert: old.Cert.Raw, Cross: cross}}}
	if _, err := ring.Follow(c, true); err != nil {
		t.Fatal(err)
	}
	batches := 0
	for ; ; batches++ {
		items, err := v.Outdated()
		if err != nil {
			t.Fatal(err)
		}
		if len(items) == 0 {
			break
		}
		changed := map[store.SecretKey]*store.Secret{}
		for _, it := range items {
			k, row := resealed(t, st, it)
			changed[k] = row
		}
		put(t, st, changed)
	}
	if batches < 2 {
		t.Errorf("all of it was in %d batches", batches)
	}
	n := 0
	st.EachSecret(func(k store.SecretKey, row *store.Secret) {
		if n++; k == lost {
			if keys.SealedBy(row.Sealed) != stranger.KeyID() {
				t.Error("what could not be opened was touched")
			}
			return
		}
		if keys.SealedBy(row.Sealed) != next.KeyID() || keys.SealedBy(row.Previous) != next.KeyID() {
			t.Errorf("%v is sealed with the old cluster key", k)
		}
		got := v.Values(k.Namespace, []string{k.Name})
		i := strings.TrimPrefix(k.Name, "s")
		if len(got) != 2 || got[0] != "now "+i+big || got[1] != "before "+i {
			t.Errorf("%v has %d values", k, len(got))
		}
	})
	if n != len(rows) {
		t.Errorf("%d of %d secrets are there", n, len(rows))
	}
}

// resealed is the row of a secret after an item was applied.
func resealed(t *testing.T, st *store.Store, it fsm.ResealedSecret) (store.SecretKey, *store.Secret) {
	t.Helper()
	k := store.SecretKey{Namespace: it.Namespace, Name: it.Name}
	was, ok := st.Secret(k)
	if !ok || !bytes.Equal(keys.SealMark(was.Sealed), it.Was) {
		t.Fatalf("%v is not the one that was sealed anew", k)
	}
	row := *was
	row.Sealed, row.Previous = it.Sealed, it.Previous
	return k, &row
}
