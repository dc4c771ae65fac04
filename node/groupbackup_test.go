package node

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// restoredCluster starts the first node of a cluster that is restored from a backup, with a name for others to join.
func restoredCluster(t *testing.T, data []byte) (*cluster, datadir.Restored) {
	t.Helper()
	c := &cluster{t: t}
	first := c.newMember("n1", nil)
	cfg := restoreConfig(t, data)
	cfg.Advertise = first.cfg.Listen
	r, err := datadir.Restore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := datadir.Check(cfg.DataDir); err != nil || len(res.Problems) > 0 {
		t.Fatalf("%+v %v", res, err)
	}
	first.cfg.DataDir = cfg.DataDir
	c.members = []*member{first}
	t.Cleanup(c.killAll)
	first.open(t)
	first.eventually("all groups are led", func() bool {
		for number := uint32(0); number <= r.Groups; number++ {
			if g := first.hostedGroup(number); g == nil || g.tracker.Epoch() == nil {
				return false
			}
		}
		return true
	})
	return c, r
}

// onHold says which groups of a node are on hold.
func (m *member) onHold() (groups []uint32) {
	for _, g := range m.groups() {
		if g.store.Info().Hold.On {
			groups = append(groups, g.of.Group)
		}
	}
	return groups
}

// A backup of a cluster with several groups has all of them, whichever node is asked; restored, they are on hold as one,
// are released as one, and go on, on as many nodes as join.
func TestBackupOverGroups(t *testing.T) {
	realTime(t)
	t.Parallel()
	const groups, jobs = 3, 12
	tg := newTarget(t)
	c := startGroups(t, groups)
	node := func(i int) *testNode { return c.members[i%3].testNode }
	made := map[string]job.ID{}
	for i := range jobs {
		j := node(i).make(tg.spec(fmt.Sprint("job-", i), "@every 1s"))
		made[j.Name] = j.ID
	}
	for i := range jobs / 2 { // most of these have names of other groups then
		old, name := fmt.Sprint("job-", i), fmt.Sprint("renamed-", i)
		// By its id: a leader that is lost has the request repeated, and its old name is gone by then.
		ok[job.Job](node(i), "PATCH", "/api/v1/jobs/"+made[old].String(), map[string]any{"name": name},
			"Content-Type", "application/merge-patch+json")
		made[name] = made[old]
		delete(made, old)
	}
	node(0).create(map[string]any{"name": "open", "type": "queue", "schedule": "@manual",
		"payload": map[string]any{"queue": "q"}}) // no worker takes it
	ok[any](node(1), "POST", "/api/v1/jobs/open:run", nil)

	for _, m := range c.members {
		a := m.call("GET", "/api/v1/backup", nil)
		b, err := datadir.CopyBackup(&bytes.Buffer{}, bytes.NewReader(a.body))
		if err != nil || b.Groups != groups || b.Jobs != jobs+1 || a.header.Get("Content-Length") != fmt.Sprint(len(a.body)) ||
			a.header.Get(wire.HeaderGroups) != fmt.Sprint(groups) {
			t.Fatalf("%s: %d %+v %v %v", m.id(), a.status, b, err, a.header)
		}
		if a := m.call("HEAD", "/api/v1/backup", nil); a.status != http.StatusOK || len(a.body) > 0 {
			t.Errorf("%s: %d, %d bytes", m.id(), a.status, len(a.body))
		}
	}
	data := c.members[2].backup()
	// Copies that were sent are freed: there are only few at a time.
	for range 5 {
		c.members[2].eventually("a copy is freed", func() bool {
			return c.members[2].call("HEAD", "/api/v1/backup", nil).status == http.StatusOK
		})
	}
	c.killAll()

	rc, r := restoredCluster(t, data)
	first := rc.members[0]
	if r.Groups != groups || r.Jobs != jobs+1 || r.OpenRuns == 0 || len(r.Renamed) > 0 || r.Epoch != 1 {
		t.Errorf("%+v", r)
	}
	fired := len(tg.seen())
	if s := ok[wire.Status](first.testNode, "GET", "/api/v1/status", nil); s.Hold == nil || s.Hold.Releasing || s.Jobs != jobs+1 {
		t.Errorf("%+v", s)
	}
	for i := 1; i < 3; i++ {
		rc.members = append(rc.members, rc.newMember(fmt.Sprintf("n%d", i+1), []string{first.cfg.Listen}))
		rc.members[i].open(t)
	}
	for _, m := range rc.members {
		for number := uint32(0); number <= groups; number++ {
			m.eventually(fmt.Sprintf("%s has a replica of group %d that votes", m.id(), number), func() bool {
				g := m.hostedGroup(number)
				return g != nil && len(votersOf(g)) == 3
			})
		}
		m.eventually(m.id()+" has all groups, on hold", func() bool { return len(m.onHold()) == groups+1 })
	}
	for name, id := range made {
		if j := rc.members[1].get(name); j.ID != id || !strings.Contains(j.WaitReason, "on hold") && j.WaitReason != "" {
			t.Errorf("%s: %s %q, was %s", name, j.ID, j.WaitReason, id)
		}
		if a := rc.members[2].call("POST", "/api/v1/jobs", tg.spec(name, "@every 1s")); a.status != http.StatusConflict {
			t.Errorf("a second %s: %d %s", name, a.status, a.body)
		}
	}
	other := rc.members[1].create(tg.spec("job-0", "@manual")) // a name that was given up
	if uint64(other.ID)&(1<<job.GroupShift-1) < 1<<datadir.EpochShift {
		t.Errorf("%s may have been given out before", other.ID)
	}
	if n := len(tg.seen()); n != fired {
		t.Errorf("%d runs while it is on hold", n-fired)
	}

	for i, want := range []bool{true, false} {
		rel := ok[wire.ReleaseResult](rc.members[2-i].testNode, "POST", "/api/v1/cluster:release", nil)
		if rel.Released != want || rel.Releasing || len(rel.Waiting) > 0 || rel.At == 0 {
			t.Errorf("%+v", rel)
		}
	}
	released := first.group.store.Info().Released
	for number := uint32(1); number <= groups; number++ {
		_, g := rc.groupLeader(number)
		if info := g.store.Info(); info.Hold.On || info.Released < released {
			t.Errorf("group %d: %+v, released at %d", number, info, released)
		}
	}
	first.eventually("status has no hold", func() bool {
		return ok[wire.Status](first.testNode, "GET", "/api/v1/status", nil).Hold == nil
	})
	for name := range made {
		first.eventually(name+" fires", func() bool {
			for _, r := range first.runs(name) {
				if r.Fence > 1<<datadir.EpochShift && r.Status == job.RunSucceeded {
					return int64(r.ScheduledAt) > released || t.Failed()
				}
			}
			return false
		})
	}
	if n := first.count("open", job.RunLost); n != 1 {
		t.Errorf("%d lost runs of the one that was open", n)
	}
}

