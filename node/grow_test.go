package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// startFrom starts three nodes with some groups of jobs; 1: the control group alone.
func startFrom(t *testing.T, groups uint32, change ...func(*Config)) *cluster {
	t.Helper()
	if groups > 1 {
		return startGroups(t, groups, change...)
	}
	return startJoined(t, 3, append([]func(*Config){func(c *Config) {
		c.Raft.Heartbeat = time.Second // a leader is to be lost by the test, not by a busy machine
	}}, change...)...)
}

// grow asks for more groups.
func (c *cluster) grow(via *testNode, groups uint32) {
	c.t.Helper()
	via.eventually("the growth begins", func() bool {
		a := via.call("POST", "/api/v1/cluster:grow-groups", map[string]any{"groups": groups})
		if a.status != 200 && a.status != 503 {
			c.t.Fatalf("%d %s", a.status, a.body)
		}
		return a.status == 200
	})
}

// awaitGroups waits until all nodes put new jobs into so many groups.
func (c *cluster) awaitGroups(groups uint32) {
	c.t.Helper()
	for _, m := range c.living() {
		m.eventually(fmt.Sprintf("%s puts jobs into %d groups", m.id(), groups), func() bool {
			return m.split.Load().Groups == groups
		})
	}
}

// persist repeats a request while it gets answers that say so.
func (n *testNode) persist(method, path string, body any, headers ...string) (a apiAnswer) {
	n.t.Helper()
	n.eventually(method+" "+path+" is answered", func() bool {
		var err error
		a, err = n.try(method, path, body, headers...)
		return err == nil && a.status != 503
	})
	return a
}

// keyedJob creates a job under a client's key, which may be a repetition.
func (n *testNode) keyedJob(body any, key string) job.Job {
	n.t.Helper()
	a := n.persist("POST", "/api/v1/jobs", body, "Idempotency-Key", key)
	var j job.Job
	if err := json.Unmarshal(a.body, &j); err != nil || a.status != 201 && a.status != 200 || j.ID == 0 {
		n.t.Fatalf("key %s: %d %s", key, a.status, a.body)
	}
	return j
}

// make creates a job whose name no other has, also while leaders come and go.
func (n *testNode) make(body any) job.Job {
	n.t.Helper()
	a := n.persist("POST", "/api/v1/jobs", body)
	var j job.Job
	if err := json.Unmarshal(a.body, &j); err != nil || a.status != 201 && a.status != 200 || j.ID == 0 {
		n.t.Fatalf("%d %s", a.status, a.body)
	}
	return j
}

