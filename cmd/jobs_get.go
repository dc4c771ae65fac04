package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

func (a *app) jobsGetCmd() *cobra.Command {
	return a.watched(a.jobCmd("get", "Show one job; -o yaml prints a job file, ready for apply",
		func(cmd *cobra.Command, ref string) error {
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (output.JobFile, error) {
				j, err := c.GetJob(ctx, ref)
				return output.JobFile{Job: j}, err
			}, func(p *printer, j output.JobFile) { p.job(j.Job) })
		}))
}

func (p *printer) job(j job.Job) {
	description, err := schedule.DescribeFor(j.Schedule, j.Timezone, uint64(j.ID))
	if err != nil {
		description = ""
	}
	last := p.When(j.LastRunAt)
	if j.LastRunStatus != job.RunNone {
		last = j.LastRunStatus.String() + " " + last
	}
	rows := []string{
		"name", j.Name,
		"namespace", unusual(j.Namespace),
		"id", j.ID.String(),
		"status", p.jobState(j),
		"waiting", j.WaitReason,
		"type", string(j.Type),
		"schedule", j.Schedule + " (" + cmp.Or(j.Timezone, "UTC") + ")",
		"", description,
		"next run", p.nextRun(j),
		"last run", last,
		"runs", fmt.Sprintf("%d started, %d open", j.RunsStarted, j.OpenRuns),
	}
	v := reflect.ValueOf(j.Spec)
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name, _, _ := strings.Cut(tag.Get("json"), ",")
		label := cmp.Or(tag.Get("view"), strings.ReplaceAll(name, "_", " "))
		if label != "-" {
			rows = append(rows, label, p.value(v.Field(i).Interface()))
		}
		switch name {
		case "deadline":
			rows = append(rows, "retry", retryText(j.Retry))
		case "notify":
			rows = append(rows, "told", p.notification(j))
		}
	}
	rows = append(rows, "version", strconv.FormatUint(j.Version, 10))
	p.Fields(append(rows, "created", p.When(j.CreatedAt), "updated", p.When(j.UpdatedAt))...)
}

// value is what a field of a job says; "" or - if it says nothing.
func (p *printer) value(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int:
		return number(v)
	case bool:
		return map[bool]string{true: "yes"}[v]
	case job.Duration:
		return span(v)
	case job.Instant:
		return p.When(v)
	case []string:
		return strings.Join(v, ", ")
	case map[string]string:
		return labels(v)
	case json.RawMessage:
		return p.Cut(string(v), 200)
	case job.Missed:
		return missedText(v)
	case *job.Notify:
		return notifyText(v)
	}
	panic(fmt.Sprintf("cmd: a %T has no view", v))
}

func span(d job.Duration) string {
	if d == 0 {
		return ""
	}
	return output.Coarse(time.Duration(d))
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func labels(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ", ")
}

func retryText(r job.Retry) string {
	if r.Limit() == 0 {
		return "none"
	}
	text := fmt.Sprintf("%d times, %s", r.Limit(), r.Backoff)
	if r.Backoff != job.BackoffImmediate {
		text += fmt.Sprintf(" from %s to %s", output.Coarse(time.Duration(r.Base)), output.Coarse(time.Duration(r.Cap)))
	}
	return text
}

func notifyText(n *job.Notify) string {
	if n == nil {
		return ""
	}
	to := n.Email
	if n.Webhook != "" {
		to = append([]string{n.Webhook}, to...)
	}
	return strings.Join(n.On, " and ") + " to " + strings.Join(to, ", ")
}

// notification is the newest notification of a job and what became of it.
func (p *printer) notification(j job.Job) string {
	n := j.LastNotification
	if n == nil {
		return ""
	}
	text := n.Kind + " " + p.When(n.At) + ": "
	switch n.Outcome {
	case job.NotificationSent:
		text += p.Paint(terminal.Green, n.Outcome)
	case job.NotificationFailed:
		text += p.Paint(terminal.Red, "given up")
	case job.NotificationUnknown:
		text += p.Paint(terminal.Red, "may or may not have arrived")
	default:
		text += n.Outcome
	}
	if n.NextTryAt != 0 && n.FinishedAt == 0 {
		text += ", again " + p.When(n.NextTryAt)
	}
	if n.Error != "" {
		text += " (" + p.Cut(n.Error, 200) + ")"
	}
	return text
}

func missedText(m job.Missed) string {
	if m.Policy == "" {
		return ""
	}
	text := m.Policy
	if m.Policy == job.MissedRunAll {
		text += fmt.Sprintf(" (at most %d)", m.Max)
	}
	return text + ", window " + m.Window + ", grace " + output.Coarse(time.Duration(m.Grace))
}
