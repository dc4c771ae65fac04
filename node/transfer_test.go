package node

import (
	"errors"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
)

// A voter whose disk hangs answers probes and may be chosen to lead; the leader that chose it can lose the leadership
// before the disk is back. Whatever became of its transfers, it leads again later and does the work of a leader.
func TestLeadsAgainAfterTransfersThatFailed(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	old := c.leader()
	target := c.others(old)[0]
	term := old.tracker.Epoch().Term
	spec := func(name string) map[string]any {
		return map[string]any{"name": name, "type": "queue", "schedule": "@manual",
			"payload": map[string]any{"queue": "q"}}
	}

	works := target.slow.hang()
	t.Cleanup(works)            // or nothing ends after a failure
	old.create(spec("lacking")) // by the other two; the target writes it for as long as its disk hangs
	if err := old.passOnTwice(target); err == nil {
		t.Fatal("the leadership went to a node that does not have the log")
	}

	c.leadsAgain(old, term, works)
	old.create(spec("afterwards"))
}

// passOnTwice tries to hand the leadership to a member that the first try fails with. It returns what came of the second.
func (m *member) passOnTwice(to *member) (err error) {
	m.t.Helper()
	try := func() error { return m.members.Faults().PassOn(m.t.Context(), to.id(), 1) }
	_ = try()
	m.eventually("raft is done with the first", func() bool {
		err = try()
		return !errors.Is(err, raft.ErrLeadershipTransferInProgress)
	})
	return err
}

// leadsAgain cuts the leader of a term off until another leads, mends what was wrong, and has it lead again.
func (c *cluster) leadsAgain(old *member, term uint64, mend func()) {
	c.t.Helper()
	others := c.others(old)
	c.partition([]*member{old}, others)
	old.eventually("it lost the leadership", func() bool { return old.tracker.Epoch() == nil })
	mend()
	old.eventually("the others have a leader", func() bool {
		return others[0].tracker.Epoch() != nil || others[1].tracker.Epoch() != nil
	})
	c.heal()
	old.eventually("it leads again", func() bool {
		if next := c.leader(); next != old {
			_ = next.members.Transfer(c.t.Context(), old.id(), true) // again, until it is there
			return false
		}
		return old.tracker.Epoch().Term > term
	})
}

// A voter has the whole log, and the leader does not know: the answers are late. Two tries to hand over to it are one
// too many for raft, which would count a transfer as going on for ever.
func TestLeadsAgainAfterAnswersThatWereLate(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	c.awaitWorkers(3) // the next entry is then the last one, most likely
	old := c.leader()
	target := c.others(old)[0]
	term := old.tracker.Epoch().Term
	spec := func(name string) map[string]any {
		return map[string]any{"name": name, "type": "queue", "schedule": "@manual",
			"payload": map[string]any{"queue": "q"}}
	}

	late := make(chan struct{})
	answer := sync.OnceFunc(func() { close(late) })
	t.Cleanup(answer) // or nothing ends after a failure
	old.link.mu.Lock()
	old.link.late = map[string]chan struct{}{target.id(): late}
	old.link.mu.Unlock()
	old.create(spec("lacking"))
	old.eventually("an answer is late", func() bool { return old.link.held.Load() > 0 })
	_ = old.passOnTwice(target) // the second succeeds if nothing came after the entry

	c.leadsAgain(old, term, func() {
		old.link.mu.Lock()
		old.link.late = nil
		old.link.mu.Unlock()
		answer()
	})
	old.create(spec("afterwards"))
}
