package node

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

// groupLeader is the node that leads a group, with its part in it.
func (c *cluster) groupLeader(number uint32) (*member, *group) {
	c.t.Helper()
	var lead *member
	var in *group
	c.living()[0].eventually(fmt.Sprint("group ", number, " has a leader"), func() bool {
		for _, m := range c.living() {
			if g := m.hostedGroup(number); g != nil && g.tracker.Epoch() != nil {
				lead, in = m, g
				return true
			}
		}
		return false
	})
	return lead, in
}

func (c *cluster) living() (out []*member) {
	for _, m := range c.members {
		if m.done != nil && !m.link.dead.Load() {
			out = append(out, m)
		}
	}
	return out
}

// write changes the state of a group, through the node that leads it by then.
func (c *cluster) write(number uint32, name string) {
	c.t.Helper()
	c.living()[0].eventually(fmt.Sprint("a change of group ", number), func() bool {
		_, g := c.groupLeader(number)
		e := g.tracker.Epoch()
		if e == nil {
			return false
		}
		reply, err := e.Proposer.Propose(&fsm.Calendar{Head: e.Head(g.now()), Name: name, Data: []byte(`{}`)}).Wait()
		return err == nil && reply.Items[0].Code == fsm.CodeOK
	})
}

// sameGroups waits until all living nodes have the same state of each group, with what was written.
func (c *cluster) sameGroups(groups int, name string) {
	c.t.Helper()
	for number := uint32(0); number <= uint32(groups); number++ {
		c.living()[0].eventually(fmt.Sprint("the states of group ", number, " are the same"), func() bool {
			first := ""
			for _, m := range c.living() {
				g := m.hostedGroup(number)
				if g == nil {
					return false
				}
				d, err := g.store.Digest()
				if err != nil {
					c.t.Fatal(err)
				}
				if first == "" {
					first = d
				}
				if d != first || number > 0 && !calendarIn(c.t, g, name) {
					return false
				}
			}
			return true
		})
	}
}

