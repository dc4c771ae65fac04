package cmd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/job"
)

// submitFlags are a job as flags. They are named like the fields of the job file where that is not too long to type.
type submitFlags struct {
	name, schedule, at, tz               string
	priority, overlap, delivery          string
	timeout, deadline, retention, jitter string
	maxRetries                           int
	backoff, base, cap                   string
	missed, missedWindow                 string
	maxRuns, concurrency                 int
	startAt, endAt                       string
	calendars, tags, workers             []string
	notifyWebhook                        string
	notifyEmail, notifyOn                []string
	dstGap, dstOverlap, keyTemplate      string

	kinds kindFlags // what the job does
	names []string  // of all flags that describe the job
}

func (a *app) submitCmd() *cobra.Command {
	var f submitFlags
	c := &cobra.Command{
		Use:   "submit [FILE|-]",
		Short: "Submit a job from flags, or jobs from a file",
		Long: `Submit a job described by flags, or the jobs of a JSON, NDJSON or YAML file ("-" for standard input). A YAML file may hold
several documents and an NDJSON file any number of lines; submitting the same file again is safe.`,
		Example: `  carillon submit --name hello --schedule '@every 2s' --http http://127.0.0.1:8080/
  carillon submit --at +5s --shell 'date'
  carillon submit --name report --schedule '0 9 * * MON-FRI' --tz Europe/Berlin --http https://example.com/report --body '{"day":"today"}'
  carillon submit jobs.yaml`,
		Args: cobra.MaximumNArgs(1),
	}
	f.register(c)
	var limit requestLimit
	limit.register(c.Flags(), "request-timeout", a.env) // --timeout is the job's here
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := limit.check(); err != nil {
			return err
		}
		a.limit = limit
		if len(args) == 1 {
			if name := f.firstJobFlag(cmd); name != "" {
				return usage("put it into the file, or leave the file out",
					"--%s says something about the job, and so does the file", name)
			}
			return a.submitFile(cmd, args[0])
		}
		spec, err := f.spec(a, cmd)
		if err != nil {
			return err
		}
		return a.submitOne(cmd, spec, "")
	}
	return c
}

func (f *submitFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "", "name of the job; without one it is known by its id")
	fl.StringVar(&f.schedule, "schedule", "", "cron expression, \"@every 90s\", RRULE, RFC 3339 instant or @manual")
	fl.StringVar(&f.at, "at", "", "run once: RFC 3339, \"+90s\" or \"in 10m\"")
	fl.StringVar(&f.tz, "tz", "", "IANA time zone of the schedule (default UTC)")
	f.kinds.register(fl)
	fl.StringVar(&f.priority, "priority", "", "critical, high, normal or low (default normal)")
	fl.StringVar(&f.overlap, "overlap", "",
		"while an earlier run is open: skip, queue, allow or replace (default skip)")
	fl.IntVar(&f.concurrency, "concurrency", 0, "with --overlap allow: how many runs at once")
	fl.StringVar(&f.delivery, "delivery", "", "at_least_once or at_most_once (default at_least_once)")
	fl.StringVar(&f.timeout, "timeout", "", "of one attempt (default 5m)")
	fl.StringVar(&f.deadline, "deadline", "", "start within this time or not at all")
	fl.IntVar(&f.maxRetries, "max-retries", 0, "attempts after the first (default 3)")
	fl.StringVar(&f.backoff, "backoff", "", "immediate, linear or exponential (default exponential)")
	fl.StringVar(&f.base, "backoff-base", "", "first delay between attempts (default 1s)")
	fl.StringVar(&f.cap, "backoff-cap", "", "longest delay between attempts (default 5m)")
	fl.StringVar(&f.jitter, "jitter", "", "spread the job by up to this, always the same")
	fl.StringVar(&f.missed, "missed", "", "after an outage: skip, run_once or run_all (default run_once)")
	fl.StringVar(&f.missedWindow, "missed-window", "", "how old a missed occurrence may be (default auto)")
	fl.IntVar(&f.maxRuns, "max-runs", 0, "complete the job after this many runs")
	fl.StringVar(&f.startAt, "start-at", "", "no occurrence before this time")
	fl.StringVar(&f.endAt, "end-at", "", "no occurrence after this time")
	fl.StringArrayVar(&f.calendars, "calendar", nil, "blackout calendar; repeatable")
	fl.StringArrayVar(&f.tags, "tag", nil, "label k=v; repeatable")
	fl.StringArrayVar(&f.workers, "worker", nil, "tag k=v that a worker must have; repeatable")
	fl.StringVar(&f.retention, "retention", "", "how long a finished one-off job is kept (default 24h)")
	fl.StringVar(&f.notifyWebhook, "notify-webhook", "",
		"tell this URL, or webhook known to the nodes, when the job begins to fail and when it works again")
	fl.StringArrayVar(&f.notifyEmail, "notify-email", nil, "tell this address; repeatable")
	fl.StringSliceVar(&f.notifyOn, "notify-on", nil, "tell only this: failure or recovery (default both)")
	fl.StringVar(&f.dstGap, "dst-gap", "", "run_after or skip (default run_after)")
	fl.StringVar(&f.dstOverlap, "dst-overlap", "", "first or both")
	fl.StringVar(&f.keyTemplate, "key-template", "", "template of the idempotency key that the target receives")
	fl.VisitAll(func(flag *pflag.Flag) { f.names = append(f.names, flag.Name) })
}

