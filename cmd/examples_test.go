package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/job"
)

// realDev runs `carillon dev` in this process and is a shell beside it.
func realDev(t *testing.T) *shell {
	t.Helper()
	serving := make(chan string, 1)
	withNode(t, func(ctx context.Context, cfg ServerConfig, ready func(string)) error {
		return runServer(ctx, cfg, func(addr string) { ready(addr); serving <- addr })
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	var errOut bytes.Buffer
	go func() {
		a := newApp()
		root := a.root()
		root.SetOut(io.Discard)
		root.SetErr(&errOut)
		a.args = []string{"dev", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir()}
		ended <- a.execute(ctx, root, &errOut)
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("carillon dev ended with %d: %s", code, errOut.String())
		}
	})
	select {
	case addr := <-serving:
		return &shell{t: t, addr: addr, env: map[string]string{}}
	case code := <-ended:
		ended <- code
		t.FailNow()
		return nil
	}
}

// Each example is accepted by a node, and says what the list of examples says of it. One is seen to run.
func TestExamples(t *testing.T) {
	const dir = "../examples/"
	s := realDev(t)
	must := func(args ...string) string {
		t.Helper()
		out, errOut, code := s.run("", args...)
		if code != 0 {
			t.Errorf("carillon %s: exit %d %s", strings.Join(args, " "), code, errOut)
		}
		return out
	}
	index := read(t, dir+"README.md")
	glob := func(pattern string) []string {
		t.Helper()
		paths, err := filepath.Glob(dir + pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
		}
		for _, p := range paths {
			if name, _ := filepath.Rel(dir, p); !strings.Contains(index, "("+filepath.ToSlash(name)+")") {
				t.Errorf("examples/README.md does not list %s", name)
			}
		}
		return paths
	}
	for _, path := range glob("calendars/*.yaml") {
		must("calendars", "set", path)
	}
	jobs := 0
	for _, path := range glob("*.yaml") {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		docs, err := jobfile.Read(f, path)
		f.Close()
		if err != nil {
			t.Error(err)
		}
		jobs += len(docs)
		must("submit", path)
	}
	var page struct {
		Jobs []struct {
			Name   string     `json:"name"`
			Status job.Status `json:"status"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(must("jobs", "--json", "--limit", "1000")), &page); err != nil ||
		len(page.Jobs) != jobs || jobs < 12 {
		t.Errorf("%d of %d jobs: %v", len(page.Jobs), jobs, err)
	}
	for _, j := range page.Jobs {
		if j.Status != job.StatusScheduled {
			t.Errorf("%s is %s", j.Name, j.Status)
		}
	}

	// The run of one that is started by hand: it has no schedule that could be in its way.
	var run job.Run
	if err := json.Unmarshal([]byte(must("jobs", "run", "load", "--json")), &run); err != nil {
		t.Fatal(err)
	}
	if out := must("runs", "tail", "--follow", run.RunID); out != "loaded\n" {
		t.Errorf("it wrote %q", out)
	}
	if out := must("runs", "get", run.RunID); !strings.Contains(out, "succeeded") {
		t.Error(out)
	}
}
