package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) runsTailCmd() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use: "tail RUN", Short: "Print what a run writes, while it writes it", Args: cobra.ExactArgs(1),
		Long: "Print the output of the last attempt of a run: of a shell job that runs what it has written so far, of a finished one the end that is kept. With --follow it goes on until the run is finished, over all its attempts.",
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run is finished")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var last job.RunOutput
		var seen tailSeen
		for {
			o, err := a.client().RunOutput(cmd.Context(), args[0], last.Fence, last.Next)
			if err != nil {
				return err
			}
			if o.Fence != last.Fence && last.Fence != 0 && o.Fence != 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "--- attempt %d\n", o.Attempt)
				seen = tailSeen{}
			}
			text := o.Text
			if o.Done {
				text = seen.rest(text)
			} else if o.Offset > last.Next && last.Next > 0 && o.Fence == last.Fence {
				fmt.Fprintf(cmd.ErrOrStderr(), "--- %d bytes were written too fast to follow\n", o.Offset-last.Next)
			}
			seen.add(text)
			if a.json {
				err = printJSON(cmd.OutOrStdout(), o)
			} else {
				_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			}
			if err != nil || o.Done || !follow {
				return err
			}
			last = o
		}
	}
	return c
}

// tailSeen is the end of what was printed. The tail of a finished attempt does not say where it begins in all that the attempt wrote.
type tailSeen struct{ end string }

func (s *tailSeen) add(text string) {
	s.end += text
	s.end = s.end[max(0, len(s.end)-2*job.MaxOutputBytes):]
}

// rest is what of a finished attempt's tail was not printed yet.
func (s *tailSeen) rest(tail string) string {
	for n := len(tail); n > 0; n-- {
		if strings.HasSuffix(s.end, tail[:n]) {
			return tail[n:]
		}
	}
	return tail
}
