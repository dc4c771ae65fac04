package cmd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

// shown is what a printer writes at noon, in a zone.
func shown(color bool, zone *time.Location, print func(*printer)) string {
	var b bytes.Buffer
	print(&printer{a: &app{}, Printer: output.Printer{W: &b, Zone: zone, Color: color, Now: noon}})
	return b.String()
}

// A job that fails, and one whose work waits, do not look like one that is well.
func TestJobsShowTrouble(t *testing.T) {
	at := func(d time.Duration) job.Instant { return job.At(noon.Add(d)) }
	page := client.JobPage{Jobs: []job.Job{
		{ID: 1, Status: job.StatusScheduled, NextRunAt: at(time.Hour), LastRunAt: at(-time.Hour),
			LastRunStatus: job.RunSucceeded, Spec: job.Spec{Name: "well", Schedule: "@hourly"}},
		{ID: 2, Status: job.StatusScheduled, NextRunAt: at(time.Hour), LastRunAt: at(-time.Hour), LastRunStatus: job.RunDead,
			Spec: job.Spec{Name: "broken", Schedule: "@hourly"}},
		{ID: 3, Status: job.StatusScheduled, NextRunAt: at(-22 * time.Minute),
			WaitReason: "no worker takes the queue emails", Spec: job.Spec{Name: "starved", Schedule: "@hourly"}},
		{ID: 4, Status: job.StatusPaused, LastRunStatus: job.RunDead, Spec: job.Spec{Name: "paused", Schedule: "@hourly"}},
	}}
	for _, color := range []bool{false, true} {
		lines := strings.Split(shown(color, time.UTC, func(p *printer) { p.jobs(page) }), "\n")
		for i, want := range []string{"WAITING", "scheduled", "failing", "22m overdue", "paused"} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("line %d does not say %q: %q", i, want, lines[i])
			}
		}
		if !strings.Contains(lines[3], "no worker takes the queue emails") || strings.Contains(lines[1], "failing") {
			t.Errorf("%q", lines)
		}
		if got := strings.Contains(lines[2], terminal.Red+"failing"+terminal.Reset); got != color {
			t.Errorf("colour %v: %q", color, lines[2])
		}
	}
	if out := shown(false, time.UTC, func(p *printer) { p.job(page.Jobs[2]) }); !strings.Contains(out,
		"22m overdue (11:38:00 UTC)") {
		t.Error(out)
	}
}

// Work that is due and that no worker has taken is in the list of runs, with the reason and how long it waits.
func TestRunsShowWhatIsDue(t *testing.T) {
	r := job.Run{RunID: "r_1.x.s", JobID: 1, Status: job.RunPending, ScheduledAt: job.At(noon.Add(-22 * time.Minute)),
		ReadyAt:    job.At(noon.Add(-22 * time.Minute)),
		WaitReason: "no worker takes the queue emails"}
	out := shown(false, time.UTC, func(p *printer) { p.runs(client.RunPage{Runs: []job.Run{r}}, false) })
	if !strings.Contains(out, "pending") || !strings.Contains(out, "overdue 22m: no worker takes the queue emails") {
		t.Error(out)
	}
	r.JobName = "mail" // in the list over all jobs
	if out := shown(false, time.UTC,
		func(p *printer) { p.runs(client.RunPage{Runs: []job.Run{r}}, true) }); !strings.Contains(out, "\nmail ") ||
		!strings.Contains(out, "overdue 22m: no worker") {
		t.Error(out)
	}
	var narrow bytes.Buffer
	p := &printer{a: &app{}, Printer: output.Printer{W: &narrow, Zone: time.UTC, Width: 80, Now: noon}}
	p.runs(client.RunPage{Runs: []job.Run{r}}, false)
	p.jobs(client.JobPage{Jobs: []job.Job{{ID: 3, Status: job.StatusScheduled, NextRunAt: r.ReadyAt,
		WaitReason: r.WaitReason, Spec: job.Spec{Name: "starved", Schedule: "@hourly"}}}})
	if strings.Count(narrow.String(), "\n  waits: no worker takes the queue emails\n") != 2 ||
		!strings.Contains(narrow.String(), "overdue 22m\n") {
		t.Errorf("a reason is cut off on a terminal:\n%s", &narrow)
	}
	r.ReadyAt = job.At(noon.Add(time.Minute))
	if out := shown(false, time.UTC,
		func(p *printer) { p.runs(client.RunPage{Runs: []job.Run{r}}, false) }); strings.Contains(out, "overdue") {
		t.Error(out)
	}
}

