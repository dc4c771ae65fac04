package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// A certificate of another CA is shown to who asks for its hosts, and to none that know the CA of the cluster: nodes
// join and lead, and clients with a token find the cluster, at the same addresses.
func TestOperatorCertificate(t *testing.T) {
	realTime(t)
	t.Parallel()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"carillon.example.com"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pk}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	secure, a := securely(t)
	c := startJoined(t, 2, secure, func(cfg *Config) { cfg.Keys.TLSCert, cfg.Keys.TLSKey = cert, key })
	c.awaitVoters(2)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	for _, m := range c.members {
		for _, name := range []string{"", "carillon.example.com"} {
			hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
				TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name}}}
			res, err := hc.Get("https://" + m.Addr() + "/healthz")
			if err != nil {
				t.Errorf("%s as %q: %v", m.id(), name, err)
				continue
			}
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("%s as %q: %s", m.id(), name, res.Status)
			}
		}
		if err := sees(m, keys.HashOf(a.Cert)); err != nil {
			t.Errorf("%s: %v", m.id(), err)
		}
	}
	for want, change := range map[string]func(*Config){
		"--secure":  func(c *Config) { c.Keys = KeysConfig{TLSCert: cert, TLSKey: key} },
		"--tls-key": func(c *Config) { c.Keys = KeysConfig{On: true, TLSCert: cert} },
		"no such":   func(c *Config) { c.Keys = KeysConfig{On: true, TLSCert: cert, TLSKey: key + "x"} },
	} {
		cfg := testConfig(t, t.TempDir())
		change(&cfg)
		n, err := Open(cfg)
		if err == nil {
			n.Close()
		}
		if err == nil || !strings.Contains(errorAndRemedy(err), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func errorAndRemedy(err error) string {
	if e, ok := errors.AsType[*job.Error](err); ok {
		return err.Error() + " " + e.Remedy
	}
	return err.Error()
}
