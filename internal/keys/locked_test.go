package keys_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// Keys come back with their passphrase, what follows them in the stream is left there, and nothing of them is readable.
func TestLockedKeys(t *testing.T) {
	const cheap = 4
	pass := []byte("correct horse battery staple")
	all := keys.Authorities{Current: authority(t, "c1"), Next: authority(t, "c1")}
	if _, err := all.Lock([]byte("too short"), cheap); err == nil {
		t.Error("a short passphrase is taken")
	}
	text, err := all.Lock(pass, cheap)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := all.Encode()
	if err != nil || bytes.Contains(text, plain[40:80]) {
		t.Errorf("%v", err)
	}
	in := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(text), strings.NewReader("the state\n")), 64)
	locked, err := keys.ReadLocked(in)
	if err != nil || locked.Cluster != "c1" {
		t.Fatalf("%+v, %v", locked, err)
	}
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "the state\n" {
		t.Errorf("%q, %v", rest, err)
	}
	got, err := locked.Open(pass)
	if err != nil || !got.Current.Cert.Equal(all.Current.Cert) || got.Current.KeyID() != all.Current.KeyID() ||
		got.Next.KeyID() != all.Next.KeyID() {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := locked.Open([]byte("correct horse battery stable")); err == nil {
		t.Error("another passphrase opens them")
	}
	if l, err := keys.ReadLocked(bufio.NewReader(strings.NewReader("CARILLON"))); l != nil || err != nil {
		t.Errorf("%+v, %v", l, err)
	}
	for name, bad := range map[string]string{
		"cut":           string(text[:len(text)-9]),
		"other cluster": strings.Replace(string(text), "Cluster: c1", "Cluster: c2", 1),
		"other salt":    strings.Replace(string(text), "Salt: ", "Salt: AAAA", 1),
		"huge":          strings.Replace(string(text), "scrypt 4 ", "scrypt 40 ", 1),
		"negative":      strings.Replace(string(text), "scrypt 4 ", "scrypt -1 ", 1),
		"other way":     strings.Replace(string(text), "scrypt 4 ", "rot13 4 ", 1),
		"endless":       string(text[:40]) + strings.Repeat("A", 1<<20),
	} {
		l, err := keys.ReadLocked(bufio.NewReader(strings.NewReader(bad)))
		if err == nil {
			_, err = l.Open(pass)
		}
		if err == nil {
			t.Errorf("%s: it opens", name)
		}
	}
}

// What a cluster was founded with opens what the old one sealed, and is known to who knows the old one.
func TestRefoundedKeys(t *testing.T) {
	old := keys.Authorities{Current: authority(t, "c1"), Next: authority(t, "c1")}
	for i, of := range []*keys.Authority{old.Current, old.Next} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			out, cross, err := old.Refound("c2", keys.HashOf(of.Cert), epoch)
			if err != nil || out.Current.Cluster() != "c2" || len(out.Former) != 2 || len(cross) == 0 {
				t.Fatalf("%+v, %v", out, err)
			}
			data, err := out.Encode()
			if err != nil {
				t.Fatal(err)
			}
			back, err := keys.DecodeAuthorities(data)
			if err != nil || back.Opener(old.Current.KeyID()) == nil || back.Opener(old.Next.KeyID()) == nil {
				t.Fatalf("%+v, %v", back, err)
			}
			if _, err := back.Former[0].Certify(newKey(t).Public(), rotated, "h", epoch); err == nil {
				t.Error("a CA of the old cluster signs")
			}
		})
	}
	if _, _, err := old.Refound("c2", keys.Hash{1}, epoch); err == nil {
		t.Error("keys of another state are taken")
	}
}
