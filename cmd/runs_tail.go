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
		cl := a.client()
		var last job.RunOutput
		var seen tailSeen
		for {
			o, err := cl.RunOutput(cmd.Context(), args[0], last.Fence, last.Next)
			if err != nil {
				return err
			}
			text := o.Text
			for _, n := range tailNotes(last, o, follow) {
				fmt.Fprintf(cmd.ErrOrStderr(), "--- %s\n", n)
			}
			if o.Fence != last.Fence {
				seen = tailSeen{}
			}
			if o.Done {
				text = seen.rest(text)
			}
			seen.add(text)
			if a.json {
				err = printJSON(cmd.OutOrStdout(), o)
			} else {
				_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			}
			if o.Done && follow && o.Status != job.RunSucceeded {
				fmt.Fprintf(cmd.ErrOrStderr(), "--- the run is %s\n", o.Status)
			}
			if err != nil || o.Done || !follow {
				return err
			}
			last = o
		}
	}
	return c
}

// tailNotes is what a reader should know beside the text: on standard error, so that the text stays what was written.
func tailNotes(last, o job.RunOutput, follow bool) (notes []string) {
	if o.Fence != last.Fence && last.Fence != 0 && o.Fence != 0 {
		notes = append(notes, fmt.Sprintf("attempt %d", o.Attempt))
	}
	if !o.Done && o.Offset > last.Next && last.Next > 0 && o.Fence == last.Fence {
		notes = append(notes, fmt.Sprintf("%d bytes were written too fast to follow", o.Offset-last.Next))
	}
	if o.Done || o.Text != "" || follow && o.Status == last.Status {
		return notes
	}
	switch o.Status {
	case job.RunClaimed, job.RunRunning, job.RunCanceling:
		if last.Next == 0 { // otherwise it is only quiet
			notes = append(notes, fmt.Sprintf("the run is %s and has written nothing yet", o.Status))
		}
	default:
		notes = append(notes, fmt.Sprintf("the run is %s: no worker has it right now", o.Status))
	}
	return notes
}

// tailSeen is the end of what was printed. The tail of a finished attempt does not say where it begins in all that the
// attempt wrote.
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
