package keys_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// publicCert writes a self-signed certificate for hosts, as an operator has one from elsewhere.
func publicCert(t *testing.T, dir, name string, hosts ...string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: epoch, NotAfter: epoch.Add(time.Hour)}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pk}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

type fromAddr struct {
	net.Conn
	ip string
}

func (f fromAddr) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 7400} }

// The operator's certificate is for the hosts that it names, and for nothing that knows the cluster's CA. It is read
// again when its files change, and what cannot be read leaves the one before.
func TestOperatorCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := publicCert(t, dir, "first", "carillon.example.com", "*.apps.example.com", "10.0.0.1")
	now := epoch
	var log strings.Builder
	o, err := keys.OpenOperator(cert, key, slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	name := func(server, ip string) string {
		if c := o.For(&tls.ClientHelloInfo{ServerName: server, Conn: fromAddr{ip: ip}}); c != nil {
			return c.Leaf.Subject.CommonName
		}
		return ""
	}
	for _, tt := range []struct{ server, ip, want string }{
		{"carillon.example.com", "10.0.0.9", "first"}, {"CARILLON.example.com", "10.0.0.9", "first"},
		{"a.apps.example.com", "10.0.0.9", "first"}, {"", "10.0.0.1", "first"}, {"", "10.0.0.9", ""},
		{"other.example.com", "10.0.0.1", ""}, {keys.ServerName, "10.0.0.1", ""},
		{rotated.DNSName(), "10.0.0.1", ""}, {"localhost", "10.0.0.1", ""},
	} {
		if got := name(tt.server, tt.ip); got != tt.want {
			t.Errorf("%q at %s: %q", tt.server, tt.ip, got)
		}
	}
	if c := (*keys.Operator)(nil).For(&tls.ClientHelloInfo{ServerName: "carillon.example.com"}); c != nil {
		t.Error("there is none")
	}

	// One file is replaced and the other not yet.
	old, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	publicCert(t, dir, "second", "carillon.example.com")
	fresh, err := os.ReadFile(key)
	if err == nil {
		err = os.WriteFile(key, append(old, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := name("carillon.example.com", ""); got != "first" {
		t.Errorf("it is looked at all the time: %q", got)
	}
	now = now.Add(time.Minute)
	if got := name("carillon.example.com", ""); got != "first" || !strings.Contains(log.String(), "not read again") {
		t.Errorf("%q, %s", got, log.String())
	}
	if err := os.WriteFile(key, append(fresh, "\n\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if got := name("carillon.example.com", ""); got != "second" {
		t.Errorf("%q", got)
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if got := name("carillon.example.com", ""); got != "second" {
		t.Errorf("%q", got)
	}

	if _, err := keys.OpenOperator(cert, key, slog.New(slog.DiscardHandler), time.Now); err == nil || !strings.Contains(err.Error(), "tls.crt") {
		t.Errorf("%v", err)
	}
	if c, k := publicCert(t, t.TempDir(), "nothing"); true {
		if _, err := keys.OpenOperator(c, k, slog.New(slog.DiscardHandler), time.Now); err == nil {
			t.Error("a certificate that names no host is of no use")
		}
	}
}
