// Package proof starts the real binary and tries to catch it losing, inventing or doubling work. It holds nothing but
// tests; what they share is in package harness.
//
// Everything here is skipped with -short. CARILLON_LONG=1 makes the tests longer (100 kills, 100 cuts, 60,000 entries;
// give it -timeout 30m), CARILLON_LONG=2 longer still (200 kills, 200,000 entries), CARILLON_SEED=n repeats one of
// their choices, CARILLON_RACE=1 builds the binary with the race detector. Tests that cut nodes off or change what
// their names stand for need root on Linux, for network and mount namespaces, and skip elsewhere; a -v says so.
//
// What is known of a cluster at the end, every call, fault, request to a target and record, is judged by package
// checker, which judges the simulation too; teeth_test.go shows that it would find something.
//
// TestPowerLoss… rebuilds what a loss of power leaves at every write and sync of a small life, TestEveryWrite… makes
// each of them fail once, and TestEverythingAtOnce does everything to a cluster under load; without CARILLON_LONG each
// takes some of them, others each time.
package proof
