package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// startMoving starts a cluster of three nodes and groups on all of them, and has further nodes join that have none.
func startMoving(t *testing.T, groups uint32, nodes int, change ...func(*Config)) *cluster {
	t.Helper()
	change = append([]func(*Config){func(c *Config) { c.Raft.Heartbeat, c.TTL = time.Second, 20*time.Second }}, change...)
	c := startGroups(t, groups, change...)
	for i := 4; i <= nodes; i++ {
		m := c.joins(fmt.Sprint("n", i), change...)
		m.eventually("it knows the groups", func() bool { return m.split.Load().Groups == groups })
	}
	return c
}

// askMove asks for a move until it is answered, and says how far it is.
func (c *cluster) askMove(group uint32, to ...string) (r wire.GroupMove) {
	c.t.Helper()
	c.living()[0].eventually(fmt.Sprintf("group %d is asked to move to %v", group, to), func() bool {
		a, err := c.living()[0].try("POST", "/api/v1/cluster:move-group", wire.MoveGroupRequest{Group: group, To: to})
		if err != nil || a.status != 200 {
			return false
		}
		decode(c.t, a.body, &r)
		return true
	})
	return r
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

// moves moves a group and waits until it is done.
func (c *cluster) moves(group uint32, to ...string) {
	c.t.Helper()
	c.living()[0].eventually(fmt.Sprintf("group %d is on %v", group, to), func() bool {
		return c.askMove(group, to...).Done
	})
}

// isOn waits until living nodes have the replicas of a group that they are to have and no others, with one state.
func (c *cluster) isOn(group uint32, nodes ...string) {
	c.t.Helper()
	for _, m := range c.living() {
		has := slices.Contains(nodes, m.id())
		m.eventually(fmt.Sprintf("%s has a replica of group %d: %v", m.id(), group, has), func() bool {
			g := m.hostedGroup(group)
			_, err := os.Stat(m.dir.File(datadir.GroupDir(group)))
			return has && g != nil && slices.Equal(votersOf(g), nodes) ||
				!has && g == nil && errors.Is(err, os.ErrNotExist)
		})
	}
}

func (c *cluster) member(id string) *member {
	c.t.Helper()
	i := slices.IndexFunc(c.members, func(m *member) bool { return m.id() == id })
	if i < 0 {
		c.t.Fatal("no node ", id)
	}
	return c.members[i]
}

func (m *member) groupRow(group uint32) store.GroupRow {
	m.t.Helper()
	row, known, err := m.members.GroupRow(group)
	if err != nil || !known {
		m.t.Fatalf("group %d: %v %v", group, known, err)
	}
	return row
}

// numberOn is that of a node's replica in a row; 0: it has none.
func numberOn(row store.GroupRow, node string) uint64 {
	for _, r := range row.Replicas {
		if r.Node == node {
			return r.Number
		}
	}
	return 0
}

// A group moves with all that it has while it works, and what was left of it on the nodes before is gone. A node that had
// a replica gets another one with a higher number.
func TestGroupMoves(t *testing.T) {
	realTime(t)
	t.Parallel()
	for name, mode := range modes(t) {
		t.Run(name, func(t *testing.T) {
			if name == "secure" {
				onlyLong(t, "the plain run is without TLS")
			}
			t.Parallel()
			c := startMoving(t, 2, 4, mode)
			c.write(1, "before")
			old := c.member("n1").hostedGroup(1).members.Hello()
			c.moves(1, "n2", "n3", "n4")
			c.isOn(1, "n2", "n3", "n4")
			c.isOn(2, "n1", "n2", "n3")
			for _, id := range []string{"n2", "n3", "n4"} {
				m := c.member(id)
				m.eventually(id+" has what was written", func() bool { return calendarIn(t, m.hostedGroup(1), "before") })
			}
			c.write(1, "after")

			// What the replica that was given up still says is refused: it has forgotten its votes.
			m := c.member("n4")
			m.eventually("n4 knows that it is over", func() bool {
				err := m.hostedGroup(1).members.Check(old)
				return err != nil && strings.Contains(err.Error(), "moved or removed")
			})
			n1 := c.member("n1")
			if !slices.ContainsFunc(n1.dir.Removed, func(r datadir.Replica) bool { return r.Group == 1 && r.Number == old.Replica }) {
				t.Errorf("the data directory does not remember its replica: %+v", n1.dir.Removed)
			}

			// Jobs of the group are there whichever node is asked, also at the node that had it.
			j := n1.create(map[string]any{"name": "after", "type": "http", "schedule": "0 3 * * *",
				"payload": map[string]any{"url": "http://127.0.0.1:1/"}})
			if got := m.get("after"); got.ID != j.ID {
				t.Errorf("%s, made as %s", got.ID, j.ID)
			}

			c.moves(1, "n1", "n4")
			c.isOn(1, "n1", "n4")
			row := m.groupRow(1)
			if n := numberOn(row, "n1"); n <= old.Replica || n <= numberOn(row, "n4") || row.Last != n {
				t.Errorf("n1 has replica %d, and had %d: %+v", n, old.Replica, row)
			}
			n1.eventually("all of it is there again", func() bool {
				return calendarIn(t, n1.hostedGroup(1), "before") && calendarIn(t, n1.hostedGroup(1), "after")
			})
			time.Sleep(time.Second) // the leader of the control group looks at it several times
			if row := c.leader().groupRow(1); len(row.Replicas) != 2 {
				t.Errorf("it was told to be on two nodes: %+v", row)
			}
			for _, m := range c.members {
				m.stop()
			}
			for _, m := range c.members { // what the directories say fits together
				m.link = &link{}
				m.open(t)
			}
			c.write(1, "again")
			c.isOn(1, "n1", "n4")
		})
	}
}

// What cannot be done is refused, and changes nothing.
func TestMovesThatAreRefused(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startMoving(t, 2, 4)
	dead := c.member("n3")
	dead.crash()
	before := c.members[0].groupRow(1)
	c.members[0].eventually("the others miss n3", func() bool {
		a := c.members[0].call("POST", "/api/v1/cluster:move-group", `{"group":1,"to":["n1","n3","n4"]}`)
		return a.status == 409 && strings.Contains(string(a.body), "node n3 does not answer")
	})
	for _, x := range []struct {
		body   string
		status int
		text   string
	}{
		{`{"group":0,"to":["n1"]}`, 400, "group 0 has a replica on every node"},
		{`{"group":3,"to":["n1"]}`, 404, "no group 3"},
		{`{"group":65,"to":["n1"]}`, 404, "no group 65"},
		{`{"group":-1,"to":["n1"]}`, 400, "group"},
		{`{"group":1,"to":[]}`, 400, "one to 3 replicas"},
		{`{"group":1}`, 400, "one to 3 replicas"},
		{`{"group":1,"to":["n1","n2","n3","n4"]}`, 400, "one to 3 replicas"},
		{`{"group":1,"to":["n1","n1"]}`, 400, "named twice"},
		{`{"group":1,"to":["n1","n9"]}`, 400, "no node \\\"n9\\\""},
		{`{"group":1,"to":["n1"],"fast":true}`, 400, "fast"},
	} {
		if a := c.members[1].call("POST", "/api/v1/cluster:move-group", x.body); a.status/100 != 4 ||
			(a.status == 404) != (x.status == 404) || !strings.Contains(string(a.body), x.text) {
			t.Errorf("%s: %d %s", x.body, a.status, a.body)
		}
	}
	if got := c.members[0].groupRow(1); got.Version != before.Version {
		t.Errorf("%+v, and it was %+v", got, before)
	}
	if r := c.askMove(2, "n1", "n2", "n4"); slices.Contains(r.To, "n3") {
		t.Errorf("%+v", r)
	}
	c.moves(2, "n1", "n2", "n4") // with a dead replica that leaves
	c.isOn(2, "n1", "n2", "n4")
	dead.kill()
	dead.restart()
	c.isOn(2, "n1", "n2", "n4")
}

// Jobs of a group that moves run on: each occurrence once.
func TestMovesUnderLoad(t *testing.T) {
	onlyLong(t, "moves groups for ten seconds while jobs run")
	t.Parallel()
	const groups, jobs = 2, 8
	var mu sync.Mutex
	seen := map[string]int{} // by run
	last := map[string]string{}
	twice := 0
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.URL.Path + " " + r.Header.Get("Idempotency-Key")
		if seen[key]++; seen[key] > 1 {
			twice++
		}
		last[r.URL.Path] = key
	}))
	defer target.Close()
	c := startMoving(t, groups, 4, func(c *Config) { c.Executors = []job.Type{job.TypeHTTP} })
	for i := range jobs {
		c.members[i%4].create(map[string]any{"name": fmt.Sprint("job-", i), "type": "http", "schedule": "@every 1s",
			"missed": map[string]any{"policy": "run_all"}, "payload": map[string]any{"url": fmt.Sprintf("%s/job-%d", target.URL, i)}})
	}
	ran := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			count := map[string]int{}
			for key := range seen {
				path, _, _ := strings.Cut(key, " ")
				count[path]++
			}
			for i := range jobs {
				if count[fmt.Sprint("/job-", i)] < n {
					return false
				}
			}
			return true
		}
	}
	c.members[0].eventually("all jobs ran", ran(2))
	c.moves(1, "n2", "n3", "n4")
	c.moves(2, "n1", "n3", "n4")
	c.moves(1, "n1", "n2", "n4")
	mu.Lock()
	so := len(seen) / jobs
	mu.Unlock()
	c.members[0].eventually("all jobs go on", ran(so+3))
	for i := range jobs {
		name := fmt.Sprint("job-", i)
		c.members[0].call("POST", "/api/v1/jobs/"+name+":pause", nil)
		c.checkEverySecond(name)
	}
	mu.Lock()
	defer mu.Unlock()
	if twice > 0 {
		t.Errorf("%d runs were carried out twice", twice)
	}
}

