package cmd

import (
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout bounds what a tab may cost. The completion command itself is cobra's.
const completionTimeout = 500 * time.Millisecond

// strictCompletion makes cobra's completion command refuse a shell that it does not know; it would print its help as if
// all were well. It is called late: cobra decides here where the script goes.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = cobra.NoArgs
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}
