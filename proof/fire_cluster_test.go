package proof

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// fire is a cluster under load to which a seed does everything that can happen to machines.
type fire struct {
	*load
	rng    *rand.Rand
	net    *harness.Net
	disk   *harness.SmallDisk // on which the last node lives, or nil
	counts tally
	done   []string
}

// say counts what was done.
func (f *fire) say(kind, format string, args ...any) {
	f.counts.add(kind)
	text := kind + ": " + fmt.Sprintf(format, args...)
	f.done = append(f.done, text)
	f.t.Logf("%s %s", time.Now().UTC().Format(clock), text)
}

// victim is the leader, half of the time.
func (f *fire) victim() *harness.Node {
	f.t.Helper()
	leader := f.cl.Leader()
	if f.rng.IntN(2) == 0 {
		return leader
	}
	others := f.cl.Others(leader)
	return others[f.rng.IntN(len(others))]
}

func (f *fire) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(f.rng.Int64N(int64(hi-lo)))
}

func (f *fire) kill() {
	n := f.victim()
	n.Kill("under fire")
	gone := f.between(0, 1500*time.Millisecond)
	time.Sleep(gone)
	n.Start()
	f.say("killed", "%s for %s", n.ID, gone.Round(time.Millisecond))
}

func (f *fire) restart() {
	n := f.victim()
	n.StopAndKill("restart", 45*time.Second)
	n.Start()
	f.say("restarted", "%s", n.ID)
}

func (f *fire) pause() {
	n := f.victim()
	d := f.between(300*time.Millisecond, 4*time.Second)
	n.Pause("under fire", d)
	f.say("paused", "%s for %s", n.ID, d.Round(time.Millisecond))
}

func (f *fire) cutOff() {
	n := f.victim()
	way := ways[f.rng.IntN(3)]
	me := slices.Index(f.cl.Nodes, n)
	from := time.Now()
	f.net.Isolate(me, way.sends, way.gets)
	d := f.between(500*time.Millisecond, 4*time.Second)
	time.Sleep(d)
	n.CutOff(way.name, from)
	f.net.Heal()
	f.say("cut off", "%s for %s: %s", n.ID, d.Round(time.Millisecond), way.name)
}

// fillDisk: a node that cannot write ends, or it needs no room for what it has to write just then.
func (f *fire) fillDisk() {
	t := f.t
	n := f.cl.Nodes[len(f.cl.Nodes)-1]
	from := time.Now()
	f.disk.Fill()
	ended := func() bool { return n.Ended() != nil }
	full := true
	if !harness.Within(5*time.Second, ended) {
		full = false
		f.disk.Empty()
		// A write that failed just before ends it a moment later.
		if !harness.Within(3*time.Second, ended) {
			f.say("full disk", "%s needed no room for %s", n.ID, time.Since(from).Round(time.Millisecond))
			return
		}
	}
	state := n.Ended()
	after := time.Since(from)
	n.Died("its disk was full", from)
	if state.ExitCode() != 70 || !bytes.Contains(n.LogTail(10), []byte("no space left on device")) {
		t.Errorf("the disk of %s was full: it ended with %s\n%s", n.ID, state, n.LogTail(10))
	}
	if full {
		f.startOnFullDisk(n)
		f.disk.Empty()
	}
	n.Start()
	f.say("full disk", "%s ended with code %d after %s", n.ID, state.ExitCode(), after.Round(time.Millisecond))
}

// startOnFullDisk: a start may fail there too, and says why.
func (f *fire) startOnFullDisk(n *harness.Node) {
	err := n.TryStart()
	if err == nil {
		n.Kill("on a full disk")
		return
	}
	n.Died("its disk was full", time.Now())
	if !bytes.Contains(n.LogTail(10), []byte("no space left on device")) {
		f.t.Errorf("a start on a full disk: %v\n%s", err, n.LogTail(10))
	}
}