// checkEverySecond holds that each second between the first and the last run of a job that was paused is accounted for.
func (c *cluster) checkEverySecond(name string) {
	c.t.Helper()
	var at []int64
	c.members[0].eventually("the runs of "+name+" are over", func() bool {
		at = nil
		for _, r := range c.members[0].runs(name) {
			switch {
			case r.Status == job.RunSucceeded:
				at = append(at, int64(r.ScheduledAt))
			case r.Reason == job.ReasonPaused: // since it was paused for this
			case r.Status == job.RunSkipped: // on a busy machine the run before may not be over after a second
				for t := int64(r.First); t <= int64(r.Last); t += 1000 {
					at = append(at, t)
				}
			default:
				return false
			}
		}
		return len(at) > 0
	})
	slices.Sort(at)
	for i := 1; i < len(at); i++ {
		if at[i]-at[i-1] != 1000 {
			c.t.Errorf("%s ran at %d and then at %d", name, at[i-1], at[i])
		}
	}
}

// removes asks for the removal of a node until it is gone, and returns the groups that it waited for.
func (c *cluster) removes(id string) (groups []uint32) {
	c.t.Helper()
	by := c.living()[0]
	if by.id() == id {
		by = c.living()[1]
	}
	by.eventually(id+" is removed", func() bool {
		a, err := by.try("POST", "/api/v1/cluster:remove", wire.NodeRequest{NodeID: id})
		if err != nil || a.status == 503 {
			return false
		}
		switch a.status {
		case 202:
			var r wire.Removal
			if decode(c.t, a.body, &r); groups == nil {
				groups = r.Groups
			}
		case 204:
			return true
		case 409: // nodes of a busy machine may have been silent for a moment
		default:
			c.t.Fatalf("remove %s: %d %s", id, a.status, a.body)
		}
		return false
	})
	return groups
}

