package executor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// sim is a small cluster: it claims runs for workers, expires silent ones and changes its leader. The network
// between it and the workers loses, delays and repeats. What it checks is what the worker owes:
//   - an attempt starts only while its claim is live, and no two attempts of a run at a time;
//   - a fence is started at most once;
//   - no more attempts than slots at a time, of all groups together;
//   - every run ends in success once the faults stop.
type sim struct {
	t     *testing.T
	ttl   time.Duration
	group uint32
	busy  *simBusy

	mu       sync.Mutex
	rng      *rand.Rand
	faults   bool
	term     uint64
	fence    uint64
	inc      uint64
	runs     []*simRun
	sessions map[string]*simSession
	heard    map[string]time.Time // of a worker, by this leader
	started  map[uint64]bool
	cut      map[string]time.Time // until when a worker hears no node
	repeated int
	surplus  int  // assignments that came back for want of a slot
	frozen   bool // the leader answers no more
}

const simSlots = 2

// simBusy counts attempts by worker, over all groups.
type simBusy struct {
	mu sync.Mutex
	n  map[string]int
}

func (b *simBusy) add(worker string, n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n[worker] += n
	return b.n[worker]
}

type simRun struct {
	key    job.RunKey
	fence  uint64
	owner  string // "" while it waits for a claim
	done   bool
	active int
	starts int
}

type simSession struct {
	ref  job.SessionRef
	sent []*simRun
	// fences of what was sent: a run may have been claimed anew since
	fences []uint64
	last   job.Poll // the one with the highest number, in a session with credit
}

func (s *sim) release(owner string) {
	for _, r := range s.runs {
		if r.owner == owner {
			r.owner = ""
		}
	}
}

func (s *sim) byFence(owner string, fence uint64) *simRun {
	for _, r := range s.runs {
		if r.owner == owner && r.fence == fence && !r.done {
			return r
		}
	}
	return nil
}

func (s *sim) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w, at := range s.heard {
		if time.Since(at) > s.ttl {
			s.release(w)
			delete(s.heard, w)
			delete(s.sessions, w)
		}
	}
}

func (s *sim) changeLeader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term++
	s.sessions = map[string]*simSession{}
	for w := range s.heard {
		s.heard[w] = time.Now()
	}
}

func (s *sim) session(ref job.SessionRef) (*simSession, error) {
	if ss := s.sessions[ref.Worker]; ss != nil && ss.ref == ref {
		return ss, nil
	}
	return nil, job.Errorf(job.CodeSessionUnknown, "", "no session")
}

// link is one worker's way to the leader.
type link struct {
	*sim
	worker string
}

func (s *sim) chance(percent int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults && s.rng.IntN(100) < percent
}

// fault delays a message, and perhaps loses it.
func (l link) fault(ctx context.Context) error {
	if l.chance(20) {
		l.mu.Lock()
		d := time.Duration(l.rng.IntN(3000)) * time.Millisecond
		if l.rng.IntN(20) == 0 {
			d *= 15
		}
		l.mu.Unlock()
		if !wait.For(ctx, d) {
			return ctx.Err()
		}
	}
	l.mu.Lock()
	cut, frozen := time.Now().Before(l.cut[l.worker]), l.frozen
	l.mu.Unlock()
	if frozen {
		<-ctx.Done()
		return ctx.Err()
	}
	if cut || l.chance(15) {
		return errNet
	}
	return nil
}

func (l link) Register(ctx context.Context, r job.Register) (job.Session, error) {
	if err := l.fault(ctx); err != nil {
		return job.Session{}, err
	}
	session := l.register(r)
	return session, l.fault(ctx)
}

func (l link) register(r job.Register) job.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	inc := r.Incarnation
	if inc == 0 {
		l.inc++
		inc = l.inc
		l.release(r.Worker)
	}
	ss := &simSession{ref: job.SessionRef{Worker: r.Worker, Incarnation: inc, Group: l.group, Term: l.term}}
	for _, run := range l.runs {
		held := slices.ContainsFunc(r.Held, func(h job.Held) bool { return h.Fence == run.fence })
		if run.owner == r.Worker && !run.done && !held {
			ss.sent, ss.fences = append(ss.sent, run), append(ss.fences, run.fence)
		}
	}
	l.sessions[r.Worker], l.heard[r.Worker] = ss, time.Now()
	return job.Session{SessionRef: ss.ref, TTL: job.Duration(l.ttl)}
}

func (l link) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	if err := l.fault(ctx); err != nil {
		return job.PollReply{}, err
	}
	for end := time.Now().Add(time.Duration(p.Wait)); ; {
		reply, err := l.answer(p)
		if err != nil || len(reply.Assignments) > 0 || !time.Now().Before(end) || p.Number > 0 && p.Free == 0 && !p.Told && reply.Ready > 0 {
			if err == nil {
				err = l.fault(ctx)
			}
			return reply, err
		}
		if !wait.For(ctx, 100*time.Millisecond) {
			return reply, ctx.Err()
		}
	}
}

