package linear

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

func op(id int, call, end int64, in Input, out Output) porcupine.Operation {
	return porcupine.Operation{ClientId: id, Call: call, Return: end, Input: in, Output: out}
}

// TestModel shows the model histories that one map of jobs can and cannot have made.
func TestModel(t *testing.T) {
	create := Input{Kind: Create, Name: "a", Value: "x"}
	read := Input{Kind: Read, Name: "a"}
	update := Input{Kind: Update, Name: "a", Value: "y", Version: 1}
	one, two := State{Exists: true, Version: 1, Value: "x"}, State{Exists: true, Version: 2, Value: "y"}
	paused := one
	paused.Paused = true
	cases := []struct {
		name string
		ops  []porcupine.Operation
		want bool
	}{
		{"one after the other",
			[]porcupine.Operation{op(0, 1, 2, create, Output{}), op(0, 3, 4, update, Output{}),
				op(0, 5, 6, read, Output{Job: two})}, true},
		{"a stale read", []porcupine.Operation{op(0, 1, 2, create, Output{}), op(0, 3, 4, update, Output{}),
			op(1, 5, 6, read, Output{Job: one})}, false},
		{"at the same time it is not stale",
			[]porcupine.Operation{op(0, 1, 2, create, Output{}), op(0, 3, 6, update, Output{}),
				op(1, 4, 5, read, Output{Job: one})}, true},
		{"reads that go back",
			[]porcupine.Operation{op(0, 1, 2, create, Output{}), op(0, 3, 9, update, Output{}),
				op(1, 4, 5, read, Output{Job: two}), op(1, 6, 7, read, Output{Job: one})}, false},
		{"two updates of one version",
			[]porcupine.Operation{op(0, 1, 2, create, Output{}), op(0, 3, 6, update, Output{}), op(1, 3, 6, update, Output{})},
			false},
		{"and one of them refused",
			[]porcupine.Operation{op(0, 1, 2, create, Output{}), op(0, 3, 6, update, Output{}),
				op(1, 3, 6, update, Output{Answer: Conflict})}, true},
		{"two creates of one name", []porcupine.Operation{op(0, 1, 5, create, Output{}), op(1, 1, 5, create, Output{})},
			false},
		{"not found after it was created",
			[]porcupine.Operation{op(0, 1, 2, create, Output{}), op(1, 3, 4, read, Output{Answer: NotFound})}, false},
		{"deleted", []porcupine.Operation{op(0, 1, 2, create, Output{}),
			op(0, 3, 4, Input{Kind: Delete, Name: "a"}, Output{}), op(1, 5, 6, read, Output{Answer: NotFound})}, true},
		{"read after its delete",
			[]porcupine.Operation{op(0, 1, 2, create, Output{}), op(0, 3, 4, Input{Kind: Delete, Name: "a"}, Output{}),
				op(1, 5, 6, read, Output{Job: one})}, false},
		{"a lost pause", []porcupine.Operation{op(0, 1, 2, create, Output{}),
			op(0, 3, 4, Input{Kind: Pause, Name: "a"}, Output{}), op(1, 5, 6, read, Output{Job: one})}, false},
		{"a pause", []porcupine.Operation{op(0, 1, 2, create, Output{}),
			op(0, 3, 4, Input{Kind: Pause, Name: "a"}, Output{}), op(1, 5, 6, read, Output{Job: paused})}, true},
		{"an update without an answer happens late",
			[]porcupine.Operation{op(0, 1, 2, create, Output{}), op(0, 3, never, update, Output{Answer: Unknown}),
				op(1, 4, 5, read, Output{Job: one}), op(1, 6, 7, read, Output{Job: two})}, true},
		{"or never", []porcupine.Operation{op(0, 1, 2, create, Output{}), op(0, 3, never, update, Output{Answer: Unknown}),
			op(1, 4, 5, read, Output{Job: one})}, true},
		{"but not before it was sent",
			[]porcupine.Operation{op(0, 1, 2, create, Output{}), op(1, 3, 4, read, Output{Job: two}),
				op(0, 5, never, update, Output{Answer: Unknown})}, false},
		{"and not twice", []porcupine.Operation{op(0, 1, 2, create, Output{}),
			op(0, 3, never, update, Output{Answer: Unknown}), op(1, 4, 5, read, Output{Job: two}),
			op(1, 6, 7, read, Output{Job: one})}, false},
		{"names are apart", []porcupine.Operation{op(0, 1, 2, create, Output{}),
			op(1, 3, 4, Input{Kind: Read, Name: "b"}, Output{Answer: NotFound})}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := porcupine.CheckOperations(Model, c.ops); got != c.want {
				t.Errorf("linearizable: %v, want %v", got, c.want)
			}
		})
	}
}