// What a target answered must not steer the terminal, and leaves no half of a code either.
func TestNoStrayEscapeCodes(t *testing.T) {
	s := newShell(t)
	s.populate()
	for _, args := range [][]string{{"jobs"}, {"runs", "hello"}, {"status"}, {"dead"}, {"jobs", "get", "hello"},
		{"cluster", "members"},
		{"runs", "get", s.died}} {
		out, stderr, _ := s.run("", args...)
		if strings.Contains(out+stderr, "\x1b") {
			t.Errorf("%v: %q", args, out)
		}
		s.color = true
		if out, _, _ := s.run("", args...); strings.Contains(out, terminal.Red+terminal.Reset) || strings.Contains(out, terminal.Plain+terminal.Reset) {
			t.Errorf("%v colours nothing: %q", args, out)
		}
		s.color = false
	}
}

// Submitting a file again is safe, whether it has one document or two.
func TestSubmitAgain(t *testing.T) {
	s := newShell(t)
	doc := func(name, schedule string) string {
		return "name: " + name + "\ntype: shell\nschedule: '" + schedule + "'\npayload: {command: date}\n"
	}
	for _, file := range []string{doc("one", "@daily"), doc("a", "@daily") + "---\n" + doc("b", "@daily")} {
		for _, want := range []string{"", "already there"} {
			if out, stderr, code := s.run(file, "submit", "-"); code != 0 || !strings.Contains(out, want) {
				t.Errorf("exit %d: %s%s", code, out, stderr)
			}
		}
	}
	if out, _, code := s.run(doc("one", "@daily"), "submit", "-", "--json"); code != 0 ||
		!strings.Contains(out, `"name":"one"`) {
		t.Errorf("exit %d: %s", code, out)
	}
	for _, file := range []string{doc("one", "@hourly"), doc("a", "@hourly") + "---\n" + doc("b", "@daily")} {
		if _, stderr, code := s.run(file, "submit", "-"); code != exit.Conflict || !strings.Contains(stderr, "already") ||
			!strings.Contains(stderr, "edit") && !strings.Contains(stderr, "carillon apply") {
			t.Errorf("another definition: exit %d: %s", code, stderr)
		}
	}
}

// Dead letters say how to get rid of them, and numbers that there is none of are an error.
func TestDeadLettersThatAreNotThere(t *testing.T) {
	s := newShell(t)
	s.populate()
	if out, _, _ := s.run("", "dead"); !strings.Contains(out, "carillon dead redrive") {
		t.Error(out)
	}
	out, stderr, code := s.run("", "dead", "redrive", "4", "98", "99")
	if code != exit.NotFound || !strings.Contains(out, "redrove 1 dead letter") ||
		!strings.Contains(stderr, "there is no dead letter 98, 99") {
		t.Errorf("exit %d: %s %s", code, out, stderr)
	}
	out, stderr, code = s.run("", "dead", "purge", "6", "99", "--json")
	if code != exit.NotFound || !strings.Contains(out, `"unknown":[99]`) ||
		!strings.Contains(stderr, `"code":"not_found"`) {
		t.Errorf("exit %d: %s %s", code, out, stderr)
	}
	s = newShell(t)
	s.populate()
	s.want(exit.OK, "", "jobs", "delete", "hello")
	out, stderr, code = s.run("", "dead", "redrive", "--all")
	if code == exit.OK || !strings.Contains(out, "redrove 0 dead letters") ||
		!strings.Contains(stderr, "left alone: their job was deleted") || !strings.Contains(stderr, "dead purge") {
		t.Errorf("of a deleted job: exit %d: %s %s", code, out, stderr)
	}
	for _, args := range [][]string{{"dead", "--job", ""}, {"dead", "redrive", "--job", ""}, {"jobs", "delete", ""},
		{"runs", ""}, {"submit", "--name", "", "--schedule", "@daily", "--shell", "x"}, {"jobs", "get", ".."},
		{"submit", "--schedule", "@daily", "--tz", "", "--shell", "x"}, {"jobs", "--tag", ""}, {"runs", "--status", ""}} {
		if _, stderr, code := s.run("", args...); code != exit.Usage {
			t.Errorf("%q: exit %d: %s", args, code, stderr)
		}
	}
}
