package cmd

import (
	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

func (a *app) checkCmd() *cobra.Command {
	return &cobra.Command{
		Use: "check DATA-DIR", Short: "Verify the invariants of a data directory that no node has open",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			checked, err := checkData(args[0])
			if err != nil {
				return err
			}
			found := checked.Problems
			if err := a.result(cmd, checkResult{args[0], len(found), append([]string{}, found...)}, func(p *printer) {
				for _, problem := range found {
					p.printf("%s\n", problem)
				}
				if len(found) == 0 {
					p.printf("%s is sound\n", args[0])
				}
			}); err != nil || len(found) == 0 {
				return err
			}
			return job.Errorf(job.CodeInternal, "keep a copy of the directory before anything else",
				"%s has %s", args[0], plural(len(found), "problem"))
		},
	}
}

type checkResult struct {
	DataDir  string   `json:"data_dir"`
	Problems int      `json:"problems"`
	Findings []string `json:"findings"`
}

// noDataDir is the answer to a command that was not told which directory to work on.
func noDataDir(remedy string) error {
	return job.Invalid("--data-dir", remedy, "which data directory?")
}

func (a *app) compactCmd() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "compact", Short: "Rewrite the files of a stopped node without the room that deleted things left",
		Args: cobra.NoArgs,
		Long: `The node must not be running. Each file is written anew beside the old one, compared with it, made safe on the disk and put in its place, so there
must be room for a copy. It may be cut off at any time.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return noDataDir("give the directory of a node that is not running")
			}
			c, err := datadir.Compact(dir, nil)
			if err != nil {
				return err
			}
			return a.result(cmd, c, func(p *printer) {
				for _, f := range c.Files {
					if f.Kept {
						p.printf("%s: %s, nothing to gain\n", f.Name, job.Bytes(f.Before))
					} else {
						p.printf("%s: %s, was %s\n", f.Name, job.Bytes(f.After), job.Bytes(f.Before))
					}
				}
			})
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "directory of the node's state")
	return c
}
