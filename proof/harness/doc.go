// Package harness runs carillon as a process, records what the outside world sees of it, and puts that down as evidence
// that package checker judges, as it judges the simulation. The tests of package proof stand on it. It trusts nothing
// that the process says about itself except where that is compared with what a target saw.
package harness
