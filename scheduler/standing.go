package scheduler

import "github.com/carillon-scheduler/carillon/job"

// standing judges a registration: the worker of a node has a session only while the node is a member, or to finish what
// it has in hand when it was removed.
func (s *Scheduler) standing(r *job.Register) (leaving bool, err error) {
	if r.Node == nil || s.o.Standing == nil {
		return false, nil
	}
	leaving, err = s.o.Standing(r.Worker, *r.Node)
	if err == nil && leaving && len(r.Held) == 0 {
		err = job.Errorf(job.CodeForbidden, "stop it; to bring it back, empty its data directory and start it with --join", "the node %s was removed from the cluster", r.Worker)
	}
	return leaving, err
}

// reviewStandings stops giving runs to the workers of nodes that are members no more.
func (s *Scheduler) reviewStandings() {
	if s.o.Standing == nil {
		return
	}
	s.mu.Lock()
	var nodes []*session
	for _, x := range s.sessions {
		if x.node != nil && !x.leaving {
			nodes = append(nodes, x)
		}
	}
	s.mu.Unlock()
	for _, x := range nodes { // without the lock: this may read the store
		leaving, err := s.o.Standing(x.key.worker, *x.node)
		if !leaving && err == nil {
			continue
		}
		s.mu.Lock()
		x.leaving = true
		s.version++
		s.mu.Unlock()
		s.log.Warn("node is no member any more; its worker gets no more runs", "worker", x.key.worker, "error", err)
	}
}
