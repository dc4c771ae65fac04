package cmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/job"
)

// editor makes $EDITOR a script that gets the file as $1.
func (s *shell) editor(script string) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "editor")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.env["EDITOR"] = path + " --wait"
	s.t.Setenv("TMPDIR", s.t.TempDir())
}

func (s *shell) leftovers() []string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "carillon-edit-*"))
	if err != nil {
		s.t.Fatal(err)
	}
	return files
}

func TestEdit(t *testing.T) {
	s := newShell(t)
	s.populate()
	s.editor(`sed -i 's/0 9 \* \* MON-FRI/0 10 * * MON-FRI/; s/^name: report/name: weekly/' "$2"`)
	out, errOut, code := s.run("", "jobs", "edit", "report")
	if code != 0 || out != "updated weekly (j_2), next run in 21h (2026-11-03 09:00:00 UTC)\n" {
		t.Fatal(out, errOut, code)
	}
	if left := s.leftovers(); len(left) > 0 {
		t.Error(left)
	}

	s.editor("true")
	if out, _, code := s.run("", "jobs", "edit", "weekly"); code != 0 || out != "nothing changed\n" ||
		len(s.leftovers()) > 0 {
		t.Error(out, code, s.leftovers())
	}
	if out, _, code := s.run("", "jobs", "edit", "weekly", "--json"); code != 0 || out != "{}\n" {
		t.Error(out, code)
	}
	s.editor("exit 3")
	if _, errOut, code := s.run("", "jobs", "edit", "weekly"); code != exit.Failure ||
		!strings.Contains(errOut, "--file") || len(s.leftovers()) > 0 {
		t.Error(errOut, code)
	}
	if _, _, code := s.run("", "jobs", "edit", "nope"); code != exit.NotFound {
		t.Error(code)
	}
}

// What was typed is kept when it is refused, and can be used again.
func TestEditKeepsWhatWasTyped(t *testing.T) {
	s := newShell(t)
	s.populate()
	s.editor(`sed -i 's/^overlap: queue/overlap: queu/' "$2"`)
	_, errOut, code := s.run("", "jobs", "edit", "report")
	m := regexp.MustCompile(`run: carillon jobs edit report --file (\S+)\n`).FindStringSubmatch(errOut)
	if code != exit.Usage || m == nil || !strings.Contains(errOut, `did you mean "queue"?`) ||
		!regexp.MustCompile(`\.yaml:\d+: overlap`).MatchString(errOut) {
		t.Fatal(errOut, code)
	}
	text, err := os.ReadFile(m[1])
	if err != nil {
		t.Fatal(err)
	}
	fixed := strings.Replace(string(text), "overlap: queu\n", "overlap: allow\n", 1)
	if out, errOut, code := s.run(fixed, "jobs", "edit", "report", "--file", "-"); code != 0 {
		t.Fatal(out, errOut)
	}
	// The text has the version: the same edit again is refused.
	if _, errOut, code := s.run(fixed, "jobs", "edit", "report", "--file", "-"); code != exit.Conflict {
		t.Error(errOut, code)
	}
	if _, errOut, code := s.run(fixed+"---\n"+fixed, "jobs", "edit", "report", "--file", "-"); code != exit.Usage {
		t.Error(errOut, code)
	}
	if j, err := s.node().Backend.GetJob(t.Context(), "report", api.Read{}); err != nil || j.Overlap != "allow" || j.Version != 2 {
		t.Errorf("%+v, %v", j, err)
	}
}

// Whatever is in a job, its YAML reads back as the same job.
func TestYAMLRoundTrip(t *testing.T) {
	words := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"@every 2s", "*/5 * * * *", "* * * * *", "null", "true", "no", "~", "12:30", "1e3", "0x1F", "0o7", "1_000", ".5",
		"-", "- a", "a: b", "a #b", "# a", "'", `"`, "{", "[a]", "&a", "!x", "|", ">",
		"%", "`", "2027-03-01T09:00:00Z", "2027-03-01", "5m0s", "", " a ", "a\nb\n", "\ta", "a\tb", "=", "<<", "0123", "+1",
		".inf", ".nan", "---", "...", "a\r\nb", "\\n", "é\u2028\u0085"}))
	rapid.Check(t, func(t *rapid.T) {
		body, err := json.Marshal(map[string]any{"k": words.Draw(t, "value"),
			words.Draw(t, "key"): []any{words.Draw(t, "item"), 1, 2.5, true, nil}})
		if err != nil {
			t.Fatal(err)
		}
		want := job.Spec{Name: words.Draw(t, "name"), Type: job.TypeHTTP, Schedule: words.Draw(t, "schedule"),
			Timezone: words.Draw(t, "zone"),
			Payload:  json.RawMessage(`{"url":"http://x/","body":` + string(body) + `}`),
			Tags:     map[string]string{words.Draw(t, "tag"): words.Draw(t, "value of tag")}}
		text, err := output.SpecYAML(want)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := jobfile.Read(bytes.NewReader(text), "x")
		if err != nil || len(docs) != 1 {
			t.Fatalf("%v, %d documents:\n%s", err, len(docs), text)
		}
		var got job.Spec
		if err := job.DecodeStrict(docs[0].JSON, &got); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		a, b := canonical(t, want), canonical(t, got)
		if a != b {
			t.Fatalf("%s\nbecame\n%s\nthrough\n%s", a, b, text)
		}
	})
}

func canonical(t *rapid.T, s job.Spec) string {
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	raw, err = json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
