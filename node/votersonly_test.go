package node

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// In a secure cluster raft's requests are accepted from voters alone. A member without a vote, and one that lost its
// vote, has a real certificate and speaks raft itself here, past everything that its own program would refuse to send.

// speaking is raft's transport as a member has it: with its certificate, its id and its address.
func (m *member) speaking(t *testing.T) *transport.RaftTransport {
	t.Helper()
	ring, err := keys.OpenRing(m.keyFile(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	return intruder(t, m.members.Hello(), ring)
}

// seize is what a member can send to a voter to take the cluster over: an entry that makes an admin's token, as the
// leader of the next term and as committed; a snapshot; its own election.
func (m *member) seize(t *testing.T, tr *transport.RaftTransport, victim *member) map[string]error {
	t.Helper()
	h := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(replica.ID(m.id(), replica.First)),
		Addr: []byte(m.cfg.Listen)}
	id, to := replica.ID(victim.id(), replica.First), raft.ServerAddress(victim.cfg.Listen)
	term := victim.group.raft.CurrentTerm() + 1
	last := victim.group.raft.LastIndex()
	var at raft.Log
	if err := victim.group.files.Log.GetLog(last, &at); err != nil {
		t.Fatal(err)
	}
	data, err := fsm.Encode(&fsm.CreateToken{Head: fsm.Head{Now: victim.group.store.Counters().Mark, Term: term},
		Token: store.Token{ID: "thiefthiefth", Sum: make([]byte, 32), Name: "thief", Role: string(job.RoleAdmin),
			Shell: true}})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]error{}
	out["entries"] = tr.AppendEntries(id, to, &raft.AppendEntriesRequest{RPCHeader: h, Term: term, PrevLogEntry: last,
		PrevLogTerm: at.Term, LeaderCommitIndex: last + 1,
		Entries: []*raft.Log{{Index: last + 1, Term: term, Type: raft.LogCommand, Data: data}}},
		&raft.AppendEntriesResponse{})
	out["heartbeat"] = tr.AppendEntries(id, to, &raft.AppendEntriesRequest{RPCHeader: h, Term: term},
		&raft.AppendEntriesResponse{})
	out["vote"] = tr.RequestVote(id, to, &raft.RequestVoteRequest{RPCHeader: h, Term: term, LastLogIndex: last + 9,
		LastLogTerm: term, LeadershipTransfer: true}, &raft.RequestVoteResponse{})
	out["prevote"] = m.asks(tr, victim)
	out["timeout now"] = tr.TimeoutNow(id, to, &raft.TimeoutNowRequest{RPCHeader: h}, &raft.TimeoutNowResponse{})
	out["snapshot"] = tr.InstallSnapshot(id, to, &raft.InstallSnapshotRequest{RPCHeader: h, SnapshotVersion: 1,
		Term: term, LastLogIndex: last + 1, LastLogTerm: term, Size: 4,
		Configuration: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{
			ID: replica.ID(m.id(), replica.First), Address: "127.0.0.1:1"}}}), ConfigurationIndex: 1},
		&raft.InstallSnapshotResponse{}, io.LimitReader(strings.NewReader("evil"), 4))
	return out
}

// asks is a request that changes nothing, whatever the answer is.
func (m *member) asks(tr *transport.RaftTransport, victim *member) error {
	return tr.RequestPreVote(replica.ID(victim.id(), replica.First), raft.ServerAddress(victim.cfg.Listen),
		&raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax,
			ID:   []byte(replica.ID(m.id(), replica.First)),
			Addr: []byte(m.cfg.Listen)}, Term: 1}, &raft.RequestPreVoteResponse{})
}

// standby adds a member that joins with a token that gives no vote.
func (c *cluster) standby(id string) *member {
	c.t.Helper()
	first := c.members[0]
	made := ok[wire.JoinTokenCreated](first.testNode, "POST", "/api/v1/join-tokens", wire.JoinTokenRequest{})
	tok, err := keys.ParseToken(keys.JoinToken, made.Text)
	if err != nil {
		c.t.Fatal(err)
	}
	m := c.newMember(id, []string{first.cfg.Listen}, func(cfg *Config) { cfg.Keys.On, cfg.Keys.Token = true, tok })
	c.members = append(c.members, m)
	m.open(c.t)
	m.eventually("it has joined", func() bool { return m.service.Ready() == nil })
	return m
}