// clients are one for each node, without retries: one call is one call.
func clients(c *harness.Cluster, opts ...client.Option) []*client.Client {
	var out []*client.Client
	for _, n := range c.Nodes {
		hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		out = append(out, client.New(n.Addr,
			append([]client.Option{client.WithHTTPClient(hc), client.WithAttempts(1), client.WithTimeout(0)}, opts...)...))
	}
	return out
}

// judge asks porcupine, and keeps the picture of a history that it refuses.
func judge(t *testing.T, h *History) {
	t.Helper()
	ops, unknown := h.Operations()
	began := time.Now()
	res, info := porcupine.CheckOperationsVerbose(Model, ops, 2*time.Minute)
	t.Logf("%d calls, %d of them without an answer: %s in %s", len(ops), unknown, res,
		time.Since(began).Round(time.Millisecond))
	if res == porcupine.Ok {
		return
	}
	path := filepath.Join(os.TempDir(), "carillon-linear.html")
	if err := porcupine.VisualizePath(Model, info, path); err == nil {
		t.Logf("a picture of it is in %s", path)
	}
	t.Errorf("the history is not linearizable (%s)", res)
}

// storm is a cluster that clients are let loose on, and what is done to it.
type storm struct {
	t     *testing.T
	c     *harness.Cluster
	net   *harness.Net // nil: no node can be cut off here
	h     *History
	rng   *rand.Rand
	nodes []*client.Client
	began time.Time
	done  map[string]int
}

// names are those of the moment: new ones now and then, so that no history of one grows long.
func (s *storm) names() []string {
	epoch := time.Since(s.began) / (700 * time.Millisecond)
	var out []string
	for k := range 3 {
		out = append(out, fmt.Sprintf("job-%d-%d", epoch, k))
	}
	return append(out, fmt.Sprintf("job-%d-0", max(epoch-1, 0)))
}

func (s *storm) upTo(d time.Duration) time.Duration { return time.Duration(s.rng.Int64N(int64(d))) }

func (s *storm) kill(leader *harness.Node) {
	leader.Kill("round")
	time.Sleep(s.upTo(700 * time.Millisecond))
	leader.Start()
}