// A node with replicas is removed after other nodes have got them: one that leads, and one that is dead. Where there is
// no other node the groups go on with two.
func TestRemoveANodeWithReplicas(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startMoving(t, 2, 4)
	c.write(1, "one")
	c.write(2, "one")
	lead, _ := c.groupLeader(1)
	if got := c.removes(lead.id()); !slices.Equal(got, []uint32{1, 2}) {
		t.Errorf("it waited for groups %v", got)
	}
	var left []string
	for _, m := range c.members {
		if m != lead {
			left = append(left, m.id())
		}
	}
	lead.kill()
	c.isOn(1, left...)
	c.isOn(2, left...)
	c.write(1, "two")

	dead := c.member(left[1])
	dead.crash()
	c.write(1, "three")
	c.removes(dead.id())
	left = slices.Delete(left, 1, 2)
	c.isOn(1, left...)
	c.isOn(2, left...)
	c.write(1, "four")
	c.write(2, "four")
	a := c.living()[0].call("POST", "/api/v1/cluster:remove", wire.NodeRequest{NodeID: "n9"})
	if a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	dead.kill()
}

// A node that comes back while it leaves goes on leaving. One without which a group has no majority is refused.
func TestLeavingGoesOn(t *testing.T) {
	onlyLong(t, "waits for elections while a node leaves")
	t.Parallel()
	c := startMoving(t, 2, 5)
	c.moves(2, "n4", "n5", "n3")
	gone := c.member("n4")
	gone.crash()
	c.write(2, "one")
	ask := func(id string) apiAnswer {
		return c.members[0].call("POST", "/api/v1/cluster:remove", wire.NodeRequest{NodeID: id})
	}
	// The new replica cannot be added as long as its node is away: so the removal of n4 cannot end.
	var answer apiAnswer
	c.members[0].eventually("n4 is to leave", func() bool {
		answer = ask("n4")
		return answer.status == 202 || answer.status == 204
	})
	gone.kill()
	gone.restart0()
	c.removes("n4")
	c.members[0].eventually("it is no member", func() bool {
		r, _ := c.members[0].members.Row("n4")
		return r.Removed
	})
	row := c.members[0].groupRow(2)
	if len(row.Replicas) != 3 || numberOn(row, "n4") != 0 {
		t.Errorf("%+v", row)
	}
	gone.kill()

	c.moves(1, "n3")
	c.isOn(1, "n3")
	c.member("n3").crash()
	c.members[0].eventually("the last living data of group 1 cannot be removed", func() bool {
		a := ask("n3")
		return a.status == 409 && strings.Contains(string(a.body), "there would be no majority left of group 1")
	})
	c.member("n3").kill()
}

