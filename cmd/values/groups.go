package values

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/job"
)

// Groups is --groups; 0: it was not given.
type Groups int

// Register declares the flag.
func (g *Groups) Register(fl *pflag.FlagSet) {
	fl.Var(g, "groups",
		"with --bootstrap or --cluster: how many Raft groups hold the cluster's jobs, 1 to 64; 'cluster "+
			"grow-groups' adds more later (default 1)")
}

func (g *Groups) String() string {
	if *g == 0 {
		return ""
	}
	return strconv.Itoa(int(*g))
}

// Set implements pflag.Value.
func (g *Groups) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > job.MaxGroups {
		return fmt.Errorf("use a number from 1 to %d", job.MaxGroups) // pflag names the flag and the value
	}
	*g = Groups(n)
	return nil
}

// Type implements pflag.Value.
func (*Groups) Type() string { return "int" }

// Args are those of the process that begins a cluster.
func (g Groups) Args() []string {
	if g == 0 {
		return nil
	}
	return []string{"--groups", strconv.Itoa(int(g))}
}