func (l link) answer(p job.Poll) (reply job.PollReply, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ss, err := l.session(p.Session)
	if err != nil {
		return reply, err
	}
	if p.Number > 0 && p.Number < ss.last.Number {
		return reply, errNet // its worker has given it up
	}
	ss.last, reply.Number = p, p.Number
	waits := l.claim(ss, p)
	if p.Number > 0 {
		reply.Ready = waits
	}
	for i := int(p.Acked); i < len(ss.sent); i++ {
		reply.Assignments = append(reply.Assignments, job.Assignment{Number: uint64(i) + 1, Term: l.term, Run: ss.sent[i].key,
			Attempt: 1, Fence: ss.fences[i], Type: job.TypeQueue, Timeout: job.Duration(time.Minute)})
	}
	return reply, nil
}

// claim gives runs to a worker, as many as its poll offers, and says how many more there are.
func (s *sim) claim(ss *simSession, p job.Poll) (waits int) {
	for _, run := range s.runs {
		if run.owner != "" || run.done {
			continue
		}
		if len(ss.sent)-int(p.Acked) >= p.Free {
			waits++
			continue
		}
		s.fence++
		run.owner, run.fence = p.Session.Worker, s.fence
		ss.sent, ss.fences = append(ss.sent, run), append(ss.fences, run.fence)
	}
	return waits
}

// claimAhead uses the credit of workers whose polls were answered or lost.
func (s *sim) claimAhead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ss := range s.sessions {
		if ss.last.Number > 0 && !s.frozen {
			s.claim(ss, ss.last)
		}
	}
}

func (l link) Heartbeat(ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	if err := l.fault(ctx); err != nil {
		return job.HeartbeatReply{}, err
	}
	reply, err := l.beat(h)
	if err == nil {
		err = l.fault(ctx)
	}
	return reply, err
}

func (l link) beat(h job.Heartbeat) (reply job.HeartbeatReply, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ss, err := l.session(h.Session)
	if err != nil {
		return reply, err
	}
	l.heard[h.Session.Worker] = time.Now()
	for i, run := range ss.sent[:h.Acked] {
		held := slices.ContainsFunc(h.Held, func(x job.Held) bool { return x.Fence == ss.fences[i] })
		if !held && run.owner == h.Session.Worker && run.fence == ss.fences[i] && !run.done {
			run.owner = "" // received, not held, no result: it will never come
		}
	}
	for _, x := range h.Held {
		if l.byFence(h.Session.Worker, x.Fence) == nil {
			reply.Cancel = append(reply.Cancel, x.Fence)
		}
	}
	return reply, nil
}

func (l link) Report(ctx context.Context, r job.Report) (job.ReportReply, error) {
	if err := l.fault(ctx); err != nil {
		return job.ReportReply{}, err
	}
	var reply job.ReportReply
	l.mu.Lock()
	_, err := l.session(r.Session)
	for _, res := range r.Results {
		if err != nil || l.faults && l.rng.IntN(10) == 0 {
			continue
		}
		run := l.byFence(r.Session.Worker, res.Fence)
		reply.Acks = append(reply.Acks, job.Ack{Fence: res.Fence, Stale: run == nil})
		if run != nil {
			run.owner, run.done = "", res.Outcome == job.OutcomeSucceeded
		}
		if strings.Contains(res.Error, "no slot") {
			l.surplus++
		}
	}
	l.mu.Unlock()
	if err == nil {
		err = l.fault(ctx)
	}
	return reply, err
}

// Run is an attempt, on the worker named w.
func (s *sim) run(w string) runnerFunc {
	return func(ctx context.Context, a job.Assignment) job.Result {
		s.mu.Lock()
		run := s.runs[uint32(a.Run.Job)-1]
		if n := s.busy.add(w, 1); n > simSlots {
			s.t.Errorf("%s runs %d attempts", w, n)
		}
		defer s.busy.add(w, -1)
		if run.owner != w || run.fence != a.Fence || run.done {
			s.t.Errorf("%v: %s started %v under fence %d; it belongs to %q under %d (done: %v)", time.Now(), w, a.Run, a.Fence, run.owner, run.fence, run.done)
		}
		if run.active > 0 {
			s.t.Errorf("%s started %v under fence %d while another attempt runs", w, a.Run, a.Fence)
		}
		if s.started[a.Fence] {
			s.t.Errorf("%s started fence %d a second time", w, a.Fence)
		}
		s.started[a.Fence] = true
		run.active++
		if run.starts++; run.starts > 1 {
			s.repeated++
		}
		d := time.Duration(s.rng.IntN(8000)) * time.Millisecond
		s.mu.Unlock()
		ok := wait.For(ctx, d)
		s.mu.Lock()
		run.active--
		s.mu.Unlock()
		if !ok {
			return failure("stopped")
		}
		return success
	}
}

