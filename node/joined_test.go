package node

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
)

// newMember is a node that is configured and not opened. It joins whom it is told to, or begins a cluster.
func (c *cluster) newMember(id string, join []string, change ...func(*Config)) *member {
	c.t.Helper()
	ln := port.Listen(c.t)
	cfg := testConfig(c.t, c.t.TempDir())
	cfg.NodeID, cfg.Listen, cfg.Bootstrap, cfg.Join = id, ln.Addr().String(), len(join) == 0, join
	// shorter ones lose leaderships for no reason on a machine that is busy with other things
	cfg.Raft.Heartbeat = 300 * time.Millisecond
	cfg.Members = MembersConfig{Interval: 40 * time.Millisecond, StableFor: 100 * time.Millisecond}
	cfg.Logger = slog.New(partFilter{cfg.Logger.With("node", id).Handler()})
	for _, f := range change {
		f(&cfg)
	}
	return &member{cfg: cfg, link: &link{ln: ln}}
}

// startJoined begins a cluster with one node and lets the others join it, all at the same time.
func startJoined(t *testing.T, n int, change ...func(*Config)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	first := c.newMember("n1", nil, change...)
	c.members = append(c.members, first)
	for i := 1; i < n; i++ {
		c.members = append(c.members, c.newMember(fmt.Sprintf("n%d", i+1), []string{first.cfg.Listen}, change...))
	}
	t.Cleanup(c.killAll)
	for _, m := range c.members {
		m.open(t)
	}
	c.awaitVoters(n)
	return c
}

// awaitVoters waits until every living node has exactly n voters in its configuration and is ready.
func (c *cluster) awaitVoters(n int) {
	c.t.Helper()
	for _, m := range c.members {
		if m.link.dead.Load() || m.done == nil {
			continue
		}
		m.eventually(fmt.Sprintf("%s sees %d voters", m.id(), n),
			func() bool { return len(voters(m)) == n && m.service.Ready() == nil })
	}
}

func voters(m *member) (ids []string) {
	servers := m.members.Configured()
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			ids = append(ids, replica.Node(s.ID))
		}
	}
	slices.Sort(ids)
	return ids
}

// sameState waits until all living nodes have the same state: every scenario ends on it.
func (c *cluster) sameState() {
	c.t.Helper()
	lead := c.leader()
	lead.eventually("all have the same state", func() bool {
		var first string
		for _, m := range c.members {
			if m.link.dead.Load() || m.done == nil || m.members.Removed() {
				continue
			}
			d, err := m.group.store.Digest()
			if err != nil {
				c.t.Fatal(err)
			}
			if first == "" {
				first = d
			}
			if d != first {
				return false
			}
		}
		return true
	})
	for _, m := range c.members {
		if m.link.dead.Load() || m.done == nil {
			continue
		}
		if problems, _, err := m.group.store.Check(); err != nil || len(problems) > 0 {
			c.t.Errorf("%s: %q %v", m.id(), problems, err)
		}
	}
}

func (c *cluster) op(verb, id string) apiAnswer {
	c.t.Helper()
	return c.leader().call("POST", "/api/v1/cluster:"+verb, wire.NodeRequest{NodeID: id})
}

func (c *cluster) mustOp(verb, id string) {
	c.t.Helper()
	var a apiAnswer
	c.leader().eventually("it can be done", func() bool {
		a = c.op(verb, id)
		// A node that had to wait for a processor counts as silent for a moment, and a leader that had to loses its place.
		return a.status != 503 && !(a.status == 409 && strings.Contains(string(a.body), "would be alive"))
	})
	if a.status != 204 {
		c.t.Fatalf("%s %s: %d %s", verb, id, a.status, a.body)
	}
}

func (c *cluster) refused(verb, id string, code job.Code, want string) {
	c.t.Helper()
	before := c.leader().members.Configured()
	if p := c.op(verb, id).problem(); p.Code != code || !strings.Contains(p.Message+p.Remedy, want) {
		c.t.Errorf("%s %s: %+v, want %s with %q", verb, id, p, code, want)
	}
	if after := c.leader().members.Configured(); !slices.Equal(before, after) {
		c.t.Errorf("%s %s was refused and changed %v to %v", verb, id, before, after)
	}
}

// fires waits until a job has run again.
func (c *cluster) fires(ref string) {
	c.t.Helper()
	lead := c.leader()
	was := lead.count(ref, job.RunSucceeded)
	lead.eventually(ref+" runs again", func() bool {
		n := c.leader()
		a, err := n.try("GET", "/api/v1/jobs/"+ref+"/runs?limit=50", nil)
		if err != nil || a.status != 200 {
			return false
		}
		var p wire.RunPage
		if json.Unmarshal(a.body, &p) != nil {
			return false
		}
		got := 0
		for _, r := range p.Runs {
			if r.Status == job.RunSucceeded {
				got++
			}
		}
		return got > was
	})
}
