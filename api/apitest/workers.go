package apitest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
)

// Workers is the worker protocol of a whole cluster in memory: runs to give out, sessions and results, and which of its nodes
// leads. It keeps the rules of sessions, numbers and fences; leases do not end.
type Workers struct {
	mu     sync.Mutex
	leader string // the name of the node that leads; empty: none
	term   uint64
	issued uint64 // incarnations
	wake   chan struct{}

	sessions map[string]*workerSession // by worker
	todo     []job.Assignment
	results  map[uint64]job.Result // by fence
	reported map[uint64]int        // how often
}

type workerSession struct {
	ref  job.SessionRef
	sent []job.Assignment // the number is the place
}

// NewWorkers makes a cluster without a leader.
func NewWorkers() *Workers {
	return &Workers{wake: make(chan struct{}), sessions: map[string]*workerSession{}, results: map[uint64]job.Result{}, reported: map[uint64]int{}}
}

// Lead begins a term with a new leader, or with none.
func (w *Workers) Lead(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leader = node
	w.term++
	w.changedLocked()
}

// Leader is the node that leads.
func (w *Workers) Leader() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leader
}

// Add has runs carried out.
func (w *Workers) Add(list ...job.Assignment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.todo = append(w.todo, list...)
	w.changedLocked()
}

// Results are the results so far, by fence, and how often each was reported.
func (w *Workers) Results() (results map[uint64]job.Result, reported map[uint64]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	results, reported = map[uint64]job.Result{}, map[uint64]int{}
	for f, r := range w.results {
		results[f], reported[f] = r, w.reported[f]
	}
	return results, reported
}

// On is what a node serves: the protocol while it leads, a refusal otherwise.
func (w *Workers) On(node string) api.Workers { return workersOn{w, node} }

func (w *Workers) changedLocked() {
	close(w.wake)
	w.wake = make(chan struct{})
}

type workersOn struct {
	*Workers
	node string
}

func (w workersOn) leadsLocked() error {
	switch w.leader {
	case w.node:
		return nil
	case "":
		return job.Errorf(job.CodeNoLeader, "", "no leader")
	}
	return job.Errorf(job.CodeNotLeader, "", "%s leads", w.leader)
}

func (w workersOn) sessionLocked(ref job.SessionRef) (*workerSession, error) {
	if err := w.leadsLocked(); err != nil {
		return nil, err
	}
	s := w.sessions[ref.Worker]
	if s == nil || s.ref != ref || ref.Term != w.term {
		return nil, job.Errorf(job.CodeSessionUnknown, "register again", "no such session")
	}
	return s, nil
}

// Output is part of api.Workers. It is not watched.
func (w workersOn) Output(_ context.Context, o job.Output) (job.OutputReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.sessionLocked(o.Session)
	return job.OutputReply{}, err
}

// Register is part of api.Workers.
func (w workersOn) Register(_ context.Context, r job.Register) (job.Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.leadsLocked(); err != nil {
		return job.Session{}, err
	}
	ref := job.SessionRef{Worker: r.Worker, Incarnation: r.Incarnation, Term: w.term}
	if ref.Incarnation == 0 {
		w.issued++
		ref.Incarnation = w.issued
	}
	if old := w.sessions[r.Worker]; old != nil { // what the worker does not hold it never received
		for _, a := range old.sent {
			_, done := w.results[a.Fence]
			if !done && !slices.ContainsFunc(r.Held, func(h job.Held) bool { return h.Fence == a.Fence }) {
				w.todo = append(w.todo, a)
			}
		}
	}
	w.sessions[r.Worker] = &workerSession{ref: ref}
	return job.Session{SessionRef: ref, TTL: job.Duration(30 * time.Second)}, nil
}

// Poll is part of api.Workers.
func (w workersOn) Poll(ctx context.Context, p job.Poll) (job.PollReply, error) {
	timer := time.NewTimer(time.Duration(p.Wait))
	defer timer.Stop()
	for {
		w.mu.Lock()
		s, err := w.sessionLocked(p.Session)
		if err != nil {
			w.mu.Unlock()
			return job.PollReply{}, err
		}
		reply := job.PollReply{Assignments: slices.Clone(s.sent[min(p.Acked, uint64(len(s.sent))):])}
		for len(reply.Assignments) < p.Free && len(w.todo) > 0 {
			a := w.todo[0]
			w.todo = w.todo[1:]
			a.Number, a.Term = uint64(len(s.sent))+1, w.term
			s.sent = append(s.sent, a)
			reply.Assignments = append(reply.Assignments, a)
		}
		wake := w.wake
		w.mu.Unlock()
		if len(reply.Assignments) > 0 || p.Wait <= 0 {
			return reply, nil
		}
		select {
		case <-wake:
		case <-timer.C:
			return reply, nil
		case <-ctx.Done():
			return reply, ctx.Err()
		}
	}
}

// Heartbeat is part of api.Workers.
func (w workersOn) Heartbeat(_ context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.sessionLocked(h.Session)
	return job.HeartbeatReply{}, err
}

// Report is part of api.Workers.
func (w workersOn) Report(_ context.Context, r job.Report) (job.ReportReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.sessionLocked(r.Session); err != nil {
		return job.ReportReply{}, err
	}
	var reply job.ReportReply
	for _, res := range r.Results {
		_, closed := w.results[res.Fence]
		if !closed {
			w.results[res.Fence] = res
		}
		w.reported[res.Fence]++
		reply.Acks = append(reply.Acks, job.Ack{Fence: res.Fence, Stale: closed})
	}
	return reply, nil
}