// listed are the ids of all jobs that a node lists, in pages.
func (n *testNode) listed() (ids []job.ID) {
	n.t.Helper()
	for cursor := ""; ; {
		path := "/api/v1/jobs?limit=7&cursor=" + cursor
		a := n.persist("GET", path, nil)
		var p wire.JobPage
		if err := json.Unmarshal(a.body, &p); err != nil || a.status != 200 {
			n.t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		for _, j := range p.Jobs {
			ids = append(ids, j.ID)
		}
		if cursor = p.NextCursor; cursor == "" {
			return ids
		}
	}
}

// A cluster gets more groups while it works: old jobs go on where they are, new ones are spread, and nothing of either
// is lost, twice or under one name.
func TestGrowGroups(t *testing.T) {
	realTime(t)
	t.Parallel()
	for _, x := range []struct{ from, to uint32 }{{1, 4}, {3, 8}} {
		t.Run(fmt.Sprintf("%d to %d", x.from, x.to), func(t *testing.T) {
			if !long && x.from > 1 {
				t.Skip("the plain run grows from one group; set CARILLON_LONG=1")
			}
			t.Parallel()
			testGrowth(t, x.from, x.to)
		})
	}
}

func testGrowth(t *testing.T, from, to uint32) {
	r := newRecorder(t)
	held := &lapses{nodes: map[string]bool{}}
	c := startFrom(t, from, held.watch)
	node := func(i int) *testNode { return c.members[i%3].testNode }
	manual := func(name string) map[string]any {
		s := r.spec(name, "@manual")
		if name == "" {
			delete(s, "name")
		}
		return s
	}
	queued := func(name string) map[string]any {
		return map[string]any{"name": name, "type": "queue", "schedule": "@manual",
			"payload": map[string]any{"queue": "q"}}
	}
	all := map[job.ID]bool{}
	add := func(j job.Job) job.Job {
		if all[j.ID] {
			t.Errorf("%s was there before", j.ID)
		}
		all[j.ID] = true
		return j
	}
	var every []job.ID
	for i := range 6 {
		every = append(every, add(node(i).create(r.spec(fmt.Sprint("old-", i), "@every 1s"))).ID)
	}
	inQueue := add(node(0).create(queued("queued-old")))
	keyed := map[string]job.ID{}
	for i := range 8 {
		key := fmt.Sprint("before-", i)
		keyed[key] = add(node(i).keyedJob(manual(""), key)).ID
	}
	gone := node(1).keyedJob(manual(""), "gone")
	if a := node(2).persist("DELETE", "/api/v1/jobs/"+gone.ID.String(), nil); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var lines bytes.Buffer
	for i := range 5 {
		fmt.Fprintf(&lines, `{"type":"http","schedule":"@manual","tags":{"line":"%d"},"payload":{"url":%q}}`+"\n", i, r.url)
		fmt.Fprintf(&lines, `{"name":"bulk-%d","type":"http","schedule":"@manual","payload":{"url":%q}}`+"\n", i, r.url)
	}
	bulk := func(n *testNode) (ids []string, states map[string]int) {
		states = map[string]int{}
		a := n.persist("POST", "/api/v1/jobs:bulk", lines.String(), "Content-Type", "application/x-ndjson",
			"Idempotency-Key", "bulk")
		for line := range strings.SplitSeq(strings.TrimSpace(string(a.body)), "\n") {
			var res wire.BulkResult
			if err := json.Unmarshal([]byte(line), &res); err != nil || res.JobID == nil {
				t.Fatalf("%v: %s", err, line)
			}
			ids = append(ids, res.JobID.String())
			states[res.Status]++
		}
		return ids, states
	}
	bulked, _ := bulk(node(0))
	for _, id := range bulked {
		add(node(0).get(id))
	}

	// Creates of one name through all nodes, and keys that are used again, while the number changes.
	var racing sync.WaitGroup
	stop := make(chan struct{})
	var mu sync.Mutex
	var made []job.Job
	won := map[string]int{}
	racing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name, key := fmt.Sprint("race-", i), fmt.Sprint("during-", i)
			var both sync.WaitGroup
			for k := range 3 {
				both.Go(func() {
					spec := manual(name)
					spec["tags"] = map[string]string{"by": fmt.Sprint(k)}
					// One that an election cut off may have been made; it is asked for again by its key.
					a := node(k).persist("POST", "/api/v1/jobs", spec, "Idempotency-Key", fmt.Sprint(name, "-", k))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case a.status == 201:
						won[name]++
						var j job.Job
						if err := json.Unmarshal(a.body, &j); err != nil {
							t.Error(err)
						}
						made = append(made, j)
					case a.status != 409:
						t.Errorf("%s: %d %s", name, a.status, a.body)
					}
				})
			}
			j := node(i).keyedJob(manual(""), key)
			if again := node(i+1).keyedJob(manual(""), key); again.ID != j.ID {
				t.Errorf("key %s: %s and %s", key, j.ID, again.ID)
			}
			both.Wait()
			mu.Lock()
			made = append(made, j)
			keyed[key] = j.ID
			if won[name] != 1 {
				t.Errorf("%d jobs got the name %s", won[name], name)
			}
			mu.Unlock()
		}
	})
	c.grow(node(2), to)
	c.awaitGroups(to)
	close(stop)
	racing.Wait()
	for _, j := range made {
		add(j)
	}

	in := map[uint32]int{}
	for i := range 40 {
		j := add(node(i).create(manual(fmt.Sprint("new-", i))))
		in[uint32(j.ID.Group())]++
	}
	for i := range 2 * to {
		every = append(every, add(node(int(i)).create(r.spec(fmt.Sprint("every-", i), "@every 1s"))).ID)
	}
	if len(in) < int(to)-1 || in[0] > 0 {
		t.Errorf("new jobs by group: %v", in)
	}
	if j := add(node(1).create(queued("queued-new"))); j.ID.Group() != inQueue.ID.Group() {
		t.Errorf("one queue is in groups %d and %d", j.ID.Group(), inQueue.ID.Group())
	}
	for i := range 6 { // names that are taken, in whatever group
		for _, name := range []string{fmt.Sprint("old-", i), fmt.Sprint("new-", i)} {
			spec := manual(name)
			spec["tags"] = map[string]string{"other": "yes"}
			if a := node(i).persist("POST", "/api/v1/jobs", spec); a.status != 409 {
				t.Errorf("%s again: %d %s", name, a.status, a.body)
			}
		}
	}
	for i, key := range slices.Sorted(maps.Keys(keyed)) {
		if j := node(i).keyedJob(manual(""), key); j.ID != keyed[key] {
			t.Errorf("key %s: %s was created, and then %s", key, keyed[key], j.ID)
		}
	}
	if a := node(0).persist("POST", "/api/v1/jobs", manual(""), "Idempotency-Key", "gone"); a.status != 404 {
		t.Errorf("a key whose job was deleted: %d %s", a.status, a.body)
	}
	if a := node(0).persist("POST", "/api/v1/jobs", manual("other"), "Idempotency-Key", "before-0"); a.status != 201 {
		t.Logf("a key with another body: %d %s", a.status, a.body)
	} else {
		var j job.Job
		if err := json.Unmarshal(a.body, &j); err != nil {
			t.Fatal(err)
		}
		add(j)
	}
	if again, states := bulk(node(1)); !slices.Equal(again, bulked) || states["exists"] != len(bulked) {
		t.Errorf("bulk: %v, and then %v (%v)", bulked, again, states)
	}

	want := slices.Sorted(maps.Keys(all))
	for _, m := range c.members {
		got := m.listed()
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s lists %d jobs of %d", m.id(), len(got), len(want))
		}
		// A status counts what the node's own replicas have applied, which may be a moment behind the leaders.
		m.eventually(fmt.Sprintf("the status has %d jobs in %d groups", len(want), to+1), func() bool {
			s := ok[wire.Status](m.testNode, "GET", "/api/v1/status", nil)
			return s.Jobs == uint64(len(want)) && len(s.Groups) == int(to)+1 && s.Growth == nil
		})
		for id := range all {
			if a := m.persist("GET", "/api/v1/jobs/"+id.String(), nil); a.status != 200 {
				t.Errorf("%s: %s: %d", m.id(), id, a.status)
			}
		}
	}
	// All jobs that fire do, each at its time and once, and what the nodes export is all of it.
	for _, id := range every {
		node(0).eventually(id.String()+" runs", func() bool { return node(0).count(id.String(), job.RunSucceeded) > 1 })
	}
	c.settleGroups(every)
	c.account(c.members[1], r, every, held.all()...)

	c.checkBackup(to, uint64(len(want)))
}

