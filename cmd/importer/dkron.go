package importer

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/internal/dkron"
	"github.com/carillon-scheduler/carillon/job"
)

// Dkron makes the command for the jobs of a Dkron cluster.
func Dkron(a App) *cobra.Command {
	var zone string
	var o dkron.Options
	c := &cobra.Command{
		Use:   "dkron FILE|-",
		Short: "Print the jobs of a Dkron cluster as job files",
		Long: `Print a job file for every job in the response of a Dkron server to GET /v1/jobs. Nothing is submitted.

The jobs behave as under Dkron: concurrency, immediate retries, nothing caught up after an outage. Notes on standard
error say what differs, job by job. Jobs that cannot be converted are left out and reported, and the exit code is
then 1.`,
		Example: `  curl -s http://dkron:8080/v1/jobs | carillon import dkron - > jobs.yaml`,
		Args:    cobra.ExactArgs(1),
	}
	fl := c.Flags()
	fl.StringVar(&zone, "tz", "",
		"IANA time zone of the Dkron servers, for jobs without one (default this machine's)")
	fl.BoolVar(&o.Disabled, "disabled", false, "also print disabled jobs")
	fl.BoolVar(&o.Mail, "mail", false,
		"mail the owner when a job begins to fail and when it works again; the nodes need --smtp-addr")
	c.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.Zone, err = a.zone(zone); err != nil {
			return err
		}
		o.Now = a.Now()
		in := cmd.InOrStdin()
		if args[0] != "-" {
			file, err := os.Open(args[0])
			if err != nil {
				return job.Errorf(job.CodeNotFound, "name a file, or - for standard input", "%v", err)
			}
			defer file.Close()
			in = file
		}
		data, err := readAll(in, args[0])
		if err != nil {
			return err
		}
		jobs, err := dkron.Read(data, o)
		if err != nil {
			return job.Errorf(job.CodeMalformed, "give it the response of a Dkron server to GET /v1/jobs",
				"this is not a list of Dkron jobs: %v", err)
		}
		out := printer{app: a, cmd: cmd}
		for i, j := range jobs {
			place := j.Name
			if place == "" {
				place = fmt.Sprintf("job %d", i+1)
			}
			if err := out.print(found{place: place, spec: j.Spec, notes: j.Notes, err: j.Err}); err != nil {
				return err
			}
		}
		return out.end("job")
	}
	return c
}
