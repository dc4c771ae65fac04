package proof

import (
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// killer is the load with a hand on the process. Each of its phases ends with a dead process; where it is aimed decides
// what the process was doing when it died.
type killer struct {
	*load
	bulkLines, hotLines int
	bulks, checks       int
}

func (k *killer) upTo(d time.Duration) time.Duration {
	return time.Duration(k.rng.Int64N(int64(d) + 1))
}

// quick and slow are how the target answers. Some one-offs it refuses twice, so that there are retries about when the
// process dies.
func quick(s harness.Seen) (time.Duration, int) {
	return rand.N(25 * time.Millisecond), verdict(s)
}

func slow(s harness.Seen) (time.Duration, int) {
	return 250*time.Millisecond + rand.N(250*time.Millisecond), verdict(s)
}

func verdict(s harness.Seen) int {
	if s.Attempt <= 2 && strings.HasPrefix(s.Token, "one-") && strings.HasSuffix(s.Token, "1") {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// revive starts the process again at once; every third time its files are looked at first, as the kill left them.
func (k *killer) revive() {
	k.t.Helper()
	if k.rng.IntN(3) == 0 {
		if err := harness.Check(k.node.Binary, k.node.Dir); err != nil {
			k.t.Errorf("as the kill left it: %v", err)
		}
		k.checks++
	}
	k.node.Start()
}

// bulk dies while a file is being taken in: some lines are answered, some are done and not answered, some were never
// read.
func (k *killer) bulk() {
	b := k.oneOffs(k.bulkLines, time.Now().Add(time.Second+k.upTo(3*time.Second)))
	k.bulks++
	b.rerun = k.bulks%4 != 2 // what is never sent again may or may not exist
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = k.send(b) // it breaks off: that is the point
	}()
	if k.rng.IntN(2) == 0 {
		time.Sleep(k.upTo(80 * time.Millisecond))
	} else {
		want := k.rng.Int64N(int64(k.bulkLines))
		for end := time.Now().Add(3 * time.Second); b.acked.Load() <= want && time.Now().Before(end); {
			time.Sleep(100 * time.Microsecond) // the answers come in bursts: be quick
		}
	}
	k.node.Kill("during bulk create")
	<-sent
	k.t.Logf("killed when %d of %d lines of a bulk create were answered; sent again: %v", b.acked.Load(), k.bulkLines,
		b.rerun)
	k.revive()
	for i := 0; b.rerun; i++ {
		if err := k.send(b); err == nil {
			break
		} else if i == 10 {
			k.t.Fatalf("the file cannot be sent again: %v", err)
		}
	}
}

// hot makes a batch that is due in a moment and waits for the beginning of that second.
func (k *killer) hot() *batch {
	b := k.oneOffs(k.hotLines, time.Now().Add(1200*time.Millisecond))
	k.mustSend(b)
	time.Sleep(time.Until(b.due))
	return b
}

// claiming dies when the due second has just begun: claims are being committed and sent out.
func (k *killer) claiming() {
	b := k.hot()
	sent := k.target.Arrived()
	time.Sleep(time.Until(b.due) + k.upTo(150*time.Millisecond))
	before := k.target.Arrived()
	k.node.Kill("while claiming")
	k.t.Logf("killed when %d of %d due runs had been sent", before-sent, k.hotLines)
	k.revive()
}

// working dies while the targets think about their answers.
func (k *killer) working() {
	k.target.Behave(slow)
	k.hot()
	harness.Within(5*time.Second, func() bool { return k.target.InFlight() >= 32 })
	time.Sleep(k.upTo(250 * time.Millisecond))
	busy := k.target.InFlight()
	k.node.Kill("while targets work")
	k.t.Logf("killed when the target had %d requests in hand", busy)
	k.target.Behave(quick)
	k.revive()
}

// completing dies while results come in.
func (k *killer) completing() {
	k.hot()
	before := k.target.Done()
	want := before + 1 + k.rng.IntN(k.hotLines)
	harness.Within(5*time.Second, func() bool { return k.target.Done() >= want })
	time.Sleep(k.upTo(10 * time.Millisecond))
	k.node.Kill("while completing")
	k.t.Logf("killed when %d of %d were answered", k.target.Done()-before, k.hotLines)
	k.revive()
}

// snapshot dies when a snapshot has just been written, or is about to be.
func (k *killer) snapshot() {
	dir := filepath.Join(k.node.Dir, datadir.SnapshotsDir)
	newest := func() (at time.Time) {
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			if fi, err := f.Info(); err == nil && fi.ModTime().After(at) {
				at = fi.ModTime()
			}
		}
		return at
	}
	before := newest()
	if !harness.Within(15*time.Second, func() bool { return newest().After(before) }) {
		k.t.Errorf("no snapshot was made in fifteen seconds")
	}
	time.Sleep(k.upTo(10 * time.Millisecond))
	k.node.Kill("around a snapshot")
	k.revive()
}

// recovering dies twice: the second time while it comes back from the first.
func (k *killer) recovering() {
	time.Sleep(k.upTo(300 * time.Millisecond))
	k.node.Kill("at any time")
	if err := k.node.Launch(); err != nil {
		k.t.Fatal(err)
	}
	time.Sleep(k.upTo(400 * time.Millisecond))
	k.node.Kill("while recovering")
	k.revive()
}

// stopping dies while it ends in good order.
func (k *killer) stopping() {
	k.target.Behave(slow)
	k.hot()
	time.Sleep(k.upTo(200 * time.Millisecond))
	k.node.StopAndKill("while stopping", k.upTo(300*time.Millisecond))
	k.target.Behave(quick)
	k.revive()
}

// beginning dies during the very first start, before there is anything to lose but the data directory itself.
func (k *killer) beginning() {
	if err := k.node.Launch(); err != nil {
		k.t.Fatal(err)
	}
	time.Sleep(k.upTo(150 * time.Millisecond))
	k.node.Kill("while beginning")
}

// TestKillNineAccountsForEveryOccurrence kills the process twenty times in the middle of everything it does, and then
// asks of every occurrence what became of it.
func TestKillNineAccountsForEveryOccurrence(t *testing.T) {
	heavy(t)
	t.Parallel()
	binary := harness.Build(t)
	seed := harness.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	target := harness.NewTarget(t)
	target.Behave(quick)
	node := harness.NewNode(t, binary, filepath.Join(t.TempDir(), "data"), "--executors", "http,shell", "--slots", "64",
		"--snapshot-interval", "1s", "--snapshot-threshold", "50")
	k := &killer{load: newLoad(t, node, target, rng), bulkLines: 600, hotLines: 300}

	began := time.Now()
	k.beginning()
	k.beginning()
	node.Start()
	const every, manual = 30, 5
	k.recurring(every, manual)
	stop := k.triggerForever(seed, manual, 80*time.Millisecond)

	rounds := 1
	if harness.Long() {
		rounds = 6
	}
	if harness.Longest() {
		rounds = 11
	}
	phases := []func(){}
	for range rounds {
		phases = append(phases, k.bulk, k.bulk, k.bulk, k.bulk, k.claiming, k.claiming, k.claiming, k.claiming,
			k.working, k.working, k.completing, k.completing, k.completing, k.snapshot, k.snapshot, k.stopping, k.recovering)
	}
	rng.Shuffle(len(phases), func(i, j int) { phases[i], phases[j] = phases[j], phases[i] })
	for _, phase := range phases {
		phase()
		if t.Failed() {
			break
		}
	}
	stop()

	// A quiet time, in which nothing may be repeated: a double now has no kill to hide behind. Recurring jobs now take
	// longer than their interval, so that half of them skip occurrences, the last one too. (Earlier it would not do: a run
	// that is killed five times is taken to be the cause and goes to the dead letters.)
	target.Behave(func(s harness.Seen) (time.Duration, int) {
		if strings.HasPrefix(s.Token, "every-") {
			return 1500*time.Millisecond + rand.N(2*time.Second), http.StatusOK
		}
		return quick(s)
	})
	last := k.oneOffs(500, time.Now().Add(1500*time.Millisecond))
	k.mustSend(last)
	for _, b := range k.batches {
		if b.rerun && b != last && rng.IntN(4) == 0 {
			k.mustSend(b) // everything is there already, with the same numbers
		}
	}
	end := k.endRecurring(5 * time.Second)
	k.drained(end, 40*time.Second)
	evidence := k.evidence()
	node.Stop()
	if err := harness.Check(binary, node.Dir); err != nil {
		t.Error(err)
	}
	k.judge(evidence)

	var dead, longest time.Duration
	byWhy := map[string]int{}
	for _, o := range node.Outages() {
		if d := o.Ready.Sub(o.Dead); !o.Ready.IsZero() {
			dead += d
			longest = max(longest, d)
		}
		byWhy[o.Why]++
	}
	t.Logf("%d kills in %s: %v; back within %s, %s in all; files looked at after %d of them", len(node.Outages()),
		time.Since(began).Round(time.Second), byWhy, longest.Round(time.Millisecond), dead.Round(time.Millisecond), k.checks)
}
