package node

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/store"
)

// A leader whose replica is to leave hands over to one that stays, also where leaders would not be spread: no disk has
// the room for that, and enough to lead.
func TestLeadingReplicaThatLeavesHandsOver(t *testing.T) {
	realTime(t)
	t.Parallel()
	const limit = 512 << 20
	var free atomic.Uint64
	free.Store(10 * limit)
	c := startMoving(t, 2, 4, func(cfg *Config) {
		cfg.MinFreeDisk = DiskLimit{Bytes: limit}
		cfg.Machine.DiskEvery = 10 * time.Millisecond
		cfg.Machine.DiskSpace = func() (uint64, uint64, error) { return free.Load(), 100 * limit, nil }
	})
	free.Store(limit + limit/4)
	var lead *member
	c.members[0].eventually("the leader of group 1 knows of all disks", func() bool {
		var g *group
		lead, g = c.groupLeader(1)
		for _, s := range g.members.Configured() {
			m := wire.Member{ID: replica.Node(s.ID)}
			if g.members.Describe(&m, 0); m.Disk == nil || m.Disk.Free != free.Load() {
				return false
			}
		}
		return true
	})
	var to []string
	for _, m := range c.members {
		if m != lead {
			to = append(to, m.id())
		}
	}
	c.moves(1, to...)
	c.isOn(1, to...)
	c.write(1, "after")
}

// A node that is given a replica while it still has its last one open, of which it has not heard that it is over, does not
// vote by what that one says: it has nothing of what it would vote for.
func TestNodeVotesByItsOwnReplica(t *testing.T) {
	onlyLong(t, "waits for replicas that come and go")
	t.Parallel()
	c := startMoving(t, 2, 4)
	c.mustOp("transfer", "n4")
	lead, g := c.groupLeader(1)
	behind := c.member("n2")
	if lead == behind {
		behind = c.member("n3")
	}
	old := behind.hostedGroup(1)
	n4 := c.member("n4")
	n4.link.mu.Lock()
	n4.link.cut = map[string]bool{behind.id(): true} // the control group's leader, which leads no other group
	n4.link.mu.Unlock()

	var others []string
	for _, m := range c.members {
		if m != behind {
			others = append(others, m.id())
		}
	}
	c.moves(1, others...)
	if behind.hostedGroup(1) != old {
		t.Skip("another node led the control group meanwhile, and it has heard of the move")
	}
	c.askMove(1, lead.id(), behind.id())
	lead.eventually("the new replica is in the group", func() bool {
		return slices.ContainsFunc(g.members.Configured(), func(s raft.Server) bool {
			return replica.Node(s.ID) == behind.id()
		})
	})
	time.Sleep(time.Second) // the leader asks it several times
	if votes := votersOf(g); slices.Contains(votes, behind.id()) && behind.hostedGroup(1) == old {
		t.Errorf("%v vote, and %s has replica %d", votes, behind.id(), old.of.Number)
	}
	c.write(1, "meanwhile")
	n4.link.mu.Lock()
	n4.link.cut = nil
	n4.link.mu.Unlock()
	c.moves(1, lead.id(), behind.id())
	on := []string{lead.id(), behind.id()}
	slices.Sort(on)
	c.isOn(1, on...)
	behind.eventually("it has what was written", func() bool { return calendarIn(t, behind.hostedGroup(1), "meanwhile") })
}

// follows has a group obey a row, as if the control group had one that is newer than what this cluster's has.
func (c *cluster) follows(group uint32, change func(*store.GroupRow)) {
	c.t.Helper()
	c.living()[0].eventually(fmt.Sprintf("group %d obeys the row", group), func() bool {
		_, g := c.groupLeader(group)
		e, row := g.tracker.Epoch(), g.store.Info().Row
		if e == nil || row.Number != group {
			return false
		}
		row.Replicas = slices.Clone(row.Replicas)
		change(&row)
		row.Version++
		reply, err := e.Proposer.Propose(&fsm.PutGroup{Head: e.Head(g.now()), Row: row, Version: row.Version}).Wait()
		return err == nil && reply.Items[0].Code == fsm.CodeOK
	})
}