// firstJobFlag is a flag that was given and that describes the job.
func (f *submitFlags) firstJobFlag(cmd *cobra.Command) string {
	i := slices.IndexFunc(f.names, cmd.Flags().Changed)
	if i < 0 {
		return ""
	}
	return f.names[i]
}

// spec is the job that the flags describe. The node checks it; here is only what it cannot see.
func (f *submitFlags) spec(a *app, cmd *cobra.Command) (job.Spec, error) {
	s := job.Spec{Name: f.name, Schedule: f.schedule, Timezone: f.tz, Priority: f.priority, Overlap: f.overlap,
		Delivery:    f.delivery,
		Concurrency: f.concurrency, MaxRuns: f.maxRuns, Calendars: f.calendars, DSTGap: f.dstGap,
		DSTOverlap: f.dstOverlap, IdempotencyKey: f.keyTemplate}
	s.Retry.Backoff, s.Missed.Policy, s.Missed.Window = f.backoff, f.missed, f.missedWindow
	if cmd.Flags().Changed("max-retries") {
		s.Retry.MaxRetries = &f.maxRetries
	}
	if f.notifyWebhook != "" || f.notifyEmail != nil || f.notifyOn != nil {
		s.Notify = &job.Notify{On: f.notifyOn, Webhook: f.notifyWebhook, Email: f.notifyEmail}
	}
	var err error
	if s.Tags, err = values.Pairs("--tag", f.tags); err != nil {
		return s, err
	}
	if s.Workers, err = values.Pairs("--worker", f.workers); err != nil {
		return s, err
	}
	for _, d := range []struct {
		flag, text string
		to         *job.Duration
	}{
		{"--timeout", f.timeout, &s.Timeout}, {"--deadline", f.deadline, &s.Deadline},
		{"--jitter", f.jitter, &s.Jitter},
		{"--retention", f.retention, &s.Retention}, {"--backoff-base", f.base, &s.Retry.Base},
		{"--backoff-cap", f.cap, &s.Retry.Cap},
	} {
		if *d.to, err = values.Duration(d.flag, d.text); err != nil {
			return s, err
		}
	}
	if err := a.instants(nil, timeFlag{"--start-at", f.startAt, &s.StartAt},
		timeFlag{"--end-at", f.endAt, &s.EndAt}); err != nil {
		return s, err
	}
	switch {
	case f.schedule != "" && f.at != "":
		return s, usage("give one of them", "--schedule and --at are both given")
	case f.at != "":
		at, err := values.Instant("--at", f.at, a.now(), nil)
		if err != nil {
			return s, err
		}
		s.Schedule = job.At(at).String()
	case f.schedule == "":
		return s, usage("give --schedule or --at; --schedule @manual runs only when triggered",
			"the job has no schedule")
	}
	s.Type, s.Payload, err = f.kinds.payload()
	return s, err
}

// value is a flag's JSON, or its text as a JSON string; @FILE is what is in a file.
func value(flag, s string) (json.RawMessage, error) {
	if s == "" {
		return nil, nil
	}
	if path, ok := strings.CutPrefix(s, "@"); ok {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, job.Invalid(flag, "give @FILE with a file that can be read", "%v", err)
		}
		s = string(data)
	}
	// A bare number or word is more likely text than JSON.
	if t := strings.TrimSpace(s); json.Valid([]byte(t)) && strings.ContainsAny(t[:1], "{[\"") {
		return json.RawMessage(t), nil
	}
	return compactJSON(s)
}

// compactJSON is json.Marshal without the escapes that only HTML needs.
func compactJSON(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	if err := output.JSON(&buf, v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(buf.Bytes()), nil
}

// submitOne creates one job and says when it runs.
func (a *app) submitOne(cmd *cobra.Command, spec job.Spec, file string) error {
	var j job.Job
	var replayed, there bool
	return a.show(cmd, func(ctx context.Context, c *client.Client) (err error) {
		warned := client.WithWarnings(ctx, func(text string) {
			if !a.json {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+text)
			}
		})
		j, err = c.CreateJob(client.WithReplay(warned, &replayed), spec)
		if job.CodeOf(err) == job.CodeDuplicateName {
			j, there, err = sameJob(ctx, c, spec, file, err)
		}
		return err
	}, func(p *printer) {
		done := "submitted"
		switch {
		case there:
			done = "already there:"
		case replayed:
			done = "already submitted"
		}
		p.Printf("%s %s%s\n", done, nameAndID(j), nextRun(p, j))
	})
}

