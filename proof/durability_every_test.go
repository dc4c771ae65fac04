package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// traced is a node under strace that lives twice.
type traced struct {
	log, pid, goes string
}

func newTraced(t *testing.T, n *harness.Node) traced {
	dir := t.TempDir()
	tr := traced{filepath.Join(dir, "strace.log"), filepath.Join(dir, "pid"), filepath.Join(dir, "go")}
	n.Wrap = append(harness.StraceArgs(tr.log), harness.TwoLives(tr.pid, tr.goes)...)
	if err := os.Remove(n.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.Mkdir(n.Dir, 0o700); err != nil { // its own name is not the node's business
		t.Fatal(err)
	}
	return tr
}

// endFirst kills the first life.
func (tr traced) endFirst(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile(tr.pid)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "the first life is over", func() bool { return syscall.Kill(pid, 0) != nil })
}

func (tr traced) second(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(tr.goes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (tr traced) read(t *testing.T, dir string) *harness.Trace {
	t.Helper()
	f, err := os.Open(tr.log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	trace, err := harness.ReadTrace(f, dir)
	if err != nil {
		t.Fatalf("the trace cannot be read: %v", err)
	}
	return trace
}

// everyCut is a loss of power at every write and every sync of a trace: after each sync with all that was not synced lost, and with that
// torn; and after each write with it and all others that were not synced torn.
func everyCut(trace *harness.Trace, rng *rand.Rand) (cuts []cut, writes, syncs int) {
	torn := func(pos int) {
		unit := []int{512, 4096}[rng.IntN(2)]
		cuts = append(cuts, cut{pos, &harness.Tear{Rand: rand.New(rand.NewPCG(rng.Uint64(), 2)), Unit: unit}})
	}
	for _, e := range trace.Changes() {
		if !e.Syncs() {
			writes++
			torn(e.Start + 1)
			continue
		}
		syncs++
		torn(e.End) // everything is on its way, and the sync has not said that it is there
		cuts = append(cuts, cut{e.End + 1, nil})
	}
	return cuts, writes, syncs
}

// some leaves a few of the cuts, others each time.
func some(rng *rand.Rand, cuts []cut, n int) []cut {
	if harness.Long() || n >= len(cuts) {
		return cuts
	}
	var few []cut
	for i := range n {
		lo, hi := i*len(cuts)/n, (i+1)*len(cuts)/n
		few = append(few, cuts[lo+rng.IntN(hi-lo)])
	}
	return few
}

// reopen opens a directory in this process: it is the same code as in the binary, and takes a tenth of the time. use may
// be nil. Tests that use it run beside no other: a process that another test starts has the lock of the directory, too,
// from its fork to its exec.
func reopen(t *testing.T, id, dir string, use func(*client.Client) error) (err error) {
	cfg := node.Config{NodeID: id, Listen: "127.0.0.1:0", DataDir: dir, Slots: 1, Version: "proof", Logger: slog.New(slog.DiscardHandler),
		Store: node.StoreConfig{MmapSize: 16 << 20, NoSync: true, LockTimeout: 5 * time.Second},
		Raft:  node.RaftConfig{SnapshotInterval: time.Hour, SnapshotThreshold: 1 << 20},
		Fatal: func(err error) { t.Errorf("fatal: %v", err) }}
	if use != nil {
		cfg.Bootstrap = true
	} else {
		cfg.Join, cfg.Raft.Heartbeat = []string{"127.0.0.1:1"}, time.Hour // it shall not ask anybody for anything
	}
	n, err := node.Open(cfg)
	if err != nil || use == nil {
		if n != nil {
			err = n.Close()
		}
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ran)
	}()
	if !harness.Within(harness.ReadyLimit, func() bool { return n.Ready() == nil }) {
		return fmt.Errorf("never ready: %w", n.Ready())
	}
	return use(client.New(n.Addr(), client.WithAttempts(1)))
}

// checked is `carillon check` in this process.
func checked(dir string) error {
	res, err := datadir.Check(dir)
	if err == nil && len(res.Problems) > 0 {
		err = fmt.Errorf("carillon check: %q", res.Problems)
	}
	return err
}

// after looks at what a loss of power leaves of a single node.
func (r *recording) after(t *testing.T, disk *harness.Disk, c cut) (problems []string) {
	dir, err := os.MkdirTemp(t.TempDir(), "cut-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := disk.Rebuild(c.pos, dir, c.tear); err != nil {
		t.Fatal(err)
	}
	bad := func(format string, args ...any) {
		problems = append(problems, c.String()+": "+fmt.Sprintf(format, args...))
	}
	if c.pos > r.ready {
		if err := checked(dir); err != nil {
			bad("before the start: %v", err)
		}
	}
	if err := reopen(t, "n1", dir, func(cl *client.Client) error {
		found, err := look(cl)
		if err != nil {
			return err
		}
		for _, f := range r.facts {
			if f.pos <= c.pos {
				if why := found.misses(f); why != "" {
					bad("lost: %s, said in line %d: %s", f.what, f.pos, why)
				}
			}
		}
		return nil
	}); err != nil {
		bad("does not start: %v", err)
		return problems
	}
	if err := checked(dir); err != nil {
		bad("after the start: %v", err)
	}
	return problems
}

// each does something with all cuts, a few at a time.
func each(cuts []cut, do func(c cut)) {
	ch := make(chan cut)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for c := range ch {
				do(c)
			}
		})
	}
	for _, c := range cuts {
		ch <- c
	}
	close(ch)
	wg.Wait()
}

