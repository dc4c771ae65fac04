package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

func (a *app) calendarsCmd() *cobra.Command {
	c := a.calendarsListCmd("calendars", "List blackout calendars, and show or change one")
	c.AddCommand(a.calendarsListCmd("list", "List calendars"),
		askAbout(a, "get NAME", "Show one calendar", (*client.Client).GetCalendar, (*printer).calendar),
		a.calendarsSetCmd(), a.calendarsDeleteCmd())
	return c
}

func (a *app) calendarsListCmd(use, short string) *cobra.Command {
	return a.watched(a.listsAll(&cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, (*client.Client).Calendars, (*printer).calendars)
		},
	}))
}

func (p *printer) calendars(all []schedule.Calendar) {
	if len(all) == 0 {
		p.Printf("no calendars\n")
		return
	}
	var t output.Table
	spaces := &p.a.spaces
	t.Row(spaces.column("NAMESPACE", "NAME", "TIMEZONE", "DATES", "WEEKDAYS", "DAILY", "WINDOWS")...)
	for _, c := range all {
		t.Row(spaces.column(c.Namespace, c.Name, output.Dash(c.Timezone),
			output.Dash(p.short30(c.Dates)), output.Dash(p.short30(c.Weekdays)),
			output.Dash(p.short30(c.Daily)), output.Dash(number(len(c.Windows))))...)
	}
	p.Table(t)
}

func (p *printer) short30(list []string) string { return p.Cut(strings.Join(list, ", "), 30) }

func (p *printer) calendar(c schedule.Calendar) {
	var windows []string
	for _, w := range c.Windows {
		windows = append(windows, fmt.Sprintf("%s to %s", job.At(w.From), job.At(w.To)))
	}
	p.Fields("name", c.Name, "namespace", unusual(c.Namespace), "timezone", c.Timezone,
		"dates", strings.Join(c.Dates, ", "),
		"weekdays", strings.Join(c.Weekdays, ", "), "daily", strings.Join(c.Daily, ", "),
		"windows", strings.Join(windows, ", "))
}

func (a *app) calendarsSetCmd() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use: "set FILE|-", Short: "Create or replace a calendar from a JSON or YAML file", Args: cobra.ExactArgs(1),
		Example: "  printf 'name: holidays\\ndates: [12-25, 12-26, 01-01]\\n' | carillon calendars set -",
		RunE: func(cmd *cobra.Command, args []string) error {
			var cal schedule.Calendar
			doc, err := a.readOne(cmd, args[0], "put one calendar in each file", "", &cal)
			if err != nil {
				return err
			}
			if cal.Name = cmp.Or(name, cal.Name); cal.Name == "" {
				return doc.At(job.Invalid("name", "put it into the file, or give --name", "a calendar needs a name"))
			}
			return doc.At(ask(a, cmd, func(c *client.Client, ctx context.Context) (schedule.Calendar, error) {
				return c.PutCalendar(ctx, cal)
			}, func(p *printer, _ schedule.Calendar) { p.Printf("set calendar %s\n", cal.Name) }))
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the calendar, overriding the one in the file")
	return c
}

func (a *app) calendarsDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a calendar", Args: cobra.ExactArgs(1), Aliases: []string{"rm"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.show(cmd, func(ctx context.Context, c *client.Client) error {
				return c.DeleteCalendar(ctx, args[0])
			},
				func(p *printer) { p.Printf("deleted calendar %s\n", args[0]) })
		},
	}
}
