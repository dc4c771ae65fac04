package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	core "github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// copysets is six processes with eight groups, half of them on the first three nodes and half on the others, and jobs
// that fire every second. Half of the jobs are carried out by the nodes, half by a worker that lives through everything:
// of those nothing is ever repeated, and how late they are is the groups' doing alone.
type copysets struct {
	t     *testing.T
	cl    *harness.Cluster
	probe *harness.Probe
	api   *client.Client

	mu     sync.Mutex
	began  map[string]int // attempts of the lasting worker, by run
	phases []phase
}

// phase is a time in which something was done to the cluster, with the groups that had one leader all the time.
type phase struct {
	what     string
	from, to time.Time
	steady   map[uint32]bool
}

const (
	copysetGroups = 8
	copysetJobs   = 1000
	// lateSlack is how late an occurrence may start if nothing was in its way but what the host did meanwhile.
	lateSlack = 2 * time.Second
	// offerStands is for how long after its end a worker may still be claimed for.
	offerStands = 5 * time.Second
)

var firstThree, lastThree = "n1,n2,n3", "n4,n5,n6"

// terms are those of the groups' leaders.
func (c *copysets) terms() map[uint32]string {
	c.t.Helper()
	terms := map[uint32]string{}
	harness.Eventually(c.t, harness.ReadyLimit, "all groups have leaders", func() bool {
		s, err := c.api.Status(context.Background())
		if err != nil {
			return false
		}
		for _, g := range s.Groups {
			if g.Leader == "" {
				return false
			}
			terms[g.ID] = fmt.Sprintf("%s %d", g.Leader, g.Term)
		}
		return len(s.Groups) == copysetGroups+1
	})
	return terms
}

// during does something to the cluster and waits until that is over.
func (c *copysets) during(what string, do func()) {
	c.t.Helper()
	before := c.terms()
	p := phase{what: what, from: time.Now(), steady: map[uint32]bool{}}
	do()
	for _, n := range c.cl.Nodes {
		if err := n.AwaitReady(); err != nil {
			c.t.Fatalf("%s: %s: %v", what, n.ID, err)
		}
	}
	p.to = time.Now()
	for g, term := range c.terms() {
		p.steady[g] = term == before[g]
	}
	kept := 0
	for g := uint32(1); g <= copysetGroups; g++ {
		if p.steady[g] {
			kept++
		}
	}
	c.t.Logf("%s: %s, %d of %d groups kept their leaders", what, p.to.Sub(p.from).Round(100*time.Millisecond), kept,
		copysetGroups)
	c.phases = append(c.phases, p)
}

// move has groups move, by the command that people have.
func (c *copysets) move(group uint32, to string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := c.cl.Living()[0]
	out, err := exec.CommandContext(ctx, n.Binary, "cluster", "move-group", fmt.Sprint(group), "--to", to, "--addr",
		n.Addr).CombinedOutput()
	if err != nil {
		c.t.Fatalf("move-group %d --to %s: %v\n%s", group, to, err, out)
	}
}

// on says that a group has its replicas on some nodes.
func (c *copysets) on(group uint32, nodes string) bool {
	s, err := c.api.Status(context.Background())
	if err != nil {
		return false
	}
	for _, g := range s.Groups {
		if g.ID == group {
			slices.Sort(g.Members)
			return strings.Join(g.Members, ",") == nodes
		}
	}
	return false
}

// Run is an attempt at the worker that lives through everything.
func (c *copysets) Run(_ context.Context, a job.Assignment) job.Result {
	c.mu.Lock()
	c.began[a.Run.String()]++
	c.mu.Unlock()
	return job.Result{Outcome: job.OutcomeSucceeded}
}

