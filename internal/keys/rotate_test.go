package keys_test

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/keys"
)

var rotated = keys.Identity{Cluster: "c1", Node: "n1", Instance: "i1"}

func cross(t *testing.T, by *keys.Authority, next *x509.Certificate) []byte {
	t.Helper()
	der, err := by.Cross(next)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// shown are the certificates that a ring shows.
func shown(t *testing.T, r *keys.Ring) (out []*x509.Certificate) {
	t.Helper()
	c, err := r.Shown()
	if err != nil {
		t.Fatal(err)
	}
	for _, der := range c.Certificate {
		x, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
	return out
}

// straight looks for the way from a certificate to a root as OpenSSL does: the issuer is the root, or else the first that
// was shown and fits. It never goes back to try the next.
func straight(certs []*x509.Certificate, root *x509.Certificate) error {
	at := certs[0]
	for range certs {
		if at.CheckSignatureFrom(root) == nil {
			return nil
		}
		i := slices.IndexFunc(certs, func(c *x509.Certificate) bool {
			return bytes.Equal(c.RawSubject, at.RawIssuer) && at.CheckSignatureFrom(c) == nil
		})
		if i < 0 || certs[i].Equal(at) {
			return fmt.Errorf("it ends at certificate %d, whose issuer is %s", slices.Index(certs, at), at.Issuer)
		}
		at = certs[i]
	}
	return errors.New("it has no end")
}

// Who trusts a CA knows nodes of the ones that followed it, by carillon's rules and by those of every TLS client.
func TestFormerCAsVouch(t *testing.T) {
	all := []*keys.Authority{authority(t, "c1")}
	dir := filepath.Join(t.TempDir(), "keys")
	r, err := keys.OpenRing(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Keep(all[0]), r.Certify(rotated, "10.0.0.1", epoch)); err != nil {
		t.Fatal(err)
	}
	c := keys.Committed{CA: keys.HashOf(all[0].Cert)}
	for range keys.MaxFormer {
		old, next := all[len(all)-1], authority(t, "c1")
		all = append(all, next)
		c.Next, c.Cross = next.Cert.Raw, cross(t, old, next.Cert)
		if err := r.Prepare(next); err != nil {
			t.Fatal(err)
		}
		if moved, err := r.Follow(c, false); err != nil || !moved || !r.Due(epoch) || !r.Whole() {
			t.Fatalf("%v, %v", moved, err)
		}
		if !r.Trusts(keys.HashOf(old.Cert)) || !r.Trusts(keys.HashOf(next.Cert)) {
			t.Error("while one takes the place of another both are trusted")
		}
		if err := r.Certify(rotated, "10.0.0.1", epoch); err != nil || r.Due(epoch) {
			t.Fatal(err)
		}
		c.Former = append([]keys.Succeeded{{Cert: old.Cert.Raw, Cross: c.Cross}}, c.Former...)
		c.CA, c.Cert, c.Next, c.Cross = keys.HashOf(next.Cert), next.Cert.Raw, nil, nil
		if moved, err := r.Follow(c, false); err != nil || !moved {
			t.Fatalf("%v, %v", moved, err)
		}
		if moved, err := r.Follow(c, false); err != nil || moved {
			t.Fatalf("nothing has changed: %v, %v", moved, err)
		}
		if r, err = keys.OpenRing(dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	certs := shown(t, r)
	for i, a := range all {
		if id, err := keys.VerifyNode(certs, a.Cert); err != nil || id != rotated {
			t.Errorf("by CA %d: %v", i, err)
		}
		roots, inter := x509.NewCertPool(), x509.NewCertPool()
		roots.AddCert(a.Cert)
		for _, x := range certs[1:] {
			inter.AddCert(x)
		}
		_, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, CurrentTime: epoch,
			DNSName: "10.0.0.1"})
		if err != nil {
			t.Errorf("by CA %d and x509: %v", i, err)
		}
		if err := straight(certs, a.Cert); err != nil {
			t.Errorf("by CA %d without turning back: %v", i, err)
		}
		if r.Trusts(keys.HashOf(a.Cert)) != (i == len(all)-1) {
			t.Errorf("CA %d is trusted, or the last one is not", i)
		}
	}
	if _, err := keys.VerifyNode(certs, authority(t, "c1").Cert); err == nil {
		t.Error("a CA that vouched for nothing is believed")
	}
	// What was derived from a former cluster key is known; a former CA signs nothing.
	held := r.Authorities()
	if len(held.Former) != keys.MaxFormer || held.Next != nil || len(r.Secrets("x")) != keys.MaxFormer+1 ||
		!bytes.Equal(r.Secrets("x")[1], all[len(all)-2].Derive("x")) {
		t.Errorf("%+v", held)
	}
	if _, err := held.Former[0].Certify(newKey(t).Public(), rotated, "", epoch); err == nil {
		t.Error("a former CA signs")
	}
	sealed, err := all[0].Seal([]byte("secret"), "b")
	if err != nil {
		t.Fatal(err)
	}
	if by := held.Opener(keys.SealedBy(sealed)); by == nil {
		t.Error("what was sealed with a former cluster key is lost")
	} else if v, err := by.Open(sealed, "b"); err != nil || string(v) != "secret" {
		t.Errorf("%q, %v", v, err)
	}
}

// A CA that is not trusted any more vouches for no node; members are known by their keys.
func TestDistrustedCA(t *testing.T) {
	old, next := authority(t, "c1"), authority(t, "c1")
	dir := filepath.Join(t.TempDir(), "keys")
	r, err := keys.OpenRing(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Keep(old), r.Certify(rotated, "", epoch), r.Prepare(next)); err != nil {
		t.Fatal(err)
	}
	member := certify(t, old, keys.Identity{Cluster: "c1", Node: "n2", Instance: "i2", Voter: 7}, epoch)
	forged := certify(t, old, keys.Identity{Cluster: "c1", Node: "n2", Instance: "i2"}, epoch)
	p, err := r.Verify([]*x509.Certificate{member})
	if err != nil || p.CA != keys.HashOf(old.Cert) || p.Voter != 7 {
		t.Fatalf("%+v, %v", p, err)
	}
	r.Recognise(func(id keys.Identity, key keys.Hash) bool { return id.Node == "n2" && key == p.Key })
	c := keys.Committed{CA: keys.HashOf(old.Cert), Next: next.Cert.Raw, Distrust: true}
	if _, err := r.Follow(c, false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := r.Verify([]*x509.Certificate{member}); err != nil || got.CA != (keys.Hash{}) || got.Voter != 0 {
			t.Errorf("%+v, %v: what no CA vouches for says that it votes", got, err)
		}
		if got, err := r.Verify([]*x509.Certificate{forged, old.Cert}); err == nil {
			t.Errorf("%+v", got)
		}
		if n := len(r.Secrets("x")); n != 1 || !bytes.Equal(r.Secrets("x")[0], next.Derive("x")) {
			t.Errorf("%d secrets", n)
		}
		if err := r.Certify(rotated, "", epoch); err != nil {
			t.Fatal(err)
		}
		c = keys.Committed{CA: keys.HashOf(next.Cert), Cert: next.Cert.Raw,
			Former: []keys.Succeeded{{Cert: old.Cert.Raw}}}
		if _, err := r.Follow(c, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := keys.VerifyNode(shown(t, r), old.Cert); err == nil {
		t.Error("the old CA vouches for the new one")
	}
	if held := r.Authorities(); held.Opener(old.KeyID()) == nil {
		t.Error("what was sealed with the old cluster key is lost")
	}
	if r, err = keys.OpenRing(dir, nil); err != nil || len(r.Secrets("x")) != 1 {
		t.Errorf("%v", err)
	}
}

// A rotation is given up when a node has a certificate of the new CA already. Until it has one of the old CA again, who
// trusts that goes on to know it, also after a restart; the CA that was given up vouches for no other node.
func TestGivenUpCAIsVouchedFor(t *testing.T) {
	old, next := authority(t, "c1"), authority(t, "c1")
	dir := filepath.Join(t.TempDir(), "keys")
	r, err := keys.OpenRing(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := keys.Committed{CA: keys.HashOf(old.Cert), Next: next.Cert.Raw, Cross: cross(t, old, next.Cert)}
	if err := errors.Join(r.Keep(old), r.Certify(rotated, "10.0.0.1", epoch), r.Prepare(next)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Follow(c, false); err != nil || !r.Superseded() {
		t.Fatal(err)
	}
	if err := r.Certify(rotated, "10.0.0.1", epoch); err != nil || r.Superseded() {
		t.Fatal(err)
	}
	c.Former = []keys.Succeeded{{Cert: c.Next, Cross: c.Cross, Aborted: true}}
	c.Next, c.Cross = nil, nil
	if moved, err := r.Follow(c, false); err != nil || !moved || !r.Superseded() {
		t.Fatalf("%v, %v", moved, err)
	}
	for _, reopened := range []bool{false, true} {
		if reopened {
			if r, err = keys.OpenRing(dir, nil); err != nil {
				t.Fatal(err)
			}
		}
		if id, err := keys.VerifyNode(shown(t, r), old.Cert); err != nil || id != rotated {
			t.Errorf("by the CA in use: %v", err)
		}
		if r.Trusts(keys.HashOf(next.Cert)) || !r.Trusts(keys.HashOf(old.Cert)) {
			t.Error("the CA that was given up is trusted, or the one in use is not")
		}
	}
	if _, err := r.Follow(c, false); err != nil {
		t.Fatal(err)
	}
	if err := r.Certify(rotated, "10.0.0.1", epoch); err != nil || r.Superseded() {
		t.Fatal(err)
	}
	if _, err := r.Follow(c, false); err != nil {
		t.Fatal(err)
	}
	if n := len(shown(t, r)); n != 2 {
		t.Errorf("%d certificates are shown", n)
	}
}

// The state may be older than the files after a crash: what it has not heard of stays, unless it is the newest.
func TestFollowIsNotLedBack(t *testing.T) {
	old, next := authority(t, "c1"), authority(t, "c1")
	r, err := keys.OpenRing(filepath.Join(t.TempDir(), "keys"), nil)
	if err != nil {
		t.Fatal(err)
	}
	before := keys.Committed{CA: keys.HashOf(old.Cert)}
	during := keys.Committed{CA: before.CA, Next: next.Cert.Raw, Distrust: true}
	if err := errors.Join(r.Keep(old), r.Certify(rotated, "", epoch), r.Prepare(next)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Follow(during, false); err != nil {
		t.Fatal(err)
	}
	if err := r.Certify(rotated, "", epoch); err != nil {
		t.Fatal(err)
	}
	if moved, err := r.Follow(before, false); err != nil || moved || r.Trusts(before.CA) {
		t.Errorf("%v, %v", moved, err)
	}
	if moved, err := r.Follow(before, true); err != nil || !moved || !r.Trusts(before.CA) || !r.Due(epoch) {
		t.Errorf("%v, %v", moved, err)
	}
	bad := keys.Committed{CA: before.CA, Next: []byte("x")}
	if _, err := r.Follow(bad, true); err == nil {
		t.Error("a damaged certificate was taken")
	}
}

// A crash between any two steps leaves keys that open, and that the same state leads on from.
func TestFollowIsCutOff(t *testing.T) {
	for at := 1; ; at++ {
		old, next := authority(t, "c1"), authority(t, "c1")
		dir := filepath.Join(t.TempDir(), "keys")
		r, err := keys.OpenRing(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Keep(old), r.Certify(rotated, "", epoch)); err != nil {
			t.Fatal(err)
		}
		x := cross(t, old, next.Cert)
		n := 0
		step := func(string) error {
			if n++; n >= at {
				return faultpoint.ErrCutOff
			}
			return nil
		}
		run := func(step faultpoint.Step) error {
			r, err := keys.OpenRing(dir, step)
			if err != nil {
				t.Fatalf("after a crash at step %d: %v", at, err)
			}
			during := keys.Committed{CA: keys.HashOf(old.Cert), Next: next.Cert.Raw, Cross: x}
			after := keys.Committed{CA: keys.HashOf(next.Cert), Cert: next.Cert.Raw,
				Former: []keys.Succeeded{{Cert: old.Cert.Raw, Cross: x}}}
			if r.Authority().Cert.Equal(old.Cert) {
				if err := r.Prepare(next); err != nil {
					return err
				}
				if _, err := r.Follow(during, false); err != nil {
					return err
				}
				if err := r.Certify(rotated, "", epoch.Add(time.Hour)); err != nil {
					return err
				}
			}
			_, err = r.Follow(after, false)
			return err
		}
		if err := run(step); err == nil {
			if at < 10 {
				t.Errorf("%d steps", at-1)
			}
			return
		} else if !errors.Is(err, faultpoint.ErrCutOff) {
			t.Fatal(err)
		}
		if err := run(nil); err != nil {
			t.Fatalf("after a crash at step %d: %v", at, err)
		}
		if r, err = keys.OpenRing(dir, nil); err != nil || r.CAHash() != keys.HashOf(next.Cert) ||
			!r.Authority().Cert.Equal(next.Cert) || r.Authorities().Next != nil {
			t.Fatalf("after a crash at step %d: %v", at, err)
		}
	}
}
