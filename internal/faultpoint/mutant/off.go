//go:build !carillon_mutants

package mutant

// Built says whether faults can be planted in this build.
const Built = false

// On says whether a fault is planted.
func On(Mutant) bool { return false }