func (c *copysets) create(target string) {
	c.t.Helper()
	var file bytes.Buffer
	enc := json.NewEncoder(&file)
	for i := range copysetJobs {
		spec := job.Spec{Name: fmt.Sprintf("job-%d", i), Type: job.TypeHTTP, Schedule: "@every 1s", Overlap: job.OverlapAllow,
			Missed:  job.Missed{Policy: job.MissedRunAll},
			Payload: json.RawMessage(fmt.Sprintf(`{"url":"%s/job-%d"}`, target, i))}
		if i%2 == 0 {
			spec.Workers = map[string]string{"crew": "away"}
		}
		if err := enc.Encode(spec); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := c.api.BulkCreate(context.Background(), &file, func(r client.BulkResult) error {
		if r.Error != nil {
			return r.Error
		}
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
}

// TestTwoCopysets kills nodes of both copysets of a cluster, one after the other and together, has one stand still, and
// moves groups meanwhile. Nothing is lost, nothing runs twice unless its worker died, and groups that kept their leaders
// notice nothing.
func TestTwoCopysets(t *testing.T) {
	scenario(t)
	c := &copysets{t: t, probe: harness.NewProbe(t), began: map[string]int{}}
	const lease = 8 * time.Second
	c.cl = groupCluster(t, harness.Build(t), 6, copysetGroups, func(*harness.Node) {}, "--executors", "http", "--lease",
		lease.String(), "--history-max-age", "1h")
	nodes := c.cl.Nodes
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	c.api = client.New(strings.Join(addrs, ","))
	for g := uint32(5); g <= copysetGroups; g++ {
		c.move(g, lastThree)
		harness.Eventually(t, time.Minute, fmt.Sprintf("group %d has moved", g), func() bool { return c.on(g, lastThree) })
	}
	target := harness.NewTarget(t)
	far, hangUp := client.FindGroups(addrs)
	w, err := executor.NewWorker(core.Options{Name: "lasting", Secret: "secret", Slots: 512,
		Tags: map[string]string{"crew": "away"}, Groups: far}, map[job.Type]executor.Runner{job.TypeHTTP: c})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		<-ended
		hangUp()
	}()
	c.create(target.URL)
	begin := time.Now()

	gone := func(d time.Duration, which ...*harness.Node) func() {
		return func() {
			for _, n := range which {
				n.Kill("of a copyset")
			}
			time.Sleep(d)
			for _, n := range which {
				n.Start()
			}
		}
	}
	c.during("nothing", func() { time.Sleep(5 * time.Second) })
	c.during("n2 killed", gone(3*time.Second, nodes[1]))
	c.during("n5 killed", gone(3*time.Second, nodes[4]))
	c.during("n1 and n4 killed", gone(3*time.Second, nodes[0], nodes[3]))
	c.during("n3 stands still", func() { nodes[2].Pause("of a copyset", 4*time.Second) })
	c.during("groups 4 and 8 move", func() {
		c.move(4, lastThree)
		c.move(8, firstThree)
	})
	c.during("group 4 moves back, and n6 is killed", func() {
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			_ = exec.Command(nodes[0].Binary, "cluster", "move-group", "4", "--to", firstThree, "--addr", nodes[0].Addr).Run()
		}()
		time.Sleep(500 * time.Millisecond)
		gone(3*time.Second, nodes[5])()
		<-moved
		harness.Eventually(t, time.Minute, "group 4 has moved", func() bool { return c.on(4, firstThree) })
	})
	c.during("nothing, afterwards", func() { time.Sleep(5 * time.Second) })
	end := time.Now().Add(-time.Second)

	// Everything that is due has ended when nothing before the end is open any more.
	var history []job.Run
	harness.Eventually(t, 2*time.Minute, "what is older is decided", func() bool {
		history = nil
		err := c.api.ExportHistory(context.Background(), nil, 0, func(r job.Run, _ json.RawMessage) error {
			history = append(history, r)
			return nil
		})
		lost := c.lost(history, begin, end)
		if err != nil || len(lost) > 0 {
			t.Logf("%d records, %d occurrences are not there yet: %v", len(history), len(lost), err)
			time.Sleep(2 * time.Second)
		}
		return err == nil && len(lost) == 0
	})
	c.judge(history, begin, end)
}

// occurrence is one time of a job.
type occurrence struct {
	job job.ID
	at  job.Instant
}

// lost are the occurrences between two instants, of jobs that have others before and after, that no run succeeded for.
func (c *copysets) lost(history []job.Run, begin, end time.Time) (out []occurrence) {
	first, have := map[job.ID]job.Instant{}, map[occurrence]bool{}
	for _, r := range history {
		if r.RunID == "" || r.Status != job.RunSucceeded {
			continue
		}
		if at, ok := first[r.JobID]; !ok || r.ScheduledAt < at {
			first[r.JobID] = r.ScheduledAt
		}
		have[occurrence{r.JobID, r.ScheduledAt}] = true
	}
	for id, at := range first {
		for ; at.Time().Before(end); at += 1000 {
			if o := (occurrence{id, at}); at.Time().After(begin) && !have[o] {
				out = append(out, o)
			}
		}
	}
	if len(first) < copysetJobs {
		out = append(out, occurrence{})
	}
	return out
}

func (c *copysets) judge(history []job.Run, begin, end time.Time) {
	t := c.t
	t.Helper()
	if lost := c.lost(history, begin, end); len(lost) > 0 {
		t.Errorf("%d occurrences are lost, such as %v", len(lost), lost[0])
	}
	// Twice: only what had a worker that died.
	outages := c.cl.Outages()
	by := map[string][]job.Run{}
	for _, r := range history {
		if r.RunID != "" {
			by[r.RunID] = append(by[r.RunID], r)
		} else if r.Count > 0 && r.First.Time().After(begin) && r.Last.Time().Before(end) {
			t.Errorf("occurrences of %s did not run: %s to %s, %s", r.JobID, r.First, r.Last, r.Reason)
		}
	}
	twice := 0
	for id, all := range by {
		for _, r := range all {
			if r.Status == job.RunSucceeded {
				continue
			}
			twice++
			if r.Worker == "lasting" || !slices.ContainsFunc(outages, func(o harness.Outage) bool {
				return o.Node == r.Worker && r.FinishedAt > job.At(o.Sent) &&
					r.ClaimedAt <= max(job.At(o.Ready), job.At(o.Dead.Add(offerStands)))
			}) {
				t.Errorf("attempt %d of %s at %s: %s %s (%s), and nothing happened to that worker", r.Attempt, id, r.Worker, r.Status,
					r.Reason, r.Error)
			}
		}
	}
	c.mu.Lock()
	for id, n := range c.began {
		if n > 1 {
			t.Errorf("%s began %d times at a worker that lived all the time", id, n)
		}
	}
	c.mu.Unlock()
	// A gap: only in groups that had another leader. What starts late by itself is said, and is no gap.
	type part struct {
		phase int
		group uint32
	}
	starts, late := map[part][]time.Time{}, 0
	for _, r := range history {
		if r.Worker != "lasting" || r.RunID == "" || r.Attempt > 1 { // what is repeated waited for the worker that died
			continue
		}
		at, started, group := r.ScheduledAt.Time(), r.StartedAt.Time(), uint32(r.JobID.Group())
		i := slices.IndexFunc(c.phases, func(p phase) bool { return at.After(p.from) && at.Before(p.to) })
		if i < 0 || !c.phases[i].steady[group] {
			continue
		}
		starts[part{i, group}] = append(starts[part{i, group}], started)
		if lag := started.Sub(at); lag > lateSlack {
			late++
			t.Logf("%s: %s of group %d, which kept its leader, started %s late: claimed %s after its time, attempt %d, fence "+
				"%d; %s into the phase", c.phases[i].what, r.RunID, group, lag, r.ClaimedAt.Time().Sub(at), r.Attempt, r.Fence,
				at.Sub(c.phases[i].from))
		}
	}
	worst := map[string]time.Duration{}
	for in, all := range starts {
		p := &c.phases[in.phase]
		slices.SortFunc(all, time.Time.Compare)
		for i := 1; i < len(all); i++ {
			gap := all[i].Sub(all[i-1])
			worst[p.what] = max(worst[p.what], gap)
			if stall := c.probe.Worst(all[i-1], all[i]); gap > lateSlack+2*stall {
				t.Errorf("%s: nothing of group %d, which kept its leader, started for %s (the machine stood still for %s)",
					p.what, in.group, gap, stall)
			}
		}
	}
	if len(starts) < len(c.phases) {
		t.Errorf("%d groups kept their leaders in %d phases: there is too little to see", len(starts), len(c.phases))
	}
	t.Logf("%d runs, %d attempts repeated after a worker's death, %d late; the longest gap of steady groups by phase: %v",
		len(by), twice, late, worst)
}
