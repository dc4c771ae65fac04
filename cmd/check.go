package cmd

import (
	"bytes"
	"io"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) checkCmd() *cobra.Command {
	return &cobra.Command{
		Use: "check DATA-DIR", Short: "Verify the invariants of a data directory that no node has open",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			var findings bytes.Buffer
			if a.json {
				out = &findings
			}
			n, err := checkData(args[0], out)
			if err != nil {
				return err
			}
			if a.json {
				if err := printJSON(cmd.OutOrStdout(),
					checkResult{DataDir: args[0], Problems: n, Findings: splitLines(&findings)}); err != nil {
					return err
				}
			}
			if n > 0 {
				return job.Errorf(job.CodeInternal, "keep a copy of the directory before anything else", "%s has %s", args[0],
					plural(n, "problem"))
			}
			if !a.json {
				a.printer(cmd).printf("%s is sound\n", args[0])
			}
			return nil
		},
	}
}

type checkResult struct {
	DataDir  string   `json:"data_dir"`
	Problems int      `json:"problems"`
	Findings []string `json:"findings"`
}

func splitLines(r io.Reader) []string {
	data, _ := io.ReadAll(r)
	out := []string{}
	for line := range bytes.Lines(data) {
		out = append(out, string(bytes.TrimRight(line, "\n")))
	}
	return out
}
