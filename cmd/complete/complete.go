// Package complete answers a tab: with the things that are there, and with the values that a flag takes.
package complete

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	// Timeout bounds what a tab may cost. A shell waits for it: answer quickly or not at all.
	Timeout = 500 * time.Millisecond
	most    = 50
)

// App is what completion knows of the process.
type App struct {
	Client   func() *client.Client
	Contexts func() []string
}

// source lists what is there, each with a tab and what it is if that helps to choose.
type source func(ctx context.Context, c *client.Client, prefix string) ([]string, error)

// things are what placeholders in the use of a command stand for. What a word stands for in one group of commands only
// has the name of the group before it.
var things = map[string]source{
	"JOB": jobs, "JOB|RUN": jobs, "RUN": runs, "dead ID": letters, "queues NAME": queues, "calendars NAME": calendars,
	"secret NAME": secrets, "token TOKEN": tokens, "cluster NODE": nodes,
}

// values are what flags take, by their names or, where these mean something else elsewhere, with that of the command's
// group before it.
// Types of jobs are known once all packages are initialized.
var values = sync.OnceValue(func() map[string][]string {
	return map[string][]string{
		"jobs status": append(texts(job.Statuses[:]), "failing"), "runs status": statuses(), "type": job.Types(),
		"role": texts(job.TokenRoles),
	}
})

func texts[T ~string](list []T) (out []string) {
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

func statuses() (out []string) {
	for s := job.RunNone + 1; s < 1<<7; s++ { // open and finished ones have numbers apart
		if back, err := job.ParseRunStatus(s.String()); err == nil && back == s {
			out = append(out, s.String())
		}
	}
	return out
}

// Attach has every command under root complete its arguments and flags.
func Attach(root *cobra.Command, a App) {
	for _, c := range root.Commands() {
		a.attach(c, c.Name())
	}
	_ = root.RegisterFlagCompletionFunc("context",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return a.Contexts(), cobra.ShellCompDirectiveNoFileComp
		})
}

// placeholder is the first argument in the use of a command.
var placeholder = regexp.MustCompile(`^\S+ [\[(]?([A-Z]+(?:\|[A-Z]+)*)(\.\.\.)?`)

func (a App) attach(c *cobra.Command, group string) {
	if m := placeholder.FindStringSubmatch(c.Use); m != nil && c.ValidArgsFunction == nil {
		if list := or(things[group+" "+m[1]], things[m[1]]); list != nil {
			c.ValidArgsFunction = a.arguments(list, m[2] != "")
		}
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		switch fixed, listed := values()[group+" "+f.Name], values()[f.Name]; {
		case f.Name == "job":
			_ = c.RegisterFlagCompletionFunc(f.Name, a.arguments(jobs, true))
		case fixed != nil || listed != nil:
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(append(slices.Clone(fixed), listed...),
				cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, sub := range c.Commands() {
		a.attach(sub, group)
	}
}

func or(one, other source) source {
	if one != nil {
		return one
	}
	return other
}

// arguments completes by what is there: the first argument only, or several.
func (a App) arguments(list source, several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), Timeout)
		defer cancel()
		all, err := list(ctx, a.Client(), prefix)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all = slices.DeleteFunc(all, func(s string) bool {
			name, _, _ := strings.Cut(s, "\t")
			return !strings.HasPrefix(name, prefix) || slices.Contains(args, name)
		})
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

func jobs(ctx context.Context, c *client.Client, prefix string) (out []string, err error) {
	page, err := c.ListJobs(ctx, client.JobQuery{Prefix: prefix, Limit: most})
	for _, j := range page.Jobs {
		if j.Name != "" {
			out = append(out, j.Name+"\t"+j.Schedule)
		}
	}
	return out, err
}

// runs are the open ones: of others there are too many to choose from.
func runs(ctx context.Context, c *client.Client, _ string) (out []string, err error) {
	page, err := c.Runs(ctx, client.RunQuery{Limit: most})
	for _, r := range page.Runs {
		if r.RunID != "" {
			out = append(out, r.RunID+"\t"+r.JobName+" "+r.Status.String())
		}
	}
	return out, err
}

func letters(ctx context.Context, c *client.Client, _ string) (out []string, err error) {
	page, err := c.DeadLetters(ctx, client.DeadQuery{Limit: most})
	for _, d := range page.Dead {
		out = append(out, strconv.FormatUint(d.Seq, 10)+"\t"+d.JobName)
	}
	return out, err
}

func queues(ctx context.Context, c *client.Client, _ string) (out []string, err error) {
	all, err := c.Queues(ctx)
	for _, q := range all {
		out = append(out, q.Name)
	}
	return out, err
}

func calendars(ctx context.Context, c *client.Client, _ string) (out []string, err error) {
	all, err := c.Calendars(ctx)
	for _, cal := range all {
		out = append(out, cal.Name)
	}
	return out, err
}

func secrets(ctx context.Context, c *client.Client, _ string) (out []string, err error) {
	all, err := c.Secrets(ctx)
	for _, s := range all {
		out = append(out, s.Name)
	}
	return out, err
}

func tokens(ctx context.Context, c *client.Client, _ string) (out []string, err error) {
	all, err := c.Tokens(ctx)
	for _, t := range all {
		out = append(out, t.ID+"\t"+t.Name)
	}
	return out, err
}

func nodes(ctx context.Context, c *client.Client, _ string) (out []string, err error) {
	s, err := c.Status(ctx)
	for _, m := range s.Members {
		out = append(out, m.ID+"\t"+m.Address)
	}
	return out, err
}
