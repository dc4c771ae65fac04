// Package jobflags is a job as the flags of a command.
package jobflags

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/internal/jsontext"
	"github.com/carillon-scheduler/carillon/job"
)

// Flags are a job as flags. They are named like the fields of the job file where that is not too long to type.
type Flags struct {
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

// Register adds them to a command's.
func (f *Flags) Register(fl *pflag.FlagSet) {
	others := map[string]bool{}
	fl.VisitAll(func(flag *pflag.Flag) { others[flag.Name] = true })
	fl.StringVar(&f.name, "name", "", "name of the job; without one it only has an id")
	fl.StringVar(&f.schedule, "schedule", "", "cron expression, \"@every 90s\", RRULE, RFC 3339 instant or @manual")
	fl.StringVar(&f.at, "at", "", "run once: 10m, +1d, 09:00 (the next one in the zone of --tz), or RFC 3339")
	fl.StringVar(&f.tz, "tz", "", "IANA time zone of the schedule (default UTC)")
	f.kinds.register(fl)
	fl.StringVar(&f.priority, "priority", "", "critical, high, normal or low (default normal)")
	fl.StringVar(&f.overlap, "overlap", "",
		"while an earlier run is open: skip, queue, allow or replace (default skip)")
	fl.IntVar(&f.concurrency, "concurrency", 0, "with --overlap allow: how many runs at once")
	fl.StringVar(&f.delivery, "delivery", "", "at_least_once or at_most_once (default at_least_once)")
	fl.StringVar(&f.timeout, "timeout", "", "how long one attempt may take (default 5m)")
	fl.StringVar(&f.deadline, "deadline", "", "start within this time or not at all")
	fl.IntVar(&f.maxRetries, "max-retries", 0, "attempts after the first (default 3)")
	fl.StringVar(&f.backoff, "backoff", "", "immediate, linear or exponential (default exponential)")
	fl.StringVar(&f.base, "backoff-base", "", "first delay between attempts (default 1s)")
	fl.StringVar(&f.cap, "backoff-cap", "", "longest delay between attempts (default 5m)")
	fl.StringVar(&f.jitter, "jitter", "", "delay each run by up to this much, always by the same amount for this job")
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
		"notify this URL, or webhook that the nodes know by name, when the job begins to fail and when it works again")
	fl.StringArrayVar(&f.notifyEmail, "notify-email", nil, "notify this e-mail address; repeatable")
	fl.StringSliceVar(&f.notifyOn, "notify-on", nil, "notify only about this: failure or recovery (default both)")
	fl.StringVar(&f.dstGap, "dst-gap", "", "run_after or skip (default run_after)")
	fl.StringVar(&f.dstOverlap, "dst-overlap", "", "first or both")
	fl.StringVar(&f.keyTemplate, "key-template", "", "template for the idempotency key that the target receives")
	fl.VisitAll(func(flag *pflag.Flag) {
		if !others[flag.Name] {
			f.names = append(f.names, flag.Name)
		}
	})
}

// First is a flag that was given and that describes the job.
func (f *Flags) First(fl *pflag.FlagSet) string {
	i := slices.IndexFunc(f.names, fl.Changed)
	if i < 0 {
		return ""
	}
	return f.names[i]
}

// Spec is the job that the flags describe. The node checks it; here is only what it cannot see.
func (f *Flags) Spec(fl *pflag.FlagSet, now time.Time) (job.Spec, error) {
	s := job.Spec{Name: f.name, Schedule: f.schedule, Timezone: f.tz, Priority: f.priority, Overlap: f.overlap,
		Delivery:    f.delivery,
		Concurrency: f.concurrency, MaxRuns: f.maxRuns, Calendars: f.calendars, DSTGap: f.dstGap,
		DSTOverlap: f.dstOverlap, IdempotencyKey: f.keyTemplate}
	s.Retry.Backoff, s.Missed.Policy, s.Missed.Window = f.backoff, f.missed, f.missedWindow
	if fl.Changed("max-retries") {
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
	loc, err := time.LoadLocation(f.tz)             // UTC if it is empty
	if err != nil && f.at+f.startAt+f.endAt != "" { // otherwise the node says so
		return s, job.Invalid("--tz", "use an IANA name such as UTC, Europe/London or America/New_York",
			"unknown time zone %q", f.tz)
	}
	if s.StartAt, err = instant("--start-at", f.startAt, now, loc); err != nil {
		return s, err
	}
	if s.EndAt, err = instant("--end-at", f.endAt, now, loc); err != nil {
		return s, err
	}
	switch {
	case f.schedule != "" && f.at != "":
		return s, usage("give one of them", "--schedule and --at are both given")
	case f.at != "":
		at, err := values.Instant("--at", f.at, now, loc, values.After)
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

func instant(flag, text string, now time.Time, loc *time.Location) (job.Instant, error) {
	if text == "" {
		return 0, nil
	}
	at, err := values.Instant(flag, text, now, loc, values.After)
	if err != nil {
		return 0, err
	}
	return job.At(at), nil
}

func usage(remedy, format string, args ...any) error {
	return job.Errorf(job.CodeInvalid, remedy, format, args...)
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
	return jsontext.Marshal(s)
}