// sameJob answers a submit whose name is taken: if the job of that name says the same it is there already, as it is in
// a file of several. The node compares them, as it does for those.
func sameJob(ctx context.Context, c *client.Client, spec job.Spec, file string,
	taken error) (j job.Job, there bool, err error) {
	line, err := compactJSON(spec)
	if err != nil {
		return j, false, err
	}
	var r client.BulkResult
	// the key, if there is one, is that of the create
	quiet := client.WithIdempotencyKey(client.WithRaw(ctx, func([]byte) {}), "")
	err = c.BulkCreate(quiet, bytes.NewReader(append(line, '\n')), func(b client.BulkResult) error {
		r = b
		return nil
	})
	switch {
	case err != nil:
		return j, false, err
	case r.Error != nil && r.Error.Code != job.CodeDuplicateName:
		return j, false, r.Error
	case r.Error != nil || r.JobID == nil:
		var e *job.Error
		if errors.As(taken, &e) {
			said := *e
			said.Message += ", with another definition"
			said.Remedy = "choose another name, or change that job: carillon jobs edit " + spec.Name
			if file != "" {
				said.Remedy += " --file " + file
			}
			taken = &said
		}
		return j, false, taken
	}
	j, err = c.GetJob(ctx, r.JobID.String())
	return j, r.Status == "exists", err
}

func nameAndID(j job.Job) string {
	if j.Name == "" {
		return j.ID.String()
	}
	return j.Name + " (" + j.ID.String() + ")"
}

func nextRun(p *printer, j job.Job) string {
	switch {
	case j.Status == job.StatusPaused:
		return ", paused"
	case j.NextRunAt != 0:
		return ", next run " + p.When(j.NextRunAt)
	case strings.EqualFold(j.Schedule, "@manual"):
		return ", runs when triggered: carillon jobs run " + ref(j)
	}
	return ", no further run"
}

// ref is how one calls a job on a command line.
func ref(j job.Job) string {
	if space := unusual(j.Namespace); j.Name != "" && space != "" {
		return j.Name + " -n " + space
	}
	return cmp.Or(j.Name, j.ID.String())
}

// submitFile submits what is in a file: one job as one request, several as a bulk create.
func (a *app) submitFile(cmd *cobra.Command, path string) error {
	f, name, err := a.openFile(path, cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 512<<10)
	if jobfile.LooksLikeLines(in) {
		return a.submitBulk(cmd, in,
			func(r client.BulkResult) error { return fmt.Errorf("%s:%d: %w", name, r.Line, r.Error) })
	}
	docs, err := jobfile.Read(in, name)
	if err != nil {
		return err
	}
	if len(docs) == 1 {
		var s job.Spec
		if err := job.DecodeStrict(docs[0].JSON, &s); err != nil {
			return docs[0].At(err)
		}
		return docs[0].At(a.submitOne(cmd, s, path))
	}
	var lines bytes.Buffer
	for _, d := range docs {
		if err := json.Compact(&lines, d.JSON); err != nil {
			return d.At(err)
		}
		lines.WriteByte('\n')
	}
	return a.submitBulk(cmd, &lines, func(r client.BulkResult) error {
		if r.Line > len(docs) {
			return r.Error
		}
		return docs[r.Line-1].At(r.Error)
	})
}

// submitBulk reports every line that failed where it stands, and then how many did what.
func (a *app) submitBulk(cmd *cobra.Command, in io.Reader, place func(client.BulkResult) error) error {
	ctx := a.keyed(cmd.Context())
	created, exists, failed := 0, 0, 0
	var first *job.Error
	err := a.client().BulkCreate(ctx, in, func(r client.BulkResult) error {
		switch {
		case r.Status == "created":
			created++
		case r.Status == "exists":
			exists++
		default:
			failed++
			if r.Error == nil {
				r.Error = job.Errorf(job.CodeInternal, "", "the node did not say why")
			}
			if first == nil {
				first = r.Error
			}
		}
		if a.json {
			return output.JSON(cmd.OutOrStdout(), r)
		}
		if r.Error != nil {
			a.report(cmd.ErrOrStderr(), place(r))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !a.json {
		p := a.printer(cmd)
		p.Printf("%d created, %d already there, %d failed\n", created, exists, failed)
	}
	if failed > 0 {
		return &job.Error{Code: first.Code,
			Message: fmt.Sprintf("%d of %d jobs were not created", failed, created+exists+failed),
			Remedy:  "correct them and submit the file again: the others are left as they are"}
	}
	return nil
}

// readOne reads a file that must hold one document, and says where that is.
func (a *app) readOne(cmd *cobra.Command, path, remedy, why string, v any) (doc jobfile.Document, err error) {
	f, name, err := a.openFile(path, cmd.InOrStdin())
	if err != nil {
		return doc, err
	}
	defer f.Close()
	docs, err := jobfile.Read(f, name)
	switch {
	case err != nil:
		return doc, err
	case len(docs) != 1:
		return doc, usage(remedy, "%s has %d documents%s", name, len(docs), why)
	}
	return docs[0], docs[0].At(job.DecodeStrict(docs[0].JSON, v))
}

// openFile opens a file, or standard input for "-".
func (a *app) openFile(path string, stdin io.Reader) (io.ReadCloser, string, error) {
	if path == "-" {
		return io.NopCloser(stdin), "standard input", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, path, job.Errorf(job.CodeInvalid, "give a file that can be read, or - for standard input",
			"%v", err)
	}
	return f, path, nil
}
