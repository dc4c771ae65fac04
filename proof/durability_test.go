package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// fact is something that the process let the world know. From that moment on a loss of power must not undo it.
type fact struct {
	what  string
	pos   int // the line of the trace in which it was said
	run   string
	job   string
	seq   uint64 // of a record that was shown
	fence uint64 // told to a target
	edit  int    // of a job: the tag k that it was given last
	gone  bool   // the job was deleted
}

// recording is a traced life of a node, and what it said in it.
type recording struct {
	disk    *harness.Disk
	facts   []fact
	ready   int // the line in which it said that it is ready
	lines   int
	trigger string // the name of a manual job

	executors string
}

// record runs a small workload under strace. Without workers it only creates jobs: then there is less for the node to
// write, and less that happens to sync something it forgot.
func record(t *testing.T, binary string, workers bool, snapshots int) *recording {
	t.Helper()
	dir := t.TempDir() // it exists, is empty, and its own name is not the node's business
	logPath := filepath.Join(t.TempDir(), "strace.log")
	target := harness.NewTarget(t)
	executors := "none"
	if workers {
		executors = "http"
	}
	node := harness.NewNode(t, binary, dir, "--executors", executors, "--slots", "16", "--snapshot-interval", "1s",
		"--snapshot-threshold", "20")
	node.Wrap = harness.StraceArgs(logPath)
	node.Start()
	l := newLoad(t, node, target, rand.New(rand.NewPCG(1, 1)))
	said := l.durableCreates()
	if workers {
		said = append(said, l.durableRuns(snapshots)...)
	}
	node.Kill("end of the recording")
	for _, s := range target.Seen() {
		said = append(said, fact{what: fmt.Sprintf("request %s with fence %d", s.Run, s.Fence), run: s.Run, fence: s.Fence})
	}

	f, err := os.Open(logPath)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	trace, err := harness.ReadTrace(f, dir)
	if err != nil {
		t.Fatalf("the trace cannot be read: %v", err)
	}
	rec := &recording{lines: trace.Lines, trigger: "manual-0", executors: executors}
	if rec.disk, err = harness.NewDisk(trace); err != nil {
		t.Fatalf("the trace cannot be followed: %v", err)
	}
	rec.locate(t, trace, said)
	return rec
}

// durableCreates creates jobs, one by one and in bulk.
func (l *load) durableCreates() (said []fact) {
	l.t.Helper()
	l.recurring(4, 1)
	for _, token := range l.order {
		said = append(said, fact{what: "job " + token, job: token})
	}
	b := l.oneOffs(40, time.Now().Add(1500*time.Millisecond))
	l.mustSend(b)
	for _, token := range b.named {
		said = append(said, fact{what: "job " + token, job: token})
	}
	for i := range 8 {
		token := fmt.Sprintf("later-%d", i)
		if _, err := l.node.Client.CreateJob(context.Background(), l.spec(token, token, "@every 1h", "")); err != nil {
			l.t.Fatal(err)
		}
		said = append(said, fact{what: "job " + token, job: token})
	}
	return said
}

// durableRuns triggers runs, over a number of snapshots: they cut off the beginning of the log, and must not do so
// before they are durable themselves.
func (l *load) durableRuns(snapshots int) (said []fact) {
	l.t.Helper()
	ctx := context.Background()
	snapshot := filepath.Join(l.node.Dir, datadir.SnapshotsDir, "snapshot.json")
	made := map[time.Time]bool{}
	for i := 0; i < 20 || len(made) < snapshots; i++ {
		if i == 2000 {
			l.t.Fatalf("2000 runs led to %d snapshots, want %d", len(made), snapshots)
		}
		l.trigger(ctx, "manual-0", fmt.Sprintf("durable-%d", i))
		if fi, err := os.Stat(snapshot); err == nil {
			made[fi.ModTime()] = true
		}
		time.Sleep(10 * time.Millisecond) // not a wait for anything: it keeps the trace short
	}
	for _, run := range l.triggers {
		said = append(said, fact{what: "run " + run, run: run})
	}
	harness.Eventually(l.t, time.Minute, "the target saw the one-offs and the manual runs",
		func() bool { return l.target.Done() >= 40+len(l.triggers) })
	// What was read is known too.
	if err := l.node.Client.ExportHistory(ctx, nil, 0, func(r job.Run, _ json.RawMessage) error {
		said = append(said, fact{what: fmt.Sprintf("record %d of %s", r.Seq, r.RunID), run: r.RunID, seq: r.Seq})
		return nil
	}); err != nil {
		l.t.Fatal(err)
	}
	return said
}

