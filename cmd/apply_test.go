package cmd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
)

const applyFiles = `kind: queue
name: mail
concurrency: 3
---
kind: calendar
name: holidays
dates: [12-25]
---
name: backup
type: http
schedule: '0 1 * * *'
payload: {url: 'http://127.0.0.1:1/'}
calendars: [holidays]
---
kind: job
name: letters
type: queue
schedule: '@manual'
payload:
  queue: mail
  data:
    text: |
      one
      two
`

// applyIn writes files into a directory and gives it.
func applyIn(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// expect runs a command and compares what it says, both outputs, and its exit code.
func (s *shell) expect(stdin string, code int, want string, args ...string) {
	s.t.Helper()
	stdout, stderr, got := s.run(stdin, args...)
	if text := stdout + stderr; text != want || got != code {
		s.t.Errorf("carillon %s: %d and not %d\n%s\nand not\n%s", strings.Join(args, " "), got, code, text, want)
	}
}

func TestApply(t *testing.T) {
	s := newShell(t)
	s.expect(applyFiles, 0, "would create queue mail\nwould create calendar holidays\nwould create backup\nwould create letters\n"+
		"would be: 4 created, 0 changed, 0 unchanged, 0 failed\n", "apply", "-f", "-", "--dry-run")
	s.expect("", 0, "no jobs\n", "jobs")
	s.expect(applyFiles, 0, "created queue mail\ncreated calendar holidays\ncreated backup (j_1), next run in 13h (2026-11-03 01:00:00 UTC)\n"+
		"created letters (j_2)\n4 created, 0 changed, 0 unchanged, 0 failed\n", "apply", "-f", "-")
	s.run("", "jobs", "pause", "backup")
	s.expect(applyFiles, 0, "0 created, 0 changed, 4 unchanged, 0 failed\n", "apply", "-f", "-")
	s.expect(applyFiles, 0, "", "diff", "-f", "-")
	edited := strings.NewReplacer("0 1 *", "0 2 *", "one\n", "zero\n", "12-25", "12-26", "concurrency: 3", "concurrency: 4").Replace(applyFiles)
	s.expect(edited, 6, `--- queue mail
+++ queue mail, standard input:1
-concurrency: 3
+concurrency: 4
--- calendar holidays
+++ calendar holidays, standard input:5
 dates:
-  - '12-25'
+  - '12-26'
--- backup (j_1)
+++ backup (j_1), standard input:9
-schedule: '0 1 * * *'
+schedule: '0 2 * * *'
--- letters (j_2)
+++ letters (j_2), standard input:15
 payload:
   data:
     text: |
-      one
+      zero
       two
   queue: mail
would be: 0 created, 4 changed, 0 unchanged, 0 failed
`, "diff", "-f", "-")
	s.expect(edited, 0, `changed queue mail: concurrency 3 -> 4
changed calendar holidays: dates ["12-25"] -> ["12-26"]
changed backup: schedule '0 1 * * *' -> '0 2 * * *'
changed letters: payload {"data":{"text":"one\ntwo\n"},"queue":"mail"} -> {"data":{"text":"zero\ntwo\n"},"queue":"mail"}
0 created, 4 changed, 0 unchanged, 0 failed
`, "apply", "-f", "-")
	j, err := s.node().Backend.GetJob(t.Context(), "backup", api.Read{})
	if err != nil || j.Status != "paused" || j.Version != 2 {
		t.Errorf("%+v, %v", j, err)
	}
}

func TestApplyRefuses(t *testing.T) {
	const job = "name: %s\ntype: queue\nschedule: '@manual'\npayload: {queue: q}\n"
	s := newShell(t)
	dir := applyIn(t, map[string]string{
		"a.yaml": fmt.Sprintf(job, "a") + "priority: hgih\n---\n" + fmt.Sprintf(job, "b"), "b.yaml": "type: queue\n", "c.yaml": ": [", "d.yml": "kind: cron\nname: x\n",
		"e.json": "{\"kind\": \"queue\",\n\"name\": \"q\", \"paused\": true}", "f.txt": "no", ".hidden.yaml": "no", "sub/g.yaml": fmt.Sprintf(job, "g"),
	})
	stdout, stderr, code := s.run("", "apply", "-f", dir)
	if code != 2 || stdout != "created b (j_1)\n1 created, 0 changed, 0 unchanged, 5 failed\n" {
		t.Errorf("%d %s", code, stdout)
	}
	for _, want := range []string{"a.yaml:5: priority: ", "b.yaml:1: name: ", "c.yaml: this is not YAML", "d.yml:1: kind: ", "e.json:1: paused: ", "5 of 6 documents were refused"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%s is not in %s", want, stderr)
		}
	}
	s.expect("", 2, "error: -f: no file is given\nhint: give -f FILE, -f DIR, or -f - for standard input\n", "apply")
	s.expect("", 2, "error: -f: there are no documents in "+filepath.Join(dir, "sub", "..", "none")+"\nhint: is it the right directory? -R also reads its subdirectories\n",
		"apply", "-f", mkdir(t, filepath.Join(dir, "sub", "..", "none")))
	// One name twice: nothing is done.
	s.expect(fmt.Sprintf(job, "new")+"---\n"+fmt.Sprintf(job, "x")+"---\n"+fmt.Sprintf(job, "x"), 2,
		"error: standard input:11: name: x is already defined in standard input:6\nhint: keep one of them; nothing was changed\n", "apply", "-f", "-")
	s.expect("", 0, "created g (j_2)\n1 created, 0 changed, 0 unchanged, 0 failed\n", "apply", "-R", "-f", filepath.Join(dir, "sub"))
	if _, stderr, code := s.run("kind: calendar\nname: new year\ndates: [01-01]\n", "apply", "-f", "-"); code != 2 ||
		!strings.HasPrefix(stderr, "error: standard input:2: name: the name \"new year\" contains ' '\nhint: use letters, ") {
		t.Errorf("%d %s", code, stderr)
	}
	// Also if only one of them says in which namespace, whatever they are.
	for _, twin := range []string{"kind: queue\nname: twin\nconcurrency: 5\n", "kind: calendar\nname: twin\ndates: ['12-25']\n", fmt.Sprintf(job, "twin")} {
		for namespace, args := range map[string][]string{"default": nil, "team-a": {"-n", "team-a"}} {
			_, stderr, code := s.run(twin+"---\n"+twin+"namespace: "+namespace+"\n", append([]string{"apply", "-f", "-"}, args...)...)
			if code != 2 || !strings.Contains(stderr, "twin is already defined in standard input:1") {
				t.Errorf("%d %s", code, stderr)
			}
		}
		if out, stderr, code := s.run(twin+"---\n"+twin+"namespace: team-a\n", "apply", "-f", "-"); code != 0 || !strings.Contains(out, "2 created") {
			t.Errorf("%d %s%s", code, out, stderr)
		}
	}
}

