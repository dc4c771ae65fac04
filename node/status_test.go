package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

func findTrouble(list []wire.Trouble, code, node string) *wire.Trouble {
	i := slices.IndexFunc(list, func(t wire.Trouble) bool { return t.Code == code && t.Node == node })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// Until when a one-off that ran is kept is nothing that is due.
func TestRetentionIsNotDue(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	n.create(tg.spec("once", time.Now().Add(-time.Second).UTC().Format(time.RFC3339Nano), "retention", "1h"))
	n.eventually("it ran", func() bool {
		j := n.get("once")
		return j.RunsStarted == 1 && j.OpenRuns == 0
	})
	next := func() job.Instant { return ok[wire.Status](n, "GET", "/api/v1/status", nil).NextDueAt }
	if at := next(); at != 0 {
		t.Errorf("next due at %s, and nothing is", at)
	}
	year := time.Now().UTC().Year() + 1
	n.create(tg.spec("later", time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339)))
	if at, want := next(), job.At(time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)); at != want {
		t.Errorf("next due at %s, want %s", at, want)
	}
}

// Every node says what is wrong with the cluster: who is missing, what no worker takes, and, once a majority is gone,
// why no node leads.
func TestStatusFromAnyNode(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 3)
	c.awaitWorkers(3)
	lead := c.leader()
	lead.create(map[string]any{"name": "unmatched", "type": "queue", "schedule": "@every 1s",
		"payload": map[string]any{"queue": "mail"}})
	dead := c.others(lead)[0]
	dead.crash()
	var other *member
	for _, m := range c.others(lead) {
		if m != dead {
			other = m
		}
	}
	for _, m := range []*member{lead, other} {
		m.eventually(m.id()+" says who is missing and what waits", func() bool {
			s := ok[wire.Status](m.testNode, "GET", "/api/v1/status", nil)
			gone, waits := findTrouble(s.Troubles, wire.TroubleUnreachable, dead.id()), findTrouble(s.Troubles,
				wire.TroubleBacklog, "")
			return gone != nil && strings.HasSuffix(gone.Text, "connection refused") && // "since" follows it
				strings.Contains(gone.Remedy, "carillon cluster remove "+dead.id()) &&
				strings.Contains(gone.Remedy, "2 of 3 voters are left") &&
				waits != nil && strings.Contains(waits.Text, "no worker takes queue mail") && waits.Remedy != "" &&
				len(s.Workers) > 0 && len(s.Members) == 3
		})
	}

	// How long ago the leader heard of a node or a worker is said by the clock of the node that answers.
	other.clock.shift.Store(int64(24 * time.Hour))
	s := ok[wire.Status](other.testNode, "GET", "/api/v1/status", nil)
	for _, w := range s.Workers {
		if ago := s.Now.Time().Sub(w.LastHeard.Time()).Abs(); ago > time.Hour {
			t.Errorf("worker %s was heard %s ago", w.Worker, ago)
		}
	}
	for _, m := range s.Members {
		if ago := s.Now.Time().Sub(m.LastHeard.Time()).Abs(); m.LastHeard != 0 && ago > time.Hour {
			t.Errorf("member %s was heard %s ago", m.ID, ago)
		}
	}
	other.clock.shift.Store(0)

	// A leader that takes connections and answers nothing: a follower says so, and shows what it knows itself.
	lead.link.hung.Store(true)
	other.eventually("it says that the leader does not answer", func() bool {
		a, err := other.try("GET", "/api/v1/status", nil)
		return err == nil && strings.Contains(string(a.body), "the leader "+lead.id()) &&
			strings.Contains(string(a.body), "does not answer this node")
	})
	lead.link.hung.Store(false)

	lead.crash()
	other.eventually("it says why no node leads", func() bool {
		s := ok[wire.Status](other.testNode, "GET", "/api/v1/status", nil)
		none := findTrouble(s.Troubles, wire.TroubleNoLeader, "")
		return none != nil && strings.Contains(none.Text, "2 of 3 voters are unreachable") &&
			strings.Contains(none.Remedy, "start one of them")
	})
}