// readers ask one node for nothing but reads until they are stopped.
func (s *storm) readers(n *harness.Node) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	seed := s.rng.Uint64()
	wg.Go(func() { s.h.Reader(ctx, seed, s.nodes[slices.Index(s.c.Nodes, n)], s.names) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// pause: it wakes up and believes that it still leads, the moment at which a read may be stale. There are reads in its
// sockets then.
func (s *storm) pause(leader *harness.Node) {
	stop := s.readers(leader)
	leader.Pause("round", 800*time.Millisecond+s.upTo(1200*time.Millisecond))
	stop()
}

func (s *storm) transfer(leader *harness.Node) {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	if err := leader.Client.TransferLeadership(ctx, ""); err != nil {
		s.t.Logf("transfer: %v", err)
	}
}

// cut cuts a node off, both ways or one way, while clients go on asking it, too, and some ask no other. Reads there
// must fail or be right.
func (s *storm) cut(n *harness.Node, asleep bool) {
	me := slices.Index(s.c.Nodes, n)
	way := s.rng.IntN(4) // 2 and 3: both ways
	if asleep {
		way = 2
	}
	stop := s.readers(n)
	s.h.CutOff(s.nodes[me])
	if asleep {
		// It sleeps through its own cut and wakes up in the dark, with answers from before in its sockets.
		woken, sleep := make(chan struct{}), time.Second+s.upTo(time.Second)
		go func() {
			n.Pause("round", sleep)
			close(woken)
		}()
		time.Sleep(100 * time.Millisecond)
		s.net.Isolate(me, true, true)
		<-woken
	} else {
		s.net.Isolate(me, way != 1, way != 0)
	}
	time.Sleep(700*time.Millisecond + s.upTo(1500*time.Millisecond))
	s.h.CutOff()
	s.net.Heal()
	time.Sleep(200 * time.Millisecond) // the last of them find it healed
	stop()
}

func (s *storm) cutLeader(leader *harness.Node) { s.cut(leader, false) }

func (s *storm) cutFollower(leader *harness.Node) {
	others := s.c.Others(leader)
	s.cut(others[s.rng.IntN(len(others))], false)
}

func (s *storm) cutAsleep(leader *harness.Node) { s.cut(leader, true) }

// apart cuts all three off from each other for a moment: there is no leader, and every side is asked.
func (s *storm) apart(*harness.Node) {
	s.h.CutOff(s.nodes...)
	for i := range s.nodes {
		s.net.Isolate(i, true, true)
	}
	time.Sleep(300*time.Millisecond + s.upTo(1200*time.Millisecond))
	s.h.CutOff()
	s.net.Heal()
}

// TestJobsAreLinearizable lets clients loose on three processes while their leader is killed, stands still and hands
// over, and while it, a follower or everybody is cut off from the others.
func TestJobsAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("needs three processes")
	}
	seed := harness.Seed(t)
	net, why := harness.TryNet(t, 3)
	place := func(int, *harness.Node) {}
	if net != nil {
		place = net.Place
	}
	s := &storm{t: t, net: net, h: NewHistory(), rng: rand.New(rand.NewPCG(seed, 1)), done: map[string]int{}}
	type fault struct {
		name string
		do   func(leader *harness.Node)
	}
	faults := []fault{{"kill", s.kill}, {"pause", s.pause}, {"transfer", s.transfer}}
	if net != nil {
		faults = append(faults, fault{"leader cut off", s.cutLeader}, fault{"follower cut off", s.cutFollower})
	}
	rounds, clientsN := len(faults), 4
	if harness.Long() {
		rounds, clientsN = 32, 8
		if net != nil {
			faults = append(faults, fault{"leader cut off asleep", s.cutAsleep}, fault{"everybody cut off", s.apart})
		}
	}
	if harness.Longest() {
		rounds = 120
	}
	s.c = harness.NewClusterAt(t, harness.Build(t), 3, place)
	s.c.Leader()
	s.nodes, s.began = clients(s.c), time.Now()
	h := s.h
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for i := range clientsN {
		wg.Go(func() { h.Client(ctx, seed+uint64(i), s.nodes, s.names) })
	}
	for r := range rounds {
		n := h.Count()
		harness.Eventually(t, time.Minute, "calls go on", func() bool { return h.Count() > n+30 })
		leader := s.c.Leader()
		f := faults[r%len(faults)]
		f.do(leader)
		s.done[f.name]++
		t.Logf("%s: round %d, %d calls, %s led: %s", time.Since(s.began).Round(time.Millisecond), r, h.Count(), leader.ID,
			f.name)
	}
	n := h.Count()
	harness.Eventually(t, time.Minute, "calls go on", func() bool { return h.Count() > n+30 })
	cancel()
	wg.Wait()
	judge(t, h)
	ops, _ := h.Operations()
	var done [6]int
	for _, o := range ops {
		if o.Output.(Output).Answer == Done {
			done[o.Input.(Input).Kind]++
		}
	}
	for k, n := range done {
		if n == 0 {
			t.Errorf("not one %s succeeded", Kind(k))
		}
	}
	a := h.CutOffCalls()
	t.Logf("seed %d: %v; nodes that were cut off were asked for %d reads, of which %d were answered, and %d writes", seed,
		s.done, a.Reads, a.Answered, a.Writes)
	t.Run("partitions", func(t *testing.T) {
		if net == nil {
			t.Skip(why)
		}
		if a.Reads == 0 || a.Writes == 0 {
			t.Error("no client asked a node that was cut off")
		}
	})
}

// TestStaleReadsAreFound reads with ?stale=true from followers right after updates: such a history must be refused, or
// the model would accept anything.
func TestStaleReadsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("needs three processes")
	}
	c := harness.NewCluster(t, harness.Build(t), 3)
	leader := c.Leader()
	stale := clients(c, client.WithStale())
	fresh := clients(c)
	h := NewHistory()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	h.Do(ctx, 0, leader.Client, Input{Kind: Create, Name: "a", Value: "0"})
	for v := uint64(1); ctx.Err() == nil && v < 200; v++ {
		if _, ok := h.Do(ctx, 0, leader.Client, Input{Kind: Update, Name: "a", Value: fmt.Sprint(v), Version: v}); !ok {
			t.Fatal("an update was not answered")
		}
		for i, n := range c.Nodes {
			if n == leader {
				continue
			}
			h.Do(ctx, 1, stale[i], Input{Kind: Read, Name: "a"})
		}
		ops, _ := h.Operations()
		if !porcupine.CheckOperations(Model, ops) {
			t.Logf("found after %d updates", v)
			// The same node, asked for a consistent read, does not answer with the past.
			g := NewHistory()
			for i := range fresh {
				g.Do(ctx, 2, fresh[i], Input{Kind: Read, Name: "a"})
			}
			for _, o := range g.ops {
				if got := o.Output.(Output).Job.Version; got != v+1 {
					t.Errorf("a consistent read gave version %d after version %d was acknowledged", got, v+1)
				}
			}
			return
		}
	}
	t.Error("no stale read was found")
}
