package keys_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// To verify a signature by a key of a stranger's choice may take minutes. What is not of the kind that nodes have is
// refused by its kind, and what is large by its size.
func TestRequestsOfStrangers(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	der[len(der)-1] ^= 1
	if _, err := keys.ParseRequest(der); err == nil || strings.Contains(err.Error(), "verification") {
		t.Errorf("its signature was verified: %v", err)
	}
	if _, err := keys.ParseRequest(make([]byte, 100<<10)); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("it was read: %v", err)
	}
}
