package cmd

import (
	"bufio"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) runsExportCmd() *cobra.Command {
	var after uint64
	var limit int
	c := &cobra.Command{
		Use: "export", Short: "Print the history as JSON lines, oldest first", Args: cobra.NoArgs,
		Long: "Print every record of the history as one line of JSON. The seq of the last line is the --after of the next export.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
			last := after
			err := a.client().ExportHistory(cmd.Context(), after, limit, func(r job.Run, raw json.RawMessage) error {
				last = r.Seq
				out.Write(raw) //nolint:errcheck // the next call has it
				return out.WriteByte('\n')
			})
			if flushed := out.Flush(); err == nil {
				err = flushed
			}
			if err != nil && last > after {
				fmt.Fprintf(cmd.ErrOrStderr(), "exported up to %d; go on with: carillon runs export --after %d\n", last, last)
			}
			return err
		},
	}
	c.Flags().Uint64Var(&after, "after", 0, "records with a higher seq")
	c.Flags().IntVar(&limit, "limit", 0, "how many at most (default all)")
	return c
}