// A key is for one request, and apply makes several.
func TestApplyWithAKey(t *testing.T) {
	s := newShell(t)
	two := applyFiles + "---\nkind: queue\nname: letters\nconcurrency: 1\n---\nkind: calendar\nname: more\ndates: ['12-25']\n"
	for _, want := range []string{"6 created, 0 changed, 0 unchanged", "0 created, 0 changed, 6 unchanged"} {
		if out, stderr, code := s.run(two, "apply", "-f", "-", "--idempotency-key", "k"); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d %s%s", code, out, stderr)
		}
	}
	for range 2 {
		s.expect("", 0, "set queue new: at most 5 at a time\n", "queues", "set", "new", "--concurrency", "5", "--idempotency-key", "q")
	}
	if _, stderr, code := s.run("", "queues", "set", "new", "--concurrency", "6", "--idempotency-key", "q"); code != 4 || !strings.Contains(stderr, "Idempotency-Key") {
		t.Errorf("%d %s", code, stderr)
	}
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestApplyPrunes(t *testing.T) {
	const line = `{"name":%q,"type":"queue","schedule":"@manual","payload":{"queue":"q"}}` + "\n"
	some := func(names ...string) (out string) {
		for _, n := range names {
			out += fmt.Sprintf(line, n)
		}
		return out
	}
	s := newShell(t)
	s.run(some("free"), "apply", "-f", "-")
	s.run(some("other"), "apply", "-f", "-", "--set", "two")
	s.run(some("elsewhere"), "apply", "-f", "-", "--set", "one", "-n", "team-a")
	stdout, stderr, code := s.run(some("a", "b", "c", "d", "e"), "apply", "-f", "-", "--set", "one", "--prune")
	if code != 0 || !strings.HasSuffix(stdout, "5 created, 0 changed, 0 unchanged, 0 failed, 0 deleted\n") {
		t.Fatal(stdout, stderr)
	}
	s.expect(some("a"), 4, "error: no file contains 4 jobs of the set \"one\" (b (j_5), c (j_6), d (j_7), e (j_8)), and --prune-max is 3; nothing was changed\n"+
		"hint: if you want to delete them, give --prune-max 4\n", "apply", "-f", "-", "--set", "one", "--prune", "--prune-max", "3")
	s.expect("kind: queue\nname: q\n", 2, "error: --prune: the files contain no jobs, so every job of the set \"one\" would be deleted; nothing was changed\n"+
		"hint: leave --prune out, or delete the jobs yourself\n", "apply", "-f", "-", "--set", "one", "--prune")
	s.expect(some("a"), 2, "error: --prune: it deletes jobs of a set, and no set is given\nhint: give --set NAME\n", "apply", "-f", "-", "--prune")
	// One is refused: the rest is applied, and nothing is deleted.
	stdout, stderr, code = s.run(some("a", "new")+`{"name":"b","type":"quue"}`, "apply", "-f", "-", "--set", "one", "--prune")
	if code != 2 || !strings.HasSuffix(stdout, "1 created, 0 changed, 1 unchanged, 1 failed, 0 deleted\n") || !strings.Contains(stderr, "nothing was deleted") {
		t.Error(code, stdout, stderr)
	}
	stdout, stderr, code = s.run(some("a", "other"), "apply", "-f", "-", "--set", "one", "--prune")
	if code != 2 || !strings.Contains(stderr, `the job "other" is in the set "two"`) || !strings.Contains(stdout, "0 deleted") {
		t.Error(code, stdout, stderr)
	}
	s.expect(some("a", "b", "c"), 6, "--- d (j_7)\n+++ (none), pruned\n-name: d\n--- e (j_8)\n+++ (none), pruned\n-name: e\n--- new (j_9)\n+++ (none), pruned\n-name: new\n"+
		"would be: 0 created, 0 changed, 3 unchanged, 0 failed, 3 deleted\n", "diff", "-f", "-", "--set", "one", "--prune")
	s.expect(some("a", "b", "c"), 0, "deleted d (j_7)\ndeleted e (j_8)\ndeleted new (j_9)\n0 created, 0 changed, 3 unchanged, 0 failed, 3 deleted\n",
		"apply", "-f", "-", "--set", "one", "--prune")
	stdout, _, _ = s.run("", "jobs", "-A")
	for _, name := range []string{"free", "other", "elsewhere", "a", "b", "c"} {
		if !strings.Contains(stdout, name+" ") {
			t.Errorf("%s is gone: %s", name, stdout)
		}
	}
}

// docs/job.schema.json, which editors take, is what nodes serve.
func TestDocsHaveTheSchemaOfJobFiles(t *testing.T) {
	s := newShell(t)
	served, err := client.New(s.addr).JobSchema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const file = "../docs/job.schema.json"
	if *update {
		if err := os.WriteFile(file, served, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != string(served) {
		t.Errorf("%s is not what is served: run `go test ./cmd -run Schema -update` (%v)", file, err)
	}
}
