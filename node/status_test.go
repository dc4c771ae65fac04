package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
)

func findTrouble(list []wire.Trouble, code, node string) *wire.Trouble {
	i := slices.IndexFunc(list, func(t wire.Trouble) bool { return t.Code == code && t.Node == node })
	if i < 0 {
		return nil
	}
	return &list[i]
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