func TestRaftFromVotersOnly(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, _ := securely(t)
	c := startJoined(t, 3, secure)
	refused := func(t *testing.T, m *member, by ...*member) {
		t.Helper()
		tr := m.speaking(t)
		for _, v := range by {
			for what, err := range m.seize(t, tr, v) {
				if err == nil {
					t.Errorf("%s took a request of %s: %s", v.id(), m.id(), what)
				}
			}
			if _, there := v.group.store.Token("thiefthiefth"); there {
				t.Errorf("%s has the token that %s made", v.id(), m.id())
			}
		}
	}
	n1, n2, n3 := c.named("n1"), c.named("n2"), c.named("n3")
	t.Run("a voter", func(t *testing.T) {
		if err := n3.asks(n3.speaking(t), n2); err != nil {
			t.Errorf("a voter is refused: %v", err)
		}
	})
	n4 := c.standby("n4")
	if !t.Run("a standby", func(t *testing.T) { refused(t, n4, n1, n2, n3) }) {
		return // the cluster is not one any more
	}
	c.lead(n1)
	c.mustOp("demote", "n3")
	for _, m := range []*member{n1, n2} {
		m.eventually("it knows of the demotion", func() bool {
			row, _ := m.members.Row("n3")
			return row.Standby && len(voters(m)) == 2
		})
	}
	t.Run("a demoted voter", func(t *testing.T) { refused(t, n3, n1, n2) })
	t.Run("it reads what is replicated", func(t *testing.T) {
		n1.create(newTarget(t).spec("later", "@every 1h"))
		n3.eventually("the job is there", func() bool { return n3.group.store.Counters().Jobs == 1 })
	})
	n1.eventually("n3 is promoted", func() bool { return c.op("promote", "n3").status == 204 })
	n1.eventually("it votes again", func() bool { return len(voters(n1)) == 3 })
	t.Run("a voter that was promoted again", func(t *testing.T) {
		c.lead(n3)
		c.lead(n1)
	})
	c.mustOp("remove", "n3")
	for _, m := range []*member{n1, n2} {
		m.eventually("it knows of the removal", func() bool {
			row, _ := m.members.Row("n3")
			return row.Removed && len(voters(m)) == 2
		})
	}
	t.Run("a removed node", func(t *testing.T) { refused(t, n3, n1, n2) })
	n3.stop()
	c.members = []*member{n1, n2, n4}
	c.sameState()
}

// lead has a member lead.
func (c *cluster) lead(m *member) {
	c.t.Helper()
	m.eventually(m.id()+" leads", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		l := c.leader()
		return l == m || l.members.Transfer(ctx, m.id(), false) == nil && c.leader() == m
	})
}

// A node that was off while another one was promoted has it as one on standby, in its rows and in raft's configuration.
// It must follow that one when it leads, or it would never learn otherwise.
func TestSleeperFollowsAPromotedLeader(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, _ := securely(t)
	c := startJoined(t, 3, secure)
	n3 := c.named("n3")
	n4 := c.standby("n4")
	n3.eventually("it knows the standby", func() bool {
		row, _ := n3.members.Row("n4")
		return row.Standby && len(n3.members.Configured()) == 4
	})
	c.lead(c.named("n1"))
	n3.stop()
	n4.eventually("it is promoted", func() bool { return c.op("promote", "n4").status == 204 })
	n4.eventually("it votes", func() bool { return len(voters(n4)) == 4 })
	for _, m := range []*member{c.named("n1"), c.named("n2")} { // only n4 reaches it
		m.link.mu.Lock()
		m.link.cut = map[string]bool{"n3": true}
		m.link.mu.Unlock()
	}
	n3.link = &link{cuts: map[string]bool{"n1": true, "n2": true, "n4": true}} // and it stands for no election
	n3.open(t)
	n3.eventually("it has learned from n4 that n4 votes", func() bool {
		c.lead(n4)
		row, _ := n3.members.Row("n4")
		return !row.Standby
	})
}
