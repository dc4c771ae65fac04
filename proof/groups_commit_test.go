package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	core "github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// slowCommits is a node with eight groups, each commit of whose states takes long.
type slowCommits struct {
	t    *testing.T
	addr string
	slow atomic.Bool
	ran  [slowGroups + 1]atomic.Int64 // runs of each group
	made int
}

const (
	slowGroups = 8
	slowCommit = 10 * time.Millisecond
	slowSlots  = 8 // of the worker of a group
	slowWindow = 4 * time.Second
)

func (s *slowCommits) open() *node.Node {
	s.t.Helper()
	n, err := node.Open(node.Config{NodeID: "n1", Listen: s.addr, DataDir: filepath.Join(s.t.TempDir(), "data"), Bootstrap: true,
		Groups: slowGroups, Slots: 1, Version: "proof", Logger: slog.New(slog.DiscardHandler),
		Executors: []job.Type{job.TypeHTTP}, Members: node.MembersConfig{Interval: 50 * time.Millisecond},
		Store: node.StoreConfig{MmapSize: 64 << 20, NoSync: true, LockTimeout: 5 * time.Second},
		Fatal: func(err error) { s.t.Errorf("fatal: %v", err) },
		Machine: node.Machine{Node: faultpoint.Node{Write: func(file string) error {
			if file == "state" && s.slow.Load() {
				time.Sleep(slowCommit)
			}
			return nil
		}}}})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// create makes one-offs for the worker of each group, which are due when it returns.
func (s *slowCommits) create(api *client.Client, each int) {
	s.t.Helper()
	s.slow.Store(false)
	defer s.slow.Store(true)
	due := time.Now().Add(4 * time.Second).Truncate(time.Second)
	var file bytes.Buffer
	enc := json.NewEncoder(&file)
	have, whole := [slowGroups + 1]int{}, 0
	for ; whole < slowGroups; s.made++ {
		name := fmt.Sprintf("one-%d", s.made)
		g := job.PlaceOf(job.NameJob, job.DefaultNamespace, name, slowGroups)
		if have[g] == each {
			continue
		}
		if have[g]++; have[g] == each {
			whole++
		}
		if err := enc.Encode(job.Spec{Name: name, Type: job.TypeHTTP, Schedule: due.UTC().Format(time.RFC3339),
			Missed: job.Missed{Policy: job.MissedRunOnce}, Workers: map[string]string{"group": fmt.Sprint(g)},
			Payload: json.RawMessage(`{"url":"http://127.0.0.1:1/"}`)}); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := api.BulkCreate(context.Background(), &file, func(r client.BulkResult) error {
		if r.Error != nil {
			return r.Error
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(time.Until(due))
}

// measure has the workers of the first groups work, and says how many runs there were in a second.
func (s *slowCommits) measure(groups uint32) float64 {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	for g := uint32(1); g <= groups; g++ {
		far, hangUp := client.FindGroups([]string{s.addr})
		far.List = func(context.Context) ([]uint32, error) { return []uint32{g}, nil }
		w, err := executor.NewWorker(core.Options{Name: fmt.Sprint("w", g), Secret: fmt.Sprint("secret ", g),
			Slots: slowSlots, Tags: map[string]string{"group": fmt.Sprint(g)}, Groups: far,
			DrainTimeout: 5 * time.Second}, map[job.Type]executor.Runner{job.TypeHTTP: countedRunner{&s.ran[g]}})
		if err != nil {
			s.t.Fatal(err)
		}
		working.Go(func() {
			_ = w.Run(ctx)
			hangUp()
		})
	}
	total := func() (n int64) {
		for g := range s.ran {
			n += s.ran[g].Load()
		}
		return n
	}
	var first [slowGroups + 1]int64
	for g := range s.ran {
		first[g] = s.ran[g].Load()
	}
	harness.Eventually(s.t, harness.ReadyLimit, "all groups work", func() bool {
		for g := uint32(1); g <= groups; g++ {
			if s.ran[g].Load() < first[g]+2*slowSlots {
				return false
			}
		}
		return true
	})
	began, before := time.Now(), total()
	time.Sleep(slowWindow)
	rate := float64(total()-before) / time.Since(began).Seconds()
	stop()
	working.Wait()
	return rate
}

type countedRunner struct{ ran *atomic.Int64 }

func (r countedRunner) Run(context.Context, job.Assignment) job.Result {
	r.ran.Add(1)
	// Without this all slots of a group take the same steps at the same time, and how they fall into commits is chance.
	time.Sleep(rand.N(2 * slowCommit))
	return job.Result{Outcome: job.OutcomeSucceeded}
}

// TestGroupsShareNoCommit holds that groups do not wait for each other. Every commit of a state takes ten milliseconds
// longer than it would, which limits what a group does, and not the machine: eight groups then do at least seven times
// what one does. Both are measured in turn, several times if the machine had something else to do.
//
// Measured were 8.2 to 11.2 times: one group alone does less than each of eight, for a reason that is not known. So this
// finds a lock that groups share (then it was 1.6 times), and not one that costs them less than about a quarter.
func TestGroupsShareNoCommit(t *testing.T) {
	scenario(t)
	s := &slowCommits{t: t, addr: harness.FreeAddr(t)}
	n := s.open()
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	defer func() {
		s.slow.Store(false)
		stop()
		if err := <-ran; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	api := client.New(s.addr)
	harness.Eventually(t, harness.ReadyLimit, "all groups take jobs", func() bool {
		st, err := api.Status(context.Background())
		if err != nil || len(st.Groups) != slowGroups+1 {
			return false
		}
		for _, g := range st.Groups {
			if g.Leader == "" {
				return false
			}
		}
		return n.State().Info().Groups == slowGroups
	})
	const want, tries = 7.0, 5
	best := 0.0
	for try := range tries {
		s.create(api, 2500)
		before := s.measure(1)
		eight := s.measure(slowGroups)
		after := s.measure(1)
		one := max(before, after) // in favour of one: what slowed it down is not what is looked for
		best = max(best, eight/one)
		t.Logf("try %d: one group %.0f and %.0f runs/s, eight groups %.0f runs/s: %.2f times", try+1, before, after, eight,
			eight/one)
		if best >= want {
			return
		}
	}
	t.Errorf("eight groups do %.2f times what one does, want %.1f", best, want)
}
