// Package dkron reads the jobs of a Dkron cluster, as its /v1/jobs has them, and says what job each is here.
package dkron

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/daylight"
	"github.com/carillon-scheduler/carillon/job"
)

// Options say what the jobs do not.
type Options struct {
	Zone     string // of the Dkron servers, for jobs without one
	Disabled bool   // jobs that are disabled too
	Mail     bool   // tell the owner's address when a job begins to fail; the nodes need a mail server
	Now      time.Time
}

// Job is what became of one.
type Job struct {
	Name  string
	Spec  *job.Spec // nil: it is left out
	Notes []string  // what is not as it was, although the job was carried over
	Err   string    // why it is left out
}

// source is a job of Dkron.
type source struct {
	Name           string                     `json:"name"`
	DisplayName    string                     `json:"displayname"`
	Timezone       string                     `json:"timezone"`
	Schedule       string                     `json:"schedule"`
	Owner          string                     `json:"owner"`
	OwnerEmail     string                     `json:"owner_email"`
	Disabled       bool                       `json:"disabled"`
	Tags           map[string]string          `json:"tags"`
	Metadata       map[string]string          `json:"metadata"`
	Retries        int                        `json:"retries"`
	DependentJobs  []string                   `json:"dependent_jobs"`
	ParentJob      string                     `json:"parent_job"`
	Processors     map[string]json.RawMessage `json:"processors"`
	Concurrency    string                     `json:"concurrency"`
	Executor       string                     `json:"executor"`
	ExecutorConfig map[string]string          `json:"executor_config"`
	Ephemeral      bool                       `json:"ephemeral"`
	StartsAt       *time.Time                 `json:"starts_at"`
	ExpiresAt      *time.Time                 `json:"expires_at"`
}

// Read reads a list of jobs, or one.
func Read(data []byte, o Options) ([]Job, error) {
	data = bytes.TrimSpace(data)
	var list []source
	if len(data) > 0 && data[0] == '{' {
		list = make([]source, 1)
		if err := json.Unmarshal(data, &list[0]); err != nil {
			return nil, err
		}
	} else if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	jobs := make([]Job, 0, len(list))
	for i := range list {
		c := conversion{Job: Job{Name: list[i].Name}, from: &list[i], o: o}
		c.convert()
		jobs = append(jobs, c.Job)
	}
	return jobs, nil
}

type conversion struct {
	Job
	from *source
	o    Options
}

func (c *conversion) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.Notes, text) {
		c.Notes = append(c.Notes, text)
	}
}

