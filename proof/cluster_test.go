package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// brisk is a target without refusals.
func brisk(harness.Seen) (time.Duration, int) { return rand.N(25 * time.Millisecond), http.StatusOK }

// newClusterLoad starts three nodes with a load on them: n jobs `@every 1s` and some that are triggered.
func newClusterLoad(t *testing.T, seed uint64, n int, overlaps []string, flags ...string) *load {
	t.Helper()
	return newClusterLoadAt(t, seed, n, overlaps, harness.NewTarget(t), func(int, *harness.Node) {}, flags...)
}

// newClusterLoadAt is newClusterLoad with a target and machines of the caller's choice.
func newClusterLoadAt(t *testing.T, seed uint64, n int, overlaps []string, target *harness.Target,
	place func(int, *harness.Node), flags ...string) *load {
	t.Helper()
	target.Behave(brisk)
	c := harness.NewClusterAt(t, harness.Build(t), 3, place, flags...)
	l := newLoad(t, c.Nodes[1], target, rand.New(rand.NewPCG(seed, 1)))
	l.cl, l.probe, l.workers = c, harness.NewProbe(t), map[string]string{}
	for _, n := range c.Nodes {
		// a machine of its own: its requests say whose they are
		if host, _, _ := net.SplitHostPort(n.Addr); !net.ParseIP(host).IsLoopback() {
			l.workers[host] = n.ID
		}
	}
	l.seconds(n, overlaps)
	return l
}

const manualJobs = 5

// What jobs do when an earlier run of theirs is open. Only where all may overlap is every occurrence that did not run
// one too many.
var (
	mixed = []string{job.OverlapAllow, job.OverlapSkip}
	allow = []string{job.OverlapAllow}
)

// seconds makes n jobs `@every 1s` and the manual ones, through a node that need not lead.
func (l *load) seconds(n int, overlaps []string) {
	l.t.Helper()
	b := &batch{rerun: true}
	var file bytes.Buffer
	enc := json.NewEncoder(&file)
	put := func(token string, spec job.Spec) {
		l.promise(token, spec)
		b.tokens = append(b.tokens, token)
		if err := enc.Encode(spec); err != nil {
			l.t.Fatal(err)
		}
	}
	for i := range n {
		token := fmt.Sprintf("every-%d", i)
		overlap := overlaps[i%len(overlaps)]
		put(token, l.spec(token, token, "@every 1s", overlap))
	}
	for i := range manualJobs {
		token := fmt.Sprintf("manual-%d", i)
		put(token, l.spec(token, token, job.ScheduleManual, job.OverlapAllow))
	}
	b.file = file.Bytes()
	// On a busy machine leadership may move under the first of it; a file can be sent again.
	var err error
	for range 5 {
		if err = l.send(b); err == nil {
			return
		}
		l.t.Logf("sent again: %v", err)
		l.cl.Leader()
	}
	l.t.Fatal(err)
}

// endAll gives the recurring jobs an end, several at a time and through all nodes, each some time after its own edit:
// on a busy machine all of them together may take long. One that is committed only after its end is an edit like any
// other, and noted: what was due in between goes with it. It returns when all have ended.
func (l *load) endAll(in time.Duration) time.Time {
	l.t.Helper()
	tokens := make(chan string)
	var wg sync.WaitGroup
	var failed atomic.Bool
	for range 16 {
		wg.Go(func() {
			for token := range tokens {
				end := time.Now().Add(in).Truncate(time.Millisecond)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				err := l.endOf(ctx, token, end)
				cancel()
				if err != nil {
					l.t.Errorf("patch %s: %v", token, err)
					failed.Store(true)
				} else if late := time.Since(end); late > 0 {
					l.t.Logf("the patch of %s was %s late for its end", token, late)
					id, _ := l.id(token)
					l.mu.Lock()
					l.late[id] = job.At(end)
					l.mu.Unlock()
				}
			}
		})
	}
	for _, token := range l.every() {
		if !failed.Load() {
			tokens <- token
		}
	}
	close(tokens)
	wg.Wait()
	if failed.Load() {
		l.t.FailNow()
	}
	return time.Now().Add(in)
}

// goesOn waits until the cluster calls targets again.
func (l *load) goesOn() {
	l.t.Helper()
	before := l.target.Arrived()
	harness.Eventually(l.t, harness.ReadyLimit, "it goes on", func() bool { return l.target.Arrived() > before+10 })
}

