// Command verdict says in a few lines what a recorded run of `go test -json` comes to: FLAKY for each test that failed
// and passed when it was repeated, FAIL for each that failed for good, in the test's own words. It exits with 1 if
// anything failed for good.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: verdict FILE: a file of go test -json, or of gotestsum --jsonfile")
		os.Exit(2)
	}
	f, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "verdict:", err)
		os.Exit(2)
	}
	v, err := read(f)
	if err != nil {
		fmt.Fprintln(os.Stderr, "verdict:", err)
		os.Exit(2)
	}
	for _, line := range v.lines() {
		fmt.Println(line)
	}
	if len(v.failed) > 0 {
		os.Exit(1)
	}
}
