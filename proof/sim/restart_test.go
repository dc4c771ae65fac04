package sim

import (
	"testing"
	"testing/synctest"
	"time"
)

// withCluster runs three nodes with the timing of a real cluster and jobs that fire every few seconds.
func withCluster(t *testing.T, l *logs, do func(*testing.T, *cluster)) {
	p, dir := directedPlan("planned", 1), scratch(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(p, dir, l)
		defer c.down()
		if !c.up() {
			t.Fatal(c.problems)
		}
		for _, pc := range p.calls {
			if pc.kind == "create" {
				c.do(pc)
			}
		}
		do(t, c)
	})
}

// TestRestartedFollower: a follower that was down gets the entries that it missed as soon as it is back. Raft by itself
// would try again only after a pause that grows with every request that failed meanwhile, up to ten seconds.
func TestRestartedFollower(t *testing.T) {
	for _, down := range []time.Duration{5 * time.Second, 30 * time.Second, 3 * time.Minute} {
		t.Run(down.String(), func(t *testing.T) {
			if testing.Short() && down > time.Minute {
				t.Skip("takes long")
			}
			t.Parallel()
			withCluster(t, &logs{}, func(t *testing.T, c *cluster) {
				for i := range 4 {
					lead := c.leader()
					s := c.servers[(lead+1+i%2)%len(c.servers)]
					s.kill()
					time.Sleep(down)
					s.start()
					back, want := time.Now(), c.servers[lead].current().n.State().Counters().Index
					for s.current().n.State().Counters().Index < want {
						time.Sleep(10 * time.Millisecond)
					}
					took := time.Since(back)
					t.Logf("%s had entry %d after %s", s.id, want, took)
					if took > c.o.raft.Heartbeat {
						t.Errorf("%s was back for %s before it had what it missed", s.id, took)
					}
				}
			})
		})
	}
}

// TestStopWhilePeerIsDown: a leader that is stopped waits for no entry on its way to a node that is down.
func TestStopWhilePeerIsDown(t *testing.T) {
	withCluster(t, &logs{}, func(t *testing.T, c *cluster) {
		lead := c.leader()
		s := c.servers[(lead+1)%len(c.servers)]
		s.kill()
		time.Sleep(10 * time.Second)
		began := time.Now()
		c.servers[lead].stop()
		took := time.Since(began)
		t.Logf("stopped after %s", took)
		if took > 15*time.Second {
			t.Errorf("the leader stopped only after %s", took)
		}
		s.start()
		c.servers[lead].start()
	})
}
