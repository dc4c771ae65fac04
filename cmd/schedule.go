package cmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/importer"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/job"
)

// The commands of this file need no node, unless they are asked about a job that there is.
func (a *app) scheduleCmd() *cobra.Command {
	return group("schedule", "Try schedule expressions, without a node", a.scheduleNextCmd(), a.scheduleDescribeCmd(),
		a.scheduleCheckCmd())
}

func (a *app) importCmd() *cobra.Command {
	from := importer.App{Env: a.env, Now: a.now, JSON: func() bool { return a.json }}
	return group("import", "Print job files made from another scheduler's jobs, without a node", importer.Crontab(from),
		importer.Dkron(from))
}

// scheduleFlags are what a schedule depends on beside its expression.
type scheduleFlags struct {
	p                client.PreviewRequest
	from, start, end string
	jitter, job      string
	name             string
}

func (f *scheduleFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.p.Timezone, "tz", "", "IANA time zone (default UTC)")
	fl.StringVar(&f.p.DSTGap, "dst-gap", "", "run_after or skip (default run_after)")
	fl.StringVar(&f.p.DSTOverlap, "dst-overlap", "", "first or both")
	fl.StringVar(&f.start, "start-at", "", "no occurrence before this time")
	fl.StringVar(&f.end, "end-at", "", "no occurrence after this time")
	fl.StringVar(&f.jitter, "jitter", "", "delay by up to this much")
	fl.StringVar(&f.job, "job-id", "", "H, @every and jitter depend on it")
	fl.StringVar(&f.name, "name", "", "use the id of this existing job: this asks a node")
}

// jobID is the id of the job that is meant; nil: none is.
func (f *scheduleFlags) jobID(ctx context.Context, a *app) (*job.ID, error) {
	switch {
	case f.job != "" && f.name != "":
		return nil, usage("give one of them", "--job-id and --name both name a job")
	case f.job != "":
		id, err := job.ParseID(f.job)
		if err != nil {
			return nil, job.Invalid("--job-id", "", "%v", err)
		}
		return &id, nil
	case f.name != "":
		j, err := a.client().GetJob(ctx, f.name)
		if err != nil {
			return nil, err
		}
		return &j.ID, nil
	}
	return nil, nil
}

func (f *scheduleFlags) preview(cmd *cobra.Command, a *app, args []string, count int) (client.PreviewResult, error) {
	p := f.p
	p.Schedule, p.Count = strings.Join(args, " "), count
	loc := time.UTC
	if l, err := time.LoadLocation(p.Timezone); err == nil && p.Timezone != "" {
		loc = l
	}
	err := a.instants(loc, values.After, timeFlag{"--from", f.from, &p.From},
		timeFlag{"--start-at", f.start, &p.StartAt},
		timeFlag{"--end-at", f.end, &p.EndAt})
	if err != nil {
		return client.PreviewResult{}, err
	}
	if p.Jitter, err = values.Duration("--jitter", f.jitter); err != nil {
		return client.PreviewResult{}, err
	}
	if p.JobID, err = f.jobID(cmd.Context(), a); err != nil {
		return client.PreviewResult{}, err
	}
	r, err := wire.LocalPreview(p, a.now(), nil)
	if err == nil && p.JobID == nil && len(r.Times) > 0 && (r.ByJob || p.Jitter > 0) {
		// Not where a program reads times.
		fmt.Fprintln(cmd.ErrOrStderr(), "note: H, @every and jitter depend on the job, so the times of a job will "+
			"differ from these; --name JOB shows those of an existing job")
	}
	return r, err
}

func (a *app) scheduleNextCmd() *cobra.Command {
	var f scheduleFlags
	var count int
	c := &cobra.Command{
		Use: "next EXPR", Short: "Print the next fire times, and what daylight saving does to them",
		Args:    cobra.MinimumNArgs(1),
		Example: "  carillon schedule next '30 2 * * *' --tz America/New_York --from 2027-03-13T00:00:00Z --count 3",
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 1 || count > 10000 {
				return job.Invalid("--count", "", "%d is not between 1 and 10000", count)
			}
			r, err := f.preview(cmd, a, args, count)
			if err != nil {
				return err
			}
			return a.result(cmd, r, func(p *printer) {
				if len(r.Times) == 0 { // not where a program reads times
					fmt.Fprintf(cmd.ErrOrStderr(), "it does not fire: %s\n", r.Description)
				}
				for _, t := range r.Times {
					p.Printf("%s\n", strings.TrimRight(fmt.Sprintf("%s  %s", t.At, t.Note), " "))
				}
			})
		},
	}
	f.register(c)
	c.Flags().StringVar(&f.from, "from", "", "print times after this: RFC 3339, or date and time in the zone "+
		"(default now)")
	c.Flags().IntVar(&count, "count", 10, "how many")
	return c
}

func (a *app) scheduleDescribeCmd() *cobra.Command {
	var f scheduleFlags
	c := &cobra.Command{
		Use: "describe EXPR", Short: "Describe in plain English when an expression fires", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.preview(cmd, a, args, 0)
			if err != nil {
				return err
			}
			return a.result(cmd, r, func(p *printer) { p.Printf("%s\n", r.Description) })
		},
	}
	f.register(c)
	return c
}

func (a *app) scheduleCheckCmd() *cobra.Command {
	var f scheduleFlags
	c := &cobra.Command{
		Use: "check EXPR", Short: "Check whether an expression is valid (exit code 2 if not)",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.preview(cmd, a, args, 1)
			if err != nil {
				return err
			}
			return a.result(cmd, r, func(p *printer) {
				p.Printf("ok: %s\n", r.Description)
				if len(r.Times) > 0 {
					p.Printf("next: %s\n", r.Times[0].At)
				}
			})
		},
	}
	f.register(c)
	return c
}
