package cmd

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/terminal"
)

// paging is which part of a list is printed.
type paging struct {
	limit  *int
	cursor *string
	every  bool // page
}

// mostLimit is the largest page that a node answers with.
const mostLimit = 1000

// pages gives a list the flags of its pages.
func pages(c *cobra.Command, limit *int, usual int, cursor *string) *paging {
	p := &paging{limit: limit, cursor: cursor}
	c.Flags().IntVar(limit, "limit", usual, "how many, at most 1000")
	c.Flags().StringVar(cursor, "cursor", "", "continue where a list ended")
	c.Flags().BoolVar(&p.every, "all", false, "every page of the list")
	return p
}

// whole says whether every page is printed: with --all, and in a form that cannot say that there are more, unless a
// part is asked for. Names and job files go to other commands and into files, and nobody would miss what is not there.
func (g *paging) whole(cmd *cobra.Command, form output.Form, page any) bool {
	_, jobs := page.(client.JobPage)
	cannotSay := form == output.FormName || form == output.FormYAML && jobs
	return g.every || cannotSay && !slices.ContainsFunc([]string{"limit", "cursor", "watch"}, cmd.Flags().Changed)
}

// askPages is ask for what comes in pages: one of them, or every one.
func askPages[T any](a *app, cmd *cobra.Command, g *paging, call func(*client.Client, context.Context) (T, error),
	human func(*printer, T)) error {
	if g.every && cmd.Flags().Changed("limit") {
		return usage("give one of them", "--all and --limit are both given")
	}
	var zero T
	if err := a.form.Check(cmd, zero, a.spaces.all); err != nil {
		return err
	}
	if !g.whole(cmd, a.form.Form, zero) {
		return ask(a, cmd, call, human)
	}
	defer func(begin string) { *g.cursor = begin }(*g.cursor) // a watch lists again
	*g.limit = mostLimit
	p := a.printer(cmd)
	p.Parts = true
	return (&output.Pages[T]{Choice: &a.form, W: cmd.OutOrStdout(), All: a.spaces.all,
		Next: func(cursor string) (page T, raw []byte, err error) {
			*g.cursor = cursor
			page, err = call(a.client(), client.WithRaw(cmd.Context(), func(b []byte) { raw = b }))
			a.form.Saw(raw)
			return page, raw, err
		},
		Human: func(page T, more bool) error {
			p.Unfinished = more
			human(p, page)
			return p.Err
		}}).Print(*g.cursor)
}

// watched gives a command --watch. It goes on over a node that is away: one that is being restarted is what one watches
// for.
func (a *app) watched(c *cobra.Command) *cobra.Command {
	var every time.Duration
	c.Flags().DurationVar(&every, "watch", 0, "refresh until interrupted, every 2s or, with =5s, that often")
	c.Flags().Lookup("watch").NoOptDefVal = "2s"
	once := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("watch") {
			return once(cmd, args)
		}
		if every < 100*time.Millisecond {
			return usage("use at least 100ms", "--watch=%s is too short", every)
		}
		out := cmd.OutOrStdout()
		onScreen := a.width > 0 && (a.form.Form == output.FormTable || a.form.Form == output.FormWide)
		w := output.Watch{Choice: &a.form, Every: every, Out: out, Now: func() time.Time { return a.now().In(a.loc) },
			Screen: func() (lines int, ok bool) {
				// It may have been resized. What clears the rest of a line takes the last column of a full one.
				if columns, rows := size(out); onScreen && columns > 0 {
					a.width, lines = max(1, columns-1), rows
				}
				return lines, onScreen
			},
			Draw: func(to io.Writer) error {
				cmd.SetOut(to)
				return once(cmd, args)
			},
			Passing: func(err error) bool { return exit.Code(err) == exit.Unavailable },
			Report:  func(err error) { a.report(cmd.ErrOrStderr(), err) }}
		if onScreen {
			w.Out = terminal.Raw(out)
		}
		return w.Run(cmd.Context())
	}
	return c
}