// lapses are the nodes whose workers were held up for two thirds of a lease and stopped their attempts. What such a
// worker had begun is given out again, under a higher fence; nothing else may be.
type lapses struct {
	mu    sync.Mutex
	nodes map[string]bool
}

func (l *lapses) watch(c *Config) { c.Logger = slog.New(lapseHandler{c.Logger.Handler(), l, c.NodeID}) }

func (l *lapses) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.nodes))
}

type lapseHandler struct {
	slog.Handler
	of   *lapses
	node string
}

func (h lapseHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.Handler.Enabled(ctx, level)
}

func (h lapseHandler) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "no heartbeat was answered for two thirds of the lease") {
		h.of.mu.Lock()
		h.of.nodes[h.node] = true
		h.of.mu.Unlock()
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h lapseHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return lapseHandler{h.Handler.WithAttrs(a), h.of, h.node}
}

// settleGroups pauses jobs of all groups and waits until nothing is open.
func (c *cluster) settleGroups(ids []job.ID) {
	c.t.Helper()
	via := c.members[0].testNode
	for _, id := range ids {
		if a := via.persist("POST", "/api/v1/jobs/"+id.String()+":pause", nil); a.status != 200 {
			c.t.Fatalf("%d %s", a.status, a.body)
		}
	}
	via.eventually("nothing is open", func() bool {
		for _, g := range ok[wire.Status](via, "GET", "/api/v1/status", nil).Groups {
			_, at := c.groupLeader(g.ID)
			if at.store.OpenRunCount() > 0 {
				return false
			}
		}
		return true
	})
}

