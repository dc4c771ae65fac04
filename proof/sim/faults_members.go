package sim

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
)

// member asks for a change of the members until it is certain that it came about.
func (c *cluster) member(by int, what func(context.Context, int) error) bool {
	certain := true // no try so far may have done a part of it
	for i := range 60 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err := what(ctx, (by+i)%len(c.clients))
		cancel()
		c.event("change of members: %v", err)
		switch job.CodeOf(err) {
		case job.CodeNotFound:
			return true // an earlier try did it
		case job.CodeState, job.CodeStale, job.CodeInvalid, job.CodePrecondition:
			if certain {
				return false
			}
		}
		if err == nil {
			return true
		}
		certain = certain && job.CodeOf(err) != job.CodeOutcomeUnknown
		time.Sleep(3 * time.Second)
	}
	return false
}

// leave notes that a server is about to lose its vote. It says no if that would leave one voter whose clock is wrong:
// the only voter is the majority, so the cluster would rightly go by that clock, and what is judged by the true time
// would be judged wrongly.
func (c *cluster) leave(s *server) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.voteless {
		return false // another fault has it
	}
	if only := c.onlyVoter(s); only != nil && !only.clock.is(0) {
		return false
	}
	s.voteless = true
	return true
}

// comeBack waits until all vote. A server that may be without its vote still counts as such.
func (c *cluster) comeBack(s *server) bool {
	if !c.voters() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.voteless = false
	return true
}

// onlyVoter is the one that votes besides one that is to leave (nil: none is), if there is only one. The lock is held.
func (c *cluster) onlyVoter(leaving *server) (only *server) {
	for _, s := range c.servers {
		switch {
		case s.voteless || s == leaving:
		case only != nil:
			return nil
		default:
			only = s
		}
	}
	return only
}

// upset sets the clock of a server wrong, unless that is the only voter: its clock is the majority's.
func (c *cluster) upset(s *server, how func(*clock)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.onlyVoter(nil) == s {
		return false
	}
	how(s.clock)
	return true
}

// replace takes a member out of the cluster, wipes its disk and lets it join anew under the same name.
func (c *cluster) replace(s *server, by int, lasts time.Duration) bool {
	if c.down1() || s.current() == nil || !c.leave(s) {
		return false // with one more gone there might be no majority that could take it in
	}
	x := c.fault(checker.FaultKill, s.id, "", 0)
	defer c.over(x)
	if !c.member(by, func(ctx context.Context, i int) error { return c.clients[i].RemoveNode(ctx, s.id) }) {
		c.comeBack(s)
		return false
	}
	c.event("%s is removed", s.id)
	for !s.kill() { // another fault may have stopped it; it comes back first
		time.Sleep(time.Second)
	}
	time.Sleep(lasts)
	if err := os.RemoveAll(s.dir); err != nil {
		c.problem("wipe %s: %v", s.id, err)
	}
	s.mu.Lock()
	s.wiped = true
	s.mu.Unlock()
	s.start()
	c.event("%s starts anew", s.id)
	return c.comeBack(s)
}

// down1 says that a node is down or not heard of.
func (c *cluster) down1() bool {
	for _, s := range c.servers {
		if l := s.current(); l == nil || l.gone() {
			return true
		}
	}
	return false
}

// voters waits until all vote.
func (c *cluster) voters() bool {
	limit := time.Now().Add(10 * time.Minute)
	for time.Now().Before(limit) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := c.allVote(ctx)
		cancel()
		if err == nil {
			return true
		}
		time.Sleep(2 * time.Second)
	}
	return false
}

func (c *cluster) allVote(ctx context.Context) error {
	i := max(c.leader(), 0)
	s, err := c.clients[i].Status(ctx)
	if err != nil || len(s.Members) != len(c.servers) {
		return fmt.Errorf("%d members, %w", len(s.Members), err)
	}
	for _, m := range s.Members {
		if !strings.EqualFold(m.Suffrage, "voter") {
			return fmt.Errorf("%s is a %s", m.ID, m.Suffrage)
		}
	}
	return nil
}

// demote takes a member's vote away for a while.
func (c *cluster) demote(s *server, by int, lasts time.Duration) bool {
	if c.down1() || !c.leave(s) {
		return false
	}
	defer c.comeBack(s)
	x := c.fault(checker.FaultLeader, s.id, "", 0)
	defer c.over(x)
	if !c.member(by, func(ctx context.Context, i int) error { return c.clients[i].DemoteNode(ctx, s.id) }) {
		return false
	}
	time.Sleep(lasts)
	return c.member(by, func(ctx context.Context, i int) error { return c.clients[i].PromoteNode(ctx, s.id) })
}