func calendarIn(t *testing.T, g *group, name string) (there bool) {
	t.Helper()
	err := g.store.View(func(v *store.View) error {
		there = v.Calendar(job.DefaultNamespace, name) != nil
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// A cluster that begins with several groups has each of them on all of three nodes: led, the same everywhere, with one
// beginning; also over the loss of a node and after all were stopped.
func TestSeveralGroups(t *testing.T) {
	realTime(t)
	t.Parallel()
	const groups = 3
	for name, mode := range modes(t) {
		t.Run(name, func(t *testing.T) {
			if name == "plain" {
				onlyLong(t, "the plain run is with TLS")
			}
			t.Parallel()
			c := startJoined(t, 3, mode, func(c *Config) { c.Groups = groups })
			first := c.members[0]
			for number := uint32(1); number <= groups; number++ {
				for _, m := range c.members {
					m.eventually(fmt.Sprintf("%s has a replica of group %d that votes", m.id(), number), func() bool {
						g := m.hostedGroup(number)
						return g != nil && len(votersOf(g)) == 3
					})
				}
				c.write(number, "one")
			}
			first.eventually("all groups take jobs", func() bool { return first.group.store.Info().Groups == groups })
			c.sameGroups(groups, "one")
			ids := map[string]bool{}
			for number := uint32(1); number <= groups; number++ {
				info := first.hostedGroup(number).store.Info()
				if info.Group != number || info.Homes != groups || info.ClusterID != first.group.store.Info().ClusterID ||
					info.GroupID == "" || ids[info.GroupID] {
					t.Errorf("group %d: %+v", number, info)
				}
				ids[info.GroupID] = true
			}

			lost, _ := c.groupLeader(2)
			lost.crash()
			for number := uint32(1); number <= groups; number++ {
				c.write(number, "two")
			}
			lost.kill() // waits for what is left of it
			lost.restart()
			c.sameGroups(groups, "two")

			for _, m := range c.members {
				m.stop()
			}
			for _, m := range c.members {
				m.link = &link{}
				m.open(t)
			}
			c.awaitVoters(3)
			for number := uint32(1); number <= groups; number++ {
				c.write(number, "three")
			}
			c.sameGroups(groups, "three")
		})
	}
}

// Each node leads some of the groups, and leads them again when it has come back.
func TestLeadersAreSpread(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startGroups(t, 6)
	lost := c.members[2]
	lost.crash()
	for number := uint32(1); number <= 6; number++ {
		c.write(number, "two")
	}
	lost.kill()
	lost.restart()
	c.members[0].eventually("it leads two groups again", func() bool { return c.spread(6) })
	c.sameGroups(6, "two")
}

func votersOf(g *group) (ids []string) {
	for _, s := range g.members.Configured() {
		if s.Suffrage == raft.Voter {
			ids = append(ids, replica.Node(s.ID))
		}
	}
	slices.Sort(ids)
	return ids
}

// startGroups starts a cluster of three nodes and several groups, and waits until all groups take jobs.
func startGroups(t *testing.T, groups uint32, change ...func(*Config)) *cluster {
	t.Helper()
	c := startJoined(t, 3, append([]func(*Config){func(c *Config) {
		c.Groups = int(groups)
		c.Raft.Heartbeat = time.Second // a leader is to be lost by the test, not by a busy machine
	}}, change...)...)
	for _, m := range c.members {
		m.eventually(m.id()+" knows that all groups take jobs", func() bool {
			several, growth := m.split.Load().Several(), m.members.Growing() // before what it is held against
			if got := m.group.store.Info().Groups; several && growth == nil && got < groups {
				t.Errorf("the status of %s says that all is done, and %d of %d groups take jobs", m.id(), got, groups)
			}
			return m.split.Load().Groups == groups
		})
		for number := uint32(1); number <= groups; number++ {
			m.eventually(fmt.Sprintf("%s has a replica of group %d that votes", m.id(), number), func() bool {
				g := m.hostedGroup(number)
				return g != nil && len(votersOf(g)) == 3
			})
		}
	}
	c.members[0].eventually("leaders are where they stay", func() bool { return c.spread(groups) })
	return c
}

// spread says that each node leads as many groups as the others, or one more.
func (c *cluster) spread(groups uint32) bool {
	leads, all := map[string]uint32{}, uint32(0)
	for number := uint32(1); number <= groups; number++ {
		for _, m := range c.living() {
			if m.hostedGroup(number).tracker.Epoch() != nil {
				leads[m.id()]++
				all++
			}
		}
	}
	return all == groups && slices.Max(slices.Collect(maps.Values(leads))) <= (groups+2)/3
}

// What the control group has counts for jobs of all groups from the moment that its client was answered, and is not
// deleted while one of them needs it.
func TestGroupsKnowWhatWasJustWritten(t *testing.T) {
	realTime(t)
	t.Parallel()
	const groups = 3
	secure, _ := securely(t)
	c := startGroups(t, groups, secure)
	node := func(i int) *testNode { return c.members[i%3].testNode }
	in := map[uint8]bool{}
	for i := range 6 {
		name := fmt.Sprint("x", i)
		ok[schedule.Calendar](node(i), "PUT", "/api/v1/calendars/"+name, `{"dates":["2030-12-24"]}`)
		ok[wire.Secret](node(i+1), "PUT", "/api/v1/secrets/"+name, `{"value":"topsecret"}`)
		j := node(i + 2).create(map[string]any{"name": fmt.Sprint("job-", i), "type": "http", "schedule": "0 3 * * *",
			"calendars": []string{name},
			"payload":   map[string]any{"url": "http://127.0.0.1:1/", "headers": map[string]string{"X": "secret://" + name}}})
		in[j.ID.Group()] = true
	}
	if len(in) != groups {
		t.Errorf("jobs are in %d groups", len(in))
	}
	for i := range 6 {
		name, by := fmt.Sprint("x", i), fmt.Sprint("job-", i)
		for _, path := range []string{"/api/v1/calendars/" + name, "/api/v1/secrets/" + name} {
			if a := node(i).call("DELETE", path, nil); a.status != 409 || !strings.Contains(string(a.body), by) {
				t.Errorf("DELETE %s, which %s needs: %d %s", path, by, a.status, a.body)
			}
		}
	}
	list := ok[wire.SecretList](node(0), "GET", "/api/v1/secrets", nil).Secrets
	if len(list) != 6 {
		t.Errorf("%+v", list)
	}
	for _, s := range list {
		if s.JobCount != 1 || len(s.Jobs) != 1 || s.Jobs[0] != "job-"+s.Name[1:] {
			t.Errorf("%+v", s)
		}
	}
	a := node(1).call("POST", "/api/v1/jobs", map[string]any{"name": "none", "type": "http", "schedule": "0 3 * * *",
		"calendars": []string{"none"}, "payload": map[string]any{"url": "http://127.0.0.1:1/"}})
	if a.status != 400 && a.status != 422 || !strings.Contains(string(a.body), "calendars") {
		t.Errorf("a job with a calendar that is not there: %d %s", a.status, a.body)
	}
}

// A later start with another number of groups is refused, and changes nothing.
func TestNumberOfGroupsStays(t *testing.T) {
	realTime(t)
	t.Parallel()
	for begun, wrong := range map[int][]int{1: {2}, 3: {1, 2, 4, 64}} {
		n := start(t, t.TempDir(), func(c *Config) { c.Groups = begun })
		n.stop()
		cfg := n.cfg
		before, err := os.ReadFile(n.dir.File(datadir.NodeFile))
		if err != nil {
			t.Fatal(err)
		}
		for _, groups := range wrong {
			cfg.Groups = groups
			if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "--groups") ||
				!strings.Contains(err.Error(), fmt.Sprint(begun, " groups, not ", groups)) {
				t.Errorf("begun with %d, started with %d: %v", begun, groups, err)
			}
		}
		after, err := os.ReadFile(n.dir.File(datadir.NodeFile))
		if err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: %s, %v", before, after, err)
		}
		for _, groups := range []int{0, begun} {
			start(t, cfg.DataDir, func(c *Config) { c.Groups = groups }).stop()
		}
	}
}

// Whichever node is asked, there is one space of jobs: whatever group each of them is in.
func TestJobsOverGroups(t *testing.T) {
	realTime(t)
	t.Parallel()
	const groups, jobs = 3, 24
	c := startGroups(t, groups)
	node := func(i int) *testNode { return c.members[i%3].testNode }
	ok[schedule.Calendar](node(1), "PUT", "/api/v1/calendars/feast", `{"dates":["2030-12-24"]}`)
	for _, m := range c.members { // groups look it up in their nodes' replicas of the control group
		m.eventually(m.id()+" has the calendar", func() bool { return calendarIn(t, m.group, "feast") })
	}
	spec := func(name string) map[string]any {
		return map[string]any{"name": name, "type": "http", "schedule": "0 3 * * *", "calendars": []string{"feast"},
			"payload": map[string]any{"url": "http://127.0.0.1:1/"}}
	}
	in := map[uint32]int{}
	made := map[string]job.ID{}
	for i := range jobs {
		j := node(i).create(spec(fmt.Sprint("job-", i)))
		in[uint32(j.ID.Group())]++
		made[j.Name] = j.ID
	}
	if len(in) != groups || in[0] > 0 {
		t.Errorf("jobs by group: %v", in)
	}
	for i := range jobs {
		name := fmt.Sprint("job-", i)
		if j := node(i + 1).get(name); j.ID != made[name] {
			t.Errorf("%s is %s, and was made as %s", name, j.ID, made[name])
		}
		if a := node(i+2).call("POST", "/api/v1/jobs", spec(name)); a.status != 409 {
			t.Errorf("a second %s: %d %s", name, a.status, a.body)
		}
	}
	for i, order := range []string{"", "&prefix=job-"} {
		seen := map[string]bool{}
		for cursor := ""; ; {
			p := ok[wire.JobPage](node(i), "GET", "/api/v1/jobs?limit=5"+order+"&cursor="+cursor, nil)
			for _, j := range p.Jobs {
				if seen[j.Name] || made[j.Name] != j.ID {
					t.Errorf("%s in the list (%q): %s", j.Name, order, j.ID)
				}
				seen[j.Name] = true
			}
			if cursor = p.NextCursor; cursor == "" {
				break
			}
		}
		if len(seen) != jobs {
			t.Errorf("%d of %d jobs in the list (%q)", len(seen), jobs, order)
		}
	}
	for i := range 3 {
		node(i).eventually("it knows of all jobs, and who leads which group", func() bool { // it may be behind
			s := ok[wire.Status](node(i), "GET", "/api/v1/status", nil)
			for number, g := range s.Groups {
				lead, _ := c.groupLeader(uint32(number))
				if g.ID != uint32(number) || g.Leader != lead.id() || len(g.Members) != 3 ||
					g.Jobs != uint64(in[g.ID]) {
					return false
				}
			}
			return s.Jobs == jobs && len(s.Groups) == groups+1 && len(s.Troubles) == 0
		})
	}
	if a := node(0).call("POST", "/api/v1/jobs", map[string]any{"name": "other", "type": "http",
		"schedule": "0 3 * * *", "calendars": []string{"none"}, "payload": map[string]any{"url": "http://127.0.0.1:1/"},
	}); a.status != 400 && a.status != 422 {
		t.Errorf("a calendar that is not there: %d %s", a.status, a.body)
	}
	ok[job.Job](node(2), "PATCH", "/api/v1/jobs/job-3", map[string]any{"schedule": "0 4 * * *"},
		"Content-Type", "application/merge-patch+json")
	ok[job.Job](node(0), "POST", "/api/v1/jobs/job-3:pause", nil)
	if j := node(1).get("job-3"); j.Schedule != "0 4 * * *" || j.Status != job.StatusPaused {
		t.Errorf("%+v", j)
	}
	// Names are one space too: the home of most of these is another group than that of the job.
	for i := 5; i < jobs; i++ {
		old, name := fmt.Sprint("job-", i), fmt.Sprint("renamed-", i)
		ok[job.Job](node(i), "PATCH", "/api/v1/jobs/"+old, map[string]any{"name": name},
			"Content-Type", "application/merge-patch+json")
		if j := node(i + 1).get(name); j.ID != made[old] {
			t.Errorf("%s is %s, and %s was %s", name, j.ID, old, made[old])
		}
		node(i).eventually("no other job gets the new name", func() bool {
			a := node(i+2).call("POST", "/api/v1/jobs", spec(name))
			if a.status != 409 && a.status != 503 { // its home may not know yet that it was given
				t.Fatalf("a second %s: %d %s", name, a.status, a.body)
			}
			return a.status == 409
		})
		node(i).eventually("the old name is free", func() bool {
			a := node(i).call("POST", "/api/v1/jobs", spec(old))
			return a.status == 201
		})
	}
	// Also if they are in queues, each of which is in one group.
	queued := func(i int) map[string]any {
		return map[string]any{"name": "queued", "type": "queue", "schedule": "@manual",
			"payload": map[string]any{"queue": fmt.Sprint("queue-", i)}}
	}
	first := node(0).create(queued(0))
	for i := 1; i < 8; i++ {
		node(i).eventually("a second job of the name is refused", func() bool {
			a := node(i).call("POST", "/api/v1/jobs", queued(i))
			if a.status != 409 && a.status != 503 || a.status == 409 && !strings.Contains(string(a.body), first.ID.String()) {
				t.Fatalf("a second job in queue %d: %d %s", i, a.status, a.body)
			}
			return a.status == 409
		})
	}
	// A request that took a job's name away is answered as before when it is repeated: the home of the name knows the
	// job no more.
	for i := 5; i < 12; i++ {
		old, name := fmt.Sprint("renamed-", i), fmt.Sprint("again-", i)
		for _, rq := range []struct{ method, name, body string }{{"PATCH", old, `{"name":"` + name + `"}`},
			{"DELETE", name, ""}} {
			ask := func(n *testNode) apiAnswer {
				return n.call(rq.method, "/api/v1/jobs/"+rq.name, rq.body, "Content-Type",
					"application/merge-patch+json", "Idempotency-Key", "key-"+rq.method+rq.name)
			}
			first := ask(node(i))
			node(i).eventually("the home lets the name go", func() bool {
				return node(i).call("GET", "/api/v1/jobs/"+rq.name, nil).status == 404
			})
			if a := ask(node(i + 1)); first.status/100 != 2 || a.status != first.status ||
				string(a.body) != string(first.body) {
				t.Errorf("%s %s: %d %s; again: %d %s", rq.method, rq.name, first.status, first.body, a.status, a.body)
			}
		}
	}
	if a := node(1).call("DELETE", "/api/v1/jobs/job-4", nil); a.status/100 != 2 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := node(2).call("GET", "/api/v1/jobs/job-4", nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Jobs of all groups are carried out, by the workers of all nodes, also after a node is lost that leads some of them.
func TestRunsOverGroups(t *testing.T) {
	realTime(t)
	t.Parallel()
	const groups, jobs = 3, 12
	var mu sync.Mutex
	seen := map[string]int{} // by job
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path]++
	}))
	defer target.Close()
	c := startGroups(t, groups, func(c *Config) { c.Executors = []job.Type{job.TypeHTTP} })
	for i := range jobs {
		c.members[i%3].create(map[string]any{"name": fmt.Sprint("job-", i), "type": "http", "schedule": "@every 1s",
			"payload": map[string]any{"url": fmt.Sprintf("%s/job-%d", target.URL, i)}})
	}
	all := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			for i := range jobs {
				if seen[fmt.Sprint("/job-", i)] < n {
					return false
				}
			}
			return true
		}
	}
	c.members[0].eventually("all jobs ran twice", all(2))
	c.members[0].eventually("what they did is counted", func() bool {
		h := ok[wire.Status](c.members[0].testNode, "GET", "/api/v1/status", nil).History
		return h.Records >= jobs && h.First == 0 && h.Last == 0
	})
	lost, _ := c.groupLeader(2)
	lost.crash()
	mu.Lock()
	clear(seen)
	mu.Unlock()
	c.living()[0].eventually("all jobs go on", all(2))
	lost.kill()
}
