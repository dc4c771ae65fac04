package formation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// world is addresses with processes. Several may have been started for one address (a directory that was lost, a second
// machine that took the name over); who answers there is as the asker happens to find it.
type world struct {
	asking sync.Mutex // a node asks all others at once
	rng    *rand.Rand
	procs  []*proc
	log    []string
}

// proc is a process with its data directory. What is on the disk survives its death.
type proc struct {
	w      *world
	addr   string
	node   store.Node
	list   []string
	disk   datadir.ClusterIdentity
	memory datadir.ClusterIdentity
	f      *Former
	up     bool
	dies   bool // at the next write, after or before it
	booted []raft.Server
	said   string
	stands error
}

var errDied = errors.New("the process died")

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) start(addr string, list []string) *proc {
	host := addr[:1]
	p := &proc{w: w, addr: addr, list: list,
		node: store.Node{ID: "n" + host, Instance: fmt.Sprintf("%s%d", host, len(w.procs)), Address: addr}}
	w.procs = append(w.procs, p)
	p.run()
	return p
}

func (p *proc) run() {
	p.memory, p.up, p.dies = clone(p.disk), true, false
	if f := p.memory.Formation; p.memory.ClusterID != "" && f != nil && len(f.Members) > 0 && p.booted == nil {
		p.booted = Servers(f.Members) // as a node does before raft runs
	}
	f, err := New(Options{List: p.list, Advertise: p.addr, Members: p, Pace: func(d time.Duration) time.Duration { return d },
		Logger: slog.New(slog.DiscardHandler), NewCluster: func() (string, store.Token, error) {
			return "cluster-of-" + p.node.Instance, store.Token{}, nil
		}, Bootstrap: func(s []raft.Server) error {
			if p.dies && p.w.rng.IntN(2) == 0 {
				p.kill()
				return errDied
			}
			p.booted = s
			return nil
		}})
	if err != nil {
		panic(err)
	}
	p.f = f
}

func (p *proc) kill() {
	p.up = false
	p.w.note("%s dies", p.node.Instance)
}

func (p *proc) Introduce() store.Node             { return p.node }
func (p *proc) Cluster() lineage.Cluster          { return p.memory.Cluster() }
func (p *proc) Identity() datadir.ClusterIdentity { return p.memory }
func (p *proc) SaveIdentity(change func(*datadir.ClusterIdentity), then func() error) error {
	h := clone(p.memory)
	change(&h)
	if p.dies && p.w.rng.IntN(2) == 0 {
		p.kill()
		return errDied
	}
	p.disk = clone(h)
	if p.dies && p.w.rng.IntN(2) == 0 {
		p.kill()
		return errDied
	}
	if then != nil {
		if err := then(); err != nil {
			return err
		}
	}
	p.memory = h
	if h.ClusterID != "" {
		p.w.note("%s belongs to %s", p.node.Instance, h.ClusterID)
	} else {
		p.w.note("%s promises %v", p.node.Instance, h.Formation.Ballot)
	}
	return nil
}
func (p *proc) Ask(context.Context, []string) error { return errors.New("not taken in") }
func (p *proc) Alone() bool                         { return len(p.booted) == 1 }
func (p *proc) Waits(text, _ string)                { p.said = text }
func (p *proc) StandStill(err *job.Error)           { p.stands = err }
func (p *proc) Mentions(text, _ string)             { p.said = text }

// Get asks a process at an address, any of those that run there.
func (p *proc) Get(_ context.Context, addr, _ string, out any) error {
	p.w.asking.Lock()
	defer p.w.asking.Unlock()
	var there []*proc
	for _, q := range p.w.procs {
		if q.up && q.addr == addr {
			there = append(there, q)
		}
	}
	if len(there) == 0 || p.w.rng.IntN(10) == 0 {
		return errors.New("no answer")
	}
	data, err := json.Marshal(there[p.w.rng.IntN(len(there))].f.State())
	if err != nil {
		return err
	}
	return json.Unmarshal(data, out)
}