// checkBackup holds that the directories of a cluster are whole, and that a backup of it can be restored.
func (c *cluster) checkBackup(groups uint32, jobs uint64) {
	c.t.Helper()
	data := c.members[2].backup()
	for _, m := range c.members {
		m.stop()
		if res, err := datadir.Check(m.cfg.DataDir); err != nil || len(res.Problems) > 0 {
			c.t.Errorf("%s: %+v %v", m.id(), res.Problems, err)
		}
	}
	c.killAll()
	rc, res := restoredCluster(c.t, data)
	if res.Groups != groups || res.Jobs != jobs || len(res.Renamed) > 0 {
		c.t.Errorf("%+v", res)
	}
	first := rc.members[0].testNode
	if n := len(first.listed()); n != int(jobs) {
		c.t.Errorf("%d jobs are listed, %d were restored", n, jobs)
	}
	rc.killAll()
}

// A growth is done when all nodes know of it: who is told so and then creates a job, through whichever node, has it put
// into any of the groups.
func TestGrowthIsDoneWhenAllNodesKnow(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startFrom(t, 1)
	for groups := uint32(2); groups <= 4; groups++ {
		via := c.members[groups%3].testNode
		via.eventually("the growth is done", func() bool {
			a := via.call("POST", "/api/v1/cluster:grow-groups", map[string]any{"groups": groups})
			var g wire.Growth
			return a.status == 200 && json.Unmarshal(a.body, &g) == nil && g.Done
		})
		for _, m := range c.members {
			if got := m.split.Load().Groups; got != groups {
				t.Errorf("%s puts jobs into %d of %d groups", m.id(), got, groups)
			}
		}
	}
}

