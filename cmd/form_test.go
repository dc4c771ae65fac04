package cmd

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/output"
)

// Every form of the lists and of one thing, and who has not every form says so before anything is done.
func TestForms(t *testing.T) {
	s := newShell(t)
	s.populate()
	calendar := "<name: holidays\ndates: [01-01, 05-01, 10-03, 11-01, 12-24, 12-25, 12-26, 12-31]\n"
	golden(t, s.script(
		[]string{"submit", "--at", "+5m", "--shell", "date", "-q"}, // it has no name
		[]string{"submit", "--name", "日報", "-n", "team-a", "--schedule", "@manual", "--queue", "mail", "-q"},
		[]string{"jobs", "-o", "name"}, []string{"jobs", "-A", "-o", "name"}, []string{"jobs", "get", "hello", "-o", "name"},
		[]string{"jobs", "-o", "yaml"}, []string{"jobs", "-n", "team-a", "-o", "yaml"},
		[]string{"jobs", "pause", "report", "-o", "yaml"}, []string{"jobs", "resume", "report", "-q"},
		[]string{"jobs", "run", "report", "-q"}, []string{"jobs", "cancel", "report", "-q"},
		[]string{"jobs", "-o", "wide"}, []string{"jobs", "-o", "table"}, []string{"jobs", "get", "hello", "-o", "json"},
		[]string{"runs", "hello", "-o", "name"}, []string{"runs", "get", s.died, "-o", "name"},
		[]string{"runs", "get", s.died, "-o", "yaml"},
		[]string{"dead", "-o", "name"}, []string{"dead", "get", "4", "-o", "name"}, []string{"dead", "-o", "yaml", "--limit", "1"},
		[]string{"queues", "set", "mail", "--concurrency", "2", "-q"}, []string{"queues", "-o", "name"},
		[]string{"queues", "-A", "-o", "name"}, []string{"queues", "get", "mail", "-o", "name"},
		[]string{calendar}, []string{"calendars", "set", "-", "-q"}, []string{"calendars", "-o", "name"},
		[]string{"calendars", "-o", "table"}, []string{"calendars", "-o", "wide"}, []string{"calendars", "-o", "yaml"},
		[]string{"cluster", "members", "-o", "name"}, []string{"schedule", "describe", "@daily", "-o", "yaml"},
		[]string{"<name: a\ntype: shell\nschedule: '@daily'\npayload: {command: date}\n---\nname: b\ntype: shell\nschedule: '@daily'\npayload: {command: date}\n"},
		[]string{"submit", "-", "-q"},
		[]string{"<name: b\ntype: shell\nschedule: '@hourly'\npayload: {command: date}\n---\nname: c\ntype: shell\nschedule: '@daily'\npayload: {command: date}\n"},
		[]string{"apply", "-f", "-", "-q"},
		[]string{"jobs", "delete", "c", "-q"}, []string{"dead", "purge", "4", "-q"}, []string{"dead", "purge", "99", "-q"},
		// What is refused.
		[]string{"jobs", "-o", "xml"}, []string{"jobs", "-o", "xml", "--json"}, []string{"jobs", "--json", "-o", "yaml"},
		[]string{"jobs", "-q", "-o", "json"}, []string{"status", "-o", "name"}, []string{"jobs", "delete", "a", "-o", "name"},
		[]string{"jobs", "get", "a", "-o", "name"}, []string{"jobs", "stats", "a", "-o", "name"},
		[]string{"runs", "export", "-o", "yaml"}, []string{"apply", "-f", "-", "-o", "yaml"}, []string{"restore", "x", "-o", "name"},
		[]string{"jobs", "get", "nope", "-o", "json"}, []string{"jobs", "get", "nope", "-o", "yaml"},
		[]string{"jobs", "gt", "-o", "json", "--nope"}))
}

// The variable is a preference of the user: what is typed counts for more, and a command without that form has its own.
func TestFormOfTheEnvironment(t *testing.T) {
	s := newShell(t)
	s.populate()
	s.env[output.EnvForm] = "name"
	for args, want := range map[string]string{"jobs": "hello\nreport\n", "jobs --json": `{"jobs":[`, "jobs -o table": "NAME ",
		"status": "node ", "version": "carillon ", "jobs run report -o yaml": "run_id: "} {
		if out, stderr, code := s.run("", strings.Fields(args)...); code != 0 || !strings.HasPrefix(out, want) {
			t.Errorf("%s: %d %s%s", args, code, out, stderr)
		}
	}
	s.env[output.EnvForm] = "json"
	if _, stderr, code := s.run("", "jobs", "--nope"); code != exit.Usage || !strings.HasPrefix(stderr, `{"code":`) {
		t.Errorf("%d %s", code, stderr)
	}
	s.env[output.EnvForm] = "xml"
	if _, stderr, code := s.run("", "jobs"); code != exit.Usage || !strings.Contains(stderr, "table, wide, json, yaml or name") {
		t.Errorf("%d %s", code, stderr)
	}
	delete(s.env, output.EnvForm)
	if out, _, _ := s.run("", "__complete", "jobs", "-o", ""); !strings.HasPrefix(out, "table\nwide\njson\nyaml\nname\n:4") {
		t.Errorf("completion: %q", out)
	}
}

// What -o yaml prints of all jobs is what apply takes, and takes for the same.
func TestAppliedFromAList(t *testing.T) {
	s := newShell(t)
	s.populate()
	s.must("submit", "-n", "team-a", "--name", "other", "--schedule", "@manual", "--queue", "mail")
	s.must("submit", "--at", "+5m", "--shell", "date")
	files, stderr, code := s.run("", "jobs", "-A", "-o", "yaml")
	if code != 0 {
		t.Fatal(stderr)
	}
	if out, stderr, code := s.run(files, "apply", "-f", "-"); code != 0 || out != "0 created, 0 changed, 3 unchanged, 0 failed\n" {
		t.Errorf("%d %s%s\n%s", code, out, stderr, files)
	}
}

// A command that is in the list of those without a form exists: a name that was changed would take the refusal away.
func TestCommandsWithoutAForm(t *testing.T) {
	root := newApp().root()
	for _, path := range output.Exceptions() {
		var found *cobra.Command
		if c, rest, err := root.Find(strings.Fields(path)); err == nil && len(rest) == 0 {
			found = c
		}
		if found == nil || found.CommandPath() != "carillon "+path {
			t.Errorf("there is no command %q", path)
		}
	}
}
