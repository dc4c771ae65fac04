package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
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

// slotWatch counts at the worker what its slots do, and how long one is free although work waits for it. That is
// measured in polls which leaders of groups with waiting work answered: a host that stands still answers none.
type slotWatch struct {
	mu      sync.Mutex
	running int
	most    int           // in the present wave
	full    chan struct{} // closed when all slots are in use; no attempt of the wave ends before
	over    int           // the most that ran at a time beyond the slots
	free    []int
	waiting map[uint32]int
	lost    map[uint32]bool // groups whose leader did not answer the last call
	polls   int
	worst   int
	runs    map[job.ID]int
}

const bigSlots = 64

func newSlotWatch() *slotWatch {
	return &slotWatch{free: make([]int, bigSlots), full: make(chan struct{}), waiting: map[uint32]int{}, lost: map[uint32]bool{},
		runs: map[job.ID]int{}}
}

// hungry says that work waits, and that all leaders answer.
func (s *slotWatch) hungry() bool {
	for _, n := range s.waiting {
		if n > 0 {
			return len(s.lost) == 0
		}
	}
	return false
}

// change does something, and begins to count anew for all free slots if they were free for a reason until now.
func (s *slotWatch) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.hungry()
	if do(); !before {
		for i := range s.free {
			s.free[i] = s.polls
		}
	}
}

func (s *slotWatch) due(group uint32, n int) { s.change(func() { s.waiting[group] += n }) }

func (s *slotWatch) answered(group uint32, err error) {
	s.change(func() {
		if err != nil {
			s.lost[group] = true
			return
		}
		if delete(s.lost, group); s.waiting[group] > 0 {
			s.polls++
		}
	})
}

// Run is an attempt.
func (s *slotWatch) Run(ctx context.Context, a job.Assignment) job.Result {
	var full chan struct{}
	s.change(func() {
		s.running++
		if full = s.full; s.running == bigSlots && s.most < bigSlots {
			close(full)
		}
		s.most = max(s.most, s.running)
		s.runs[a.Run.Job]++
		s.waiting[uint32(a.Run.Job.Group())]--
		if len(s.free) == 0 {
			s.over = max(s.over, s.running-bigSlots)
			return
		}
		if len(s.lost) == 0 {
			s.worst = max(s.worst, s.polls-s.free[0])
		}
		s.free = s.free[1:]
	})
	select {
	case <-ctx.Done():
	case <-full:
	}
	select {
	case <-ctx.Done():
	case <-time.After(20*time.Millisecond + rand.N(60*time.Millisecond)):
	}
	s.change(func() {
		s.running--
		if s.free = append(s.free, s.polls); len(s.free)+s.running > bigSlots {
			s.free = s.free[1:]
		}
	})
	if ctx.Err() != nil {
		return job.Result{Outcome: job.OutcomeFailed, Error: context.Cause(ctx).Error()}
	}
	return job.Result{Outcome: job.OutcomeSucceeded}
}

// watchedLeader is one of a cluster, whose answers are counted.
type watchedLeader struct {
	core.Leader
	watch *slotWatch
	group uint32
}

func (l *watchedLeader) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	reply, err := l.Leader.Poll(ctx, p)
	if ctx.Err() == nil || err == nil { // else the worker gave the poll up
		l.watch.answered(l.group, err)
	}
	return reply, err
}

func (l *watchedLeader) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	reply, err := l.Leader.Heartbeat(ctx, h)
	if err != nil && ctx.Err() == nil {
		l.watch.answered(l.group, err)
	}
	return reply, err
}

