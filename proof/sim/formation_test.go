package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestFormationSchedules has real nodes form a cluster from one list in virtual time, by random schedules: in any order,
// together, one late, one killed while it forms, one that lost its directory, one with another list. There is never more
// than one cluster; without a wrong list there is one in the end, of which a node that lost its directory is told what to
// do. CARILLON_SCHEDULES says how many.
func TestFormationSchedules(t *testing.T) {
	schedules := 8
	if testing.Short() {
		schedules = 2
	}
	if s := os.Getenv("CARILLON_SCHEDULES"); s != "" {
		schedules, _ = strconv.Atoi(s)
	}
	for seed := range uint64(schedules) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			p, dir := directedPlan("planned", seed+1), scratch(t)
			rng := rand.New(rand.NewPCG(seed, 77))
			synctest.Test(t, func(t *testing.T) { formationSchedule(t, newCluster(p, dir, &logs{}), rng) })
		})
	}
}

func formationSchedule(t *testing.T, c *cluster, rng *rand.Rand) {
	defer c.down()
	c.forms = map[string][]string{}
	var list []string
	for _, s := range c.servers {
		list = append(list, s.host.Addr)
	}
	for _, s := range c.servers {
		c.forms[s.id] = list
	}
	kind := rng.IntN(5) // 0: nothing happens
	victim := c.servers[rng.IntN(len(c.servers))]
	if kind == 4 {
		c.forms[victim.id] = list[:2]
		if victim == c.servers[2] {
			c.forms[victim.id] = list[1:]
		}
	}
	ids := map[string]bool{}
	look := func() {
		t.Helper()
		for _, s := range c.servers {
			if l := s.current(); l != nil && !l.gone() {
				if id := l.n.State().Info().ClusterID; id != "" {
					ids[id] = true
				}
			}
		}
		if len(ids) > 1 {
			t.Fatalf("clusters %v", ids)
		}
	}
	pass := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			look()
		}
	}
	order := rng.Perm(len(c.servers))
	together := rng.IntN(2) == 0
	for i, n := range order {
		c.servers[n].start()
		switch {
		case i == 1 && rng.IntN(4) == 0:
			pass(time.Minute) // the last one is late
		case !together:
			pass(between(rng, 0, 2*time.Second))
		}
	}
	pass(between(rng, 0, 1500*time.Millisecond))
	switch kind {
	case 1, 2, 3: // it is killed, perhaps in the middle, and comes back; with its directory, or without
		if !victim.kill() {
			t.Fatalf("%s was not there", victim.id)
		}
		pass(between(rng, 0, 3*time.Second))
		if kind > 1 {
			if err := os.RemoveAll(victim.dir); err != nil {
				t.Fatal(err)
			}
		}
		victim.start()
	}
	pass(20 * time.Second)
	part := 0
	for _, s := range c.servers {
		l := s.current()
		id, err := l.n.State().Info().ClusterID, l.n.Ready()
		t.Logf("%s: cluster %q: %v", s.id, id, err)
		if err == nil && id != "" {
			part++
		} else if err == nil {
			t.Errorf("%s is ready without a cluster", s.id)
		}
	}
	switch {
	case kind == 4 && part != 0:
		t.Error("nodes with different lists form a cluster")
	case kind <= 1 && part != 3, kind > 1 && kind < 4 && part < 2:
		t.Errorf("schedule of kind %d: %d nodes are part of a cluster", kind, part)
	}
}
