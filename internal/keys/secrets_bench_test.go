package keys_test

import (
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// Every call of a worker that has a token asks for them.
func BenchmarkSecrets(b *testing.B) {
	r, err := keys.OpenRing(b.TempDir()+"/keys", nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Keep(authority(b, "c1")); err != nil {
		b.Fatal(err)
	}
	if err := r.Certify(rotated, "10.0.0.1", epoch); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(r.Secrets("worker sessions")) != 1 {
			b.Fatal("no keys")
		}
	}
}
