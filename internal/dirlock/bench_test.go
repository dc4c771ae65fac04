package dirlock

import (
	"path/filepath"
	"testing"
)

// What one beat costs: the share of a core is this over five seconds.
func BenchmarkBeat(b *testing.B) {
	l, err := Open(filepath.Join(b.TempDir(), "lock"), Options{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for b.Loop() {
		if _, taken := l.other(); taken {
			b.Fatal("taken")
		}
		if err := l.write(); err != nil {
			b.Fatal(err)
		}
	}
}
