package node

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// The leader dies as by kill -9, with the timeouts that a cluster has by default. It runs alone: a lease that ends
// because a machine is busy repeats a run.
func TestLeaderCrashUnderLoad(t *testing.T) {
	realTime(t)
	c := startCluster(t, 3, func(cfg *Config) { cfg.Raft.Heartbeat = 500 * time.Millisecond })
	r := newRecorder(t)
	r.delay.Store(int64(20 * time.Millisecond))
	c.awaitWorkers(3)
	ids := c.load(r, 50, "skip")
	time.Sleep(1500 * time.Millisecond)

	old := c.leader()
	via := c.others(old)[0]
	crashed := time.Now()
	old.crash()
	// A request through a follower is answered once there is a leader.
	if a := via.call("POST", "/api/v1/jobs", r.spec("during", "@manual")); a.status != 201 {
		t.Errorf("during the election: %d %s", a.status, a.body)
	}
	answered := time.Since(crashed)
	// The lease of the dead worker ends, and its runs go to others. A retry of a job that is paused would wait.
	time.Sleep(3 * time.Second)
	via.eventually("nothing is left of the dead worker", func() bool {
		for _, run := range ok[wire.RunPage](via.testNode, "GET", "/api/v1/runs?limit=500", nil).Runs {
			if run.Worker == old.id() || run.Attempt > 1 || time.Since(run.ScheduledAt.Time()) > 3*time.Second {
				return false
			}
		}
		return true
	})
	gap := r.gap(crashed, time.Now())
	c.settle(via, ids)
	sum := c.account(via, r, ids, old.id())
	if sum.ran < 150 {
		t.Errorf("only %d runs", sum.ran)
	}
	t.Logf("gap in firing %s, request answered after %s; %d ran, %d did not %v, %d repeated", gap, answered, sum.ran,
		sum.notRun, sum.why, sum.repeated)
}

// Every node is stopped as it should and started again, the leader first: nothing is missed and nothing repeated, and
// no follower has to miss a leader. It runs alone: a lease that ends because a machine is busy repeats a run.
func TestRollingRestartUnderLoad(t *testing.T) {
	realTime(t)
	c := startCluster(t, 3, func(cfg *Config) { cfg.Raft.Heartbeat = 500 * time.Millisecond })
	r := newRecorder(t)
	r.delay.Store(int64(50 * time.Millisecond))
	c.awaitWorkers(3)
	ids := c.load(r, 50, "allow")
	time.Sleep(time.Second)

	old := c.leader()
	via := c.others(old)[0]
	// A client writes all the time, through the node that stops as long as it can be reached, and then through another.
	stop, failed := make(chan struct{}), make(chan string, 1000)
	written := 0
	writing := make(chan struct{})
	var to atomic.Pointer[testNode]
	to.Store(old.testNode)
	next := via.testNode
	go func() {
		defer close(writing)
		for {
			select {
			case <-stop:
				return
			default:
			}
			m := to.Load()
			a, err := m.try("POST", "/api/v1/jobs", `{"type":"queue","schedule":"@manual","payload":{"queue":"q"}}`)
			switch {
			case err != nil:
				to.CompareAndSwap(m, next) // its port is closed
			case a.status != 201:
				failed <- string(a.body)
			default:
				written++
			}
		}
	}()
	begin := time.Now()
	var took []time.Duration
	for _, m := range append([]*member{old}, c.others(old)...) {
		if m == via {
			to.Store(old.testNode)
		}
		begin := time.Now()
		m.stop()
		took = append(took, time.Since(begin))
		time.Sleep(700 * time.Millisecond)
		m.restart()
		c.awaitWorkers(3)
	}
	time.Sleep(500 * time.Millisecond)
	gap := r.gap(begin, time.Now())
	close(stop)
	<-writing
	close(failed)
	for f := range failed {
		t.Errorf("a write failed: %s", f)
	}
	c.settle(via, ids)
	sum := c.account(old, r, ids)
	if sum.notRun > 0 || sum.repeated > 0 || sum.retried > 0 || sum.ran < 150 {
		t.Errorf("%+v", sum)
	}
	t.Logf("stopped in %v, longest silence %s, %d ran, %d writes", took, gap, sum.ran, written)
}

