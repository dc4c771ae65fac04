package scheduler

import (
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// What workers may use up of what all of them share. Who may open sessions is not always to be trusted, and a worker
// that starts over and over is no better than an attacker.
const (
	// MaxTokenSessions is how many workers one token may have at a time, and maxSessions how
	// many there may be in all. The workers of nodes are not counted: a cluster that is full can still work.
	MaxTokenSessions = 1024
	maxSessions      = 1 << 15
)

// addSessionLocked and dropSessionLocked keep the count of each token's sessions.
func (s *Scheduler) addSessionLocked(x *session) {
	s.sessions[x.key] = x
	s.ofToken[tokenOf(x.key.worker)]++
}

func (s *Scheduler) dropSessionLocked(x *session) {
	delete(s.sessions, x.key)
	token := tokenOf(x.key.worker)
	if s.ofToken[token]--; s.ofToken[token] <= 0 {
		delete(s.ofToken, token)
	}
}

// tokenOf is the token of a worker by its name, where the cluster asks for tokens.
func tokenOf(worker string) string { return worker[strings.LastIndexByte(worker, '@')+1:] }

// roomLocked says whether a worker may have one more session.
func (s *Scheduler) roomLocked(worker string) error {
	var err error
	if n := s.ofToken[tokenOf(worker)]; s.o.ByToken && n >= MaxTokenSessions {
		err = job.Errorf(job.CodeUnavailable, "create another token for the other workers",
			"the token has %d workers, the most that it may have", n)
	} else if n := len(s.sessions); n >= maxSessions {
		err = job.Errorf(job.CodeUnavailable,
			"use fewer workers with more slots each, or revoke the token that has so many of them",
			"the cluster has %d workers, the most that it can have", n)
	}
	if err != nil && s.o.Metrics.Full != nil {
		s.o.Metrics.Full(worker)
	}
	return err
}