// What is asked for and cannot be is refused with a way out, and changes nothing.
func TestGrowGroupsRefusals(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startGroups(t, 3)
	via := c.members[1].testNode
	ask := func(body string) apiAnswer { return via.persist("POST", "/api/v1/cluster:grow-groups", body) }
	for body, want := range map[string]string{
		`{"groups":0}`:     "cannot have 0 groups",
		`{"groups":-1}`:    "cannot have -1 groups",
		`{"groups":65}`:    "from 2 to 64",
		`{"groups":2}`:     "the cluster has 3 groups of jobs",
		`{"groups":1}`:     "the cluster has 3 groups of jobs",
		`{}`:               "cannot have 0 groups",
		`{"groups":"4"}`:   "groups",
		`{"groups":4.5}`:   "groups",
		`{"group":4}`:      "group",
		``:                 "",
		`{"groups":1e400}`: "groups",
	} {
		if a := ask(body); a.status != 400 || !strings.Contains(string(a.body), want) || a.problem().Remedy == "" && want != "" &&
			a.problem().Field == "groups" && !strings.Contains(body, `"4"`) && strings.Contains(want, "cannot") {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	lead := c.leader()
	if info := lead.group.store.Info(); info.Want != 0 || info.Groups != 3 {
		t.Errorf("%+v", info)
	}
	var g wire.Growth
	if a := ask(`{"groups":3}`); a.status != 200 || json.Unmarshal(a.body, &g) != nil || !g.Done || g.Groups != 3 {
		t.Errorf("the same number: %d %s", a.status, a.body)
	}
	// While one is under way another number is refused; the same one goes on. It waits for a node that is lost.
	lost := c.others(lead)[0]
	if lost.testNode == via {
		lost = c.others(lead)[1]
	}
	lost.crash()
	lead.eventually("the leader misses it", func() bool {
		a, err := lead.try("GET", "/api/v1/status", nil)
		return err == nil && a.status == 200 && strings.Contains(string(a.body), `"problem"`)
	})
	c.grow(lead.testNode, 5)
	if a := lead.persist("POST", "/api/v1/cluster:grow-groups", `{"groups":6}`); a.status != 409 ||
		!strings.Contains(string(a.body), "growing to 5 groups") {
		t.Errorf("another number: %d %s", a.status, a.body)
	}
	if a := lead.persist("POST", "/api/v1/cluster:grow-groups", `{"groups":5}`); a.status != 200 {
		t.Errorf("the same number: %d %s", a.status, a.body)
	}
	lead.eventually("status says what is waited for", func() bool {
		a := lead.persist("GET", "/api/v1/status", nil)
		var s wire.Status
		return a.status == 200 && json.Unmarshal(a.body, &s) == nil && s.Growth != nil && s.Growth.Want == 5 &&
			s.Growth.Groups == 3 && len(s.Growth.New) == 2 && strings.Contains(s.Growth.Waiting, "voting replicas")
	})
	if info := lead.group.store.Info(); info.Groups != 3 {
		t.Errorf("%d groups take jobs before their replicas vote", info.Groups)
	}
	lost.kill()
	lost.restart()
	via.eventually("the growth is done", func() bool {
		a := ask(`{"groups":5}`)
		return a.status == 200 && json.Unmarshal(a.body, &g) == nil && g.Done
	})
	records := ok[wire.AuditPage](via, "GET", "/api/v1/audit?action=cluster.grow-groups", nil).Records
	if i := slices.IndexFunc(records, func(r wire.AuditRecord) bool { return r.ID == "5" }); i < 0 ||
		records[i].Outcome != "ok" || slices.ContainsFunc(records[i+1:], func(r wire.AuditRecord) bool { return r.ID == "5" }) {
		t.Errorf("the growth is to be recorded once: %+v", records)
	}
}

// A growth that is cut off by the loss of the control group's leader, at whatever step, is finished by the next one.
func TestGrowGroupsLosesLeaders(t *testing.T) {
	realTime(t)
	t.Parallel()
	steps := map[string]func(store.Info, []store.GroupRow) bool{
		"asked for":     func(i store.Info, _ []store.GroupRow) bool { return i.Want == 3 },
		"a row":         func(_ store.Info, rows []store.GroupRow) bool { return len(rows) > 0 },
		"begun":         func(_ store.Info, rows []store.GroupRow) bool { return anyActive(rows) },
		"all rows":      func(_ store.Info, rows []store.GroupRow) bool { return len(rows) == 3 },
		"listed":        func(i store.Info, _ []store.GroupRow) bool { return i.Listed == 3 },
		"new jobs":      func(i store.Info, _ []store.GroupRow) bool { return i.Groups == 3 },
		"all is placed": func(_ store.Info, rows []store.GroupRow) bool { return allPlaced(rows, 3) },
	}
	for name, reached := range steps {
		t.Run(name, func(t *testing.T) {
			if !long && name != "begun" && name != "listed" {
				t.Skip("a step that the plain run leaves out; set CARILLON_LONG=1")
			}
			t.Parallel()
			r := newRecorder(t)
			c := startFrom(t, 1)
			lead := c.leader()
			ids := []job.ID{lead.create(r.spec("old", "@manual")).ID}
			key := lead.keyedJob(map[string]any{"type": "http", "schedule": "@manual",
				"payload": map[string]any{"url": r.url}}, "k")
			hit := make(chan struct{})
			var once sync.Once
			lead.group.store.Listen(func(ch *store.Changes) {
				if !ch.Groups {
					return
				}
				var rows []store.GroupRow
				go func() {
					err := lead.group.store.View(func(v *store.View) (err error) {
						rows, err = v.Groups()
						return err
					})
					if err == nil && reached(lead.group.store.Info(), rows) {
						once.Do(func() { close(hit) })
					}
				}()
			})
			c.grow(c.others(lead)[0].testNode, 3)
			select {
			case <-hit:
			case <-time.After(time.Minute):
				t.Fatal("that step was not reached")
			}
			lead.crash()
			lead.kill()
			lead.restart()
			c.awaitGroups(3)
			for _, m := range c.members {
				for i := range 6 {
					a := m.persist("POST", "/api/v1/jobs", r.spec(fmt.Sprint(m.id(), "-", i), "@manual"))
					var j job.Job
					if err := json.Unmarshal(a.body, &j); err != nil || a.status != 201 {
						t.Fatalf("%d %s", a.status, a.body)
					}
					ids = append(ids, j.ID)
				}
				if again := m.keyedJob(map[string]any{"type": "http", "schedule": "@manual",
					"payload": map[string]any{"url": r.url}}, "k"); again.ID != key.ID {
					t.Errorf("%s and %s", key.ID, again.ID)
				}
			}
			want := append(ids, key.ID)
			slices.Sort(want)
			for _, m := range c.members {
				if got := m.listed(); !slices.Equal(sorted(got), want) {
					t.Errorf("%s lists %d of %d", m.id(), len(got), len(want))
				}
			}
		})
	}
}

func sorted(ids []job.ID) []job.ID {
	slices.Sort(ids)
	return ids
}

func anyActive(rows []store.GroupRow) bool {
	return slices.ContainsFunc(rows, func(r store.GroupRow) bool { return r.State == store.GroupActive })
}

func allPlaced(rows []store.GroupRow, replicas int) bool {
	return len(rows) == 3 && !slices.ContainsFunc(rows, func(r store.GroupRow) bool { return len(r.Replicas) < replicas })
}

// A node that has not heard of more groups puts new jobs where it did before, and does not answer for all jobs from
// those groups that it knows.
func TestNodeThatHasNotHeardOfGroups(t *testing.T) {
	realTime(t)
	t.Parallel()
	for _, x := range []struct{ from, to uint32 }{{1, 3}, {2, 4}} {
		t.Run(fmt.Sprintf("%d to %d", x.from, x.to), func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t)
			c := startFrom(t, x.from)
			late := c.others(c.leader())[0]
			before := *late.split.Load()
			c.grow(late.testNode, x.to)
			c.awaitGroups(x.to)
			var away job.Job
			for i := 0; away.ID == 0; i++ {
				j := c.leader().create(r.spec(fmt.Sprint("new-", i), "@manual"))
				if uint32(j.ID.Group()) > x.from {
					away = j
				}
			}
			// As if it had not applied that yet. What it does apply meanwhile, such as a replica that votes, lets it look.
			var j job.Job
			tries := 0
			late.eventually("it goes by what it knew", func() bool {
				split := before
				split.Changed = make(chan struct{})
				late.split.Store(&split)
				var found []string
				fail := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
				for _, path := range []string{"/jobs", "/runs", "/jobs/" + away.ID.String(), "/jobs/" + away.Name, "/dead"} {
					if a := late.call("GET", "/api/v1"+path, nil); a.status != http.StatusServiceUnavailable {
						fail("%s: %d %s", path, a.status, a.body)
					}
				}
				tries++
				j = late.create(r.spec(fmt.Sprint("by-the-old-number-", tries), "@manual"))
				if uint32(j.ID.Group()) > x.from {
					fail("it is in group %d", j.ID.Group())
				}
				if a := late.call("POST", "/api/v1/jobs", map[string]any{"name": away.Name, "type": "http", "schedule": "@daily",
					"payload": map[string]any{"url": r.url}}); a.status != 409 && a.status != 503 {
					fail("a name that a job of another group has: %d %s", a.status, a.body)
				}
				if late.split.Load() != &split {
					return false
				}
				for _, what := range found {
					t.Error(what)
				}
				return true
			})
			late.lookAtSplit()
			ids := []string{j.ID.String(), away.ID.String(), j.Name, away.Name}
			for _, m := range c.members {
				for _, id := range ids {
					m.get(id)
				}
			}
		})
	}
}

