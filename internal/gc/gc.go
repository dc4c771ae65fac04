// Package gc makes Go collect the garbage of a node seldom enough.
package gc

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// A node's live memory is small beside what passes through it: with Go's default it would collect garbage dozens of
// times a second under load, a tenth of its work. So a collection waits until 192 MiB were allocated, or as much as is
// alive if that is more.
const (
	garbage    = 192 << 20
	maxPercent = 800
)

// Tune keeps that up until the process ends. GOGC and GOMEMLIMIT take precedence.
func Tune() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	sentinel := new(*int) // becomes garbage at once, and says so after each collection
	var after func(**int)
	after = func(p **int) {
		debug.SetGCPercent(percentFor(live()))
		runtime.SetFinalizer(p, after)
	}
	after(sentinel)
}

// percentFor is how much may be allocated until the next collection, in percent of what is alive.
func percentFor(alive uint64) int {
	return int(min(maxPercent, max(100, garbage*100/max(alive, 1))))
}

// live is how much memory survived the last collection.
func live() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return garbage
	}
	return s[0].Value.Uint64()
}