// A release that ends with its node after the control group was released goes on in all groups.
func TestReleaseGoesOn(t *testing.T) {
	realTime(t)
	t.Parallel()
	const groups = 3
	c := startGroups(t, groups)
	data := c.members[0].backup()
	c.killAll()
	rc, _ := restoredCluster(t, data)
	m := rc.members[0]
	if on := m.onHold(); len(on) != groups+1 {
		t.Fatalf("on hold: %v", on)
	}
	e := m.group.tracker.Epoch()
	if _, err := e.Proposer.Propose(&fsm.Release{Head: e.Head(m.group.now())}).Wait(); err != nil {
		t.Fatal(err)
	}
	m.kill()
	m.restart()
	m.eventually("all groups are released", func() bool { return len(m.onHold()) == 0 })
	at := m.group.store.Info().Released
	for number := uint32(1); number <= groups; number++ {
		if got := m.hostedGroup(number).store.Info().Released; got < at {
			t.Errorf("group %d was released at %d, the cluster at %d", number, got, at)
		}
	}
}

// ledAgain waits until all groups of a cluster are led and take changes.
func (c *cluster) ledAgain(groups uint32, name string) {
	c.t.Helper()
	for number := uint32(1); number <= groups; number++ {
		c.write(number, name)
	}
}