// A new group takes no jobs before its own log says so.
func TestNewGroupTakesNoJobsYet(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startGroups(t, 2)
	lead := c.leader()
	lost := c.others(lead)[0]
	lost.crash()
	c.grow(lead.testNode, 3)
	_, g := c.groupLeader(3)
	e := g.tracker.Epoch()
	if e == nil {
		t.Skip("its leader was lost")
	}
	_, _, err := g.service.CreateJob(t.Context(), job.Spec{Name: "x", Type: job.TypeHTTP, Schedule: "@manual",
		Payload: []byte(`{"url":"http://127.0.0.1:1/"}`)}, api.Request{Key: "x"})
	if job.CodeOf(err) != job.CodeUnavailable || !strings.Contains(err.Error(), "takes no jobs yet") {
		t.Errorf("%v", err)
	}
	if g.store.Info().Groups >= 3 {
		t.Errorf("%+v", g.store.Info())
	}
}

// When a node that several groups are begun on says that it is ready, a job can be created through it.
func TestReadyWhenGroupsTakeJobs(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startJoined(t, 1, func(c *Config) { c.Groups = 4 })
	m := c.members[0]
	m.eventually("it is ready", func() bool { return m.call("GET", "/readyz", nil).status == 200 })
	if a := m.call("POST", "/api/v1/jobs", unclaimedJob("first")); a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
