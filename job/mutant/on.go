//go:build carillon_mutants

package mutant

import (
	"fmt"
	"os"
	"sync/atomic"
)

// Built says whether faults can be planted in this build.
const Built = true

var names = [count]string{"none", "skip-fence", "dispatch-early", "forget-term", "drop-catchup", "leak-overlap", "reuse-key", "expire-early", "racing-beat", "ignore-gen",
	"lower-term", "backlog-missed", "lose-events", "early-deadline", "repeat-once", "forget-not-run", "ignore-queue",
	"pull-late", "pull-revive", "pull-twice", "trust-leader", "inherited-dead", "release-unproven", "keep-leading", "wrong-heir", "no-seal",
	"mix-payload", "stale-definition", "edited-timeout", "resend-edited", "judge-by-slot", "serial-first", "invent-next"}

var active atomic.Uint32

func init() {
	name := os.Getenv("CARILLON_MUTANT")
	if name == "" {
		return
	}
	m, ok := Parse(name)
	if !ok {
		panic(fmt.Sprintf("CARILLON_MUTANT: there is no mutant %q", name))
	}
	Set(m)
}

// On says whether a fault is planted.
func On(m Mutant) bool { return Mutant(active.Load()) == m }

// Set plants one fault in place of the one before; None takes it away.
func Set(m Mutant) { active.Store(uint32(m)) }

// All are the faults.
func All() []Mutant {
	var out []Mutant
	for m := None + 1; m < count; m++ {
		out = append(out, m)
	}
	return out
}

// Parse finds a fault by its name.
func Parse(name string) (Mutant, bool) {
	for m, n := range names {
		if n == name {
			return Mutant(m), true
		}
	}
	return None, false
}

func (m Mutant) String() string { return names[m] }
