package node

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/node/datadir"
)

// flipped changes one bit of a file: of a bbolt file, in a page that is in use.
func flipped(t *testing.T, path string, rng *rand.Rand) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at, what := rng.IntN(len(data)), "file"
	if strings.HasSuffix(path, ".db") {
		db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true})
		if err != nil {
			t.Fatal(err)
		}
		size := db.Info().PageSize
		err = db.View(func(tx *bolt.Tx) error {
			for {
				info, err := tx.Page(rng.IntN(len(data) / size))
				if err != nil {
					return err
				}
				if info == nil || info.Type == "free" || strings.HasPrefix(info.Type, "unknown") {
					continue
				}
				if at, what = info.ID*size+rng.IntN(size), info.Type; rng.IntN(4) == 0 {
					at = info.ID*size + rng.IntN(64) // the header of the page, or of the file
				}
				return nil
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	data[at] ^= 1 << rng.IntN(8)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return what
}

// Single bits are changed in what a node has on its disk while it is stopped. Whichever it is, the node finds out: when
// it starts, when it reads its log, or when the state is compared; or the bit is one that nobody reads, and its state is
// that of the others. It leads before the states are compared in half of the cases. Nothing is lost.
func TestFlippedBitsAreFound(t *testing.T) {
	realTime(t)
	flips := 12
	if long {
		flips = 200
	}
	var fatal atomic.Bool
	c := startJoined(t, 3, func(c *Config) { c.Fatal = func(error) { fatal.Store(true) } })
	const jobs = 300
	for i := range jobs {
		c.leader().create(map[string]any{"name": fmt.Sprintf("job-%03d", i), "type": "queue", "schedule": "@manual",
			"payload": map[string]any{"queue": "q", "data": strings.Repeat(fmt.Sprint(i, " "), i%60)}})
		if i == jobs*2/3 { // the rest is in the log only
			for _, m := range c.members {
				if err := m.group.raft.Snapshot().Error(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	found := map[string]int{}
	for i := range flips {
		victim := c.members[rng.IntN(3)]
		others := &cluster{t: t, members: c.others(victim)}
		for _, m := range c.members {
			m.eventually("it has all jobs", func() bool { return int(m.group.store.Counters().Jobs) == jobs })
		}
		halt := func() {
			victim.cancel()
			<-victim.done
		}
		halt()
		good := filepath.Join(t.TempDir(), "good")
		copyDir(t, victim.cfg.DataDir, good)
		file := []string{datadir.StateFile, datadir.StateFile, datadir.LogFile, datadir.SnapshotsDir + "/snapshot.json"}[i%4]
		where := flipped(t, filepath.Join(victim.cfg.DataDir, file), rng)
		by := ""
		victim.link = &link{}
		fatal.Store(false)
		if err := victim.tryOpen(t); err != nil {
			by = "refused at the start"
		} else {
			stopped := func() bool { return victim.group.standing.Why() != nil || fatal.Load() }
			victim.eventually("it follows, or has stopped", func() bool {
				return stopped() || victim.service.Ready() == nil
			})
			switch {
			case stopped():
				by = "checksum"
			case i%8 >= 4:
				others.leader().call("POST", "/api/v1/cluster:transfer", map[string]any{"node_id": victim.id()})
			}
			if by == "" {
				victim.eventually("the state is compared, or it has stopped", func() bool {
					return stopped() || comparedTwice(c, victim, stopped)
				})
				if stopped() {
					by = "comparison"
				} else {
					by = "harmless"
					sound(t, victim, others)
				}
			}
			halt()
		}
		found[fmt.Sprintf("%-28s %-8s %s", file, where, by)]++
		if err := os.RemoveAll(victim.cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		copyDir(t, good, victim.cfg.DataDir)
		victim.link = &link{}
		victim.open(t)
		for _, m := range others.members {
			if why := m.group.standing.Why(); why != nil {
				t.Fatalf("%s, which nothing was done to, stopped: %+v", m.id(), why)
			}
		}
		others.leader()
	}
	for _, k := range slices.Sorted(maps.Keys(found)) {
		t.Logf("%4d %s", found[k], k)
	}
}

// comparedTwice says that one leader has had the whole state compared twice: what the first pass found is in the log
// before the second one begins.
func comparedTwice(c *cluster, m *member, stopped func() bool) bool {
	lead, ok := c.leading()
	if !ok {
		return false
	}
	term := lead.group.raft.CurrentTerm()
	for range 2 {
		lead.group.scrub.Start()
		m.eventually("a pass ends", func() bool {
			return stopped() || lead.group.scrub.Asked().Done || !lead.leads()
		})
		a := lead.group.scrub.Asked()
		if len(a.Missing) > 0 || len(a.Differ) > 0 { // one did not answer in time, or is about to stop
			return false
		}
	}
	return lead.leads() && lead.group.raft.CurrentTerm() == term
}

// leading is the node that leads, if one does.
func (c *cluster) leading() (*member, bool) {
	for _, m := range c.members {
		if m.leads() {
			return m, true
		}
	}
	return nil, false
}

// sound holds the state of a node, at an entry that they all have, against that of another one.
func sound(t *testing.T, m *member, others *cluster) {
	t.Helper()
	m.eventually("its state is that of the others", func() bool {
		mine, err := m.group.store.DigestContent()
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := others.members[0].group.store.DigestContent()
		if err != nil {
			t.Fatal(err)
		}
		return mine == theirs
	})
	problems, _, err := m.group.store.Check()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
