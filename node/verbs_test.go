package node

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What a test may do to a cluster, beside start (startCluster, startJoined), stop, crash and restart; leader waits for
// one, sameState and account are what every scenario ends on.

// partition lets raft talk only inside of each group. HTTP is not cut: link.hung and crash do that.
func (c *cluster) partition(groups ...[]*member) {
	in := map[*member]int{}
	for i, g := range groups {
		for _, m := range g {
			in[m] = i
		}
	}
	for a := range in {
		cut := map[string]bool{}
		for b := range in {
			if in[a] != in[b] {
				cut[b.id()] = true
			}
		}
		a.link.mu.Lock()
		a.link.cut = cut
		a.link.mu.Unlock()
	}
}

func (c *cluster) heal() {
	for _, m := range c.members {
		m.link.mu.Lock()
		m.link.cut = nil
		m.link.mu.Unlock()
		m.link.noRaft.Store(false)
		m.link.hung.Store(false)
	}
}

// pause is SIGSTOP as far as others, the disk and the worker can tell.
func (m *member) pause()  { m.link.paused.Store(true) }
func (m *member) resume() { m.link.paused.Store(false) }

// skew sets a node's clock wrong.
func (m *member) skew(d time.Duration) { m.clock.shift.Store(int64(d)) }

// slowDisk is a disk on which writes to the log take their time.
type slowDisk struct {
	l     *link
	delay atomic.Int64
	hangs atomic.Pointer[chan struct{}] // they wait until it is closed
}

// hang makes every write to the log wait until the returned function is called.
func (d *slowDisk) hang() (over func()) {
	c := make(chan struct{})
	d.hangs.Store(&c)
	return sync.OnceFunc(func() {
		d.hangs.Store(nil)
		close(c)
	})
}

func (d *slowDisk) write(file string) error {
	if file == "log" {
		d.l.wait()
		if c := d.hangs.Load(); c != nil {
			<-*c
		}
		time.Sleep(time.Duration(d.delay.Load()))
	}
	return nil
}

// TestVerbs uses each verb once, and shows what it does.
func TestVerbs(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	name := 0
	spec := func() map[string]any {
		name++
		return map[string]any{"name": "j" + string(rune('a'+name)), "type": "queue", "schedule": "@manual",
			"payload": map[string]any{"queue": "q"}}
	}
	first := c.leader()
	rest := c.others(first)

	// Partition: the two elect one of them, the one commits nothing. Healed, all have the same.
	c.partition([]*member{first}, rest)
	rest[0].eventually("the majority has a leader", func() bool {
		return rest[0].tracker.Epoch() != nil || rest[1].tracker.Epoch() != nil
	})
	first.eventually("the minority has none", func() bool { return first.tracker.Epoch() == nil })
	rest[0].create(spec())
	c.heal()
	first.eventually("it follows", func() bool { return first.service.Ready() == nil })
	c.sameState()

	// Pause: the others go on without it, and it catches up.
	asleep := c.leader()
	asleep.pause()
	rest = c.others(asleep)
	rest[0].eventually("another node leads", func() bool {
		return rest[0].tracker.Epoch() != nil || rest[1].tracker.Epoch() != nil
	})
	rest[0].create(spec())
	asleep.resume()
	asleep.eventually("it follows", func() bool {
		return asleep.tracker.Epoch() == nil &&
			asleep.service.Ready() == nil
	})
	c.sameState()

	// Slow disk: of a follower, and then of a majority, which is what a write waits for.
	lead := c.leader()
	const slow = 100 * time.Millisecond // well below a heartbeat: no node is to lose the leader over it
	for i, m := range c.members {
		m.slow.delay.Store(int64(slow))
		if i == 0 {
			c.leader().create(spec())
		}
	}
	begin := time.Now()
	lead.create(spec())
	if took := time.Since(begin); took < slow {
		t.Errorf("a write took %s with every disk slow", took)
	}
	for _, m := range c.members {
		m.slow.delay.Store(0)
	}
	c.sameState()

	// Skew: a leader whose clock the others do not share holds.
	lead = c.leader()
	for _, m := range c.others(lead) {
		m.skew(time.Minute)
	}
	lead.eventually("it holds", func() bool {
		err := lead.service.Ready()
		return err != nil && strings.Contains(err.Error(), "differs by")
	})
	for _, m := range c.others(lead) {
		m.skew(0)
	}
	c.leader()

	// Stop, crash, restart.
	m := c.others(c.leader())[0]
	m.stop()
	m.restart()
	m = c.leader()
	m.crash()
	m.stop()
	m.restart()
	c.leader().create(spec())
	c.sameState()
}

// A node that raft cannot reach, and HTTP can: its worker asks the others who leads, and goes on to work. One that was
// removed does not.
func TestWorkerOfACutOffNode(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3, func(cfg *Config) {
		cfg.Tags = map[string]string{"node": cfg.NodeID}
		cfg.Raft.Heartbeat = time.Second // with one cut off, the other two should not lose each other on a busy machine
	})
	tg := newTarget(t)
	c.awaitWorkers(3)
	lead := c.leader()
	m := c.others(lead)[0]
	m.link.noRaft.Store(true)
	m.eventually("raft names no leader", func() bool { return m.tracker.Leader().ID == "" })
	lead.create(tg.spec("there", "@every 1s", "workers", map[string]string{"node": m.id()}))
	c.fires("there")
	c.fires("there")
	if m.tracker.Leader().ID != "" {
		t.Error("raft was not cut off")
	}
	if r := c.leader().runs("there"); r[len(r)-1].Worker != m.id() {
		t.Errorf("it ran on %s", r[len(r)-1].Worker)
	}
	c.heal()
	m.eventually("it follows", func() bool { return m.service.Ready() == nil })
	c.fires("there")

	m.link.noRaft.Store(true) // so that it does not hear it from raft
	m.eventually("it is removed", func() bool { return c.op("remove", m.id()).status == 204 })
	m.eventually("it knows that it was removed", m.members.Removed)
	m.eventually("its worker is gone", func() bool {
		e := c.leader().tracker.Epoch()
		if e == nil {
			return false
		}
		for _, w := range e.Scheduler.Workers() {
			if w.Worker == m.id() && time.Since(w.LastHeard) < time.Second {
				return false
			}
		}
		return true
	})
	c.leader().call("DELETE", "/api/v1/jobs/there", nil)
	c.sameState()
}