// settle ends the load, accounts for all of it, and holds the nodes against each other.
func (l *load) settle(in time.Duration) (*harness.Evidence, checker.Report) {
	l.t.Helper()
	end := l.endAll(in)
	l.drained(end, 2*time.Minute)
	l.digests = l.cl.Same(time.Minute)
	l.node = l.cl.Nodes[l.rng.IntN(len(l.cl.Nodes))]
	b := l.evidence()
	r := l.judge(b)
	byReason := map[job.Reason]int64{}
	for _, rec := range b.Final.History {
		if rec.RunID == "" {
			byReason[rec.Reason] += rec.Count
			// It was not to run: the job was given an end before it.
			if end, late := l.late[rec.JobID]; late && rec.Reason == job.ReasonEdited && rec.First > end {
				r.NotRun -= int(rec.Count)
			}
		}
	}
	byWorker := map[string]int{}
	for _, rec := range b.Final.History {
		if rec.RunID != "" {
			byWorker[rec.Worker]++
		}
	}
	l.t.Logf("not run: %v; attempts: %v", byReason, byWorker)
	return b, r
}

// TestClusterSurvivesKillsOfTheLeader kills the leader, again and again, and then asks of every occurrence what became
// of it.
func TestClusterSurvivesKillsOfTheLeader(t *testing.T) {
	beside(t)
	jobs, kills, wind := 100, 3, 4*time.Second
	if harness.Long() {
		jobs, kills, wind = 1000, 20, 10*time.Second
	}
	seed := harness.Seed(t)
	l := newClusterLoad(t, seed, jobs, mixed)
	stop := l.triggerForever(seed, manualJobs, 80*time.Millisecond)
	var outages []harness.Outage
	time.Sleep(2 * time.Second)
	for i := range kills {
		leader := l.cl.Leader()
		time.Sleep(rand.N(time.Second))
		sent := l.target.Arrived()
		o := leader.Kill("leading")
		outages = append(outages, o)
		time.Sleep(time.Second + rand.N(time.Second))
		next := l.cl.Leader()
		t.Logf("kill %d at %s: %s died leading after %d requests, %s leads %s later", i+1,
			o.Sent.UTC().Format("15:04:05.000"), leader.ID, sent, next.ID, time.Since(o.Sent).Round(time.Millisecond))
		leader.Start()
		if t.Failed() {
			break
		}
		time.Sleep(time.Second + rand.N(500*time.Millisecond))
	}
	stop()
	b, r := l.settle(wind)
	if !harness.Long() {
		l.teeth(b, r, true)
	}
	l.logGaps("SIGKILL of the leader", b.Final.History, outages)
	l.cl.StopAndCheck()
}

// TestPausedLeaderCommitsNothing stops the leader's process for ten seconds. The others go on without it; when it wakes
// up it still thinks that it leads, and may do nothing about it: no log has an entry of its term from after that, and
// its worker, once it found out that its session is gone, starts nothing until it has another. Ten seconds are less
// than a lease: its worker's runs stay its own, so nothing may be repeated.
func TestPausedLeaderCommitsNothing(t *testing.T) {
	beside(t)
	jobs, pauses, wind := 50, 1, 3*time.Second
	if harness.Long() {
		jobs, pauses, wind = 1000, 5, 10*time.Second
	}
	seed := harness.Seed(t)
	l := newClusterLoad(t, seed, jobs, allow, wholeLog...)
	// the one that sleeps is asked too, and answers when it wakes up
	stop := l.triggerForever(seed, manualJobs, 80*time.Millisecond)
	var outages []harness.Outage
	var slept []*harness.Node
	var terms []uint64
	time.Sleep(time.Second)
	for i := range pauses {
		old, term := l.leading()
		o := old.Pause("leading", 10*time.Second)
		outages, slept, terms = append(outages, o), append(slept, old), append(terms, term)
		var s client.Status
		harness.Eventually(t, time.Minute, old.ID+" knows who leads now", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			var err error
			s, err = old.Stale().Status(ctx)
			return err == nil && s.Term > term && s.State == "follower" && s.Leader != "" && s.Leader != old.ID
		})
		t.Logf("pause %d: %s led term %d, woke up and follows %s in term %d after %s", i+1, old.ID, term, s.Leader, s.Term,
			time.Since(o.Dead).Round(time.Millisecond))
		time.Sleep(2 * time.Second)
	}
	stop()
	b, r := l.settle(wind)
	if r.Repeated > 0 || r.LostWorkers > 0 || r.NotRun > 0 {
		t.Errorf("nothing expired, and %d runs were repeated, %d attempts lost, %d occurrences did not run", r.Repeated,
			r.LostWorkers, r.NotRun)
	}
	for i, o := range outages {
		l.idle(b.Final.History, o, slept[i], terms[i])
	}
	l.logGaps("SIGSTOP of the leader", b.Final.History, outages)
	l.cl.StopAndCheck()
	for i, o := range outages {
		l.nothingWritten(terms[i], o.Dead)
	}
}