func (c *conversion) convert() {
	err := func() error {
		if c.from.Name == "" {
			return fmt.Errorf("it has no name: is this the response to GET /v1/jobs?")
		}
		if c.from.Disabled && !c.o.Disabled {
			return fmt.Errorf("it is disabled; --disabled prints it too, for you to pause after submitting it")
		}
		if c.from.ParentJob != "" {
			return fmt.Errorf("it runs after %s, but Carillon has no dependencies between jobs: let the command of "+
				"that job call this one's", c.from.ParentJob)
		}
		c.Spec = &job.Spec{Name: c.from.Name}
		for _, part := range []func() error{c.schedule, c.executor, c.policies, c.placement, c.owner} {
			if err := part(); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		c.Spec, c.Notes, c.Err = nil, nil, err.Error()
	}
}

// schedule is what robfig/cron with six fields and Dkron's own words make of it.
func (c *conversion) schedule() error {
	expr, zone := strings.TrimSpace(c.from.Schedule), cmp.Or(c.from.Timezone, c.o.Zone)
	for _, prefix := range []string{"TZ=", "CRON_TZ="} {
		if rest, ok := strings.CutPrefix(expr, prefix); ok {
			zone, expr, _ = strings.Cut(rest, " ")
			expr = strings.TrimSpace(expr)
		}
	}
	s := c.Spec
	s.Timezone = zone
	switch at, ok := strings.CutPrefix(expr, "@at "); {
	case ok:
		s.Schedule = strings.TrimSpace(at)
	case expr == "@manually":
		s.Schedule = job.ScheduleManual
	case expr == "@minutely":
		s.Schedule = "* * * * *"
	case strings.HasPrefix(expr, "@"):
		s.Schedule = expr
	default:
		var err error
		if s.Schedule, err = c.cron(expr); err != nil {
			return err
		}
	}
	// robfig/cron follows the wall clock: nothing in an hour that is left out, both of one that comes twice.
	return daylight.Keep(s, daylight.GapSkip, daylight.OverlapBoth, c.o.Now)
}

// The days of robfig/cron's six fields.
const (
	dayOfMonth = 3
	dayOfWeek  = 5
)

func (c *conversion) cron(expr string) (string, error) {
	parts := strings.Fields(expr)
	if len(parts) != 6 {
		return "", fmt.Errorf("the schedule %q has %d fields instead of six", expr, len(parts))
	}
	for i, p := range parts {
		switch {
		case p == "~":
			parts[i] = "H"
			c.note("~ in the schedule gives another time than Dkron's: it is derived from this job")
		case strings.Contains(p, "~"):
			return "", fmt.Errorf("%q in the schedule cannot be converted: write the value that it stands for", p)
		case strings.HasPrefix(p, "?"):
			parts[i] = "*" + p[1:]
		}
	}
	for _, day := range []int{dayOfMonth, dayOfWeek} {
		if step, ok := strings.CutPrefix(parts[day], "*/"); ok {
			if n, err := strconv.Atoi(step); err == nil && n == 1 {
				parts[day] = "*" // a step of one is none
			}
		}
	}
	// With a step a * is a restriction there, so that either day will do; here it is none.
	if parts[dayOfMonth] != "*" && parts[dayOfWeek] != "*" {
		if step, ok := strings.CutPrefix(parts[dayOfMonth], "*/"); ok {
			parts[dayOfMonth] = "1-31/" + step
		}
		if step, ok := strings.CutPrefix(parts[dayOfWeek], "*/"); ok {
			parts[dayOfWeek] = "0-6/" + step
		}
	}
	if parts[0] == "0" {
		parts = parts[1:]
	}
	return strings.Join(parts, " "), nil
}

func (c *conversion) policies() error {
	s, n := c.Spec, c.from.Retries
	s.Retry.MaxRetries = &n
	s.Missed.Policy = job.MissedSkip
	if n > 0 {
		s.Retry.Backoff = job.BackoffImmediate
	} else {
		s.Delivery = job.DeliverAtMostOnce
	}
	s.Overlap = job.OverlapAllow
	if c.from.Concurrency == "forbid" {
		s.Overlap = job.OverlapSkip
	}
	if t := c.from.StartsAt; t != nil && !t.IsZero() {
		s.StartAt = job.At(*t)
	}
	if t := c.from.ExpiresAt; t != nil && !t.IsZero() {
		s.EndAt = job.At(*t)
	}
	if c.from.Ephemeral {
		c.note("ephemeral is left out: the job is not deleted after its first success")
	}
	if d := c.from.DependentJobs; len(d) > 0 {
		c.note("jobs that depend on it are left out: %s", strings.Join(d, ", "))
	}
	if len(c.from.Processors) > 0 {
		c.note("processors are left out (%s): output is in the history",
			strings.Join(slices.Sorted(maps.Keys(c.from.Processors)), ", "))
	}
	if c.from.Disabled {
		c.note("it is disabled: after submitting it, run carillon jobs pause %s", c.from.Name)
	}
	return nil
}

// placement carries tags over: "role": "web:1" is one of the nodes with role=web. Without a count all of them run the
// job, which there is no way to say here.
func (c *conversion) placement() error {
	every := true
	for _, k := range slices.Sorted(maps.Keys(c.from.Tags)) {
		value, count, counted := strings.Cut(c.from.Tags[k], ":")
		if counted {
			every = false
			if n, err := strconv.Atoi(count); err != nil || n != 1 {
				c.note("Dkron runs it on %s nodes with %s=%s; Carillon runs it on one", count, k, value)
			}
		}
		if c.Spec.Workers == nil {
			c.Spec.Workers = map[string]string{}
		}
		c.Spec.Workers[k] = value
	}
	if every {
		c.note("Dkron runs it on every node that matches; Carillon runs it once, on one of them")
	}
	return nil
}

func (c *conversion) owner() error {
	if len(c.from.Metadata) > 0 {
		c.Spec.Tags = maps.Clone(c.from.Metadata)
	}
	if c.from.Owner != "" {
		if c.Spec.Tags == nil {
			c.Spec.Tags = map[string]string{}
		}
		c.Spec.Tags["owner"] = c.from.Owner
	}
	switch to := c.from.OwnerEmail; {
	case to == "":
	case c.o.Mail:
		c.Spec.Notify = &job.Notify{Email: []string{to}}
	default:
		c.note("Dkron mails %s; with --mail Carillon mails when the job begins to fail", to)
	}
	return nil
}
