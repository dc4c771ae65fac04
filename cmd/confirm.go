package cmd

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/carillon-scheduler/carillon/job"
)

// confirmation is --yes.
type confirmation struct{ yes bool }

func (c *confirmation) register(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
}

// ask asks on a terminal whether something that cannot be undone is meant; what says what that is, and is called only
// if there is somebody to ask. Without a terminal a script is trusted with what it names, and not with everything.
func (c *confirmation) ask(a *app, cmd *cobra.Command, everything bool, what func() (string, error)) error {
	switch person := a.person(cmd.InOrStdin()); {
	case c.yes || !person && !everything:
		return nil
	case !person:
		return job.Invalid("--yes", "give --yes to confirm",
			"this applies to everything and cannot be undone")
	}
	text, err := what()
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s This cannot be undone. Go on? [y/N] ", text)
	answer := make(chan string, 1)
	go func() { // Ctrl-C ends the question, and does not end a read
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // what there is is the answer
		answer <- line
	}()
	line := ""
	select {
	case line = <-answer:
	case <-cmd.Context().Done():
	}
	if !strings.HasSuffix(line, "\n") {
		fmt.Fprintln(cmd.ErrOrStderr())
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return job.Errorf(job.CodeInvalid, "answer y, or give --yes", "nothing was changed")
}

// isPerson says that a terminal is read: somebody can be asked.
func isPerson(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