// TestRollingRestartMissesNothing restarts every node in good order under load.
func TestRollingRestartMissesNothing(t *testing.T) {
	beside(t)
	jobs, rounds, wind := 100, 1, 3*time.Second
	if harness.Long() {
		jobs, rounds, wind = 1000, 3, 10*time.Second
	}
	seed := harness.Seed(t)
	l := newClusterLoad(t, seed, jobs, allow)
	stop := l.triggerForever(seed, manualJobs, 80*time.Millisecond)
	var outages []harness.Outage
	time.Sleep(time.Second)
	for range rounds {
		for _, n := range l.cl.Nodes {
			led := l.cl.Leader() == n
			o := harness.Outage{Sent: time.Now()}
			n.Stop()
			o.Dead = time.Now()
			n.Start()
			t.Logf("%s (led: %v) stopped in %s and was ready after %s", n.ID, led, o.Dead.Sub(o.Sent).Round(time.Millisecond),
				time.Since(o.Dead).Round(time.Millisecond))
			if led {
				o.Paused = true // the gap counts from the signal
				outages = append(outages, o)
			}
			time.Sleep(time.Second)
		}
	}
	stop()
	b, r := l.settle(wind)
	if r.Repeated > 0 || r.LostWorkers > 0 || r.NotRun > 0 {
		t.Errorf("%d runs were repeated, %d attempts lost, %d occurrences did not run", r.Repeated, r.LostWorkers, r.NotRun)
	}
	worst := time.Duration(0)
	for _, s := range b.Seen {
		worst = max(worst, s.Arrived.Sub(s.At().Time()))
	}
	t.Logf("the latest request came %s after its time", worst.Round(time.Millisecond))
	l.logGaps("SIGTERM of the leader", b.Final.History, outages)
	l.cl.StopAndCheck()
}

// TestReadsAndEditsDoNotStopTheLeader reads and edits jobs from all sides while they fire. Each of these looks at the
// store, at the leader's clock and at its members; in whatever order they do so, everybody gets an answer, and the load
// goes on.
func TestReadsAndEditsDoNotStopTheLeader(t *testing.T) {
	heavy(t)
	t.Parallel()
	seed := harness.Seed(t)
	l := newClusterLoad(t, seed, 100, allow)
	var wg sync.WaitGroup
	var calls atomic.Int64
	took := 5 * time.Second
	if harness.Long() {
		took = 15 * time.Second
	}
	end := time.Now().Add(took)
	for i := range 16 {
		wg.Go(func() {
			for n := i; time.Now().Before(end) && !t.Failed(); n += 16 {
				token := fmt.Sprintf("every-%d", (i+n/16*16)%96) // each has its own to edit
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				var err error
				switch n / 16 % 3 {
				case 0:
					err = l.tag(ctx, l.anyone(), token, strconv.Itoa(n))
				case 1:
					_, err = l.anyone().GetJob(ctx, token)
				case 2:
					_, err = l.anyone().Status(ctx)
				}
				cancel()
				if err != nil {
					t.Errorf("call %d, %s: %v", n, token, err)
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	t.Logf("%d calls", calls.Load())
	if t.Failed() {
		t.FailNow()
	}
	if _, r := l.settle(3 * time.Second); r.Repeated > 0 || r.LostWorkers > 0 {
		t.Errorf("%d runs were repeated, %d attempts lost", r.Repeated, r.LostWorkers)
	}
	l.cl.StopAndCheck()
}
