package cmd

import (
	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// compactResult is what --json prints.
type compactResult struct {
	DataDir string          `json:"data_dir"`
	NodeID  string          `json:"node_id"`
	Files   []compactedFile `json:"files"`
}

type compactedFile struct {
	Name   string `json:"name"`
	Before int64  `json:"before_bytes"`
	After  int64  `json:"after_bytes"`
	Kept   bool   `json:"kept"`
}

func (a *app) compactCmd() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "compact", Short: "Rewrite the files of a stopped node without the room that deleted things left", Args: cobra.NoArgs,
		Long: `The node must not be running. Each file is written anew beside the old one, compared with it, made safe on the disk and put in its place, so there
must be room for a copy. It may be cut off at any time.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return job.Invalid("--data-dir", "give the directory of a node that is not running", "which data directory?")
			}
			c, err := datadir.Compact(dir, nil)
			if err != nil {
				return err
			}
			r := compactResult{DataDir: dir, NodeID: c.NodeID}
			for _, f := range c.Files {
				r.Files = append(r.Files, compactedFile(f))
			}
			if a.json {
				return printJSON(cmd.OutOrStdout(), r)
			}
			p := a.printer(cmd)
			for _, f := range r.Files {
				if f.Kept {
					p.printf("%s: %s, nothing to gain\n", f.Name, job.Bytes(f.Before))
				} else {
					p.printf("%s: %s, was %s\n", f.Name, job.Bytes(f.After), job.Bytes(f.Before))
				}
			}
			return p.err
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "directory of the node's state")
	return c
}
