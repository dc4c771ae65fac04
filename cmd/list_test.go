package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/job"
)

// many is a backend with many jobs, in pages of a thousand. Every other page has none: a filter may leave nothing of
// what was looked at.
type many struct {
	api.Backend
	jobs   int
	failAt string // cursor
}

func (m many) ListJobs(_ context.Context, q client.JobQuery, _ api.Read) (page client.JobPage, err error) {
	if q.Cursor != "" && q.Cursor == m.failAt {
		return page, job.Errorf(job.CodeInvalid, "", "no such cursor")
	}
	var at, empty int
	if q.Cursor != "" {
		fmt.Sscanf(q.Cursor, "%d-%d", &at, &empty)
	}
	page.Jobs, page.Scanned = []job.Job{}, 1000
	if empty == 1 {
		page.NextCursor = fmt.Sprintf("%d-0", at)
		return page, nil
	}
	for ; at < m.jobs && len(page.Jobs) < q.Limit; at++ {
		page.Jobs = append(page.Jobs, job.Job{ID: job.ID(at + 1), Status: job.StatusScheduled,
			Spec: job.Spec{Name: "n" + strings.Repeat("x", at/10_000) + fmt.Sprint(at), Type: job.TypeShell, Schedule: "@manual",
				Payload: []byte(`{"command":"date"}`)}})
	}
	if at < m.jobs {
		page.NextCursor = fmt.Sprintf("%d-1", at)
	}
	return page, nil
}

// --all follows the list to its end, in every form.
func TestEveryPage(t *testing.T) {
	s := newShell(t)
	for _, n := range []int{0, 3, 1000, 2500, 12_000} {
		s.wrap = func(b api.Backend) api.Backend { return many{Backend: b, jobs: n} }
		// Names and files of jobs are for other commands: they have no place for a word that there are more.
		for _, args := range [][]string{{"--all", "-o", "name"}, {"-o", "name"}, {"-q"}} {
			if out, stderr, code := s.run("", append([]string{"jobs"}, args...)...); code != 0 || strings.Count(out, "\n") != n {
				t.Fatalf("%d, %v: %d lines, %s", n, args, strings.Count(out, "\n"), stderr)
			}
		}
		if out, _, _ := s.run("", "jobs", "-o", "name", "--limit", "2"); strings.Count(out, "\n") != min(n, 2) {
			t.Errorf("%d: %q of two", n, out)
		}
		out, _, _ := s.run("", "jobs", "--all", "--json")
		var page client.JobPage
		if err := json.Unmarshal([]byte(out), &page); err != nil || len(page.Jobs) != n || page.Scanned != 0 ||
			!strings.HasSuffix(out, `],"next_cursor":""}`+"\n") || strings.Count(out, "\n") != 1 {
			t.Errorf("%d: %d jobs, %v", n, len(page.Jobs), err)
		}
		for i, j := range page.Jobs {
			if j.ID != job.ID(i+1) {
				t.Fatalf("job %d is %s", i, j.ID)
			}
		}
		out, _, _ = s.run("", "jobs", "--all")
		if n == 0 {
			if out != "no jobs\n" {
				t.Errorf("%q", out)
			}
			continue
		}
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if len(lines) != n+1 || strings.Count(out, "SCHEDULE") != 1 {
			t.Fatalf("%d: %d lines", n, len(lines))
		}
		id := strings.Index(lines[0], "ID")
		for i, l := range lines[1:] {
			if want := job.ID(i+1).String() + " "; !strings.HasPrefix(l[id:], want) && i < 10_000 {
				t.Fatalf("line %d has another column: %q", i, l)
			}
		}
		if n > 3000 {
			continue
		}
		for _, args := range [][]string{{"jobs", "--all", "-o", "yaml"}, {"jobs", "-o", "yaml"}} {
			if out, _, _ = s.run("", args...); strings.Count(out, "---\n") != n {
				t.Errorf("%v: %d files", args, strings.Count(out, "---\n"))
			}
		}
	}
	s.wrap = func(b api.Backend) api.Backend { return many{Backend: b, jobs: 2500, failAt: "1000-0"} }
	if out, stderr, code := s.run("", "jobs", "--all", "--json"); code != exit.Usage || json.Valid([]byte(out)) {
		t.Errorf("a list that breaks off looks whole: %d %s", code, stderr)
	}
	if _, stderr, code := s.run("", "jobs", "--all", "--limit", "5"); code != exit.Usage || !strings.Contains(stderr, "--limit") {
		t.Errorf("%d %s", code, stderr)
	}
}

// The pages of the other lists come together too.
func TestEveryPageOfRuns(t *testing.T) {
	s := newShell(t)
	s.populate()
	for _, args := range [][]string{{"runs", "hello"}, {"runs", "--status", "skipped,missed,dead"}, {"dead"}, {"audit", "-A"}} {
		whole, _, _ := s.run("", append(args, "--limit", "1000")...)
		if all, stderr, code := s.run("", append(args, "--all")...); code != 0 || all != whole {
			t.Errorf("%v: %d %s\n%s\nand not\n%s", args, code, stderr, all, whole)
		}
		one, _, _ := s.run("", append(args, "--limit", "1000", "-o", "yaml")...)
		all, _, _ := s.run("", append(args, "--all", "-o", "yaml")...)
		var a, b map[string]any
		if yaml.Unmarshal([]byte(one), &a) != nil || yaml.Unmarshal([]byte(all), &b) != nil {
			t.Fatal(one, all)
		}
		delete(a, "next_cursor")
		delete(a, "scanned")
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%v:\n%s\nand not\n%s", args, all, one)
		}
	}
}

// renamed is a list of jobs that becomes another one.
type renamed struct {
	api.Backend
	list func() (client.JobPage, error)
}

func (r renamed) ListJobs(context.Context, client.JobQuery, api.Read) (client.JobPage, error) {
	return r.list()
}

// A watch of a list prints it when it has changed, goes on while the node is away, and ends well.
func TestWatchAList(t *testing.T) {
	for form, want := range map[string]string{"name": "a\n\nb\n", "json": `{"jobs":[{`} {
		s := newShell(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		s.wrap = func(b api.Backend) api.Backend {
			return renamed{b, func() (client.JobPage, error) {
				n++
				name := "a"
				switch {
				case n == 3:
					return client.JobPage{}, job.Errorf(job.CodeUnavailable, "", "for a moment")
				case n > 5:
					cancel()
				case n > 3:
					name = "b"
				}
				return client.JobPage{Jobs: []job.Job{{ID: 1, Spec: job.Spec{Name: name}}}}, nil
			}}
		}
		a := s.app()
		root := a.root()
		var out, errOut strings.Builder
		root.SetOut(&out)
		root.SetErr(&errOut)
		a.args = []string{"jobs", "--watch=100ms", "-o", form}
		code := a.execute(ctx, root, &errOut)
		if code != 0 || !strings.HasPrefix(out.String(), want) || form == "json" && strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%s: %d %q %s", form, code, out.String(), errOut.String())
		}
	}
}