// TestPowerLossAtEveryWrite takes the power away from a small life at every single write and sync of each of its files, over a restart.
func TestPowerLossAtEveryWrite(t *testing.T) {
	heavy(t)
	harness.NeedStrace(t)
	seed := harness.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 8))
	s := &smallLife{node: harness.NewNode(t, harness.Build(t), t.TempDir(), smallFlags...), target: harness.NewTarget(t)}
	tr := newTraced(t, s.node)
	s.node.Start()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.work(ctx); err != nil {
		t.Fatal(err)
	}
	tr.second(t)
	tr.endFirst(t)
	if err := s.node.AwaitReady(); err != nil {
		t.Fatal(err)
	}
	if err := s.run(ctx); err != nil {
		t.Fatal(err)
	}
	s.node.Kill("end of the recording")

	var said []fact
	for _, name := range s.created {
		if name != "dropped" { // it may be there or not, and when it must not be the next ones say
			said = append(said, fact{what: "job " + name, job: name})
		}
	}
	for i := 1; i <= s.edits; i++ {
		said = append(said, fact{what: fmt.Sprintf("edit %d", i), job: "kept", edit: i})
		said = append(said, fact{what: fmt.Sprintf("the delete before edit %d", i), job: "dropped", gone: true, edit: i})
	}
	for _, id := range s.runs {
		said = append(said, fact{what: "run " + id, run: id})
	}
	for _, seen := range s.target.Seen() {
		said = append(said, fact{what: fmt.Sprintf("request %s with fence %d", seen.Run, seen.Fence), run: seen.Run, fence: seen.Fence})
	}
	trace := tr.read(t, s.node.Dir)
	rec := &recording{lines: trace.Lines}
	var err error
	if rec.disk, err = harness.NewDisk(trace); err != nil {
		t.Fatalf("the trace cannot be followed: %v", err)
	}
	rec.locate(t, trace, said)
	cuts, writes, syncs := everyCut(trace, rng)
	cuts = some(rng, cuts, 60)
	each(cuts, func(c cut) {
		for _, p := range rec.after(t, rec.disk, c) {
			t.Error(p)
		}
	})
	t.Logf("%d facts; %d writes and %d syncs; the power went %d times", len(rec.facts), writes, syncs, len(cuts))

	// The same cuts on the disk of a product that does not sync one kind of file: each must show.
	for _, class := range []string{harness.ClassLog, harness.ClassState, harness.ClassSnapshot} {
		forgets := rec.disk.Forget(class)
		noticed := ""
		for i := range 40 {
			c := cut{pos: rec.lines - i*(rec.lines-rec.ready)/40}
			if p := rec.after(t, forgets, c); len(p) > 0 {
				noticed = p[0]
				break
			}
		}
		if noticed == "" {
			t.Errorf("a product that never syncs the files of class %s was not noticed", class)
		} else {
			t.Logf("without syncs of class %s: %s", class, noticed)
		}
	}
}

