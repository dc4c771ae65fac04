package cmd

import (
	"regexp"
	"testing"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/output"
)

// Help texts and examples begin with what was typed to run the program: `carillon`, or `go run .`.
func TestHelpNamesTheProgramAsItIsRun(t *testing.T) {
	for program, other := range map[string]string{"carillon": "go run", "go run .": "carillon"} {
		root := CommandLine()
		output.NameProgram(root, program)
		// A command begins a line, or stands in quotes or behind another one.
		typed := regexp.MustCompile("(?m)(?:^ *|`|  |[|&(] ?)" + other + ` (\w\S*|--.*)`)
		as := regexp.MustCompile("(?m)^  " + regexp.QuoteMeta(program) + " ")
		examples := 0
		var walk func(*cobra.Command)
		walk = func(c *cobra.Command) {
			for _, text := range []string{c.Long, c.Example} {
				if found := typed.FindString(text); found != "" {
					t.Errorf("%s, under %s: %q", c.CommandPath(), program, found)
				}
			}
			if as.MatchString(c.Example) {
				examples++
			}
			for _, sub := range c.Commands() {
				walk(sub)
			}
		}
		walk(root)
		if examples < 20 {
			t.Errorf("%d commands have an example with %s", examples, program)
		}
	}
}