// locate finds where in the trace each fact was said.
func (r *recording) locate(t *testing.T, trace *harness.Trace, said []fact) {
	t.Helper()
	if e := trace.Said(`{"status":"ok"}`, 0); e != nil {
		r.ready = e.Start
	} else {
		t.Fatal("the trace does not say when the node was ready")
	}
	var missing []string
	for _, f := range said {
		text := ""
		switch {
		case f.fence != 0:
			text = "Carillon-Fence: " + strconv.FormatUint(f.fence, 10) + "\r\n"
		case f.seq != 0:
			text = fmt.Sprintf(`"seq":%d}`, f.seq)
		case f.edit != 0:
			text = fmt.Sprintf(`"tags":{"k":"%d"}`, f.edit)
		case f.job != "":
			text = fmt.Sprintf(`"name":%q`, f.job)
		default:
			text = fmt.Sprintf(`"run_id":%q`, f.run)
		}
		e := trace.Said(text, r.ready)
		if e == nil {
			missing = append(missing, f.what) // the border of an HTTP chunk may fall into it
			continue
		}
		f.pos = e.Start
		r.facts = append(r.facts, f)
	}
	if len(missing)*20 > len(said) {
		t.Fatalf("the trace does not show where these were said: %q", missing)
	}
	slices.SortStableFunc(r.facts, func(a, b fact) int { return a.pos - b.pos })
}

// cut is one loss of power.
type cut struct {
	pos  int
	tear *harness.Tear
}

func (c cut) String() string {
	if c.tear == nil {
		return fmt.Sprintf("line %d, unsynced writes lost", c.pos)
	}
	return fmt.Sprintf("line %d, unsynced writes torn by %d bytes", c.pos, c.tear.Unit)
}

// cuts chooses where the power goes: at the very moment something is said, at random, and while the node first starts.
// Each is tried with everything lost that was not synced, and with a part of it.
func (r *recording) cuts(rng *rand.Rand, atFacts, anywhere, early int) []cut {
	var out []cut
	both := func(pos int) {
		unit := []int{512, 4096}[rng.IntN(2)]
		out = append(out, cut{pos, nil}, cut{pos, &harness.Tear{Rand: rand.New(rand.NewPCG(rng.Uint64(), 2)), Unit: unit}})
	}
	for i := range atFacts { // spread over the facts, so that every kind comes up
		lo := i * len(r.facts) / atFacts
		both(r.facts[lo+rng.IntN(max(1, len(r.facts)/atFacts))].pos)
	}
	for range anywhere {
		both(r.ready + rng.IntN(r.lines-r.ready))
	}
	for range early {
		both(1 + rng.IntN(r.ready))
	}
	return out
}

// powerLoss rebuilds the directory as a cut leaves it, starts a node on it, and says what is wrong with that.
func (r *recording) powerLoss(t *testing.T, binary string, c cut) (problems []string) {
	dir := t.TempDir()
	if err := r.disk.Rebuild(c.pos, dir, c.tear); err != nil {
		t.Fatal(err)
	}
	bad := func(format string, args ...any) {
		problems = append(problems, c.String()+": "+fmt.Sprintf(format, args...))
	}
	if c.pos > r.ready {
		if err := harness.Check(binary, dir); err != nil {
			bad("before the start: %v", err)
		}
	}
	node := harness.NewNode(t, binary, dir, "--executors", r.executors, "--slots", "16")
	defer node.Destroy()
	began := time.Now()
	if err := node.TryStart(); err != nil {
		bad("does not start: %v\n%s", err, node.LogTail(15))
		return problems
	}
	found, err := look(node.Client)
	if err != nil {
		bad("%v", err)
		return problems
	}
	var fence uint64 // the highest that was told to anybody
	for _, f := range r.facts {
		if f.pos <= c.pos {
			fence = max(fence, f.fence)
			if why := found.misses(f); why != "" {
				bad("lost: %s, said in line %d: %s", f.what, f.pos, why)
			}
		}
	}
	if len(problems) > 5 {
		problems = append(problems[:5:5], fmt.Sprintf("%s: … and %d more like it", c, len(problems)-5))
	}
	for _, run := range found.runs {
		if run.ClaimedAt > job.At(began) && run.Fence <= fence {
			bad("fence %d was given out again: %s claimed it, and %d was told to a target before", run.Fence, run.RunID, fence)
		}
	}
	if _, ok := found.jobs[r.trigger]; ok && len(problems) == 0 && r.executors != "none" {
		if err := r.goesOn(node, fence); err != nil {
			bad("%v", err)
		}
	}
	node.Destroy()
	if err := harness.Check(binary, dir); err != nil {
		bad("after the start: %v", err)
	}
	return problems
}

// goesOn: the node does new work, under fences that were never seen.
func (r *recording) goesOn(node *harness.Node, fence uint64) error {
	ctx := context.Background()
	run, err := node.Client.RunJob(ctx, r.trigger)
	if err != nil {
		return fmt.Errorf("a new run: %w", err)
	}
	var d client.RunDetail
	if !harness.Within(20*time.Second, func() bool {
		d, err = node.Client.GetRun(ctx, run.RunID)
		return err == nil && d.Status == job.RunSucceeded
	}) {
		return fmt.Errorf("a new run does not finish: %s %v", d.Status, err)
	}
	if d.Fence <= fence {
		return fmt.Errorf("a new run has fence %d, and %d was told to a target before", d.Fence, fence)
	}
	return nil
}