// No replica is dropped for the sake of one whose node the leader does not know, as when it joined since the leader's own
// node last heard of the control group; unless that one votes.
func TestNothingIsDroppedForAnUnknownNode(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startMoving(t, 2, 4)
	lead, g := c.groupLeader(1)
	goes := c.member("n2")
	if lead == goes {
		goes = c.member("n3")
	}
	of := func(row *store.GroupRow, id string) *store.GroupReplica {
		i := slices.IndexFunc(row.Replicas, func(r store.GroupReplica) bool { return r.Node == id })
		return &row.Replicas[i]
	}
	var number uint64
	c.follows(1, func(row *store.GroupRow) {
		if !slices.ContainsFunc(row.Replicas, func(r store.GroupReplica) bool { return r.Node == "n4" }) {
			row.Last++
			row.Replicas = append(row.Replicas, store.GroupReplica{Node: "n4", Number: row.Last})
		}
		number = row.Last
		of(row, "n4").Instance = "not heard of yet"
		of(row, goes.id()).Leaving = true
	})
	time.Sleep(time.Second) // the leader looks several times
	if got := votersOf(g); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("%v vote, and n4, for which %s was to go, is not in the group", got, goes.id())
	}

	// The others that stay vote: one of them may be unknown.
	var stays string
	c.follows(1, func(row *store.GroupRow) {
		row.Replicas = slices.DeleteFunc(row.Replicas, func(r store.GroupReplica) bool { return r.Number == number })
		for i := range row.Replicas {
			if r := &row.Replicas[i]; r.Node != goes.id() && r.Node != lead.id() {
				r.Instance, stays = "not heard of yet", r.Node
			}
		}
	})
	want := []string{lead.id(), stays}
	slices.Sort(want)
	lead.eventually(goes.id()+" is dropped", func() bool { return slices.Equal(votersOf(g), want) })
}

// A member that is silent for too long leaves as one that is removed by hand: its groups replace it first. So does the
// next one, as long as a majority of each group lives.
func TestDeadMembersLeaveTheirGroups(t *testing.T) {
	onlyLong(t, "waits until a node counts as dead")
	t.Parallel()
	c := startMoving(t, 2, 4, func(cfg *Config) { cfg.Members.RemoveDeadAfter = 6 * time.Second })
	c.write(1, "one")
	c.write(2, "one")
	dead, _ := c.groupLeader(1)
	dead.crash()
	left := slices.DeleteFunc([]string{"n1", "n2", "n3", "n4"}, func(id string) bool { return id == dead.id() })
	at := c.member(left[0])
	at.eventually(dead.id()+" is removed", func() bool {
		row, _ := at.members.Row(dead.id())
		for group := uint32(1); group <= 2 && row.Removed; group++ {
			if g := at.groupRow(group); numberOn(g, dead.id()) != 0 {
				t.Fatalf("it was removed before group %d had replaced it: %+v", group, g)
			}
		}
		return row.Removed
	})
	c.isOn(1, left...)
	c.isOn(2, left...)
	c.write(1, "two")
	c.write(2, "two")
	if got := of(at.audits(), "member"); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "remove") }) {
		t.Errorf("no caller asked for it: %q", got)
	}
	dead.kill()
}

// What a caller asks for is recorded once, however often it is repeated, and what the leaders do by themselves is not.
func TestAuditOfGroups(t *testing.T) {
	onlyLong(t, "waits for the records of every change in groups")
	t.Parallel()
	c := startMoving(t, 2, 4)
	c.moves(1, "n2", "n3", "n4")
	c.moves(1, "n2", "n3", "n4")
	grow := func() bool {
		a, err := c.members[1].try("POST", "/api/v1/cluster:grow-groups", wire.GrowRequest{Groups: 3})
		var g wire.Growth
		if err != nil || a.status != 200 {
			return false
		}
		decode(t, a.body, &g)
		return g.Done
	}
	c.members[1].eventually("there are three groups", grow)
	grow()
	c.removes("n4")
	c.removes("n4")
	want := []string{"cluster.move-group 1 from 127.0.0.1", "cluster.grow-groups 3 from 127.0.0.1",
		"member.remove n4 from 127.0.0.1"}
	lead := c.leader()
	got := slices.DeleteFunc(of(lead.audits(), "member", "cluster"), func(s string) bool {
		return strings.HasPrefix(s, "member.join")
	})
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
