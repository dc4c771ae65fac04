// Package proof starts the real binary and tries to catch it losing, inventing or doubling work. It holds nothing but tests; what
// they share is in package harness.
//
// Everything here is skipped with -short. CARILLON_LONG=1 makes the tests longer (200 kills, 100 cuts), CARILLON_SEED=n repeats
// one of their choices, CARILLON_RACE=1 builds the binary with the race detector.
package proof