// restart0 starts a node again that may not be a member any more.
func (m *member) restart0() {
	m.t.Helper()
	m.link = &link{}
	m.open(m.t)
}

// A leader that is killed between any two steps of a move leaves the rest to the next: that of the group, and that of the
// control group.
func TestMoveIsGoneOnWith(t *testing.T) {
	onlyLong(t, "waits for two elections in the middle of moves")
	t.Parallel()
	for _, of := range []uint32{0, 1} {
		t.Run(fmt.Sprint("leader of group ", of), func(t *testing.T) {
			t.Parallel()
			c := startMoving(t, 2, 5)
			c.write(1, "one")
			for i, to := range [][]string{{"n3", "n4", "n5"}, {"n1", "n2", "n5"}} {
				c.askMove(1, to...)
				for range 2 {
					lead, _ := c.groupLeader(of)
					lead.crash()
					c.groupLeader(1)
					lead.kill()
					lead.restart0()
				}
				c.moves(1, to...)
				c.isOn(1, to...)
				c.write(1, fmt.Sprint("after-", i))
				for _, id := range to {
					if m := c.member(id); !calendarIn(t, m.hostedGroup(1), "one") {
						t.Errorf("%s has not what was written before", id)
					}
				}
			}
		})
	}
}

// A node that is killed while it gives a replica up goes on with that when it is started again.
func TestGivingUpIsGoneOnWith(t *testing.T) {
	onlyLong(t, "kills a node at each step of giving a replica up")
	t.Parallel()
	for _, at := range []string{"entry removed", "renamed"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			var cut atomic.Bool
			c := startMoving(t, 2, 4, func(cfg *Config) {
				if cfg.NodeID != "n1" {
					return
				}
				cfg.Machine.ReplicaStep = func(step string) error {
					if step == at && !cut.Swap(true) {
						return errors.New("cut off by the test")
					}
					return nil
				}
			})
			n1 := c.member("n1")
			c.moves(1, "n2", "n3", "n4")
			n1.eventually("it was cut off", cut.Load)
			n1.crash()
			n1.kill()
			n1.restart()
			c.isOn(1, "n2", "n3", "n4")
			left, err := os.ReadDir(n1.dir.Path)
			if err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.Contains(e.Name(), "removed") }) {
				t.Errorf("%v %v", left, err)
			}
			c.moves(1, "n1", "n2", "n3")
			c.isOn(1, "n1", "n2", "n3")
		})
	}
}