func (s *sim) open() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		if !r.done {
			n++
		}
	}
	return n
}

func TestUnderFaults(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { simulate(t, seed, 1, true) }) })
	}
}

func newSim(t *testing.T, seed uint64, group int, faults bool, busy *simBusy) *sim {
	s := &sim{t: t, ttl: 30 * time.Second, rng: rand.New(rand.NewPCG(seed, 1+uint64(group)<<32)), faults: faults, term: 1,
		group: uint32(group), busy: busy,
		sessions: map[string]*simSession{}, heard: map[string]time.Time{}, started: map[uint64]bool{}, cut: map[string]time.Time{}}
	for i := range 250 {
		id := job.ID(group)<<(64-job.GroupBits) | job.ID(i+1)
		s.runs = append(s.runs, &simRun{key: job.RunKey{Job: id, At: 1000, Origin: job.OriginSchedule}})
	}
	return s
}

func (s *sim) tick() {
	s.expire()
	s.claimAhead()
	if s.chance(2) {
		s.changeLeader()
	}
	if s.chance(2) {
		s.mu.Lock()
		s.cut[fmt.Sprint("w", s.rng.IntN(3))] = time.Now().Add(time.Duration(s.rng.IntN(60)) * time.Second)
		s.mu.Unlock()
	}
}

// simulate has three workers do the runs of some groups. With several, one more comes after a minute, and in the end
// the leader of the first one is frozen while the others have work.
func simulate(t *testing.T, seed uint64, groups int, faults bool) {
	busy := &simBusy{n: map[string]int{}}
	var sims []*sim
	for g := range groups {
		sims = append(sims, newSim(t, seed, g, faults, busy))
	}
	open := func(sims []*sim) (n int) {
		for _, s := range sims {
			n += s.open()
		}
		return n
	}
	all, stop := context.WithCancel(context.Background())
	grown := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 3 {
		name, rng := fmt.Sprint("w", i), rand.New(rand.NewPCG(seed, uint64(i)+2))
		wg.Go(func() {
			for all.Err() == nil { // one process after the other
				clock := &fakeClock{start: time.Now()}
				over := simGroups{sims, name, grown}
				o := Options{Name: name, Slots: simSlots, Prefetch: 3, Groups: over, Clock: clock, DrainTimeout: 4 * time.Second,
					Runners: map[job.Type]Runner{job.TypeQueue: over}}
				if groups == 1 {
					o.Groups = OneGroup(link{sims[0], name})
				}
				w, err := New(o)
				if err != nil {
					t.Error(err)
					return
				}
				life, end := context.WithTimeout(all, time.Minute+time.Duration(rng.IntN(120))*time.Second)
				wg.Go(func() {
					if wait.For(life, time.Duration(rng.IntN(60))*time.Second) && faults {
						clock.suspend(time.Duration(rng.IntN(30)) * time.Second)
					}
				})
				_ = w.Run(life)
				end()
			}
		})
	}
	wg.Go(func() {
		for wait.For(all, 500*time.Millisecond) {
			for _, s := range sims {
				s.tick()
			}
		}
	})
	for i := 0; open(sims) > 0 && i < 600*groups; i++ {
		time.Sleep(time.Second)
		switch i {
		case 60:
			close(grown)
		case 180:
			for _, s := range sims {
				s.mu.Lock()
				s.faults = false
				s.mu.Unlock()
			}
		}
	}
	if n := open(sims); n > 0 {
		t.Errorf("%d runs never ended", n)
	}
	if groups > 1 {
		sims[0].mu.Lock()
		sims[0].frozen = true
		sims[0].mu.Unlock()
		for _, s := range sims[1:] {
			s.mu.Lock()
			for _, run := range s.runs[:50] {
				run.done = false
			}
			s.mu.Unlock()
		}
		for i := 0; open(sims[1:]) > 0 && i < 200; i++ {
			time.Sleep(time.Second)
		}
		if n := open(sims[1:]); n > 0 {
			t.Errorf("%d runs did not end while the leader of another group was frozen", n)
		}
	}
	stop()
	wg.Wait()
	for _, s := range sims {
		if s.surplus > 0 && !faults {
			t.Errorf("group %d: %d assignments in excess", s.group, s.surplus)
		}
		t.Logf("group %d: %d fences, %d leaders, %d repetitions, %d in excess", s.group, s.fence, s.term, s.repeated, s.surplus)
	}
}