// inventory is what a node knows.
type inventory struct {
	jobs map[string]job.ID
	tags map[string]map[string]string
	runs []job.Run // open ones and records
	byID map[string][]job.Run
	seqs map[uint64]job.Run
}

func look(c *client.Client) (*inventory, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	in := &inventory{jobs: map[string]job.ID{}, tags: map[string]map[string]string{}, byID: map[string][]job.Run{},
		seqs: map[uint64]job.Run{}}
	for q := (client.JobQuery{Limit: 500}); ; {
		page, err := c.ListJobs(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
		for _, j := range page.Jobs {
			in.jobs[j.Name], in.tags[j.Name] = j.ID, j.Tags
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	// First what is open, then what is finished: a run goes only one way.
	for q := (client.RunQuery{Limit: 500}); ; {
		page, err := c.Runs(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("list open runs: %w", err)
		}
		in.runs = append(in.runs, page.Runs...)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	err := c.ExportHistory(ctx, nil, 0, func(r job.Run, _ json.RawMessage) error {
		in.runs = append(in.runs, r)
		in.seqs[r.Seq] = r
		return nil
	})
	for _, r := range in.runs {
		in.byID[r.RunID] = append(in.byID[r.RunID], r)
	}
	return in, err
}

// misses says why a fact no longer holds, or nothing.
func (in *inventory) misses(f fact) string {
	switch {
	case f.gone:
		if in.jobs[f.job] != 0 {
			return "the job is back"
		}
	case f.edit != 0:
		if k, _ := strconv.Atoi(in.tags[f.job]["k"]); k < f.edit {
			return fmt.Sprintf("edit %d is the last one", k)
		}
	case f.job != "":
		if in.jobs[f.job] == 0 {
			return "the job does not exist"
		}
	case f.seq != 0:
		if r, ok := in.seqs[f.seq]; !ok || r.RunID != f.run {
			return "the record is not there, or is another one"
		}
	case f.run != "":
		runs := in.byID[f.run]
		if len(runs) == 0 {
			return "the run is neither open nor in the history"
		}
		if !slices.ContainsFunc(runs, func(r job.Run) bool { return r.Fence >= f.fence }) {
			return "its claim is gone"
		}
	}
	return ""
}

// TestDurabilityThatAPageCacheCannotFake takes the power away. kill -9 cannot show a missing fsync, because the page
// cache survives it; a directory rebuilt from the synced writes alone can.
func TestDurabilityThatAPageCacheCannotFake(t *testing.T) {
	heavy(t)
	t.Parallel() // most of it is waiting
	harness.NeedStrace(t)
	seed := harness.Seed(t)

	t.Run("synced", func(t *testing.T) {
		binary := harness.Build(t)
		rec := record(t, binary, true, 3)
		if harness.Long() {
			rec.cutAll(t, binary, rec.cuts(rand.New(rand.NewPCG(seed, 3)), 50, 35, 15))
		} else {
			rec.cutAll(t, binary, rec.cuts(rand.New(rand.NewPCG(seed, 3)), 5, 3, 2))
		}
	})
	t.Run("without workers", func(t *testing.T) {
		binary := harness.Build(t)
		rec := record(t, binary, false, 0)
		rec.cutAll(t, binary, rec.cuts(rand.New(rand.NewPCG(seed, 4)), 2, 1, 1))
	})

	// The same test must be able to fail: without fsync it does.
	t.Run("nosync", func(t *testing.T) {
		if !harness.Long() {
			t.Skip("it takes a build of its own; set CARILLON_LONG=1")
		}
		binary := harness.Build(t, "carillon_nosync")
		rec := record(t, binary, true, 0)
		for _, c := range rec.cuts(rand.New(rand.NewPCG(seed, 5)), 4, 0, 0) {
			for _, p := range rec.powerLoss(t, binary, c) {
				if strings.Contains(p, ": lost: job ") || strings.Contains(p, ": lost: run ") {
					t.Logf("noticed: %s", p)
					return
				}
			}
		}
		t.Error("a build that never syncs was not caught losing anything that it had acknowledged")
	})
}

// cutAll tries all cuts, several at a time.
func (r *recording) cutAll(t *testing.T, binary string, cuts []cut) {
	t.Helper()
	var required atomic.Int64
	t.Run("cuts", func(t *testing.T) {
		for i, c := range cuts {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				for _, p := range r.powerLoss(t, binary, c) {
					t.Error(p)
				}
				for _, f := range r.facts {
					if f.pos <= c.pos {
						required.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d facts in a trace of %d lines; %d losses of power, after which %d facts were looked for", len(r.facts),
		r.lines, len(cuts), required.Load())
}
