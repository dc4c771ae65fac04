// Carillon is a distributed job scheduler in one binary.
package main

import (
	"os"

	"github.com/carillon-scheduler/carillon/cmd"
)

func main() { os.Exit(cmd.Main()) }
