package keys_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/keys"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func authority(t testing.TB, cluster string) *keys.Authority {
	t.Helper()
	a, err := keys.NewAuthority(cluster, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func certify(t testing.TB, a *keys.Authority, id keys.Identity, now time.Time) *x509.Certificate {
	t.Helper()
	der, err := a.Certify(newKey(t).Public(), id, "10.0.0.1", now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestIdentityComesBackAsItWas(t *testing.T) {
	a := authority(t, "c1")
	for _, node := range []string{"n1", "N1", "*", "a.b-c", "..", "%2f", "a?b#c", "a@b:1", "&=+$,;",
		strings.Repeat("x", 64)} {
		for _, joined := range []uint64{0, 1, 1 << 63} {
			id := keys.Identity{Cluster: "c1", Node: node, Instance: "i-" + node, Joined: joined}
			got, err := keys.VerifyNode([]*x509.Certificate{certify(t, a, id, epoch)}, a.Cert)
			if err != nil || got != id {
				t.Errorf("%+v came back as %+v, %v", id, got, err)
			}
		}
	}
	if (keys.Identity{Node: "n1"}).DNSName() == (keys.Identity{Node: "N1"}).DNSName() {
		t.Error("two nodes have one name")
	}
}

func TestCertifyRefuses(t *testing.T) {
	a := authority(t, "c1")
	good := keys.Identity{Cluster: "c1", Node: "n1", Instance: "i1"}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		id  keys.Identity
		pub any
	}{
		"another cluster": {keys.Identity{Cluster: "c2", Node: "n1", Instance: "i1"}, newKey(t).Public()},
		"no id":           {keys.Identity{Cluster: "c1", Instance: "i1"}, newKey(t).Public()},
		"no instance":     {keys.Identity{Cluster: "c1", Node: "n1"}, newKey(t).Public()},
		"a line break":    {keys.Identity{Cluster: "c1", Node: "n\n1", Instance: "i1"}, newKey(t).Public()},
		"another curve":   {good, p384.Public()},
	} {
		if _, err := a.Certify(tc.pub, tc.id, "h", epoch); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
	for _, id := range []string{"", "A", "a b", "a/b", "-a", strings.Repeat("a", 64)} {
		if _, err := keys.NewAuthority(id, epoch); err == nil {
			t.Errorf("a cluster %q has a CA", id)
		}
	}
}

// A peer is who the cluster's CA says. Dates do not matter, everything else does.
func TestVerifyNode(t *testing.T) {
	a, other := authority(t, "c1"), authority(t, "c1")
	id := keys.Identity{Cluster: "c1", Node: "n1", Instance: "i1", Joined: 7}
	for name, at := range map[string]time.Time{
		"a year ago": epoch.AddDate(-1, 0, 0), "before the CA": epoch.AddDate(-20, 0, 0),
		"after the CA": epoch.AddDate(30, 0, 0)} {
		if got, err := keys.VerifyNode([]*x509.Certificate{certify(t, a, id, at)}, a.Cert); err != nil || got != id {
			t.Errorf("signed %s: %+v, %v", name, got, err)
		}
	}
	client := *certify(t, a, id, epoch)
	for name, certs := range map[string][]*x509.Certificate{
		"nothing":                    nil,
		"another CA of that name":    {certify(t, other, id, epoch)},
		"… with ours beside it":      {certify(t, other, id, epoch), a.Cert},
		"the CA itself":              {a.Cert},
		"a certificate without role": {without(client, func(c *x509.Certificate) { c.URIs = nil })},
		"one not for servers":        {without(client, func(c *x509.Certificate) { c.ExtKeyUsage = nil })},
		"one without its name":       {without(client, func(c *x509.Certificate) { c.DNSNames = nil })},
	} {
		if got, err := keys.VerifyNode(certs, a.Cert); err == nil {
			t.Errorf("%s: taken for %+v", name, got)
		}
	}
}

// without is a certificate as if it had been signed otherwise: the signature is over the bytes, which stay.
func without(c x509.Certificate, change func(*x509.Certificate)) *x509.Certificate {
	change(&c)
	return &c
}

func TestFindCA(t *testing.T) {
	a, other := authority(t, "c1"), authority(t, "c1")
	leaf := certify(t, a, keys.Identity{Cluster: "c1", Node: "n1", Instance: "i1"}, epoch)
	if ca, err := keys.FindCA([]*x509.Certificate{leaf, a.Cert}, keys.HashOf(a.Cert)); err != nil || ca != a.Cert {
		t.Errorf("%v, %v", ca, err)
	}
	for name, pin := range map[string]keys.Hash{
		"another": keys.HashOf(other.Cert), "none": {}, "the leaf's": keys.HashOf(leaf)} {
		if _, err := keys.FindCA([]*x509.Certificate{leaf, a.Cert}, pin); err == nil {
			t.Errorf("%s pin was found", name)
		}
	}
	// A node that has not joined yet shows no CA: that is no sign of another cluster.
	for _, shown := range [][]*x509.Certificate{{leaf, a.Cert}, {leaf}, nil} {
		_, err := keys.FindCA(shown, keys.HashOf(other.Cert))
		if foreign := errors.As(err, new(keys.OtherCAError)); foreign != (len(shown) == 2) {
			t.Errorf("%d certificates: %v", len(shown), err)
		}
	}
}

func TestRequest(t *testing.T) {
	key := newKey(t)
	der, err := keys.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := keys.ParseRequest(der)
	if err != nil || !key.PublicKey.Equal(pub) {
		t.Fatalf("%v, %v", pub, err)
	}
	for i := range der {
		wrong := bytes.Clone(der)
		wrong[i] ^= 0x40
		if pub, err := keys.ParseRequest(wrong); err == nil && !key.PublicKey.Equal(pub) {
			t.Fatalf("byte %d changed: another key was taken", i)
		}
	}
}

// A proof is good for one token, one key and one node.
func TestProof(t *testing.T) {
	a := authority(t, "c1")
	key, err := keys.KeyHash(newKey(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	tok := a.JoinToken("abcdefghjkmn")
	if text := tok.Text(); true {
		back, err := keys.ParseToken(keys.JoinToken, text)
		if err != nil || back != tok {
			t.Fatalf("%v, %v", back, err)
		}
	}
	proof := tok.Proof(key, "n1", "i1")
	if !tok.Proves(proof, key, "n1", "i1") {
		t.Fatal("a proof was refused")
	}
	for name, ok := range map[string]bool{
		"another key":      tok.Proves(proof, keys.Hash{1}, "n1", "i1"),
		"another node":     tok.Proves(proof, key, "n2", "i1"),
		"another instance": tok.Proves(proof, key, "n1", "i2"),
		"moved border":     tok.Proves(tok.Proof(key, "n1i", "1"), key, "n1", "i1"),
		"another token":    a.JoinToken("abcdefghjkmp").Proves(proof, key, "n1", "i1"),
		"another cluster":  authority(t, "c1").JoinToken("abcdefghjkmn").Proves(proof, key, "n1", "i1"),
		"none":             tok.Proves(nil, key, "n1", "i1"),
	} {
		if ok {
			t.Errorf("%s: proven", name)
		}
	}
}

func TestAuthorityComesBackAsItWas(t *testing.T) {
	a := authority(t, "c1")
	data, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	b, err := keys.DecodeAuthorities(data)
	if err != nil || !bytes.Equal(a.Derive("x"), b.Current.Derive("x")) || b.Current.Cluster() != "c1" ||
		!bytes.Equal(a.Shows([]byte("1"), "n", "i"), b.Current.Shows([]byte("1"), "n", "i")) {
		t.Fatalf("%v", err)
	}
	if bytes.Equal(a.Derive("x"), a.Derive("y")) {
		t.Error("two uses have one secret")
	}
	for i := 0; i < len(data)-1; i += 7 {
		if _, err := keys.DecodeAuthorities(data[:i]); err == nil {
			t.Errorf("cut off at %d it was taken", i)
		}
	}
	mixed, err := authority(t, "c1").Encode()
	if err != nil {
		t.Fatal(err)
	}
	end := []byte("-----END CERTIFICATE-----\n")
	_, tail, _ := bytes.Cut(mixed, end)
	head, _, _ := bytes.Cut(data, end)
	if _, err := keys.DecodeAuthorities(append(append(head, end...), tail...)); err == nil {
		t.Error("the key of another CA was taken")
	}
}

// begin makes the ring of a node that begins a cluster.
func begin(t *testing.T, dir string, step faultpoint.Step) (*keys.Ring, error) {
	t.Helper()
	r, err := keys.OpenRing(dir, step)
	if err != nil {
		t.Fatalf("the directory that a crash left is refused: %v", err)
	}
	if r.Authority() == nil {
		if err := r.Keep(authority(t, "c1")); err != nil {
			return nil, err
		}
	}
	return r, r.Certify(keys.Identity{Cluster: "c1", Node: "n1", Instance: "i1"}, "10.0.0.1", epoch)
}

// A crash at any step leaves files that can be opened, and the next start gets to the end. What was written once,
// and may have been seen by others, stays.
func TestCrashBetweenSteps(t *testing.T) {
	for at := 1; ; at++ {
		dir := filepath.Join(t.TempDir(), "keys")
		n := 0
		crash := func(name string) error {
			if n++; n == at {
				return fmt.Errorf("%s: %w", name, faultpoint.ErrCutOff)
			}
			return nil
		}
		_, err := begin(t, dir, crash)
		done := err == nil
		if !done && !errors.Is(err, faultpoint.ErrCutOff) {
			t.Fatal(err)
		}
		before, _ := keys.ReadAuthority(dir) //nolint:errcheck // nil is what is asked
		r, err := begin(t, dir, nil)
		if err != nil {
			t.Fatalf("after a crash at step %d: %v", at, err)
		}
		if before != nil && keys.HashOf(before.Cert) != r.CAHash() {
			t.Errorf("after a crash at step %d the cluster has another CA", at)
		}
		if id, ok := r.Identity(); !ok || id.Node != "n1" {
			t.Errorf("after a crash at step %d: %+v", at, id)
		}
		if done {
			if at < 8 {
				t.Errorf("only %d steps", at)
			}
			return
		}
	}
}

// A renewal that is cut off leaves the old certificate or the new one, and the key stays.
func TestCrashInRenewal(t *testing.T) {
	for at := 1; at <= 4; at++ {
		dir := filepath.Join(t.TempDir(), "keys")
		r, err := begin(t, dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		key, err := r.Key()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		r, err = keys.OpenRing(dir, func(string) error {
			if n++; n == at {
				return faultpoint.ErrCutOff
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		later := epoch.AddDate(0, 0, 8)
		if !r.Due(later) || r.Due(epoch.AddDate(0, 0, 6)) || !r.Due(epoch.AddDate(-1, 0, 0)) {
			t.Error("a certificate of fourteen days is not renewed at half of that")
		}
		err = r.Certify(keys.Identity{Cluster: "c1", Node: "n1", Instance: "i1", Joined: 5}, "10.0.0.1", later)
		if (err == nil) != (at == 4) {
			t.Fatalf("step %d: %v", at, err)
		}
		again, err := keys.OpenRing(dir, nil)
		if err != nil {
			t.Fatalf("after a crash at step %d: %v", at, err)
		}
		k, err := again.Key()
		if err != nil || !key.Public().(*ecdsa.PublicKey).Equal(k.Public()) {
			t.Errorf("after a crash at step %d the node has another key: %v", at, err)
		}
		if id, ok := again.Identity(); !ok || id.Joined != 0 && at < 3 {
			t.Errorf("after a crash at step %d: %+v", at, id)
		}
	}
}

func TestRingRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	r, err := keys.OpenRing(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Shown(); err == nil {
		t.Error("a certificate out of nothing")
	}
	key, err := r.Key()
	if err != nil {
		t.Fatal(err)
	}
	a, other := authority(t, "c1"), authority(t, "c1")
	r.Pin(keys.HashOf(a.Cert))
	id := keys.Identity{Cluster: "c1", Node: "n1", Instance: "i1"}
	sign := func(a *keys.Authority, pub any) []byte {
		der, err := a.Certify(pub, id, "h", epoch)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	for name, err := range map[string]error{
		"another CA":  r.Install(keys.Issued{Leaf: sign(other, key.Public()), CA: other.Cert.Raw}),
		"another key": r.Install(keys.Issued{Leaf: sign(a, newKey(t).Public()), CA: a.Cert.Raw}),
		"a mix":       r.Install(keys.Issued{Leaf: sign(other, key.Public()), CA: a.Cert.Raw}),
	} {
		if err == nil {
			t.Errorf("%s: installed", name)
		}
	}
	joining := shown(t, r)
	if err := r.Install(keys.Issued{Leaf: sign(a, key.Public()), CA: a.Cert.Raw}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Verify(joining); !errors.Is(err, keys.ErrJoining) {
		t.Errorf("what a node shows that has no certificate yet: %v", err)
	}
	if err := r.Keep(other); err == nil {
		t.Error("the keys of another cluster were kept")
	}
	if err := r.Keep(a); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		if fi, err := e.Info(); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", e.Name(), fi.Mode(), err)
		}
	}
	data, err := other.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, keys.ClusterFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.OpenRing(dir, nil); err == nil || !strings.Contains(err.Error(), "another CA") {
		t.Errorf("files of two clusters: %v", err)
	}
}

func FuzzParseURI(f *testing.F) {
	f.Add("carillon://c1/node/n1/i1?joined=5")
	f.Add("carillon://c1/node/n1/i1?joined=5&voter=7")
	f.Add("carillon://c1/node/%2A/i1")
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := keys.ParseURI(text); err == nil && id.URI() != text {
			t.Errorf("%q is a second text of %+v", text, id)
		}
	})
}

func FuzzDecodeAuthorities(f *testing.F) {
	a, err := keys.NewAuthority("c1", epoch)
	if err != nil {
		f.Fatal(err)
	}
	data, err := a.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, err := keys.DecodeAuthorities(data); err == nil && a.Current.Cluster() == "" {
			t.Error("an authority of no cluster")
		}
	})
}