// tearTail: a node whose log is damaged comes back, or refuses to and says what to do; and doing that brings it back.
func (f *fire) tearTail() {
	t := f.t
	n := f.victim()
	n.Kill("its log is damaged")
	how, err := harness.TearTail(n.Dir, f.rng)
	if err != nil {
		t.Fatal(err)
	}
	f.cl.Leader()
	if err := n.TryStart(); err == nil {
		f.say("torn log", "%s started: %s", n.ID, how)
		return
	}
	state, err := n.AwaitEnd(harness.ReadyLimit)
	if err != nil {
		t.Fatalf("%s: %s: it neither starts nor ends: %v\n%s", n.ID, how, err, n.LogTail(20))
	}
	tail := n.LogTail(10)
	if state.ExitCode() != 1 || !bytes.Contains(tail, []byte("let the node rejoin")) &&
		!bytes.Contains(tail, []byte("carillon node rebuild")) {
		t.Errorf("%s: %s: it ended with %s and did not say what to do:\n%s", n.ID, how, state, tail)
	}
	// What it says: out of the cluster, an empty directory, and in again.
	ctx, cancel := context.WithTimeout(context.Background(), harness.ReadyLimit)
	defer cancel()
	for {
		if err = f.cl.Leader().Client.RemoveNode(ctx, n.ID); err == nil || !passing(err) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("remove %s: %v", n.ID, err)
	}
	names, err := filepath.Glob(filepath.Join(n.Dir, "*"))
	for _, name := range names {
		if err == nil {
			err = os.RemoveAll(name)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	n.Join = nil
	for _, other := range f.cl.Living() {
		n.Join = append(n.Join, other.Addr)
	}
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	// Its worker has no secret any more by which it would be known: it waits until the lease of the one before has ended,
	// and only then is the outage over. Until then that one has what it was given.
	harness.Eventually(t, harness.ReadyLimit, n.ID+" has registered its worker", func() bool {
		life := n.Log()
		return bytes.Contains(life[bytes.LastIndex(life, []byte("--- life")):], []byte("msg=registered"))
	})
	if err := n.AwaitReady(); err != nil {
		t.Fatal(err)
	}
	f.say("torn log", "%s refused and joined again: %s", n.ID, how)
}

// calm waits until all three are members that have caught up: what comes next happens to one at a time.
func (f *fire) calm() {
	f.t.Helper()
	for _, n := range f.cl.Nodes {
		if err := n.AwaitReady(); err != nil {
			f.t.Fatalf("%s: %v\nso far: %s", n.ID, err, strings.Join(f.done, "\n"))
		}
	}
	harness.Eventually(f.t, harness.ReadyLimit, "all vote and have caught up", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		leader := f.cl.Leader()
		s, err := leader.Stale().Status(ctx)
		voters := 0
		for _, m := range s.Members {
			if m.Suffrage == "voter" {
				voters++
			}
		}
		if err != nil || voters != len(f.cl.Nodes) {
			return false
		}
		at := index(f.t, leader, "applied_index")
		for _, n := range f.cl.Nodes {
			if index(f.t, n, "applied_index")+20 < at {
				return false
			}
		}
		return true
	})
	f.goesOn()
}

// TestEverythingAtOnce does to three nodes under load what a seed picks, over and over: kill -9, pauses, cuts, full
// disks, damaged logs, restarts. At the end every occurrence is accounted for, and the three know the same.
func TestEverythingAtOnce(t *testing.T) {
	beside(t)
	jobs, span, wind, lease := 20, 2*time.Second, 2*time.Second, 4*time.Second
	if harness.Long() {
		jobs, span, wind, lease = 300, 45*time.Second, 5*time.Second, 8*time.Second
	}
	if harness.Longest() {
		span = 100 * time.Second
	}
	seed := harness.Seed(t)
	f := &fire{rng: rand.New(rand.NewPCG(seed, 10)), net: harness.NewNet(t, 3)}
	disk, why := harness.NewSmallDisk(t, 96)
	if why != "" {
		t.Logf("no full disks: %s", why)
	}
	f.disk = disk
	f.load = newClusterLoadAt(t, seed, jobs, mixed, harness.NewTargetAt(t, f.net.Host), func(i int, n *harness.Node) {
		f.net.Place(i, n)
		if i == 2 && disk != nil {
			n.Dir = filepath.Join(disk.Path, "data")
		}
	}, "--snapshot-threshold", "300", "--snapshot-interval", "1s", "--min-free-disk", "0", "--lease", lease.String())
	f.lease, f.anyExcuse = lease, true
	w := newWild(f.load, seed, max(10, jobs/5))
	kinds := []func(){f.kill, f.restart, f.pause, f.cutOff, f.tearTail}
	if disk != nil {
		kinds = append(kinds, f.fillDisk)
	}
	stop := f.triggerForever(seed, manualJobs, 80*time.Millisecond)
	leave := w.users(3, 60*time.Millisecond)
	var turn []func() // everything comes up before something comes up again
	for end := time.Now().Add(span); time.Now().Before(end) && !t.Failed(); {
		if len(turn) == 0 {
			turn = slices.Clone(kinds)
			f.rng.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		}
		turn[0]()
		turn = turn[1:]
		f.calm()
	}
	stop()
	leave()
	w.end()
	b, r := f.settle(wind)
	if !harness.Long() {
		f.teeth(b, r, false)
	}
	f.cl.StopAndCheck()
	t.Logf("seed %d: %s", seed, &f.counts)
}
