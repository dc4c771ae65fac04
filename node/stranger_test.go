package node

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/transport"
)

// These are attacks by a stranger without any credential on a cluster that asks for them. TLS shows to everybody what a
// node is called and which instance it is, so a stranger can say all that a member says.

// guarded is a cluster that has TLS and asks for tokens.
func guarded(t *testing.T, size int, change ...func(*Config)) (c *cluster, admin string) {
	t.Helper()
	keyed, _ := securely(t)
	c = startJoined(t, size, append([]func(*Config){keyed, secure}, change...)...)
	return c, readAdmin(t, c.members[0].cfg.DataDir)
}

// as is what a stranger says to be taken for a member.
func as(m *member) wire.JoinRequest {
	rq := m.members.Request()
	rq.Member = true
	return rq
}

// rowsOf are the rows of all members, as a node has them.
func rowsOf(t *testing.T, m *member) string {
	t.Helper()
	rows, err := m.members.Rows()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%+v", r))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// Attack: say what a member says, through a follower, which passes it on under its own certificate. Neither its row nor
// the level of the cluster is a stranger's to change.
func TestStrangerSpeaksForAMember(t *testing.T) {
	t.Parallel()
	c, _ := guarded(t, 2)
	leader := c.leader()
	follower := c.others(leader)[0]
	before, audits := rowsOf(t, leader), len(leader.audits())
	for what, change := range map[string]func(*wire.JoinRequest){
		"as it is":         func(*wire.JoinRequest) {},
		"another version":  func(r *wire.JoinRequest) { r.Version = "evil" },
		"a higher level":   func(r *wire.JoinRequest) { r.Level++ },
		"tags":             func(r *wire.JoinRequest) { r.Tags = map[string]string{"a": strings.Repeat("x", 8<<10)} },
		"a port elsewhere": func(r *wire.JoinRequest) { r.Address = "127.0.0.1:1" },
	} {
		for _, who := range []*member{follower, leader} {
			for _, through := range []*member{follower, leader} {
				rq := as(who)
				change(&rq)
				a := through.answered("POST", "/api/v1/cluster:join", rq)
				if p := a.problem(); a.status != http.StatusForbidden || p.Code != job.CodeForbidden || p.Remedy == "" {
					t.Errorf("%s of %s through %s: %d %s", what, who.id(), through.id(), a.status, a.body)
				}
			}
		}
	}
	if after := rowsOf(t, leader); after != before {
		t.Errorf("rows were\n%s\nand are\n%s", before, after)
	}
	if n := len(leader.audits()); n != audits {
		t.Errorf("%d records were written", n-audits)
	}
}

// Attack: push what was done to tokens and members out of the audit, and fill the log, by requests that are refused.
func TestRefusedJoinsLeaveTheAudit(t *testing.T) {
	realTime(t)
	t.Parallel()
	// The bound on how often is lifted: it must not be all that the audit rests on.
	c, admin := guarded(t, 2, func(c *Config) { c.MaxJoins = 1 << 20 })
	leader := c.leader()
	follower := c.others(leader)[0]
	ok[wire.JoinTokenCreated](leader.testNode, "POST", "/api/v1/join-tokens", nil, "Authorization", "Bearer "+admin)
	kept := of(leader.audits(), "join-token", "token", "member")
	if len(kept) == 0 {
		t.Fatal("there is nothing to push out")
	}
	size, index := len(leader.audits()), leader.group.raft.LastIndex()
	var wg sync.WaitGroup
	var done, taken, bounded atomic.Int64
	requests := int64(1500) // none writes anything, so none can push anything out
	if long {
		requests = 11_000 // more than an audit holds
	}
	for range 16 {
		wg.Go(func() {
			for i := done.Add(1); i <= requests; i = done.Add(1) {
				rq := as(follower)
				rq.Version, rq.Member = fmt.Sprint("evil", i), i%2 == 0
				switch a, err := follower.try("POST", "/api/v1/cluster:join", rq); {
				case err != nil:
					t.Error(err)
				case a.status < 400:
					taken.Add(1)
				case a.status == http.StatusTooManyRequests:
					bounded.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if taken.Load() > 0 || bounded.Load() > requests/10 { // some may be under way at once
		t.Errorf("%d were taken, %d not looked at", taken.Load(), bounded.Load())
	}
	if now := of(leader.audits(), "join-token", "token", "member"); !slices.Equal(now, kept) {
		t.Errorf("of %d records %d are left", len(kept), len(now))
	}
	if n := len(leader.audits()) - size; n != 0 {
		t.Errorf("%d records were written", n)
	}
	if n := leader.group.raft.LastIndex() - index; n > 100 { // stamps
		t.Errorf("%d entries were written", n)
	}
}

// announces has a node's own connection say something to another node.
func announces(t *testing.T, from, to *member, rq wire.JoinRequest, headers ...string) apiAnswer {
	t.Helper()
	dial := transport.NodeDial(from.keys, from.cfg.Machine.Dialer(time.Second, 0), nil)
	by := &testNode{Node: to.Node, t: t, client: &http.Client{Transport: &http.Transport{DialContext: dial,
		DisableKeepAlives: true}}}
	return by.call("POST", membership.AnnouncePath, rq, headers...)
}

// What a member says of itself counts over its own connection to the leader, and where that finds the same. No node
// passes it on.
func TestMembersSpeakForThemselves(t *testing.T) {
	t.Parallel()
	c, _ := guarded(t, 3)
	c.underOneLeader(func(leader *member, fail func(string, ...any)) {
		one, other := c.others(leader)[0], c.others(leader)[1]
		before := rowsOf(t, leader)
		level := one.members.Request()
		level.Level++
		version := one.members.Request()
		version.Version = "evil"
		moved := one.members.Request()
		moved.Address = other.cfg.Listen
		copied := one.members.Request()
		copied.InstanceID = "another"
		for what, tc := range map[string]struct {
			from, to *member
			rq       wire.JoinRequest
			headers  []string
			status   int
		}{
			"itself":                 {one, leader, one.members.Request(), nil, 200},
			"another":                {other, leader, one.members.Request(), nil, 403},
			"the leader":             {other, leader, leader.members.Request(), nil, 403},
			"another data directory": {one, leader, copied, nil, 403},
			"a higher level":         {one, leader, level, nil, 409},
			"another version":        {one, leader, version, nil, 409},
			"another's address":      {one, leader, moved, nil, 409},
			"passed on":              {one, leader, one.members.Request(), []string{wire.AddressHeader, "192.0.2.1"}, 403},
			"to who does not lead":   {one, other, one.members.Request(), nil, 421},
		} {
			a := announces(t, tc.from, tc.to, tc.rq, append([]string{wire.ForwardedHeader, tc.from.id()}, tc.headers...)...)
			if a.status != tc.status {
				fail("%s: %d %s", what, a.status, a.body)
			}
			if hint := a.header.Get(wire.LeaderHeader); tc.status == 421 && hint != leader.cfg.Listen {
				fail("%s: is sent to %q", what, hint)
			}
		}
		for _, m := range c.members {
			if a := m.call("POST", membership.AnnouncePath, one.members.Request()); a.status != 403 {
				fail("a stranger: %d %s", a.status, a.body)
			}
		}
		if after := rowsOf(t, leader); after != before {
			fail("rows were\n%s\nand are\n%s", before, after)
		}
	})
}

// On a plain cluster nobody is asked who they are. Still no node passes on what a member says, and a claim that the node
// itself does not make raises no level.
func TestPlainMembersSpeakForThemselves(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 2)
	leader := c.leader()
	follower := c.others(leader)[0]
	before := rowsOf(t, leader)
	claim := as(follower)
	claim.Level++
	for _, m := range c.members {
		if a := m.call("POST", "/api/v1/cluster:join", claim); a.status != 403 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	claim.Member = false
	for path, m := range map[string]*member{membership.AnnouncePath: leader, "/api/v1/cluster:join": follower} {
		if a := m.call("POST", path, claim); a.status != 409 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := follower.call("POST", membership.AnnouncePath, follower.members.Request()); a.status != 421 ||
		a.header.Get(wire.LeaderHeader) != leader.cfg.Listen {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := leader.call("POST", membership.AnnouncePath, follower.members.Request()); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if after := rowsOf(t, leader); after != before {
		t.Errorf("rows were\n%s\nand are\n%s", before, after)
	}
}