// A node that begins again without the others does so with all groups; so do nodes that are told where they are now.
func TestRecoverGroups(t *testing.T) {
	onlyLong(t, "recovers the groups of a cluster that lost its majority")
	t.Parallel()
	const groups = 2
	c := startGroups(t, groups)
	spec := func(name string) map[string]any {
		return map[string]any{"name": name, "type": "queue", "schedule": "@manual", "payload": map[string]any{"queue": "q"}}
	}
	made := map[string]job.ID{}
	for i := range 6 {
		j := c.members[i%3].create(spec(fmt.Sprint("job-", i)))
		made[j.Name] = j.ID
	}
	c.ledAgain(groups, "same")
	c.sameGroups(groups, "same")
	c.stopAll()
	peers := map[string]string{}
	for _, m := range c.members {
		m.move(t)
		peers[m.id()] = m.cfg.Listen
	}
	for _, m := range c.members {
		if r, err := datadir.Recover(m.cfg.DataDir, peers, quiet); err != nil || r.Alone {
			t.Fatalf("%+v %v", r, err)
		}
		m.open(t)
	}
	c.awaitVoters(3)
	c.ledAgain(groups, "moved")
	c.sameGroups(groups, "moved")
	c.stopAll()

	m, lost := c.members[1], []*member{c.members[0], c.members[2]}
	r, err := datadir.Recover(m.cfg.DataDir, map[string]string{"n2": m.cfg.Listen}, quiet)
	if err != nil || !r.Alone || r.Epoch != 1 || len(r.Lost) != 2 || len(r.Renamed) > 0 {
		t.Fatalf("%+v %v", r, err)
	}
	if res, err := datadir.Check(m.cfg.DataDir); err != nil || len(res.Problems) > 0 {
		t.Fatalf("%+v %v", res, err)
	}
	c.members = []*member{m}
	m.link = &link{}
	m.open(t)
	c.ledAgain(groups, "alone")
	for name, id := range made {
		if j := m.get(name); j.ID != id {
			t.Errorf("%s is %s, was %s", name, j.ID, id)
		}
		if a := m.call("POST", "/api/v1/jobs", spec(name)); a.status != http.StatusConflict {
			t.Errorf("a second %s: %d %s", name, a.status, a.body)
		}
	}
	if j := m.create(spec("new")); uint64(j.ID)&(1<<job.GroupShift-1) < 1<<datadir.EpochShift {
		t.Errorf("%s may have been given out before", j.ID)
	}
	old := lost[1]
	old.link = &link{}
	old.open(t)
	for number := uint32(0); number <= groups; number++ {
		g := old.hostedGroup(number)
		if err := m.hostedGroup(number).members.Check(g.members.Hello()); err == nil ||
			!strings.Contains(err.Error(), "empty its data directory") {
			t.Errorf("group %d: %v", number, err)
		}
	}
	old.kill()
	for _, x := range lost {
		x.cfg.DataDir, x.cfg.Bootstrap, x.cfg.Join = t.TempDir(), false, m.joinAddr()
		x.link = &link{}
		x.open(t)
		c.members = append(c.members, x)
	}
	for _, x := range c.members {
		for number := uint32(1); number <= groups; number++ {
			x.eventually(fmt.Sprintf("%s has a replica of group %d that votes", x.id(), number), func() bool {
				g := x.hostedGroup(number)
				return g != nil && len(votersOf(g)) == 3
			})
		}
	}
	c.ledAgain(groups, "three")
	c.sameGroups(groups, "three")
}
