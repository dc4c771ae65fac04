package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// What a running command writes can be read while it runs; when it has ended, the end of it is in the history.
func TestRunOutput(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	dir := t.TempDir()
	raw, err := json.Marshal(job.ShellPayload{Command: "echo first; while ! [ -e go ]; do sleep 0.02; done; echo second; while ! [ -e end ]; do sleep 0.02; done; echo third", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	n.call("POST", "/api/v1/jobs", job.Spec{Name: "slow", Type: job.TypeShell, Schedule: "@manual", Payload: raw})
	var run job.Run
	if a := n.call("POST", "/api/v1/jobs/slow:run", nil); json.Unmarshal(a.body, &run) != nil || run.RunID == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var last job.RunOutput
	all := ""
	read := func() {
		t.Helper()
		path := "/api/v1/runs/" + run.RunID + "/output"
		if last.Fence != 0 {
			path += "?fence=" + strconv.FormatUint(last.Fence, 10) + "&after=" + strconv.FormatInt(last.Next, 10)
		}
		a := n.call("GET", path, nil)
		var o job.RunOutput
		if a.status != 200 || json.Unmarshal(a.body, &o) != nil {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if !o.Done {
			all += o.Text
		}
		last = o
	}
	n.eventually("the first line", func() bool { read(); return all == "first\n" })
	if last.Status != job.RunRunning && last.Status != job.RunClaimed || last.Done {
		t.Errorf("%+v", last)
	}
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch("go")
	n.eventually("the second line", func() bool { read(); return strings.HasSuffix(all, "second\n") })
	if all != "first\nsecond\n" {
		t.Errorf("%q", all)
	}
	touch("end")
	n.eventually("the end", func() bool { read(); return last.Done })
	if last.Text != "first\nsecond\nthird\n" || last.Status != job.RunSucceeded {
		t.Errorf("%+v", last)
	}
	if a := n.call("GET", "/api/v1/runs/nonsense/output", nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := n.call("GET", "/api/v1/runs/"+run.RunID+"/output?after=x", nil); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The worker is on one node, the leader another, and who watches asks a third.
func TestRunOutputFromAnyNode(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3, func(cfg *Config) { cfg.Tags = map[string]string{"node": cfg.NodeID} })
	c.awaitWorkers(3)
	others := c.others(c.leader())
	works, asked := others[0], others[1]
	raw, err := json.Marshal(job.ShellPayload{Command: "echo hello; exec sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	asked.call("POST", "/api/v1/jobs", job.Spec{Name: "slow", Type: job.TypeShell, Schedule: "@manual", Payload: raw,
		Workers: map[string]string{"node": works.cfg.NodeID}})
	var run job.Run
	if a := asked.call("POST", "/api/v1/jobs/slow:run", nil); json.Unmarshal(a.body, &run) != nil || run.RunID == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	asked.eventually("the output", func() bool {
		var o job.RunOutput
		a := asked.call("GET", "/api/v1/runs/"+run.RunID+"/output", nil)
		return json.Unmarshal(a.body, &o) == nil && o.Text == "hello\n" && !o.Done
	})
	asked.call("POST", "/api/v1/runs/"+run.RunID+":cancel", nil)
	asked.eventually("its end", func() bool {
		var o job.RunOutput
		a := asked.call("GET", "/api/v1/runs/"+run.RunID+"/output", nil)
		return json.Unmarshal(a.body, &o) == nil && o.Done && o.Status == job.RunCanceled
	})
}

// Who watches goes on watching when the leader dies: the next one has the worker send what it has, and nothing comes
// twice or is left out.
func TestRunOutputAcrossLeaders(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3, func(cfg *Config) { cfg.Tags = map[string]string{"node": cfg.NodeID} })
	c.awaitWorkers(3)
	old := c.leader()
	others := c.others(old)
	works, asked := others[0], others[1]
	dir := t.TempDir()
	raw, err := json.Marshal(job.ShellPayload{Command: "echo first; while ! [ -e go ]; do sleep 0.02; done; echo second; while ! [ -e end ]; do sleep 0.02; done; echo third", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	asked.create(job.Spec{Name: "slow", Type: job.TypeShell, Schedule: "@manual", Payload: raw,
		Workers: map[string]string{"node": works.cfg.NodeID}})
	var run job.Run
	if a := asked.call("POST", "/api/v1/jobs/slow:run", nil); json.Unmarshal(a.body, &run) != nil || run.RunID == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	cl := client.New(asked.Addr())
	var last job.RunOutput
	all := ""
	read := func() bool {
		o, err := cl.RunOutput(t.Context(), run.RunID, last.Fence, last.Next)
		if job.CodeOf(err) == job.CodeNoLeader { // an election that takes longer than a client waits; it is told, and may go on
			t.Log(err)
			return false
		}
		if err != nil {
			t.Fatalf("watching ended: %v", err)
		}
		if o.Fence != last.Fence && last.Fence != 0 {
			t.Fatalf("another attempt: %+v after %+v", o, last)
		}
		if last = o; !o.Done {
			all += o.Text
		}
		return o.Done
	}
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	asked.eventually("the first line", func() bool { return read() || all == "first\n" })
	old.crash()
	touch("go")
	asked.eventually("the second line", func() bool { return read() || all == "first\nsecond\n" })
	if c.leader() == old {
		t.Error("nothing was lost")
	}
	touch("end")
	asked.eventually("the end", read)
	if all != "first\nsecond\n" && all != "first\nsecond\nthird\n" || last.Text != "first\nsecond\nthird\n" ||
		last.Status != job.RunSucceeded {
		t.Errorf("%q, then %+v", all, last)
	}
}

// A run without a worker has an answer too, after a while and without text; one that there is not has none.
func TestRunOutputWithoutAWorker(t *testing.T) {
	realTime(t)
	t.Parallel()
	n := start(t, t.TempDir())
	n.create(unclaimedJob("a"))
	var run job.Run
	if a := n.call("POST", "/api/v1/jobs/a:run", nil); json.Unmarshal(a.body, &run) != nil || run.RunID == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var o job.RunOutput
	if a := n.call("GET", "/api/v1/runs/"+run.RunID+"/output", nil); a.status != 200 ||
		json.Unmarshal(a.body, &o) != nil || o.Status != job.RunPending || o.Text != "" || o.Done {
		t.Errorf("%d %s", a.status, a.body)
	}
	n.call("POST", "/api/v1/runs/"+run.RunID+":cancel", nil)
	if a := n.call("GET", "/api/v1/runs/"+run.RunID+"/output", nil); a.status != 200 ||
		json.Unmarshal(a.body, &o) != nil || o.Status != job.RunCanceled || !o.Done {
		t.Errorf("%d %s", a.status, a.body)
	}
	unknown := job.RunKey{Job: 99, At: 1, Origin: job.OriginManual}.String()
	if a := n.call("GET", "/api/v1/runs/"+unknown+"/output", nil); a.status != 404 ||
		a.problem().Code != job.CodeNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
}
