// Package mutants plants one fault after the other into the product and demands that the simulation and its checker, or
// else the tests of a package, find it. It has something to do only with the build tag carillon_mutants:
//
//	go test -tags carillon_mutants ./proof/mutants -v -timeout 60m
package mutants