// A leader that raft cannot reach commits nothing, and says so; the others go on.
func TestCutOffLeaderCommitsNothing(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	r := newRecorder(t)
	c.awaitWorkers(3)
	ids := c.load(r, 10, "allow")
	old := c.leader()
	e := old.tracker.Epoch()
	via := c.others(old)[0]
	old.link.noRaft.Store(true)
	time.Sleep(100 * time.Millisecond) // what had a majority before is applied after
	before := old.group.store.Counters().Index

	// It may still believe that it leads. What it is told then must not be acknowledged.
	if _, _, err := old.service.CreateJob(t.Context(), job.Spec{Name: "x", Type: job.TypeQueue, Schedule: "@manual",
		Payload: []byte(`{"queue":"q"}`)}, api.Request{Key: "x"}); err == nil {
		t.Error("a leader without followers acknowledged a job")
	}
	via.eventually("another node leads", func() bool {
		return c.others(old)[0].tracker.Epoch() != nil || c.others(old)[1].tracker.Epoch() != nil
	})
	old.eventually("it knows", func() bool { return old.tracker.Epoch() == nil })
	if after := old.group.store.Counters().Index; after != before {
		t.Errorf("it applied %d entries", after-before)
	}
	if err := e.Proposer.Propose(nil); err == nil {
		t.Error("no answer")
	} else if _, err := err.Wait(); err == nil {
		t.Error("the proposer of an ended leadership accepted a command")
	}
	time.Sleep(1200 * time.Millisecond)
	old.link.noRaft.Store(false)
	old.eventually("it follows", func() bool { return old.service.Ready() == nil })
	if a := old.call("GET", "/api/v1/jobs/x", nil); a.status != 404 {
		t.Errorf("what it could not commit: %d %s", a.status, a.body)
	}
	c.settle(via, ids)
	t.Logf("%+v", c.account(old, r, ids, old.id()))
}

// Attempts outlive the leader that gave them out: their workers carry them over to the next one.
func TestRunsInFlightSurviveALeaderChange(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	r := newRecorder(t)
	c.awaitWorkers(3)
	r.delay.Store(int64(1500 * time.Millisecond))
	names := []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"}
	for i, name := range names {
		c.members[i%3].create(r.spec(name, "@manual"))
		ok[job.Run](c.members[(i+1)%3].testNode, "POST", "/api/v1/jobs/"+name+":run", nil)
	}
	c.members[0].eventually("they run", func() bool { return len(r.all()) == len(names) })
	old := c.leader()
	if err := old.group.raft.LeadershipTransfer().Error(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for c.leader() == old {
		time.Sleep(time.Millisecond)
	}
	c.awaitWorkers(3)
	t.Logf("all workers have moved after %s", time.Since(begin))
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("that took %s", d)
	}
	for _, name := range names {
		old.eventually(name+" has ended", func() bool { return old.get(name).OpenRuns == 0 })
		runs := old.runs(name)
		if len(runs) != 1 || runs[0].Status != job.RunSucceeded || runs[0].Attempt != 1 {
			t.Errorf("%s: %+v", name, runs)
		}
	}
	workers := map[string]bool{}
	for _, name := range names {
		workers[old.runs(name)[0].Worker] = true
	}
	if len(r.all()) != len(names) {
		t.Errorf("the target was called %d times for %d runs", len(r.all()), len(names))
	}
	if len(workers) < 2 {
		t.Errorf("all ran on %v", workers)
	}
}

// A clock that the majority does not share stops its leader, and only while that is so.
func TestSkewedLeaderHolds(t *testing.T) {
	t.Parallel()
	clocks := map[string]*shiftedClock{}
	c := startCluster(t, 3, func(cfg *Config) {
		s := &shiftedClock{start: time.Now()}
		clocks[cfg.NodeID] = s
		cfg.Clock = s
	})
	leader := c.leader()
	for i, m := range c.others(leader) { // no two agree, so no node can take over
		clocks[m.id()].shift.Store(int64(20*time.Second) * int64(2*i-1))
	}
	leader.eventually("it holds", func() bool {
		err := leader.service.Ready()
		return err != nil && strings.Contains(err.Error(), "differs by")
	})
	for _, m := range c.others(leader) {
		clocks[m.id()].shift.Store(0)
	}
	leader.eventually("it goes on", func() bool { return leader.service.Ready() == nil })
}