// TestPowerLossOfAFollowerAtEveryWrite does the same to a follower that joins, dies, and comes back through a snapshot. What it owes the
// world is the log that it told its leader it has.
func TestPowerLossOfAFollowerAtEveryWrite(t *testing.T) {
	heavy(t)
	harness.NeedStrace(t)
	seed := harness.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 9))
	var tr traced
	cl := harness.NewClusterAt(t, harness.Build(t), 3, func(i int, n *harness.Node) {
		if i == 2 {
			tr = newTraced(t, n)
		}
	}, "--executors", "http", "--snapshot-threshold", "6", "--snapshot-interval", "100ms")
	g := &laggard{t: t, cl: cl, node: cl.Nodes[2]}
	g.create()
	g.edit(8)
	g.caughtUp()
	tr.endFirst(t)
	g.runAway(index(t, cl.Nodes[0], "last_log_index"))
	tr.second(t)
	g.caughtUp()
	g.edit(12) // a snapshot of its own
	g.caughtUp()
	g.node.Kill("end of the recording")

	trace := tr.read(t, g.node.Dir)
	disk, err := harness.NewDisk(trace)
	if err != nil {
		t.Fatalf("the trace cannot be followed: %v", err)
	}
	at, acked := trace.Acked()
	if len(at) < 10 {
		t.Fatalf("the trace shows only %d answers to the leader", len(at))
	}
	ready := trace.Said(`{"status":"ok"}`, 0)
	if ready == nil {
		t.Fatal("the trace does not say when the node was ready")
	}
	installed := false
	for _, e := range trace.Changes() {
		installed = installed || strings.HasSuffix(e.Path, "state.db.restore")
	}
	if !installed {
		t.Fatal("no snapshot was installed in this life")
	}
	after := func(disk *harness.Disk, c cut) (problems []string) {
		dir, err := os.MkdirTemp(t.TempDir(), "cut-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := disk.Rebuild(c.pos, dir, c.tear); err != nil {
			t.Fatal(err)
		}
		bad := func(format string, args ...any) {
			problems = append(problems, c.String()+": "+fmt.Sprintf(format, args...))
		}
		if c.pos > ready.Start {
			if err := checked(dir); err != nil {
				bad("before the start: %v", err)
			}
		}
		if err := reopen(t, g.node.ID, dir, nil); err != nil {
			bad("does not start: %v", err)
			return problems
		}
		if err := checked(dir); err != nil {
			bad("after the start: %v", err)
		}
		owes := uint64(0)
		for i, pos := range at {
			if pos <= c.pos {
				owes = acked[i]
			}
		}
		if has, err := logEnd(dir); err != nil || has < owes {
			bad("its log ends at %d, and it told the leader of %d (%v)", has, owes, err)
		}
		return problems
	}
	cuts, writes, syncs := everyCut(trace, rng)
	cuts = some(rng, cuts, 60)
	each(cuts, func(c cut) {
		for _, p := range after(disk, c) {
			t.Error(p)
		}
	})
	t.Logf("%d answers to the leader; %d writes and %d syncs; the power went %d times", len(at), writes, syncs, len(cuts))
	for _, class := range []string{harness.ClassLog, harness.ClassState, harness.ClassSnapshot} {
		forgets := disk.Forget(class)
		noticed := ""
		for i := 0; i < 40 && noticed == ""; i++ {
			if p := after(forgets, cut{pos: trace.Lines - i*(trace.Lines-ready.Start)/40}); len(p) > 0 {
				noticed = p[0]
			}
		}
		if noticed == "" {
			t.Errorf("a follower that never syncs the files of class %s was not noticed", class)
		} else {
			t.Logf("without syncs of class %s: %s", class, noticed)
		}
	}

	// The real thing: it comes back to the two that lived on.
	g.node.Wrap = nil
	back := 3
	if harness.Long() {
		back = 40
	}
	for i := range back {
		c := cuts[i*len(cuts)/back+rng.IntN(max(1, len(cuts)/back))]
		if c.pos <= ready.Start {
			continue // it had not joined for certain
		}
		g.node.Destroy()
		if err := errors.Join(os.RemoveAll(g.node.Dir), os.Mkdir(g.node.Dir, 0o700), disk.Rebuild(c.pos, g.node.Dir, c.tear)); err != nil {
			t.Fatal(err)
		}
		if err := g.node.TryStart(); err != nil {
			t.Fatalf("%s: it does not come back: %v", c, err)
		}
		harness.Eventually(t, harness.ReadyLimit, c.String()+": it catches up", g.hasAll)
	}
	g.node.Destroy()
	g.node.Start()
	g.cl.Same(time.Minute)
	g.cl.StopAndCheck()
}

// logEnd is how far a directory's log reaches, with what the newest snapshot stands for.
func logEnd(dir string) (end uint64, err error) {
	if end, err = harness.LogEnd(dir); err != nil {
		return 0, err
	}
	b, err := os.ReadFile(filepath.Join(dir, datadir.SnapshotsDir, "snapshot.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return end, nil
	}
	var meta struct{ Index uint64 }
	if err == nil {
		err = json.Unmarshal(b, &meta)
	}
	return max(end, meta.Index), err
}
