package node

import (
	"net"
	"strings"
	"testing"
	"time"
)

// A stranger opens connections and says nothing, more than a node has places for: jobs go on, the leader stays, clients
// at other addresses are served, and the metrics say what happened. The stranger dials from 127.0.0.2, which no member
// advertises.
func TestFloodOfConnections(t *testing.T) {
	realTime(t)
	t.Parallel()
	const most = 200
	c := startJoined(t, 3, func(cfg *Config) {
		cfg.MaxConnections = most
		cfg.Raft.Heartbeat = 3 * time.Second // an election is to be the flood's doing, not that of a busy machine
	})
	lead := c.leader()
	tg := newTarget(t)
	lead.create(tg.spec("going-on", "@every 1s"))
	c.fires("going-on")
	_, term := lead.group.raft.LeaderWithID()
	before := lead.group.raft.CurrentTerm()

	stranger := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 10 * time.Second}
	for range 2 * most {
		conn, err := stranger.Dial("tcp", lead.mux.Addr().String())
		if err != nil {
			t.Skipf("cannot dial from 127.0.0.2 on this machine: %v", err)
		}
		defer conn.Close()
	}
	lead.eventually("it refuses", func() bool { return lead.port.Refused() >= most+most/2 })
	if open := lead.port.Open(); open > most {
		t.Errorf("%d connections are open, %d are allowed", open, most)
	}
	flooded := time.Now()
	for _, m := range c.members {
		if m != lead {
			m.eventually("it goes on hearing the leader", func() bool { return m.group.raft.LastContact().After(flooded) })
		}
	}
	c.fires("going-on")
	lead.create(unclaimedJob("created"))
	for _, m := range c.members {
		if a := m.call("GET", "/api/v1/jobs/created", nil); a.status != 200 {
			t.Errorf("%s answers %d %s", m.id(), a.status, a.body)
		}
	}
	if _, now := lead.group.raft.LeaderWithID(); now != term || lead.group.raft.CurrentTerm() != before {
		t.Errorf("%s leads in term %d; before it was %s in term %d", now, lead.group.raft.CurrentTerm(), term, before)
	}
	if a := lead.call("GET", "/metrics", nil); !strings.Contains(string(a.body), "carillon_connections_refused_total 3") {
		t.Errorf("the metrics do not count the %d that were refused", lead.port.Refused())
	}
}
