package keys_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

func TestSeal(t *testing.T) {
	a, other := authority(t, "c1"), authority(t, "c1")
	for _, n := range []int{0, 1, 61, 62, 63, 64, 1000, keys.MaxSealed} {
		value := []byte(strings.Repeat("v", n))
		sealed, err := a.Seal(value, "team-a", "api-key", "3")
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.Open(sealed, "team-a", "api-key", "3")
		if err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d bytes came back as %d, %v", n, len(got), err)
		}
		if n > 5 && bytes.Contains(sealed, value[:6]) {
			t.Errorf("%d bytes: the value can be read", n)
		}
		if keys.SealedBy(sealed) != a.KeyID() {
			t.Errorf("sealed by %q and not %q", keys.SealedBy(sealed), a.KeyID())
		}
	}
	if _, err := a.Seal(make([]byte, keys.MaxSealed+1)); err == nil {
		t.Error("a value was sealed that is too long")
	}
	sealed, err := a.Seal([]byte("value"), "team-a", "api-key", "3")
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.Seal([]byte("value"), "team-a", "api-key", "3")
	if err != nil || bytes.Equal(sealed, again) {
		t.Errorf("a value sealed twice is the same, %v", err)
	}
	if same, err := a.Seal([]byte("another one"), "x"); err != nil || len(same) != len(sealed) {
		t.Errorf("the length of a value shows: %d and %d, %v", len(same), len(sealed), err)
	}
	for name, binding := range map[string][]string{"another namespace": {"team-b", "api-key", "3"},
		"another name": {"team-a", "api-kez", "3"}, "another version": {"team-a", "api-key", "2"},
		"other borders": {"team-aapi", "-key", "3"}, "none": nil, "more": {"team-a", "api-key", "3", ""}} {
		if _, err := a.Open(sealed, binding...); err == nil {
			t.Errorf("it opens with %s", name)
		}
	}
	if _, err := other.Open(sealed, "team-a", "api-key", "3"); !errors.Is(err, keys.ErrSealedByOther) {
		t.Errorf("another cluster key: %v", err)
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := a.Open(bad, "team-a", "api-key", "3"); err == nil {
			t.Fatalf("it opens with byte %d changed", i)
		}
		if _, err := a.Open(sealed[:i], "team-a", "api-key", "3"); err == nil {
			t.Fatalf("%d bytes of it open", i)
		}
	}
}