// wave is one-offs that are due together, so many in each group.
func (s *slotWatch) wave(t *testing.T, c *client.Client, number int, sizes map[uint32]int, groups uint32) {
	t.Helper()
	due := time.Now().Add(3 * time.Second).Truncate(time.Second)
	var file bytes.Buffer
	enc := json.NewEncoder(&file)
	left, all := map[uint32]int{}, 0
	for g, n := range sizes {
		left[g] = n
		all += n
	}
	for i := 0; all > 0; i++ {
		name := fmt.Sprintf("wave-%d-%d", number, i)
		g := job.PlaceOf(job.NameJob, job.DefaultNamespace, name, groups)
		if left[g] == 0 {
			continue
		}
		left[g]--
		all--
		if err := enc.Encode(job.Spec{Name: name, Type: job.TypeHTTP, Schedule: due.UTC().Format(time.RFC3339),
			Workers: map[string]string{"crew": "away"}, Payload: json.RawMessage(`{"url":"http://127.0.0.1:1/"}`),
		}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	made := map[uint32]int{}
	if err := c.BulkCreate(ctx, &file, func(r client.BulkResult) error {
		if r.Error != nil {
			return r.Error
		}
		made[uint32(r.JobID.Group())]++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.most, s.full = 0, make(chan struct{}) // nothing runs: the wave before is over, and this one not due
	s.mu.Unlock()
	time.Sleep(time.Until(due))
	for g, n := range made {
		if n != sizes[g] {
			t.Fatalf("group %d has %d one-offs of %d", g, n, sizes[g])
		}
		s.due(g, n)
	}
}

// filled waits until all slots are in use at the same time.
func (s *slotWatch) filled(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	full := s.full
	s.mu.Unlock()
	select {
	case <-full:
	case <-time.After(time.Minute):
		s.mu.Lock()
		defer s.mu.Unlock()
		t.Fatalf("%d of %d slots are in use, and %v runs wait", s.running, bigSlots, s.waiting)
	}
}

// TestOneWorkerOfEightLeaders has a worker with 64 slots work for eight groups. The work is lumpy: one group has it all,
// then another one, then all of them; leaders are killed meanwhile. At no time do more than 64 attempts run, none runs
// twice, and no slot stays free while a group has work for it.
func TestOneWorkerOfEightLeaders(t *testing.T) {
	scenario(t)
	const groups, lump, kills = 8, 1000, 6
	cl := groupCluster(t, harness.Build(t), 3, groups, func(*harness.Node) {}, "--executors", "http")
	var addrs []string
	for _, n := range cl.Nodes {
		addrs = append(addrs, n.Addr)
	}
	s := newSlotWatch()
	far, hangUp := client.FindGroups(addrs)
	leader := far.Leader
	far.Leader = func(group uint32) core.Leader { return &watchedLeader{leader(group), s, group} }
	w, err := executor.NewWorker(core.Options{Name: "big", Secret: "secret", Slots: bigSlots,
		Tags: map[string]string{"crew": "away"}, Groups: far, DrainTimeout: 5 * time.Second},
		map[job.Type]executor.Runner{job.TypeHTTP: s})
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
	api := client.New(strings.Join(addrs, ","), client.WithTimeout(time.Minute))
	runs := 0
	done := func(what string) {
		t.Helper()
		harness.Eventually(t, 90*time.Second, what, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.runs) == runs && s.running == 0
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		t.Logf("%s: no slot free for more than %d polls so far", what, s.worst)
	}
	waves := 0
	wave := func(sizes map[uint32]int) {
		t.Helper()
		for _, n := range sizes {
			runs += n
		}
		s.wave(t, api, waves, sizes, groups)
		s.filled(t)
		waves++
	}
	even := func(n int) map[uint32]int {
		sizes := map[uint32]int{}
		for g := range uint32(groups) {
			sizes[g+1] = n / groups
		}
		return sizes
	}
	wave(map[uint32]int{1: lump})
	done("all in group 1")
	wave(map[uint32]int{5: lump})
	done("all in group 5")
	wave(even(lump))
	done("the same in all groups")
	wave(map[uint32]int{2: lump, 3: 40, 7: 8})
	done("much in group 2, some in two others")
	for i := range kills {
		sizes := even(lump)
		if i%2 == 1 {
			sizes = map[uint32]int{uint32(i%groups) + 1: lump, uint32((i+3)%groups) + 1: lump}
		}
		wave(sizes)
		n := cl.Nodes[i%len(cl.Nodes)]
		n.Kill("while a worker has all its slots in use")
		done("with " + n.ID + " killed")
		n.Start()
		harness.Eventually(t, harness.ReadyLimit, "all groups have leaders again", func() bool { return groupsLed(cl, groups) == nil })
	}
	wave(even(lump))
	done("the same in all groups, afterwards")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	ended <- nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over > 0 {
		t.Errorf("%d attempts more than slots ran at a time", s.over)
	}
	var twice []job.ID
	for id, n := range s.runs {
		if n != 1 {
			twice = append(twice, id)
		}
	}
	if slices.Sort(twice); len(twice) > 0 {
		t.Errorf("%d runs had several attempts, and no worker died: %v", len(twice), twice[:min(10, len(twice))])
	}
	const bound = 100
	if s.worst > bound {
		t.Errorf("a slot was free for %d polls of groups that had work for it, the most is %d", s.worst, bound)
	}
}
