// Package harness runs carillon as a process, records what the outside world sees of it, and judges whether that adds up. The tests
// of package proof stand on it. It trusts nothing that the process says about itself except where it compares that with what a
// target saw.
package harness