// A leader whose replica of the control group is behind does not undo a move: it obeys what its group has seen.
func TestStaleTableDoesNotUndoAMove(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startMoving(t, 2, 4)
	old := c.members[0].groupRow(1)
	old.Epoch = c.members[0].group.store.Info().Epoch
	c.moves(1, "n2", "n3", "n4")
	c.isOn(1, "n2", "n3", "n4")
	lead, g := c.groupLeader(1)
	lead.eventually("the group knows that the move is over", func() bool {
		row := g.store.Info().Row
		return row.Number == 1 && numberOn(row, "n1") == 0 && g.tracker.Epoch() != nil
	})
	e := g.tracker.Epoch()
	reply, err := e.Proposer.Propose(&fsm.PutGroup{Head: e.Head(g.now()), Row: old, Version: old.Version}).Wait()
	if err != nil || reply.Items[0].Code != fsm.CodeConflict {
		t.Fatalf("%+v %v", reply, err)
	}
	// The table of the leader's own node, as it was before the move.
	lead.setTable(t, old)
	time.Sleep(time.Second) // it looks several times
	c.write(1, "after")
	if got := votersOf(g); !slices.Equal(got, []string{"n2", "n3", "n4"}) {
		t.Errorf("%v", got)
	}
	for _, s := range g.members.Configured() { // with a vote or without
		if replica.Node(s.ID) == "n1" {
			t.Errorf("%s is in the group again", s.ID)
		}
	}
	if row := g.store.Info().Row; numberOn(row, "n1") != 0 {
		t.Errorf("%+v", row)
	}
}

// setTable puts a row into this node's own replica of the control group, as if it were behind.
func (m *member) setTable(t *testing.T, row store.GroupRow) {
	t.Helper()
	b, err := m.group.store.Begin()
	if err != nil {
		t.Fatal(err)
	}
	row.Epoch = 0
	if err := b.PutGroup(row); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
}

// What a group confirms by a row that was replaced since is not believed: the replica may be back.
func TestLateConfirmation(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startMoving(t, 2, 4)
	lead := c.leader()
	before := lead.groupRow(1)
	gone := map[string]any{"group": 1, "group_id": before.ID, "node": "n1", "replica": numberOn(before, "n1"),
		"epoch": lead.group.store.Info().Epoch, "version": before.Version}
	for _, change := range []func(){func() {}, func() { gone["version"] = before.Version + 1 }, func() { gone["replica"] = 9 },
		func() { gone["group_id"] = "x" }} {
		change()
		if a := lead.call("POST", "/internal/v1/replica-gone", gone); a.status != 204 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if row := c.leader().groupRow(1); row.Version != before.Version {
		t.Errorf("%+v, and it was %+v", row, before)
	}

	// n1 is to leave by two rows, one after the other, and cannot: n4, which is to vote first, is away.
	n4 := c.member("n4")
	n4.crash()
	lead = c.leader()
	row := lead.groupRow(1)
	row.Replicas = append(slices.Clone(row.Replicas), store.GroupReplica{Node: "n4", Number: row.Last + 1, Instance: n4.dir.Instance})
	for i := range row.Replicas {
		row.Replicas[i].Leaving = row.Replicas[i].Node == "n1"
	}
	var versions []uint64
	for range 2 {
		e := lead.tracker.Epoch()
		reply, err := e.Proposer.Propose(&fsm.PutGroup{Head: e.Head(lead.group.now()), Row: row, Version: row.Version}).Wait()
		if err != nil || reply.Items[0].Code != fsm.CodeOK {
			t.Fatalf("%+v %v", reply, err)
		}
		row.Version = reply.Items[0].Version
		versions = append(versions, row.Version)
	}
	gone = map[string]any{"group": 1, "group_id": row.ID, "node": "n1", "replica": numberOn(row, "n1"),
		"epoch": lead.group.store.Info().Epoch, "version": versions[0]}
	if a := lead.call("POST", "/internal/v1/replica-gone", gone); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if row := lead.groupRow(1); numberOn(row, "n1") == 0 {
		t.Errorf("a word about row %d took a replica out of row %d: %+v", versions[0], versions[1], row)
	}
	n4.kill()
}
