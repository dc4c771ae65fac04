package cmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

func (a *app) calendarsCmd() *cobra.Command {
	c := a.calendarsListCmd("calendars", "List blackout calendars, and look at or change one")
	c.AddCommand(a.calendarsListCmd("list", "List calendars"), a.calendarsGetCmd(), a.calendarsSetCmd(),
		a.calendarsDeleteCmd())
	return c
}

func (a *app) calendarsListCmd(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []schedule.Calendar
			return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
				all, err = c.Calendars(ctx)
				return err
			}, func(p *printer) {
				if len(all) == 0 {
					p.printf("no calendars\n")
					return
				}
				var t table
				t.row("NAME", "TIMEZONE", "DATES", "WEEKDAYS", "DAILY", "WINDOWS")
				for _, c := range all {
					t.row(c.Name, dash(c.Timezone), dash(short30(c.Dates)), dash(short30(c.Weekdays)), dash(short30(c.Daily)),
						dash(number(len(c.Windows))))
				}
				p.table(t)
			})
		},
	}
}

func short30(list []string) string { return short(strings.Join(list, ", "), 30) }

func (a *app) calendarsGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show one calendar", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var c schedule.Calendar
			return a.show(cmd, func(ctx context.Context, cl *client.Client) (err error) {
				c, err = cl.GetCalendar(ctx, args[0])
				return err
			}, func(p *printer) {
				var windows []string
				for _, w := range c.Windows {
					windows = append(windows, fmt.Sprintf("%s to %s", job.At(w.From), job.At(w.To)))
				}
				p.fields("name", c.Name, "timezone", c.Timezone, "dates", strings.Join(c.Dates, ", "), "weekdays",
					strings.Join(c.Weekdays, ", "),
					"daily", strings.Join(c.Daily, ", "), "windows", strings.Join(windows, ", "))
			})
		},
	}
}

func (a *app) calendarsSetCmd() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use: "set FILE|-", Short: "Create or replace a calendar from a JSON or YAML file", Args: cobra.ExactArgs(1),
		Example: "  printf 'name: holidays\\ndates: [12-25, 12-26, 01-01]\\n' | carillon calendars set -",
		RunE: func(cmd *cobra.Command, args []string) error {
			f, file, err := a.openFile(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer f.Close()
			docs, err := jobfile.Read(f, file)
			if err != nil {
				return err
			}
			if len(docs) != 1 {
				return usage("one calendar a file", "%s has %d documents", file, len(docs))
			}
			var cal schedule.Calendar
			if err := job.DecodeStrict(docs[0].JSON, &cal); err != nil {
				return docs[0].At(err)
			}
			if name != "" {
				cal.Name = name
			}
			if cal.Name == "" {
				return docs[0].At(job.Invalid("name", "put it into the file, or give --name", "a calendar needs a name"))
			}
			return docs[0].At(a.show(cmd, func(ctx context.Context, c *client.Client) error {
				_, err := c.PutCalendar(ctx, cal)
				return err
			}, func(p *printer) { p.printf("set calendar %s\n", cal.Name) }))
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the calendar, instead of the one in the file")
	return c
}

func (a *app) calendarsDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a calendar", Args: cobra.ExactArgs(1), Aliases: []string{"rm"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.show(cmd, func(ctx context.Context, c *client.Client) error { return c.DeleteCalendar(ctx, args[0]) },
				func(p *printer) { p.printf("deleted calendar %s\n", args[0]) })
		},
	}
}