func clone(c datadir.ClusterIdentity) (out datadir.ClusterIdentity) {
	data, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

// alive are the clusters that can commit something: a majority of those that each was founded with belong to it, or did
// until their directories were lost.
func (w *world) alive() (ids []string) {
	have := map[string]map[string]bool{}
	size := map[string]int{}
	for _, p := range w.procs {
		if f := p.disk.Formation; p.disk.ClusterID != "" && f != nil && p.booted != nil {
			if have[p.disk.ClusterID] == nil {
				have[p.disk.ClusterID] = map[string]bool{}
			}
			have[p.disk.ClusterID][p.node.Instance] = true
			size[p.disk.ClusterID] = len(f.Members)
		}
	}
	for id, who := range have {
		if len(who) > size[id]/2 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Whatever the order in which nodes are started and die, however often one of them loses its directory or is started a
// second time at the same address, and whoever has another list: the nodes of a list form at most one cluster that can
// commit anything. Without faults from some moment on, they form one, unless somebody has to do something, and then they
// say what.
func TestRandomSchedules(t *testing.T) {
	schedules, first := 200, uint64(1)
	if s := os.Getenv("CARILLON_SCHEDULES"); s != "" {
		schedules, _ = strconv.Atoi(s)
	}
	formedAtAll, refused, tookOver, stuck := 0, 0, 0, 0
	for seed := first; seed < first+uint64(schedules); seed++ {
		w := &world{rng: rand.New(rand.NewPCG(seed, 1))}
		calm := w.rng.IntN(4) == 0
		wrong := w.rng.IntN(6) == 0
		unlucky := abc[w.rng.IntN(3)] // a minority may lose directories; a majority that forgot cannot be protected
		listOf := func(addr string) []string {
			if wrong && addr == "c:1" {
				return []string{"a:1", "c:1"}
			}
			return abc
		}
		check := func() {
			if ids := w.alive(); len(ids) > 1 {
				t.Fatalf("seed %d: two clusters, %v\n%s", seed, ids, fmt.Sprint(w.log))
			}
		}
		for range 60 + w.rng.IntN(60) {
			addr := abc[w.rng.IntN(3)]
			var mine []*proc // processes, with their directories, of the address
			for _, p := range w.procs {
				if p.addr == addr {
					mine = append(mine, p)
				}
			}
			switch n := w.rng.IntN(20); {
			case len(mine) == 0:
				w.start(addr, listOf(addr))
			case n == 0 && !calm && addr == unlucky: // its directory is lost
				mine[len(mine)-1].kill()
				w.start(addr, listOf(addr))
			case n == 1 && !calm && addr == unlucky && len(mine) < 4: // the same again, while the first one may go on
				w.start(addr, listOf(addr))
			case n == 2 && !calm:
				mine[w.rng.IntN(len(mine))].dies = true
			case n == 3 && !calm:
				mine[w.rng.IntN(len(mine))].kill()
			default:
				p := mine[w.rng.IntN(len(mine))]
				if !p.up {
					p.run()
				}
				if p.memory.ClusterID == "" {
					if _, err := p.f.step(t.Context()); err != nil && !errors.Is(err, errDied) {
						t.Fatal(err)
					}
				}
			}
			check()
		}
		// From now on the last process of each address runs, and nothing happens to it.
		last := map[string]*proc{}
		for _, addr := range abc {
			if !slices.ContainsFunc(w.procs, func(p *proc) bool { return p.addr == addr }) {
				w.start(addr, listOf(addr))
			}
		}
		for _, p := range w.procs {
			if last[p.addr] != nil {
				last[p.addr].up = false
			}
			last[p.addr] = p
			p.dies = false
		}
		for range 200 {
			p := last[abc[w.rng.IntN(3)]]
			if !p.up {
				p.run()
			}
			if p.memory.ClusterID == "" {
				if _, err := p.f.step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			check()
		}
		ids := map[string]int{}
		for _, p := range last {
			ids[p.memory.ClusterID]++
			if p.memory.ClusterID == "" && p.said == "" {
				t.Errorf("seed %d: %s says nothing", seed, p.node.Instance)
			}
		}
		switch {
		case wrong && len(w.alive()) > 0:
			t.Errorf("seed %d: formed in spite of another list\n%v", seed, w.log)
		case len(ids) == 1 && ids[""] == 0:
			formedAtAll++
			if len(w.procs) > 3 {
				tookOver++
			}
		case calm && !wrong:
			t.Errorf("seed %d: not formed: %v\n%v", seed, ids, w.log)
		default:
			refused++
			if !wrong && len(w.alive()) == 0 {
				stuck++
			}
		}
	}
	t.Logf("%d schedules: %d formed one cluster (%d after a directory was lost), %d did not and said why, %d of these "+
		"without a cluster in spite of one list", schedules, formedAtAll, tookOver, refused, stuck)
	if formedAtAll < schedules/8 || tookOver == 0 || refused == 0 {
		t.Error("they are not of all kinds")
	}
}

// A node that is alone in its cluster stands still beside another one; one with further members goes on, and says so.
func TestLook(t *testing.T) {
	for size := 1; size <= 3; size++ {
		w := &world{rng: rand.New(rand.NewPCG(1, 100))}
		other, p := w.start("b:1", abc), w.start("a:1", abc)
		other.memory.ClusterID, p.memory.ClusterID = "theirs", "ours"
		p.booted = make([]raft.Server, size)
		for range 20 { // some questions are not answered
			if p.f.Look(t.Context()); p.said != "" || p.stands != nil {
				break
			}
		}
		if alone := size == 1; (p.stands != nil) != alone || (p.said == "") != alone {
			t.Errorf("of %d: %v, %q", size, p.stands, p.said)
		}
		other.memory.ClusterID = "ours"
		if p.f.Look(t.Context()); p.said != "" {
			t.Errorf("of %d: %q", size, p.said)
		}
	}
}
